//! Puts the parts together as the template wires them.

use std::{
    collections::BTreeMap, num::NonZero, path::PathBuf, thread::available_parallelism,
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, task::JoinSet};

use super::{
    HostError,
    control::Control,
    environment::{Surroundings, environment},
    folder::Folder,
};
use crate::{
    compute::{
        function::Spec,
        gateway::{route::Route, server::Gateway},
        pool::Pool,
        rule::{Limits, Rule},
        runtime_api::Runtime,
        schedule::Schedule,
        source::{
            checkpoint::Checkpoint,
            filter::Pattern,
            piece::Share,
            queue::QueueSource,
            stream::{OnFailure, Place, StreamSource},
        },
        token::Token,
    },
    options::Options,
    services::{Clock, Services},
    wiring::{EventSource, Function, Wiring},
};

/// The account of everything on this machine.
const ACCOUNT: &str = "000000000000";

/// A process gets so long until it asks for its first event; on AWS it is 10 s, on faster machines than one that compiles.
const INIT_TIMEOUT: Duration = Duration::from_secs(20);

/// How far each stream is read, by its ARN.
type Places = Vec<(String, Place)>;

/// A stream, and the place to go on from.
type Resumed = (StreamSource<Pool>, Option<String>);

/// What all parts are made from.
pub(super) struct Assembly<'a> {
    pub(super) wiring: &'a Wiring,
    pub(super) pools: &'a BTreeMap<String, Pool>,
    pub(super) services: &'a Services,
    pub(super) folder: &'a Folder,
    pub(super) options: &'a Options,
}

/// One pool per function, by logical id.
pub(super) fn pools(
    wiring: &Wiring,
    programs: &BTreeMap<String, PathBuf>,
    around: &Surroundings,
    folder: &Folder,
    runtime: &Runtime,
) -> Result<BTreeMap<String, Pool>, HostError> {
    let most = available_parallelism().map_or(4, NonZero::get).saturating_mul(2).max(4);
    let mut pools = BTreeMap::new();
    for function in &wiring.functions {
        let Some(program) = programs.get(&function.logical_id) else { continue };
        let spec = Spec {
            logical_id: function.logical_id.clone(),
            name: function.name.clone(),
            arn: format!("arn:aws:lambda:{}:{ACCOUNT}:function:{}", wiring.region, function.name),
            program: program.clone(),
            timeout: function.timeout,
            init_timeout: INIT_TIMEOUT,
            memory_mb: function.memory_mb,
            limit: limit(function, most),
            environment: environment(function, around),
            log: folder.logs().join(format!("{}.log", function.logical_id)),
        };
        let pool = Pool::new(spec, runtime.clone())
            .map_err(|source| HostError::Log { function: function.logical_id.clone(), source })?;
        pools.insert(function.logical_id.clone(), pool);
    }
    Ok(pools)
}

/// As many processes as the template allows, and no more than the machine bears.
fn limit(function: &Function, most: usize) -> usize {
    let of_sources = function.events.iter().filter_map(|event| match event {
        EventSource::Queue { max_concurrency, .. } => *max_concurrency,
        _ => None,
    });
    let allowed = function
        .reserved_concurrency
        .or_else(|| of_sources.max())
        .and_then(|limit| usize::try_from(limit).ok());
    allowed.unwrap_or(most).clamp(1, most)
}

impl Assembly<'_> {
    fn functions(&self) -> impl Iterator<Item = (&Function, &Pool)> {
        self.wiring
            .functions
            .iter()
            .filter_map(|function| Some((function, self.pools.get(&function.logical_id)?)))
    }

    /// Starts all queue and stream sources and schedules. Gives also how far each stream is read.
    pub(super) fn sources(
        &self,
        stop: &watch::Receiver<bool>,
    ) -> Result<(JoinSet<()>, Places), HostError> {
        let mut running = JoinSet::new();
        let mut places = Vec::new();
        for (function, pool) in self.functions() {
            for event in &function.events {
                match event {
                    EventSource::Http { .. } => {}
                    EventSource::Queue { .. } => {
                        if let Some(source) = self.queue(function, pool, event) {
                            running.spawn(source.run(stop.clone()));
                        }
                    }
                    EventSource::Stream { arn, .. } => {
                        for (source, kept) in self.stream(function, pool, event)? {
                            places.push((arn.clone(), source.place.clone()));
                            running.spawn(source.run(kept, stop.clone()));
                        }
                    }
                    EventSource::Rule { bus, pattern } => {
                        let events = self.services.buses.listen(bus);
                        let rule = self.rule(function, pool, pattern)?;
                        running.spawn(rule.run(events, stop.clone()));
                    }
                    EventSource::Schedule { name, every, input } => {
                        let every = self.options.every.unwrap_or(*every);
                        let input = input.to_string().into();
                        let width = pool.spec().limit;
                        let schedule = Schedule {
                            name: name.clone(),
                            every,
                            input,
                            width,
                            function: pool.clone(),
                        };
                        running.spawn(schedule.run(stop.clone()));
                    }
                }
            }
        }
        Ok((running, places))
    }

    fn queue(
        &self,
        function: &Function,
        pool: &Pool,
        event: &EventSource,
    ) -> Option<QueueSource<Pool>> {
        let EventSource::Queue { arn, batch, window, item_failures, max_concurrency } = event
        else {
            return None;
        };
        let limit = pool.spec().limit;
        let width = max_concurrency
            .and_then(|limit| usize::try_from(limit).ok())
            .map_or(limit, |wanted| wanted.min(limit));
        Some(QueueSource {
            arn: arn.clone(),
            region: self.wiring.region.clone(),
            batch: *batch,
            window: *window,
            item_failures: *item_failures,
            width,
            queues: self.services.queues.acting_for(&function.binary),
            function: pool.clone(),
        })
    }

    fn stream(
        &self,
        function: &Function,
        pool: &Pool,
        event: &EventSource,
    ) -> Result<Vec<Resumed>, HostError> {
        let EventSource::Stream {
            arn,
            batch,
            window,
            item_failures,
            retries,
            max_age,
            bisect,
            on_failure,
            lanes,
            filters,
        } = event
        else {
            return Ok(Vec::new());
        };
        let filters = filters.iter().map(Pattern::parse).collect::<Result<Vec<_>, _>>();
        let filters = filters.map_err(|source| HostError::Filter {
            function: function.logical_id.clone(),
            source,
        })?;
        let queues = self.services.queues.acting_for(&function.binary);
        let on_failure = on_failure.as_ref().map(|queue| OnFailure {
            queue: queue.clone(),
            queues,
            function: pool.spec().arn.clone(),
        });
        let lane = |lane| {
            let share = Share { lane, of: *lanes };
            let checkpoint = self.checkpoint(function, arn, share);
            let kept = checkpoint.load()?;
            let source = StreamSource {
                arn: arn.clone(),
                batch: *batch,
                window: *window,
                item_failures: *item_failures,
                retries: *retries,
                max_age: *max_age,
                bisect: *bisect,
                on_failure: on_failure.clone(),
                share,
                filters: filters.clone(),
                streams: self.services.streams.clone(),
                function: pool.clone(),
                clock: Clock::system(),
                checkpoint,
                place: Place::default(),
            };
            Ok((source, kept))
        };
        (0..*lanes).map(lane).collect()
    }

    /// Where a lane's place in a stream is kept. A table in memory starts empty, and so does its stream. With another
    /// number of lanes all read from the start: which items are whose has changed.
    fn checkpoint(&self, function: &Function, arn: &str, share: Share) -> Checkpoint {
        if self.options.in_memory {
            return Checkpoint::memory();
        }
        let lane = match share {
            Share::WHOLE => String::new(),
            Share { lane, of } => format!("-{lane}of{of}"),
        };
        let name = format!("{}-{}{lane}.json", function.logical_id, table_of(arn));
        Checkpoint::file(self.folder.streams().join(name))
    }

    fn rule(
        &self,
        function: &Function,
        pool: &Pool,
        pattern: &serde_json::Value,
    ) -> Result<Rule<Pool>, HostError> {
        let pattern = Pattern::parse(pattern).map_err(|source| HostError::Filter {
            function: function.logical_id.clone(),
            source,
        })?;
        let (unattended, default) = (&function.unattended, Limits::default());
        Ok(Rule {
            pattern,
            region: self.wiring.region.clone(),
            limits: Limits {
                retries: unattended.retries.unwrap_or(default.retries),
                age: unattended.age.unwrap_or(default.age),
                on_failure: unattended.on_failure.clone(),
            },
            arn: pool.spec().arn.clone(),
            queues: self.services.queues.acting_for(&function.binary),
            function: pool.clone(),
        })
    }

    pub(super) fn control(&self, token: Token, streams: Places) -> Control {
        let mut schedules: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
        let mut consumed = Vec::new();
        for (function, _) in self.functions() {
            for event in &function.events {
                match event {
                    EventSource::Schedule { input, .. } => {
                        schedules
                            .entry(function.logical_id.clone())
                            .or_default()
                            .push(input.to_string().into());
                    }
                    EventSource::Queue { arn, .. } => consumed.push(arn.clone()),
                    EventSource::Http { .. }
                    | EventSource::Stream { .. }
                    | EventSource::Rule { .. } => {}
                }
            }
        }
        Control {
            token,
            functions: self.pools.clone(),
            schedules,
            services: self.services.clone(),
            consumed,
            streams,
        }
    }

    pub(super) fn gateway(&self, logical_id: &str, token: &Token) -> Gateway {
        let iam = self.wiring.apis.iter().any(|api| api.logical_id == logical_id && api.iam);
        let (mut routes, mut integrations) = (Vec::new(), Vec::new());
        for (function, pool) in self.functions() {
            for event in &function.events {
                if let EventSource::Http { api, method, path, timeout } = event
                    && api == logical_id
                {
                    routes.push(Route::new(method, path));
                    integrations.push((pool.clone(), *timeout));
                }
            }
        }
        Gateway {
            account: ACCOUNT.to_owned(),
            api: logical_id.to_ascii_lowercase(),
            token: iam.then(|| token.clone()),
            routes,
            integrations,
        }
    }
}

/// The table in a stream's ARN, as part of a file's name.
fn table_of(arn: &str) -> String {
    let name = arn.split('/').nth(1).unwrap_or(arn);
    name.chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '_' })
        .collect()
}
