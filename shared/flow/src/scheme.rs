//! The scheme of a source, with what the source itself configures: everybody who verifies, reads or shows a source goes by
//! the same one.

use std::collections::BTreeMap;

use domain::source::{SchemeChoice, Source};
use serde_json::{Map, Value, json};
use signing::{Problems, Scheme};

/// Why a source has no scheme.
#[derive(Debug, thiserror::Error)]
pub enum NoScheme {
    /// No scheme of that name ships with this version.
    #[error("there is no scheme `{0}` in this version")]
    Unknown(String),
    /// What it describes is none.
    #[error("the source's own scheme has problems")]
    Bad(#[source] Problems),
}

/// The scheme of a source.
///
/// # Errors
/// Its scheme is not one of this version's, or has problems.
pub fn of(source: &Source) -> Result<Scheme, NoScheme> {
    chosen(&source.scheme, &source.config)
}

/// The scheme that is chosen, with `config` over its own.
///
/// # Errors
/// It is not one of this version's, or has problems.
pub fn chosen(
    choice: &SchemeChoice,
    config: &BTreeMap<String, String>,
) -> Result<Scheme, NoScheme> {
    let mut value = match choice {
        SchemeChoice::Preset(name) if config.is_empty() => {
            return Scheme::preset(name).ok_or_else(|| NoScheme::Unknown(name.clone()));
        }
        SchemeChoice::Preset(name) if !signing::preset_names().any(|known| known == name) => {
            return Err(NoScheme::Unknown(name.clone()));
        }
        SchemeChoice::Preset(name) => json!({ "like": name }),
        SchemeChoice::Own(value) => value.clone(),
    };
    if let Some(scheme) = value.as_object_mut().filter(|_| !config.is_empty()) {
        let own = scheme.entry("config").or_insert_with(|| Value::Object(Map::new()));
        // One that is no table is the scheme's own problem, and told as that.
        if let Some(own) = own.as_object_mut() {
            own.extend(config.iter().map(|(name, value)| (name.clone(), value.clone().into())));
        }
    }
    Scheme::from_value(value).map_err(NoScheme::Bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn own() -> SchemeChoice {
        let signed = "{config:url}{config:more}{body}";
        SchemeChoice::Own(json!({ "like": "github", "signed": signed, "config": { "url": "a" } }))
    }

    #[test]
    fn what_a_source_configures_stands_over_what_its_scheme_says() {
        let missing = |given: &[(&str, &str)]| -> Vec<String> {
            let scheme = chosen(&own(), &config(given)).unwrap();
            scheme.missing_config().into_iter().map(str::to_owned).collect()
        };
        assert_eq!(missing(&[]), ["more"]);
        assert!(missing(&[("more", "x")]).is_empty());
        let scheme = chosen(&own(), &config(&[("url", "b"), ("more", "c")])).unwrap();
        let value = serde_json::to_value(&scheme).unwrap();
        assert_eq!(value["config"], json!({ "url": "b", "more": "c" }));
    }

    #[test]
    fn a_preset_is_found_by_its_name_with_and_without_a_configuration() {
        for given in [config(&[]), config(&[("url", "b")])] {
            let scheme = chosen(&SchemeChoice::Preset("stripe".to_owned()), &given).unwrap();
            assert_eq!(scheme.name(), "stripe");
            let unknown = chosen(&SchemeChoice::Preset("strpe".to_owned()), &given).unwrap_err();
            assert!(matches!(unknown, NoScheme::Unknown(name) if name == "strpe"));
        }
    }

    #[test]
    fn problems_of_a_scheme_are_all_told() {
        let bad = json!({ "like": "stripe", "algorithm": "md5", "config": 5 });
        let problems = chosen(&SchemeChoice::Own(bad), &config(&[("a", "b")])).unwrap_err();
        let NoScheme::Bad(problems) = problems else { panic!("{problems}") };
        let at: Vec<_> = problems.0.iter().map(|problem| problem.at.as_str()).collect();
        assert_eq!(at, ["algorithm", "config"]);
        assert!(matches!(
            chosen(&SchemeChoice::Own(json!(5)), &config(&[])),
            Err(NoScheme::Bad(_))
        ));
    }
}
