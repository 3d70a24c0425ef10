//! What a world must have come to, told from what happened at the provider alone: each fact once, in its order, and nothing
//! goes wrong. Nothing of the product is asked here, so that it cannot agree with its own mistakes.

use std::collections::{BTreeMap, BTreeSet};

use domain::event::Version;
use serde_json::Value;

use crate::world::{Fact, Nature, World};

/// An object by its source, its kind and its id.
pub(crate) type Name = (String, String, String);

/// What should be.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Each object's newest version, and what it may hold: of two changes with one version either may stand.
    pub(crate) objects: BTreeMap<Name, (u64, Vec<Value>)>,
    /// Objects that are credited, once each.
    pub(crate) credits: BTreeSet<String>,
    /// By the bytes that go out, the fewest and the most times.
    pub(crate) told: BTreeMap<Vec<u8>, (usize, usize)>,
}

/// The name of a fact's object.
pub(crate) fn name(fact: &Fact) -> Option<Name> {
    let (object, _) = fact.object.as_ref()?;
    Some((fact.key.source().to_string(), object.kind.clone(), object.id.clone()))
}

fn is_carried_out(fact: &Fact) -> bool {
    matches!(fact.nature, Nature::Good | Nature::Mistaken(_))
}

/// What the facts of a world come to.
pub(crate) fn expected(world: &World) -> Expected {
    let mut expected = Expected::default();
    for fact in &world.facts {
        let is_told = is_carried_out(fact) && fact.says.is_none() && fact.thing.is_none();
        let told = if is_told { (1, 1) } else { (0, 0) };
        expected.told.insert(fact.body.clone(), told);
        let Some((object, Version::Number(version))) =
            fact.object.as_ref().filter(|_| is_carried_out(fact))
        else {
            continue;
        };
        if fact.key.source().as_str() == "mirror" {
            expected.credits.insert(object.id.clone());
        }
        let fields: Value = serde_json::from_slice(&fact.body).unwrap();
        let newest = expected.objects.entry(name(fact).unwrap()).or_default();
        if newest.0 < *version {
            *newest = (*version, Vec::new());
        }
        if newest.0 == *version {
            newest.1.push(fields);
        }
    }
    // What is old when it comes is not told; what is the newest is, whenever it comes, unless another one ties with it.
    for fact in world.facts.iter().filter(|fact| is_carried_out(fact)) {
        let Some((newest, holds)) = name(fact).and_then(|name| expected.objects.get(&name)) else {
            continue;
        };
        let is_newest = fact.object.as_ref().unwrap().1 == Version::Number(*newest);
        let least = usize::from(is_newest && holds.len() == 1);
        expected.told.insert(fact.body.clone(), (least, 1));
    }
    expected
}
