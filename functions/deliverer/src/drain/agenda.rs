//! What has been read of a lane and not yet been tried, and whose turn it is.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use domain::{
    delivery::Delivery,
    endpoint::Endpoint,
    id::EventId,
    lane::{Class, Kind, Order, Pace, Paced, Pointer, Ready},
    ports::Due,
};
use jiff::Timestamp;

use super::PAGE;

/// While others are under way, what is new is looked for this often.
pub(super) const FRESH_EVERY: Duration = Duration::from_secs(1);

/// One class of what waits.
#[derive(Debug)]
struct Shelf {
    ready: VecDeque<(Pointer, Delivery)>,
    /// Whether the last page was full, so that another may hold something new.
    more: bool,
}

/// What waits, and what is under way.
#[derive(Debug)]
pub(super) struct Agenda {
    fresh: Shelf,
    retry: Shelf,
    held: Shelf,
    order: Order,
    pub(super) under_way: BTreeSet<EventId>,
    /// What was due before this is held, and goes out at a rate.
    before: Option<Timestamp>,
    /// The pace of everything.
    pace: Option<Pace>,
    /// The pace of what was held.
    held_pace: Option<Pace>,
    read_at: Timestamp,
}

/// What begins next.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made, and never kept")]
#[derive(Debug)]
pub(super) enum Begin {
    /// This one.
    Now(Pointer, Delivery),
    /// Something, but not before then.
    Not(Timestamp),
    /// Nothing is ready.
    Nothing,
}

/// Pointers to be read: of which class they are, and which they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) class: Class,
    pub(super) kind: Kind,
    pub(super) due: Due,
}

impl Agenda {
    /// The agenda of one lane of an endpoint. Rates are shared out between its lanes.
    pub(super) fn new(endpoint: &Endpoint, now: Timestamp) -> Self {
        let lanes = endpoint.lanes_at_work(now);
        let release = endpoint.release_now(now);
        let shelf = || Shelf { ready: VecDeque::new(), more: true };
        Self {
            fresh: shelf(),
            retry: shelf(),
            held: Shelf { more: release.is_some(), ..shelf() },
            order: Order::default(),
            under_way: BTreeSet::new(),
            before: release.map(|release| release.before),
            pace: endpoint.rate.map(|rate| Pace::new(rate, lanes)),
            held_pace: release.map(|release| Pace::new(release.rate, lanes)),
            read_at: Timestamp::MIN,
        }
    }

    /// How many pointers are read at once: those of what is under way still stand.
    pub(super) fn page(&self) -> usize {
        PAGE + self.under_way.len()
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.under_way.is_empty()
    }

    fn is_empty(&self) -> bool {
        [&self.fresh, &self.retry, &self.held].iter().all(|shelf| shelf.ready.is_empty())
    }

    /// Which pointers are to be read now; none: there is enough to do.
    pub(super) fn wanted(&self, now: Timestamp) -> Vec<Window> {
        let runs_out = |shelf: &Shelf| shelf.ready.is_empty() && shelf.more;
        let late = now >= self.read_at.saturating_add(FRESH_EVERY).unwrap_or(Timestamp::MAX);
        let any = self.is_idle()
            || [&self.fresh, &self.retry, &self.held].into_iter().any(runs_out)
            || (late && self.fresh.ready.is_empty());
        if !any {
            return Vec::new();
        }
        let millisecond = Duration::from_millis(1);
        let held_until = self.before.and_then(|before| before.checked_sub(millisecond).ok());
        let new = Due { from: self.before, until: now };
        let held = held_until.map(|until| Due { from: None, until: until.min(now) });
        let window = |class, kind, due| Window { class, kind, due };
        [
            Some(window(Class::Fresh, Kind::Fresh, new)),
            Some(window(Class::Retry, Kind::Retry, new)),
            held.map(|due| window(Class::Held, Kind::Fresh, due)),
            held.map(|due| window(Class::Held, Kind::Retry, due)),
        ]
        .into_iter()
        .flatten()
        .filter(|window| self.shelf(window.class).ready.is_empty() && !window.due.is_empty())
        .collect()
    }

    /// Notes that pages were read, and whether they were full.
    pub(super) fn read(&mut self, pages: &[(Window, Vec<Pointer>)], now: Timestamp) {
        let page = self.page();
        self.read_at = now;
        for (window, _) in pages {
            self.shelf_mut(window.class).more = false;
        }
        for (window, pointers) in pages {
            self.shelf_mut(window.class).more |= pointers.len() >= page;
        }
    }

    /// Puts a delivery that is due behind the others of its class.
    pub(super) fn add(&mut self, class: Class, pointer: Pointer, delivery: Delivery) {
        self.shelf_mut(class).ready.push_back((pointer, delivery));
    }

    /// What begins next, and until when no other may.
    pub(super) fn next(&mut self, paced: &mut Paced, now: Timestamp) -> Begin {
        let wait = |pace: Option<Pace>, until: Option<Timestamp>| {
            pace.and(until).filter(|until| *until > now)
        };
        let (all, held) = (wait(self.pace, paced.until), wait(self.held_pace, paced.held));
        if let Some(until) = all {
            return if self.is_empty() { Begin::Nothing } else { Begin::Not(until) };
        }
        let ready = Ready {
            fresh: !self.fresh.ready.is_empty(),
            retry: !self.retry.ready.is_empty(),
            held: !self.held.ready.is_empty() && held.is_none(),
        };
        let Some(class) = self.order.next(ready) else {
            let waits = held.filter(|_| !self.held.ready.is_empty());
            return waits.map_or(Begin::Nothing, Begin::Not);
        };
        let Some((pointer, delivery)) = self.shelf_mut(class).ready.pop_front() else {
            return Begin::Nothing;
        };
        if let Some(pace) = self.pace {
            paced.until = Some(pace.after(paced.until, now));
        }
        if let (Class::Held, Some(pace)) = (class, self.held_pace) {
            paced.held = Some(pace.after(paced.held, now));
        }
        self.under_way.insert(delivery.event);
        Begin::Now(pointer, delivery)
    }

    const fn shelf(&self, class: Class) -> &Shelf {
        match class {
            Class::Fresh => &self.fresh,
            Class::Retry => &self.retry,
            Class::Held => &self.held,
        }
    }

    const fn shelf_mut(&mut self, class: Class) -> &mut Shelf {
        match class {
            Class::Fresh => &mut self.fresh,
            Class::Retry => &mut self.retry,
            Class::Held => &mut self.held,
        }
    }
}
