//! What must hold: always, and when everything has come to rest.

use std::collections::BTreeMap;

use domain::{
    body::Sha256Hash,
    commit::tie_of,
    delivery::State,
    event::ObjectRef,
    inbox::{Applied, Row, Status},
    outbox::Payload,
};
use testkit::memory::Tables;

use crate::{
    actors::credit,
    world::{BATCHED, Fact, Nature, World, endpoint},
};

/// What holds at every moment. Also remembers what the rows say was applied.
pub(crate) fn always(world: &World, before: &mut BTreeMap<String, (Status, u32)>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut applied = world.applied.borrow_mut();
    for item in world.sim.store.tables().inbox.values() {
        let (row, key) = (&item.row, item.row.new.key.to_string());
        // REC-orphan-states: each state is one that somebody looks at.
        match row.status {
            Status::Pending if row.due_at.is_none() => {
                violations.push(format!("{key} is pending and nothing will look at it"));
            }
            Status::DeadLetter if row.last_error.is_none() || row.dead_at.is_none() => {
                violations.push(format!("{key} is parked without a reason"));
            }
            Status::Pending | Status::DeadLetter if item.expires_at.is_some() => {
                violations.push(format!("{key} is owed and expires"));
            }
            _ => {}
        }
        let is = (row.status, row.cycle);
        let was = before.insert(key.clone(), is);
        if was.is_some_and(|was| was != is && !may_follow(was, is)) {
            violations.push(format!("{key} went from {was:?} to {is:?}"));
        }
        if was != Some(is) && row.status == Status::Processed {
            let told = applied.entry(row.new.key.clone()).or_default();
            for result in row.results.iter().filter(|result| result.result == Applied::Applied) {
                *told.entry(result.what.clone()).or_default() += 1;
            }
        }
    }
    violations
}

/// Within a cycle a row ends once; a new cycle begins pending.
fn may_follow((was, cycle): (Status, u32), (is, now): (Status, u32)) -> bool {
    // Between two looks a cycle may have begun and ended.
    now > cycle || (now == cycle && was == Status::Pending && is != Status::Pending)
}

/// What holds when everything has come to rest.
pub(crate) fn at_rest(world: &World) -> Vec<String> {
    let mut violations = Vec::new();
    let tables = world.sim.store.tables();
    for (n, fact) in world.facts.iter().enumerate() {
        let key = &fact.key;
        match tables.inbox.get(key).map(|item| &item.row) {
            None if world.accepted.borrow().contains(&n) => {
                violations.push(format!("{key} was answered with 2xx and is not in the table"));
            }
            None => {}
            Some(row) => violations.extend(ended(fact, row)),
        }
        violations.extend(told(world, &tables, fact));
    }
    violations.extend(requests(&tables));
    violations.extend(objects(world, &tables));
    violations.extend(operations(world, &tables));
    violations.extend(deliveries(world, &tables));
    violations
}

/// A request that carries several events was split, and says into how many rows. None of it is told itself.
fn requests(tables: &Tables) -> Vec<String> {
    let of_source = tables
        .inbox
        .values()
        .map(|item| &item.row)
        .filter(|row| row.new.key.source().as_str() == BATCHED && row.new.parent.is_none());
    let wrong = |row: &&Row| {
        row.status != Status::Processed
            || row.children().is_none_or(|children| children == 0)
            || row.results.iter().any(|result| result.what.starts_with("event "))
    };
    let tell =
        |row: &Row| format!("the request {} is {} ({:?})", row.new.key, row.status, row.results);
    of_source.filter(wrong).map(tell).collect()
}

/// How each event must have ended.
fn ended(fact: &Fact, row: &Row) -> Option<String> {
    let expected = match fact.nature {
        Nature::Good => Status::Processed,
        Nature::Unwanted => Status::Ignored,
        Nature::Killer | Nature::Orphan => Status::DeadLetter,
    };
    let why = row.last_error.as_ref().map(|error| &error.code);
    (row.status != expected).then(|| {
        format!("{} is {} after {} attempts ({why:?})", fact.key, row.status, row.attempts)
    })
}

/// An event that was applied is told to the tenant once, and one that was not is not told. No change is applied twice.
fn told(world: &World, tables: &Tables, fact: &Fact) -> Vec<String> {
    let mut violations = Vec::new();
    let (key, outgoing) = (&fact.key, told_of(tables, &fact.body));
    let applied = world.applied.borrow().get(key).cloned().unwrap_or_default();
    // What follows from an object's change goes out with it; what is forwarded guards itself.
    let deciding = if fact.object.is_some() { "object " } else { "event " };
    let expected = usize::from(applied.keys().any(|what| what.starts_with(deciding)));
    if outgoing != expected {
        violations.push(format!("{key} was told {outgoing} times, not {expected} ({applied:?})"));
    }
    for (what, times) in applied.into_iter().filter(|(_, times)| *times > 1) {
        violations.push(format!("{what} of {key} was applied {times} times"));
    }
    violations
}

/// How many outgoing events have these bytes.
fn told_of(tables: &Tables, body: &[u8]) -> usize {
    let hash = Sha256Hash::of(body);
    let is_it = |payload: &Payload| match payload {
        Payload::Inline(bytes) => bytes == body,
        Payload::Bucket(of) => *of == hash,
    };
    tables.outbox.values().filter(|row| is_it(&row.event.payload)).count()
}

/// C22, L8: each object that was mirrored was credited once.
fn operations(world: &World, tables: &Tables) -> Vec<String> {
    let applied = world.applied.borrow();
    let check = |(_, object): &(_, ObjectRef)| {
        let operation = format!("credit {}", object.id);
        let what = format!("operation {operation}");
        let times: u32 = applied.values().filter_map(|told| told.get(&what)).sum();
        let told = told_of(tables, &credit(object));
        let is_taken = tables.operations.contains(&operation);
        ((times, told, is_taken) != (1, 1, true))
            .then(|| format!("{what} was done {times} times and told {told} times"))
    };
    tables.objects.keys().filter_map(check).collect()
}

/// ORD-stale-overwrites-new: each object is what the newest processed event says.
fn objects(world: &World, tables: &Tables) -> Vec<String> {
    let mut newest = BTreeMap::new();
    for fact in &world.facts {
        let row = tables.inbox.get(&fact.key).map(|item| &item.row);
        let is_processed = row.is_some_and(|row| row.status == Status::Processed);
        if let Some((object, version)) = fact.object.as_ref().filter(|_| is_processed) {
            let fields = serde_json::from_slice(&fact.body).unwrap();
            let rank = (version.clone(), tie_of(&fields, false));
            let best = newest
                .entry((fact.key.source().clone(), object.clone()))
                .or_insert_with(|| rank.clone());
            if *best < rank {
                *best = rank;
            }
        }
    }
    let is = tables.objects.iter();
    let is: BTreeMap<_, _> =
        is.map(|(key, is)| (key.clone(), (is.version.clone(), is.tie.clone()))).collect();
    let wrong = |key: &(_, ObjectRef)| {
        let (is, should) = (is.get(key).map(|(v, _)| v), newest.get(key).map(|(v, _)| v));
        format!(
            "object {} has version {is:?}, and {should:?} is the newest (or their contents differ)",
            key.1.id
        )
    };
    let keys = is.keys().chain(newest.keys().filter(|key| !is.contains_key(key)));
    keys.filter(|key| is.get(key) != newest.get(key)).map(wrong).collect()
}

/// Every outgoing event is relayed, and has one delivery, which has reached the subscriber. Nothing is left to do.
fn deliveries(world: &World, tables: &Tables) -> Vec<String> {
    let mut violations = Vec::new();
    for row in tables.outbox.values() {
        let id = row.event.id;
        if row.relayed.as_ref().is_none_or(|relayed| relayed.endpoints != [endpoint()]) {
            violations.push(format!("{id} is not relayed: {:?}", row.relayed));
        }
        let of_it = tables.deliveries.iter().filter(|((_, event), _)| *event == id);
        let states: Vec<State> = of_it.map(|(_, delivery)| delivery.state).collect();
        if states != [State::Succeeded] || world.subscriber.received(id) == 0 {
            violations.push(format!("the deliveries of {id} are {states:?}"));
        }
    }
    if !tables.pointers.is_empty() {
        violations.push(format!("pointers are left: {:?}", tables.pointers));
    }
    violations
}
