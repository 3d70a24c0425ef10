//! What is parked: a list of what waits for a person, with what went wrong and what to do.

use std::{cmp::Reverse, sync::Arc};

use axum::extract::State;
use domain::{
    bulk::{Mark, Part},
    id::{InboxKey, SourceName},
    inbox::{Failure, Row, Status},
    ports::{Inbox as _, Registry as _, Walk as _},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Api, Ports, Problem, at_once, problem::Findings, request::Query};

/// Parked events that one list shows, at most, and if nobody says how many.
const LISTED: usize = 100;

/// Entries of one shard that are read at once.
const SCAN: usize = 1000;

/// Queries of one shard for one list: with a source that has few parked events among many of others, a list may end
/// before it is full, and its `next` goes on.
const QUERIES: usize = 10;

/// A parked event, in a list.
#[derive(Debug, Serialize)]
pub struct Parked {
    source: String,
    event_id: String,
    event_type: Option<String>,
    status: Status,
    received_at: Timestamp,
    parked_at: Option<Timestamp>,
    attempts: u32,
    cycle: u32,
    error: Option<Failure>,
    next_action: String,
}

/// Parked events, the latest first.
#[derive(Debug, Serialize)]
pub struct ParkedList {
    parked: Vec<Parked>,
    /// Whether there are more, parked earlier.
    more: bool,
    /// What to ask for as `before` to see them.
    next: Option<String>,
}

/// Which parked events are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    source: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

/// What an event that is parked waits for, if its row does not say it.
const WAITS: &str = "a person mends the cause and replays it";

/// Lists parked events, the latest first.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<ParkedList>, Problem> {
    let mut found = Findings::default();
    let source = wanted.source.map(|name| found.keep("source", name.parse::<SourceName>()));
    let before = wanted.before.map(|token| Before::read(&token));
    if matches!(before, Some(None)) {
        found.note("before", "it is what another list gave as `next`; leave it out to begin");
    }
    let limit = wanted.limit.unwrap_or(LISTED);
    if !(1..=LISTED).contains(&limit) {
        found.note("limit", format!("it is 1 to {LISTED}"));
    }
    found.done()?;
    let (source, before) = (source.flatten(), before.flatten());
    let source = match source {
        Some(name) => Some(filed_under(&api, name).await?),
        None => None,
    };

    let shards = (0..api.limits.pending_shards)
        .map(|shard| newest(&api, shard, source.as_ref(), before.as_ref(), limit + 1));
    let shards = at_once(shards.collect()).await?;
    let (marks, next) = merge(shards, limit);
    let (more, next) = (next.is_some(), next.as_ref().map(Before::token));
    let rows = marks.iter().map(|mark| async { Ok(api.inbox.read(&mark.key).await?) });
    let rows: Vec<Option<Row>> = at_once(rows.collect()).await?;
    // A row may have been re-armed since the index was read.
    let rows = rows.into_iter().flatten().filter(|row| row.dead_at.is_some());
    Ok(axum::Json(ParkedList { parked: rows.map(view).collect(), more, next }))
}

fn view(row: Row) -> Parked {
    Parked {
        source: row.new.key.source().to_string(),
        event_id: row.new.key.event_id().to_owned(),
        event_type: row.new.event_type,
        status: row.status,
        received_at: row.new.received_at,
        parked_at: row.dead_at,
        attempts: row.attempts,
        cycle: row.cycle,
        error: row.last_error,
        next_action: row.next_action.unwrap_or_else(|| WAITS.to_owned()),
    }
}

/// The source under which events are filed. One that is gone may still have some under its own name.
async fn filed_under<P: Ports>(api: &Api<P>, name: SourceName) -> Result<SourceName, Problem> {
    let source = api.registry.source(&name).await?;
    Ok(source.map_or(name, |source| source.filed_under().clone()))
}

/// Entries of one shard, and behind which of them more may be although fewer than wanted were found.
struct Newest {
    marks: Vec<Mark>,
    cut: Option<Mark>,
}

async fn newest<P: Ports>(
    api: &Api<P>,
    shard: u16,
    source: Option<&SourceName>,
    before: Option<&Before>,
    want: usize,
) -> Result<Newest, Problem> {
    let until = before.map_or(Timestamp::MAX, |before| before.at);
    let (part, mut after) = (Part::Parked { shard, until }, None);
    let mut marks: Vec<Mark> = Vec::new();
    for _ in 0..QUERIES {
        let page = api.inbox.page(&part, after.as_ref(), SCAN).await?;
        after = page.marks.last().cloned().or(after);
        marks.extend(page.marks.into_iter().filter(|mark| {
            source.is_none_or(|source| mark.key.source() == source)
                && before.is_none_or(|before| place(mark) > before.place())
        }));
        // Entries of one moment come in the store's order and not in ours: all of them, before any is left out.
        let edge = marks.get(want.saturating_sub(1)).map(|mark| mark.at);
        let is_whole = edge.zip(after.as_ref()).is_some_and(|(edge, after)| after.at < edge);
        if !page.more || is_whole {
            return Ok(Newest { marks, cut: None });
        }
    }
    Ok(Newest { marks, cut: after })
}

/// The latest first; of one moment, in the order of their names.
fn place(mark: &Mark) -> (Reverse<Timestamp>, Option<&InboxKey>) {
    (Reverse(mark.at), Some(&mark.key))
}

/// Where a list goes on: behind an entry, or at the first one of a moment.
struct Before {
    at: Timestamp,
    key: Option<InboxKey>,
}

impl Before {
    fn place(&self) -> (Reverse<Timestamp>, Option<&InboxKey>) {
        (Reverse(self.at), self.key.as_ref())
    }

    fn token(&self) -> String {
        let key = self.key.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{}.{key}", self.at.as_millisecond())
    }

    fn read(token: &str) -> Option<Self> {
        let (at, key) = token.split_once('.')?;
        let key = match key.split_once('#') {
            Some((source, event_id)) => Some(InboxKey::new(source.parse().ok()?, event_id).ok()?),
            None => None,
        };
        Some(Self { at: Timestamp::from_millisecond(at.parse().ok()?).ok()?, key })
    }
}

/// The latest of all shards, and where more are. Nothing is shown that is as early as where a shard was cut: what that
/// shard has behind it comes first.
fn merge(shards: Vec<Newest>, limit: usize) -> (Vec<Mark>, Option<Before>) {
    let cut = shards.iter().filter_map(|shard| shard.cut.as_ref()).map(|mark| mark.at).max();
    let mut marks: Vec<_> = shards.into_iter().flat_map(|shard| shard.marks).collect();
    marks.sort_by(|a, b| place(a).cmp(&place(b)));
    marks.retain(|mark| cut.is_none_or(|cut| mark.at > cut));
    let next = if marks.len() > limit {
        marks.truncate(limit);
        marks.last().map(|last| Before { at: last.at, key: Some(last.key.clone()) })
    } else {
        cut.map(|at| Before { at, key: None })
    };
    (marks, next)
}
