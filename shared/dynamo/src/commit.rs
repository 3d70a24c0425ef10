//! The transaction: an inbox row is finished, and what its plan said is true.

use aws_sdk_dynamodb::types::TransactWriteItem;
use domain::{
    body::Sha256Hash,
    commit::{Action, Answer, Commit, tie_of},
    event::{ObjectRef, Version},
    inbox::Status,
    outbox::{OutboxEvent, Payload},
    plan::Guard,
    ports::{Finish, StoreError, Stored},
};
use sha2::{Digest as _, Sha256};

use crate::{
    beside,
    expression::Expression,
    inbox::{as_claimed, finished},
    item::{Writer, ms, s},
    items::{
        object::{self, Becomes},
        outgoing,
    },
    keys,
    state::{StateTable, still_held},
    table::{Table, Transacted, transact},
};

/// The other tables that a commit writes to.
#[derive(Clone, Debug)]
pub struct Commits {
    /// The name of the inbox's table.
    pub inbox: String,
    /// The name of the outbox's table.
    pub outbox: String,
    /// Shards of the index of events that are still NEW.
    pub outbox_shards: u16,
}

pub(crate) async fn carry_out(state: &StateTable, commit: &Commit) -> Stored<Answer> {
    let Some(tables) = &state.commits else {
        let cause = "this function was not told the tables that a commit writes to";
        return Err(StoreError::Refused(cause.into()));
    };
    let actions = commit.actions();
    let written = actions.iter().map(|action| write(state, tables, commit, action));
    let written = written.collect::<Stored<Vec<_>>>()?;
    match transact(&state.client, written, Some(token(commit, &actions))).await? {
        Transacted::Cancelled(reasons) => Ok(Answer::Refused(reasons)),
        Transacted::Done => {
            let inbox = Table { client: &state.client, name: &tables.inbox };
            beside::settle(inbox, &commit.claim, commit.expires_at).await;
            Ok(Answer::Applied)
        }
    }
}

/// One action, in the store's words.
fn write(
    state: &StateTable,
    tables: &Commits,
    commit: &Commit,
    action: &Action<'_>,
) -> Stored<TransactWriteItem> {
    let named = |name| Table { client: &state.client, name };
    match action {
        Action::Finish => {
            let finish = Finish {
                status: Status::Processed,
                results: commit.results_if_applied(),
                reason: None,
                now: commit.now,
                expires_at: commit.expires_at,
            };
            let change = as_claimed(finished(&finish)?, &commit.claim);
            named(&tables.inbox).updating(keys::event(&commit.claim.key), &change)
        }
        Action::Guard(Guard::Newer { object, version, fields, deleted }) => {
            let older = object::older_than(version, &tie_of(fields, *deleted));
            let becomes = becomes(commit, object, version, fields, *deleted);
            state.table().putting(object::write(&becomes)?, &older)
        }
        Action::Guard(Guard::Unchanged { object, read, version, fields, deleted }) => {
            let becomes = becomes(commit, object, version, fields, *deleted);
            state.table().putting(object::write(&becomes)?, &object::still(read.as_ref()))
        }
        Action::Guard(Guard::Once(key)) => {
            let taken = Writer::new(keys::operation(key), "operation")
                .put("by", s(commit.claim.key.to_string()))
                .put("at", ms(commit.now));
            state.table().putting(taken.done(), &Expression::absent())
        }
        Action::Guard(Guard::Free | Guard::Refused { .. }) => {
            // `Commit::actions` leaves it out, for the store knows no action that does nothing.
            Err(StoreError::Refused("a change without a guard is not an action".into()))
        }
        Action::Lease(lease) => {
            state.table().checking(keys::lease(&lease.what), &still_held(lease))
        }
        Action::Emit(event) => {
            let item = outgoing::write(event, tables.outbox_shards);
            named(&tables.outbox).putting(item, &Expression::absent())
        }
    }
}

fn becomes<'a>(
    commit: &'a Commit,
    object: &'a ObjectRef,
    version: &'a Version,
    fields: &'a serde_json::Value,
    deleted: bool,
) -> Becomes<'a> {
    let source = commit.claim.key.source();
    Becomes {
        source,
        object,
        version,
        fields,
        deleted,
        knowledge: commit.knowledge,
        now: commit.now,
    }
}

/// Names this very transaction, so that a try whose answer was lost and its repetition count as one. (The store forgets
/// the name of a transaction that it cancelled.) It refuses a name that comes back with other content, so everything
/// that can differ between two commits of one cycle is in it: the time, what has been dropped, and what is still to be
/// written.
fn token(commit: &Commit, actions: &[Action<'_>]) -> String {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(commit.claim.key.to_string().as_bytes());
    part(&commit.claim.cycle.to_be_bytes());
    part(&commit.now.as_nanosecond().to_be_bytes());
    part(&commit.expires_at.as_nanosecond().to_be_bytes());
    part(format!("{:?}", commit.knowledge).as_bytes());
    for result in commit.results.iter().chain(&commit.earlier) {
        part(format!("{result:?}").as_bytes());
    }
    for action in actions {
        match action {
            Action::Emit(event) => part(fingerprint(event).as_bytes()),
            // Guards and leases hold names, versions and fields: what they print is what they are.
            other => part(format!("{other:?}").as_bytes()),
        }
    }
    // The store takes 36 characters.
    hex::encode(hash.finalize()).chars().take(36).collect()
}

/// An event without its bytes, which may be many: their hash stands for them.
fn fingerprint(event: &OutboxEvent) -> String {
    let sha256 = match &event.payload {
        Payload::Inline(bytes) => Sha256Hash::of(bytes),
        Payload::Bucket(sha256) => *sha256,
    };
    let OutboxEvent { id, tenant, event_type, schema_version, aggregate_id, .. } = event;
    let OutboxEvent { aggregate_version, occurred_at, traceparent, .. } = event;
    format!(
        "{id} {tenant} {event_type:?} {schema_version} {aggregate_id:?} {aggregate_version:?} \
         {occurred_at} {traceparent:?} {sha256}"
    )
}

#[cfg(test)]
mod tests {
    use domain::{
        commit::{Knowledge, Staged},
        id::InboxKey,
        inbox::Claim,
    };
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::items::outgoing::tests::an_event;

    fn a_commit() -> Commit {
        let at = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let object = ObjectRef { kind: "invoice".to_owned(), id: "in_1".to_owned() };
        let fields = json!({ "status": "paid" });
        let guard = Guard::Newer { object, version: Version::Number(1), fields, deleted: false };
        let key = InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap();
        Commit {
            claim: Claim { key, cycle: 0 },
            now: at,
            expires_at: at,
            knowledge: Knowledge { as_of: at, fetched: false },
            changes: vec![Staged { guard, events: vec![an_event()] }],
            lease: None,
            results: Vec::new(),
            earlier: Vec::new(),
        }
    }

    fn token_of(commit: &Commit) -> String {
        token(commit, &commit.actions())
    }

    /// OUT-transaction-conflict, OUT-error-after-commit
    #[test]
    fn a_token_names_one_content() {
        let commit = a_commit();
        assert_eq!(token_of(&commit), token_of(&commit.clone()));
        assert!((1..=36).contains(&token_of(&commit).len()));
        let changed: [fn(&mut Commit); 9] = [
            |c| c.claim.cycle = 1,
            |c| c.claim.key = InboxKey::new("stripe".parse().unwrap(), "evt_2").unwrap(),
            |c| c.now = Timestamp::UNIX_EPOCH,
            |c| c.expires_at = Timestamp::UNIX_EPOCH,
            |c| c.knowledge.fetched = true,
            |c| c.knowledge.as_of = Timestamp::UNIX_EPOCH,
            |c| c.changes[0].guard = Guard::Once("credit".parse().unwrap()),
            |c| c.changes[0].events[0].payload = Payload::Inline(b"other".to_vec()),
            |c| c.changes[0].events.clear(),
        ];
        for (number, change) in changed.into_iter().enumerate() {
            let mut other = commit.clone();
            change(&mut other);
            assert_ne!(token_of(&other), token_of(&commit), "change {number}");
        }
    }
}
