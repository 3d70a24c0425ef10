//! The fetchers that ship, and how one builds on another.

use serde_json::{Map, Value};

use crate::{
    fetcher::Fetcher,
    reader::{Problem, Problems},
};

/// Every file of the folder `presets`, sorted by name.
const PRESETS: &[(&str, &str)] = &[
    ("github", include_str!("../presets/github.toml")),
    ("shopify", include_str!("../presets/shopify.toml")),
    ("stripe", include_str!("../presets/stripe.toml")),
];

/// The names of the fetchers that ship, sorted.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

pub(crate) fn load(name: &str) -> Option<Fetcher> {
    Fetcher::from_value(source(name)?).ok()
}

fn source(name: &str) -> Option<Value> {
    let (_, text) = PRESETS.iter().find(|(preset, _)| *preset == name)?;
    toml::from_str(text).ok()
}

/// Lays a fetcher over the preset that its `like` names. Presets build on nothing.
pub(crate) fn inherit(mut value: Value) -> Result<Value, Problems> {
    let Some(like) = value.as_object_mut().and_then(|table| table.remove("like")) else {
        return Ok(value);
    };
    match (like.as_str().and_then(source), value) {
        (Some(Value::Object(base)), Value::Object(over)) => Ok(Value::Object(lay_over(base, over))),
        _ => {
            let names: Vec<_> = preset_names().collect();
            let what = format!("must name a preset: {}", names.join(", "));
            Err(Problems(vec![Problem { at: "like".to_owned(), what }]))
        }
    }
}

/// Tables are merged, everything else is replaced.
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
    use super::*;
    use crate::fetcher::About;

    #[test]
    fn every_file_in_the_folder_is_a_preset_without_problems_and_with_its_facts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        assert_eq!(files, preset_names().collect::<Vec<_>>());
        for name in files {
            let fetcher = Fetcher::from_value(source(&name).unwrap())
                .unwrap_or_else(|p| panic!("{name}: {p}"));
            let About { title, docs, checked_on, mark, facts_from } = fetcher.about();
            for fact in [title, docs, checked_on, mark, facts_from] {
                assert!(!fact.is_empty(), "{name}: {:?}", fetcher.about());
            }
        }
    }

    #[test]
    fn a_fetcher_is_laid_over_the_preset_it_names() {
        let own = serde_json::json!({ "like": "stripe", "rate": 5, "paths": { "invoice": null, "thing": "things" } });
        let fetcher = Fetcher::from_value(own).unwrap();
        assert!(
            fetcher.fetches("thing") && fetcher.fetches("customer") && !fetcher.fetches("invoice")
        );
        assert_eq!(fetcher.pace().interval, std::time::Duration::from_millis(200));
        let unknown = Fetcher::from_value(serde_json::json!({ "like": "strpe" })).unwrap_err();
        assert_eq!(unknown.0[0].what, "must name a preset: github, shopify, stripe");
    }
}
