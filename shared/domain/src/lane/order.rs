//! Whose turn it is in a lane: what is new, what failed before, and what was held.

/// What waits in a lane, by what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Never tried.
    Fresh,
    /// Tried before.
    Retry,
    /// Was due while its endpoint was stopped, and goes out at a rate.
    Held,
}

/// Of which classes something could begin now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// See [`Class::Fresh`].
    pub fresh: bool,
    /// See [`Class::Retry`].
    pub retry: bool,
    /// See [`Class::Held`].
    pub held: bool,
}

/// The order of turns. What is new goes first, but every fifth place at the latest is a retry's, and one is for what was
/// held: a busy endpoint starves neither, and a backlog does not delay what is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Places that others had since the last retry.
    since_retry: u8,
    /// Places that others had since the last that was held.
    since_held: u8,
}

/// Places that others have between two of a class that waits.
const BETWEEN: u8 = 4;

impl Order {
    /// Who goes next; `None`: nothing is ready.
    pub fn next(&mut self, ready: Ready) -> Option<Class> {
        let class = match ready {
            // Whoever has waited for longer, where both have.
            Ready { retry: true, held, .. }
                if self.since_retry >= BETWEEN && !(held && self.since_held > self.since_retry) =>
            {
                Class::Retry
            }
            Ready { held: true, .. } if self.since_held >= BETWEEN => Class::Held,
            Ready { fresh: true, .. } => Class::Fresh,
            Ready { retry: true, .. } => Class::Retry,
            Ready { held: true, .. } => Class::Held,
            Ready { fresh: false, retry: false, held: false } => return None,
        };
        self.since_retry = self.since_retry.saturating_add(1);
        self.since_held = self.since_held.saturating_add(1);
        match class {
            Class::Fresh => {}
            Class::Retry => self.since_retry = 0,
            Class::Held => self.since_held = 0,
        }
        Some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(ready: Ready, count: usize) -> String {
        let mut order = Order::default();
        let letter = |class| match class {
            Some(Class::Fresh) => 'f',
            Some(Class::Retry) => 'r',
            Some(Class::Held) => 'h',
            None => '-',
        };
        (0..count).map(|_| letter(order.next(ready))).collect()
    }

    #[test]
    fn fresh_ones_go_first_and_every_fifth_place_is_a_retrys() {
        let check = |fresh, retry, held, expected: &str| {
            assert_eq!(places(Ready { fresh, retry, held }, expected.len()), expected);
        };
        check(true, true, false, "ffffrffffrffffr");
        check(true, false, false, "ffffffff");
        check(false, true, false, "rrrrrrrr");
        check(true, false, true, "ffffhffffhffffh");
        check(true, true, true, "ffffrhfffrhfffrh");
        check(false, true, true, "rrrrhrrrrhrrrrh");
        check(false, false, true, "hhh");
        check(false, false, false, "--");
    }

    #[test]
    fn nothing_that_is_ready_waits_for_more_than_five_places() {
        let mut order = Order::default();
        let (mut retry, mut held) = (0, 0);
        for n in 0..1_000_u32 {
            // Classes come and go.
            let ready = Ready { fresh: n % 7 != 0, retry: n % 3 != 0, held: n % 11 < 9 };
            let class = order.next(ready);
            retry = if class == Some(Class::Retry) || !ready.retry { 0 } else { retry + 1 };
            held = if class == Some(Class::Held) || !ready.held { 0 } else { held + 1 };
            assert!(retry <= 5 && held <= 5, "{n}: {class:?} {retry} {held}");
        }
    }
}
