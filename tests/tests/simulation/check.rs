//! What must hold: always, and when everything has come to rest. Each promise by its id.

use std::collections::BTreeMap;

use domain::{
    body::Sha256Hash,
    bulk::{self, Work},
    delivery::State,
    event::{Origin, Version},
    inbox::{Applied, Row, Status},
    outbox::Payload,
};
use testkit::memory::{InboxItem, Tables};

use crate::{
    actors::{credit, credit_of},
    business::{self, PAYMENTS},
    model::{self, Expected},
    things::{self, THINGS},
    world::{BATCHED, Fact, Nature, World, endpoint},
};

/// What was seen when one looked last.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rows: BTreeMap<String, (Status, u32)>,
    objects: BTreeMap<model::Name, (Version, String)>,
    things: BTreeMap<String, u64>,
}

/// What holds at every moment. Also remembers what the rows say was applied.
pub(crate) fn always(world: &World, seen: &mut Seen) -> Vec<String> {
    let tables = world.sim.store.tables();
    let mut violations = failed_work_is_seen(&tables);
    violations.extend(accepted_stays(world, &tables, seen));
    violations.extend(rows_move_on(world, &tables, seen));
    violations.extend(newer_is_not_overwritten(&tables, seen));
    violations.extend(credited_once(world, &tables));
    violations.extend(lines_have_orders(&tables));
    violations.extend(business::never_twice(&tables));
    violations.extend(things_go_on(&tables, seen));
    violations
}

/// What holds when everything has come to rest.
pub(crate) fn at_rest(world: &World) -> Vec<String> {
    let tables = world.sim.store.tables();
    let expected = model::expected(world);
    let mut violations = Vec::new();
    for fact in &world.facts {
        match tables.inbox.get(&fact.key).map(|item| &item.row) {
            None => violations.push(format!("L6, {} never arrived, in either way", fact.key)),
            Some(row) => violations.extend(ended(fact, row)),
        }
        // What follows from a payment is told in words of our own, and a thing's state in the provider's.
        if fact.says.is_none() && fact.thing.is_none() {
            violations.extend(told(world, &tables, fact));
        }
    }
    violations.extend(requests(&tables));
    violations.extend(objects(&tables, &expected));
    violations.extend(told_as_expected(&tables, &expected));
    violations.extend(credits(world, &tables, &expected));
    violations.extend(business::all_done(world, &tables));
    violations.extend(works(&tables));
    let (held, furthest) = (things::held(&tables), things::furthest(&world.facts));
    if held != furthest {
        violations.push(format!("L12, D3, D8: things are {held:?}, not {furthest:?}"));
    }
    violations.extend(deliveries(world, &tables));
    violations
}

/// L13, REC-orphan-states: each state is one that somebody looks at. What is owed has a time at which it is looked for; what
/// is parked has a reason, and a word on what a person may do; neither goes away by itself.
fn failed_work_is_seen(tables: &Tables) -> Vec<String> {
    let wrong = |(key, item): (_, &InboxItem)| {
        let row = &item.row;
        let what = match row.status {
            Status::Pending if row.due_at.is_none() => "is pending and nothing will look at it",
            Status::DeadLetter if row.last_error.is_none() || row.dead_at.is_none() => {
                "is parked without a reason"
            }
            Status::Pending | Status::DeadLetter if item.expires_at.is_some() => {
                "is owed and expires"
            }
            Status::Pending if row.attempts > 0 && row.next_action.is_none() => {
                "has failed and does not say what is next"
            }
            _ => return None,
        };
        Some(format!("L13, {key} {what}"))
    };
    tables.inbox.iter().filter_map(wrong).collect()
}

/// L10: what was answered with 2xx is in the table from then on, whoever dies; and no row that was seen goes away.
fn accepted_stays(world: &World, tables: &Tables, seen: &Seen) -> Vec<String> {
    let accepted = world.accepted.borrow();
    // Of a request with several events its own row is in the table, and theirs will be.
    let keys = accepted.iter().map(|n| &world.facts[*n].key);
    let keys = keys.filter(|key| key.source().as_str() != BATCHED);
    let lost = keys.filter(|key| !tables.inbox.contains_key(key));
    let lost = lost.map(|key| format!("L10, {key} was answered with 2xx and is not in the table"));
    let gone = (tables.inbox.len() < seen.rows.len()).then(|| "L10, a row went away".to_owned());
    lost.chain(gone).collect()
}

/// Within a cycle a row ends once; a new cycle begins pending.
fn rows_move_on(world: &World, tables: &Tables, seen: &mut Seen) -> Vec<String> {
    let mut violations = Vec::new();
    let mut applied = world.applied.borrow_mut();
    for (key, item) in &tables.inbox {
        let (row, is) = (&item.row, (item.row.status, item.row.cycle));
        let was = seen.rows.insert(key.to_string(), is);
        if was.is_some_and(|was| was != is && !may_follow(was, is)) {
            violations.push(format!("{key} went from {was:?} to {is:?}"));
        }
        if was != Some(is) && row.status == Status::Processed {
            let told = applied.entry(key.clone()).or_default();
            for result in row.results.iter().filter(|result| result.result == Applied::Applied) {
                *told.entry(result.what.clone()).or_default() += 1;
            }
        }
    }
    violations
}

fn may_follow((was, cycle): (Status, u32), (is, now): (Status, u32)) -> bool {
    // Between two looks a cycle may have begun and ended.
    now > cycle || (now == cycle && was == Status::Pending && is != Status::Pending)
}

/// L12, D14, D17: an object never goes back to what it was before, whatever comes late.
fn newer_is_not_overwritten(tables: &Tables, seen: &mut Seen) -> Vec<String> {
    let mut violations = Vec::new();
    for ((source, object), is) in &tables.objects {
        let name = (source.to_string(), object.kind.clone(), object.id.clone());
        let is = (is.version.clone(), is.tie.clone());
        let was = seen.objects.insert(name, is.clone());
        if was.as_ref().is_some_and(|was| *was > is) {
            violations.push(format!("L12, object {} went from {was:?} back to {is:?}", object.id));
        }
    }
    violations
}

/// L12, D8, D9: a thing without versions never goes back, whoever asked first and whoever was answered last.
fn things_go_on(tables: &Tables, seen: &mut Seen) -> Vec<String> {
    let mut violations = Vec::new();
    for (thing, n) in things::held(tables) {
        let was = seen.things.insert(thing.clone(), n);
        if was.is_some_and(|was| was > n) {
            violations.push(format!("L12, D8: {thing} went from {was:?} back to {n}"));
        }
    }
    violations
}

/// D7, ORD-update-before-create: a line is never there without its order, in whichever order they come.
fn lines_have_orders(tables: &Tables) -> Vec<String> {
    let of_kind = |kind| tables.objects.keys().filter(move |(_, object)| object.kind == kind);
    let lines = of_kind("line").filter_map(|name| {
        let parent = tables.objects[name].fields["data"]["object"]["parent"].as_str()?;
        let is_there = of_kind("order").any(|(_, order)| order.id == parent);
        (!is_there).then(|| format!("D7, {} is there, and {parent} is not", name.1.id))
    });
    lines.collect()
}

/// L8, C22: nobody is credited twice for one object, at any moment.
fn credited_once(world: &World, tables: &Tables) -> Vec<String> {
    let mut violations = Vec::new();
    for (_, object) in tables.objects.keys().filter(|(source, _)| source.as_str() == "mirror") {
        let told = told_of(tables, &credit(object));
        let what = format!("operation credit {}", object.id);
        let times: u32 = world.applied.borrow().values().filter_map(|told| told.get(&what)).sum();
        if told > 1 || times > 1 {
            violations.push(format!("L8, {what} was done {times} times and told {told} times"));
        }
    }
    violations
}

/// A request that carries several events was split, and says into how many rows. None of it is told itself.
fn requests(tables: &Tables) -> Vec<String> {
    let of_source = tables.inbox.values().map(|item| &item.row).filter(|row| {
        row.new.key.source().as_str() == BATCHED
            && row.new.parent.is_none()
            && row.new.origin == Origin::Webhook
    });
    let wrong = |row: &&Row| {
        row.status != Status::Processed
            || row.children().is_none_or(|children| children == 0)
            || row.results.iter().any(|result| result.what.starts_with("event "))
    };
    let tell =
        |row: &Row| format!("the request {} is {} ({:?})", row.new.key, row.status, row.results);
    of_source.filter(wrong).map(tell).collect()
}

/// L13: how each event must have ended. What could not be done is parked, and what could be done after all is done.
fn ended(fact: &Fact, row: &Row) -> Option<String> {
    let expected = match fact.nature {
        Nature::Good | Nature::Mistaken(_) => Status::Processed,
        Nature::Unwanted => Status::Ignored,
        Nature::Killer | Nature::Orphan | Nature::Parentless => Status::DeadLetter,
    };
    let why = row.last_error.as_ref().map(|error| &error.code);
    (row.status != expected).then(|| {
        format!("L13, {} is {} after {} attempts ({why:?})", fact.key, row.status, row.attempts)
    })
}

/// L11: an event that was applied is told to the tenant once, and one that was not is not told. No change is applied twice,
/// however often its event came.
fn told(world: &World, tables: &Tables, fact: &Fact) -> Vec<String> {
    let mut violations = Vec::new();
    let (key, outgoing) = (&fact.key, told_of(tables, &fact.body));
    let applied = world.applied.borrow().get(key).cloned().unwrap_or_default();
    // What follows from an object's change goes out with it; what is forwarded guards itself.
    let deciding = if fact.object.is_some() { "object " } else { "event " };
    let expected = usize::from(applied.keys().any(|what| what.starts_with(deciding)));
    if outgoing != expected {
        violations
            .push(format!("L11, {key} was told {outgoing} times, not {expected} ({applied:?})"));
    }
    for (what, times) in applied.into_iter().filter(|(_, times)| *times > 1) {
        violations.push(format!("L11, {what} of {key} was applied {times} times"));
    }
    violations
}

/// How many outgoing events have these bytes.
fn told_of(tables: &Tables, body: &[u8]) -> usize {
    let hash = std::cell::LazyCell::new(|| Sha256Hash::of(body));
    let is_it = |payload: &Payload| match payload {
        Payload::Inline(bytes) => bytes == body,
        Payload::Bucket(of) => *of == *hash,
    };
    tables.outbox.values().filter(|row| is_it(&row.event.payload)).count()
}

/// L11, and the world's own arithmetic: what goes out is what the facts say, whatever the rows say of themselves.
fn told_as_expected(tables: &Tables, expected: &Expected) -> Vec<String> {
    let wrong = |(body, (least, most)): (&Vec<u8>, &(usize, usize))| {
        let told = told_of(tables, body);
        (told < *least || told > *most).then(|| {
            let body = String::from_utf8_lossy(body).chars().take(120).collect::<String>();
            format!("L11, {body} was told {told} times, not {least} to {most}")
        })
    };
    expected.told.iter().filter_map(wrong).collect()
}

/// L8, C22, C23: each object that a fact speaks of was credited once, and none else.
fn credits(world: &World, tables: &Tables, expected: &Expected) -> Vec<String> {
    let taken = tables.operations.iter().filter_map(|taken| taken.strip_prefix("credit "));
    let other = taken.filter(|id| !expected.credits.contains(*id));
    let mut violations: Vec<_> =
        other.map(|id| format!("L8, {id} was credited for nothing")).collect();
    let applied = world.applied.borrow();
    for id in &expected.credits {
        let operation = format!("credit {id}");
        let what = format!("operation {operation}");
        let times: u32 = applied.values().filter_map(|told| told.get(&what)).sum();
        let told = told_of(tables, &credit_of(id));
        let is_taken = tables.operations.contains(&operation);
        if (times, told, is_taken) != (1, 1, true) {
            violations.push(format!("L8, {what} was done {times} times and told {told} times"));
        }
    }
    violations
}

/// L12, ORD-stale-overwrites-new: each object is what the newest fact about it says.
fn objects(tables: &Tables, expected: &Expected) -> Vec<String> {
    let mut violations = Vec::new();
    let mut is = BTreeMap::new();
    let of_others = tables
        .objects
        .iter()
        .filter(|((source, _), _)| ![PAYMENTS, THINGS].contains(&source.as_str()));
    for ((source, object), found) in of_others {
        is.insert((source.to_string(), object.kind.clone(), object.id.clone()), found);
    }
    for name in is.keys().filter(|name| !expected.objects.contains_key(*name)) {
        violations.push(format!("object {} is there, and nothing says so", name.2));
    }
    for (name, (newest, may_hold)) in &expected.objects {
        let found = is.get(name);
        let holds = found.is_some_and(|found| {
            found.version == Version::Number(*newest) && may_hold.contains(&found.fields)
        });
        if !holds {
            let found = found.map(|found| (&found.version, &found.fields["id"]));
            let id = &name.2;
            violations.push(format!("L12, object {id} is {found:?}, and {newest} is the newest"));
        }
    }
    violations
}

/// K2, K6: bulk work comes to its end, and says of each event that it looked at what became of it.
fn works(tables: &Tables) -> Vec<String> {
    let wrong = |work: &&Work| {
        let counts = work.counts;
        let told = counts.replayed
            + counts.in_flight
            + counts.moved
            + counts.already_done
            + counts.absent
            + counts.failed;
        work.state() != bulk::State::Completed || told > counts.looked_at || counts.failed > 0
    };
    tables.bulks.values().filter(wrong).map(|work| format!("{} is {work:?}", work.id)).collect()
}

/// C26, C27, C29: every outgoing event is relayed, and has one delivery, which has reached the subscriber. Nothing is left
/// to do.
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
