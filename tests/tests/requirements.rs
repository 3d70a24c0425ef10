//! What receiving, processing and sending promise, by the id of the requirement or of the field case, and the tests that prove it.
//!
//! `tests/requirements.toml` is the list. Here it is held against the tests: one that was renamed or removed leaves a
//! promise without proof, and that fails.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// Letters of requirements, and the numbers of each that are promised.
const REQUIREMENTS: [(char, RangeInclusive<usize>); 10] = [
    ('A', 1..=33),
    ('B', 1..=34),
    ('C', 1..=37),
    ('D', 1..=18),
    ('E', 1..=31),
    ('F', 1..=30),
    ('H', 11..=11),
    ('I', 1..=25),
    ('K', 1..=12),
    ('L', 1..=23),
];

/// How the ids of the field cases begin, area by area, and how many there are.
const CASES: [(&str, usize); 11] = [
    ("VFY-", 15),
    ("ING-", 13),
    ("INB-", 4),
    ("ORD-", 4),
    ("WRK-", 7),
    ("OUT-", 8),
    ("DLV-", 13),
    ("RTY-", 6),
    ("SSRF-", 9),
    ("SEC-", 5),
    ("RPL-", 4),
];

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
        .flat_map(|(letter, of)| of.clone().map(move |number| format!("{letter}{number}")))
        .collect();
    assert_eq!(list.requirements.keys().cloned().collect::<BTreeSet<_>>(), wanted);
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
fn every_field_case_of_these_areas_is_there_and_no_other() {
    let list = list();
    let of = |area: &str| list.field_cases.keys().filter(|id| id.starts_with(area)).count();
    let found = CASES.map(|(area, _)| (area, of(area)));
    assert_eq!(found, CASES);
    let known: usize = CASES.iter().map(|(_, many)| many).sum();
    assert_eq!(list.field_cases.len(), known, "a case of another area");
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
