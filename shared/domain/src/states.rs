//! State machines as data: which moves are allowed. An event proposes one; what is not allowed is told, and never done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Most states of one machine.
pub const MAX_STATES: usize = 50;

/// Longest name of a state, in bytes.
pub const MAX_NAME: usize = 100;

/// Longest pointer to where an object says its state, in bytes.
const MAX_POINTER: usize = 200;

/// A state machine. A thing that is not there yet stands at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct States {
    /// Where things begin.
    pub start: String,
    /// Every state, and where one may go from it. Out of an end one goes nowhere.
    pub moves: BTreeMap<String, BTreeSet<String>>,
}

/// A state machine as somebody wrote it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    start: String,
    moves: BTreeMap<String, BTreeSet<String>>,
}

/// The states of the objects of a source that are mirrored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenAt")]
pub struct MirrorStates {
    /// Where an object's fields say its state: a JSON pointer, such as `/data/object/status`.
    pub at: String,
    /// Of which kind of object they are; others are mirrored by their versions. `None`: of every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What may follow what.
    pub states: States,
}

impl MirrorStates {
    /// Whether the objects of a kind have these states.
    pub fn are_of(&self, kind: &str) -> bool {
        self.kind.as_ref().is_none_or(|own| own == kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAt {
    at: String,
    #[serde(default)]
    kind: Option<String>,
    states: States,
}

/// What is wrong with a state machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStates {
    /// Too many of them.
    #[error("a machine has 1 to {MAX_STATES} states, and this one {0}")]
    Count(usize),
    /// A name that cannot stand in a log line.
    #[error(
        "the name of a state is 1 to {MAX_NAME} bytes without control characters, unlike {0:?}"
    )]
    Name(String),
    /// The start is none of them.
    #[error(
        "{0:?}, the start, is not among the states; add it to the moves, with what may follow it"
    )]
    Start(String),
    /// A target is none of them.
    #[error(
        "{to:?}, which may follow {from:?}, is not among the states; add it to the moves, with nothing if it is an end"
    )]
    Target {
        /// From where.
        from: String,
        /// To what.
        to: String,
    },
    /// A move that is none.
    #[error("{0:?} may follow itself in every machine; leave that move out")]
    Itself(String),
    /// Not a place in an object.
    #[error("{0:?} is no JSON pointer; write one such as /data/object/status")]
    Pointer(String),
}

/// What becomes of a proposed move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// The thing goes there.
    Allowed,
    /// The thing is there.
    Same,
    /// The thing may not go there, and why, for people: `PAID → FAILED is not a move`.
    Refused(String),
}

impl States {
    /// A machine written in code: its start, and for each state what may follow it.
    pub fn new(start: &str, moves: &[(&str, &[&str])]) -> Result<Self, BadStates> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let moves = moves.iter().map(|(from, to)| ((*from).to_owned(), owned(to))).collect();
        Written { start: start.to_owned(), moves }.try_into()
    }

    /// What becomes of the proposal that a thing goes from where it is (nowhere yet: `None`) to a state.
    pub fn propose(&self, from: Option<&str>, to: &str) -> Move {
        if !self.moves.contains_key(to) {
            return Move::Refused(format!("{to} is not a state"));
        }
        let at = match from {
            Some(from) if from == to => return Move::Same,
            None if to == self.start => return Move::Allowed,
            Some(from) => from,
            None => &self.start,
        };
        match self.moves.get(at) {
            None => Move::Refused(format!("{at}, where it is, is not a state any more")),
            Some(next) if next.contains(to) => Move::Allowed,
            Some(_) => Move::Refused(format!("{at} → {to} is not a move")),
        }
    }

    /// Two proposals whose order of arrival decides where a thing ends, if there are any: the machine then needs
    /// versions, or its provider's current state. `None`: whatever is proposed, in any order and however often, ends
    /// alike.
    ///
    /// Every pair is tried from every state that a thing can be in. That is enough: any order of proposals becomes any
    /// other by exchanging neighbours, and repeating a proposal at once never moves a thing twice.
    pub fn order_matters(&self) -> Option<(String, String)> {
        let names: Vec<&str> = self.moves.keys().map(String::as_str).collect();
        let pairs = names
            .iter()
            .enumerate()
            .flat_map(|(n, first)| names.iter().skip(n + 1).map(move |second| (*first, *second)));
        for at in self.reachable() {
            for (first, second) in pairs.clone() {
                let one = self.after(self.after(at, first), second);
                let other = self.after(self.after(at, second), first);
                if one != other {
                    return Some((first.to_owned(), second.to_owned()));
                }
            }
        }
        None
    }

    /// Where a thing is after a proposal.
    fn after<'a>(&self, at: Option<&'a str>, to: &'a str) -> Option<&'a str> {
        match self.propose(at, to) {
            Move::Allowed => Some(to),
            Move::Same | Move::Refused(_) => at,
        }
    }

    /// Where a thing can be: nowhere yet, and wherever one gets from there.
    fn reachable(&self) -> BTreeSet<Option<&str>> {
        let mut known = BTreeSet::from([None]);
        let mut open = vec![None];
        while let Some(at) = open.pop() {
            for to in self.moves.keys() {
                let next = self.after(at, to);
                if known.insert(next) {
                    open.push(next);
                }
            }
        }
        known
    }
}

impl Written {
    /// Everything that is wrong with it.
    fn problems(&self) -> Vec<BadStates> {
        let (Self { start, moves }, mut found) = (self, Vec::new());
        if !(1..=MAX_STATES).contains(&moves.len()) {
            found.push(BadStates::Count(moves.len()));
        }
        let cut = |name: &str| name.chars().take(MAX_NAME).collect::<String>();
        let is_name = |name: &str| {
            (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
        };
        let bad = moves.keys().filter(|name| !is_name(name));
        found.extend(bad.map(|name| BadStates::Name(cut(name))));
        if !moves.contains_key(start) {
            found.push(BadStates::Start(cut(start)));
        }
        for (from, to) in
            moves.iter().flat_map(|(from, next)| next.iter().map(move |to| (from, to)))
        {
            if !moves.contains_key(to) {
                found.push(BadStates::Target { from: cut(from), to: cut(to) });
            }
            if from == to {
                found.push(BadStates::Itself(cut(from)));
            }
        }
        found
    }
}

impl TryFrom<Written> for States {
    type Error = BadStates;

    fn try_from(written: Written) -> Result<Self, BadStates> {
        match written.problems().into_iter().next() {
            Some(first) => Err(first),
            None => Ok(Self { start: written.start, moves: written.moves }),
        }
    }
}

impl MirrorStates {
    /// Reads what somebody wrote.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(
        at: String,
        kind: Option<String>,
        start: String,
        moves: BTreeMap<String, BTreeSet<String>>,
    ) -> Result<Self, Vec<BadStates>> {
        let written = Written { start, moves };
        let mut found = written.problems();
        found.extend(bad_pointer(&at));
        if found.is_empty() {
            let Written { start, moves } = written;
            Ok(Self { at, kind, states: States { start, moves } })
        } else {
            Err(found)
        }
    }
}

impl TryFrom<WrittenAt> for MirrorStates {
    type Error = BadStates;

    fn try_from(WrittenAt { at, kind, states }: WrittenAt) -> Result<Self, BadStates> {
        match bad_pointer(&at) {
            Some(bad) => Err(bad),
            None => Ok(Self { at, kind, states }),
        }
    }
}

fn bad_pointer(at: &str) -> Option<BadStates> {
    let good = at.starts_with('/') && at.len() <= MAX_POINTER;
    (!good).then(|| BadStates::Pointer(at.chars().take(MAX_POINTER).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// The orders of the payments example.
    fn orders() -> States {
        let end: &[&str] = &[];
        States::new(
            "PENDING",
            &[
                ("PENDING", &["PROCESSING", "PAID", "FAILED"]),
                ("PROCESSING", &["PAID", "FAILED"]),
                ("FAILED", &["PAID"]),
                ("PAID", end),
            ],
        )
        .unwrap()
    }

    /// D11, D12, D13
    #[test]
    fn a_proposal_is_allowed_or_refused_with_the_reason() {
        let check = |from: Option<&str>, to: &str, expected: &str| {
            let told = match orders().propose(from, to) {
                Move::Allowed => "allowed".to_owned(),
                Move::Same => "same".to_owned(),
                Move::Refused(why) => why,
            };
            assert_eq!(told, expected, "{from:?} to {to}");
        };
        check(Some("PENDING"), "PAID", "allowed");
        check(Some("FAILED"), "PAID", "allowed");
        check(Some("PAID"), "PAID", "same");
        check(Some("PAID"), "FAILED", "PAID → FAILED is not a move");
        check(Some("PROCESSING"), "PENDING", "PROCESSING → PENDING is not a move");
        check(Some("PENDING"), "REFUNDED", "REFUNDED is not a state");
        check(Some("REFUNDED"), "PAID", "REFUNDED, where it is, is not a state any more");
        check(None, "PENDING", "allowed");
        // The event that made it has not come yet, or never will.
        check(None, "PAID", "allowed");
        check(None, "REFUNDED", "REFUNDED is not a state");
    }

    #[test]
    fn a_thing_that_is_not_there_stands_at_the_start() {
        let states = States::new("A", &[("A", &["B"]), ("B", &["C"]), ("C", &[])]).unwrap();
        assert_eq!(states.propose(None, "B"), Move::Allowed);
        assert_eq!(states.propose(None, "C"), Move::Refused("A → C is not a move".to_owned()));
    }

    /// D14, D15, D16
    #[test]
    fn a_machine_says_whether_the_order_of_its_events_matters() {
        assert_eq!(orders().order_matters(), None);
        let check = |moves: &[(&str, &[&str])], expected: Option<(&str, &str)>| {
            let found = States::new("A", moves).unwrap().order_matters();
            let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
            assert_eq!(found, expected, "{moves:?}");
        };
        check(&[("A", &[])], None);
        check(&[("A", &["B"]), ("B", &[])], None);
        // Two ends: whichever comes first stays.
        check(&[("A", &["B", "C"]), ("B", &[]), ("C", &[])], Some(("B", "C")));
        // There and back.
        check(&[("A", &["B"]), ("B", &["A"])], Some(("A", "B")));
        // A step that may not be left out.
        check(&[("A", &["B"]), ("B", &["C"]), ("C", &[])], Some(("B", "C")));
        // What nothing leads to does not matter.
        check(&[("A", &["B"]), ("B", &[]), ("X", &["Y", "Z"]), ("Y", &[]), ("Z", &[])], None);
    }

    #[test]
    fn what_is_no_machine_is_refused_with_what_would_be_right() {
        let check = |written: Value, expected: &str| {
            let found = serde_json::from_value::<States>(written.clone()).unwrap_err().to_string();
            assert_eq!(found, expected, "{written}");
        };
        check(json!({ "start": "A", "moves": {} }), "a machine has 1 to 50 states, and this one 0");
        check(
            json!({ "start": "B", "moves": { "A": [] } }),
            r#""B", the start, is not among the states; add it to the moves, with what may follow it"#,
        );
        check(
            json!({ "start": "A", "moves": { "A": ["B"] } }),
            r#""B", which may follow "A", is not among the states; add it to the moves, with nothing if it is an end"#,
        );
        check(
            json!({ "start": "A", "moves": { "A": ["A"] } }),
            r#""A" may follow itself in every machine; leave that move out"#,
        );
        check(
            json!({ "start": "A", "moves": { "A": [], "a\nb": [] } }),
            r#"the name of a state is 1 to 100 bytes without control characters, unlike "a\nb""#,
        );
        let many: BTreeMap<String, Vec<String>> =
            (0..51).map(|n| (n.to_string(), Vec::new())).collect();
        check(
            json!({ "start": "1", "moves": many }),
            "a machine has 1 to 50 states, and this one 51",
        );
        let found = serde_json::from_value::<States>(
            json!({ "start": "A", "moves": { "A": [] }, "end": 1 }),
        );
        assert!(found.unwrap_err().to_string().starts_with("unknown field `end`"));
    }

    #[test]
    fn mirrored_states_are_read_where_a_pointer_says() {
        let written =
            |at: &str| json!({ "at": at, "states": { "start": "A", "moves": { "A": [] } } });
        let good = written("/data/object/status");
        let read: MirrorStates = serde_json::from_value(good.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), good);
        for bad in ["", "status", &format!("/{}", "x".repeat(200))] {
            let found = serde_json::from_value::<MirrorStates>(written(bad)).unwrap_err();
            assert!(found.to_string().contains("is no JSON pointer"), "{found}");
        }
    }

    fn machine() -> impl Strategy<Value = States> {
        let names = ["A", "B", "C", "D"];
        prop::collection::vec(any::<bool>(), 16).prop_map(move |allowed| {
            let next = |from: usize| {
                let to = (0..4).filter(|to| *to != from && allowed[from * 4 + to]);
                to.map(|to| names[to].to_owned()).collect()
            };
            let moves = (0..4).map(|from| (names[from].to_owned(), next(from))).collect();
            States { start: "A".to_owned(), moves }
        })
    }

    proptest! {
        /// D15: the law that `order_matters` stands for, in both directions.
        #[test]
        fn where_order_does_not_matter_every_arrival_ends_alike(
            states in machine(),
            (arrival, shuffled) in prop::collection::vec(0_usize..4, 0..8)
                .prop_flat_map(|arrival| (Just(arrival.clone()), Just(arrival).prop_shuffle())),
            again in prop::collection::vec((0_usize..8, 0_usize..8), 0..4),
        ) {
            let names = ["A", "B", "C", "D"];
            let end = |arrival: &[usize]| {
                arrival.iter().fold(None, |at, to| states.after(at, names[*to]))
            };
            // Some come twice.
            let mut repeated = shuffled.clone();
            for (which, at) in again {
                if let Some(one) = shuffled.get(which) {
                    repeated.insert(at.min(repeated.len()), *one);
                }
            }
            match states.order_matters() {
                None => prop_assert_eq!(end(&arrival), end(&repeated)),
                Some((first, second)) => {
                    let reached = states.reachable();
                    let differ = reached.iter().any(|at| {
                        states.after(states.after(*at, &first), &second)
                            != states.after(states.after(*at, &second), &first)
                    });
                    prop_assert!(differ, "{first} and {second} commute");
                }
            }
        }
    }
}
