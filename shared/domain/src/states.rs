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
    /// What may follow what.
    pub states: States,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAt {
    at: String,
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

impl TryFrom<Written> for States {
    type Error = BadStates;

    fn try_from(Written { start, moves }: Written) -> Result<Self, BadStates> {
        if !(1..=MAX_STATES).contains(&moves.len()) {
            return Err(BadStates::Count(moves.len()));
        }
        if let Some(bad) = moves.keys().find(|name| {
            !(1..=MAX_NAME).contains(&name.len()) || name.chars().any(char::is_control)
        }) {
            return Err(BadStates::Name(bad.chars().take(MAX_NAME).collect()));
        }
        if !moves.contains_key(&start) {
            return Err(BadStates::Start(start.chars().take(MAX_NAME).collect()));
        }
        for (from, to) in
            moves.iter().flat_map(|(from, next)| next.iter().map(move |to| (from, to)))
        {
            if !moves.contains_key(to) {
                let to = to.chars().take(MAX_NAME).collect();
                return Err(BadStates::Target { from: from.clone(), to });
            }
            if from == to {
                return Err(BadStates::Itself(from.clone()));
            }
        }
        Ok(Self { start, moves })
    }
}

impl TryFrom<WrittenAt> for MirrorStates {
    type Error = BadStates;

    fn try_from(WrittenAt { at, states }: WrittenAt) -> Result<Self, BadStates> {
        if at.starts_with('/') && at.len() <= MAX_POINTER {
            Ok(Self { at, states })
        } else {
            Err(BadStates::Pointer(at.chars().take(MAX_POINTER).collect()))
        }
    }
}
