//! The schemes that ship, and how one scheme builds on another.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::scheme::{Problems, Scheme};

/// Every file of the folder `presets`, sorted by name: the build script lists them.
const PRESETS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/presets.rs"));

/// What they say, in the same order, each read when somebody first asks for it.
static SCHEMES: [OnceLock<Option<Scheme>>; PRESETS.len()] =
    [const { OnceLock::new() }; PRESETS.len()];

/// How many presets may stand on each other.
const GENERATIONS: usize = 4;

/// The names of the schemes that ship, sorted.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

pub(crate) fn load(name: &str) -> Option<Scheme> {
    let place = place(name)?;
    let read = || Scheme::from_value(source(name)?).ok();
    SCHEMES.get(place)?.get_or_init(read).clone()
}

fn place(name: &str) -> Option<usize> {
    PRESETS.binary_search_by(|(preset, _)| preset.cmp(&name)).ok()
}

fn source(name: &str) -> Option<Value> {
    let (name, text) = PRESETS.get(place(name)?)?;
    let mut source: Value = toml::from_str(text).ok()?;
    source.as_object_mut()?.insert("name".into(), Value::from(*name));
    Some(source)
}

/// Lays a scheme over the preset that its `like` names.
pub(crate) fn inherit(mut source: Value) -> Result<Value, Problems> {
    for _ in 0..GENERATIONS {
        let Some(like) = source.as_object_mut().and_then(|table| table.remove("like")) else {
            return Ok(source);
        };
        let base = like.as_str().and_then(self::source);
        let (Some(Value::Object(base)), Value::Object(over)) = (base, source) else {
            let names: Vec<&str> = preset_names().collect();
            return Err(Problems::one("like", format!("must name a preset: {}", names.join(", "))));
        };
        source = Value::Object(lay_over(base, over));
    }
    Err(Problems::one("like", format!("goes back more than {GENERATIONS} schemes")))
}

/// Tables are merged, everything else is replaced. A `pairs` or `prefix` replaces the other.
fn lay_over(mut base: Map<String, Value>, over: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in over {
        let value = match (base.remove(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => {
                Value::Object(lay_over(below, above))
            }
            (_, above) => above,
        };
        base.insert(key, value);
    }
    base
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scheme::About;

    #[test]
    fn every_file_in_the_folder_is_a_preset_without_problems() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        assert_eq!(files, preset_names().collect::<Vec<_>>());
        let mut problems = Vec::new();
        for name in files {
            match Scheme::from_value(source(&name).unwrap()) {
                Ok(scheme) => problems.extend(missing_facts(&name, &scheme)),
                Err(found) => problems.push(format!("{name}: {found}")),
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn a_preset_is_read_once_and_then_shared() {
        let (one, other) = (load("stripe").unwrap(), load("stripe").unwrap());
        assert!(Arc::ptr_eq(&one.terms, &other.terms));
        assert!(load("strip").is_none() && load("").is_none());
        assert!(preset_names().is_sorted());
    }

    fn missing_facts(name: &str, scheme: &Scheme) -> Vec<String> {
        let About { title, docs, checked_on, mark, facts_from } = scheme.about();
        let facts = [
            ("title", title),
            ("docs", docs),
            ("facts.checked", checked_on),
            ("facts.mark", mark),
            ("facts.from", facts_from),
        ];
        let missing = facts.iter().filter(|(_, fact)| fact.is_empty());
        let mut problems: Vec<String> =
            missing.map(|(what, _)| format!("{name}: {what} is missing")).collect();
        if scheme.name() != name {
            problems.push(format!("{name} calls itself {}", scheme.name()));
        }
        problems
    }
}
