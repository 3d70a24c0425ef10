//! What receiving and processing promise, by the id of the requirement or of the field case, and the tests that prove it.
//!
//! `tests/requirements.toml` is the list. Here it is held against the tests: one that was renamed or removed leaves a
//! promise without proof, and that fails.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Letters of requirements, and how many there are of each.
const REQUIREMENTS: [(char, usize); 7] =
    [('A', 33), ('B', 34), ('C', 37), ('D', 18), ('I', 6), ('K', 12), ('L', 23)];

/// How the ids of the field cases of receiving and processing begin.
const CASES: [&str; 6] = ["VFY-", "ING-", "INB-", "ORD-", "SEC-", "WRK-"];

/// Cases of other areas that are about processing too.
const OTHERS: [&str; 3] = ["OUT-transaction-conflict", "RPL-in-flight", "RPL-inbound-repair"];

/// How many field cases there are of receiving and processing.
const CASES_IN_ALL: usize = 51;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of tests by id, or the reason why there is none.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Proof {
    Tests(Vec<String>),
    Reason(String),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    requirements: BTreeMap<String, Proof>,
    field_cases: BTreeMap<String, Proof>,
}

fn list() -> List {
    toml::from_str(&fs::read_to_string(root().join("tests/requirements.toml")).unwrap()).unwrap()
}

/// Whether a file has a test of that name: a function with an attribute that makes it one.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    lines.iter().enumerate().any(|(at, line)| {
        is_it(line)
            && lines[..at]
                .iter()
                .rev()
                .take_while(|above| above.starts_with('#') || above.starts_with("//"))
                .any(|above| above.starts_with('#') && above.contains("test"))
    })
}

#[test]
fn every_promise_has_a_test_or_says_why_not() {
    let list = list();
    let wanted: BTreeSet<String> = REQUIREMENTS
        .iter()
        .flat_map(|(letter, most)| (1..=*most).map(move |number| format!("{letter}{number}")))
        .collect();
    assert_eq!(list.requirements.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(list.field_cases.len(), CASES_IN_ALL);
    let mut unproved = Vec::new();
    for (id, proof) in list.requirements.iter().chain(&list.field_cases) {
        match proof {
            Proof::Reason(reason) => assert!(reason.len() > 20, "{id}: `{reason}` is no reason"),
            Proof::Tests(tests) if tests.is_empty() => {
                unproved.push(format!("{id}: nothing proves it"));
            }
            Proof::Tests(tests) => {
                for test in tests {
                    let (file, name) = test.split_once("::").unwrap();
                    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
                    if !has_test(&text, name) {
                        unproved.push(format!("{id}: there is no test {test}"));
                    }
                }
            }
        }
    }
    assert!(unproved.is_empty(), "{unproved:#?}");
}

#[test]
fn field_cases_are_those_of_receiving_and_processing() {
    for id in list().field_cases.keys() {
        let is_ours = CASES.iter().any(|area| id.starts_with(area)) || OTHERS.contains(&&**id);
        assert!(is_ours, "{id}");
    }
}

#[test]
fn a_test_is_told_from_a_function_and_from_one_of_a_longer_name() {
    let text = "#[test]\nfn it_holds() {}\nfn it_helps() {}\n/// X\n#[tokio::test]\nasync fn it_waits_long() {}";
    assert!(has_test(text, "it_holds"));
    assert!(has_test(text, "it_waits_long"));
    assert!(!has_test(text, "it_waits"));
    assert!(!has_test(text, "it_helps"));
    assert!(!has_test(text, "it"));
}
