//! What each function reads from its environment is what the template gives it, no more and no less.

use std::collections::{BTreeMap, BTreeSet};

use local::template;
use runtime::env::names_read;
use tests::root;

/// The names of the template's environment, by the function's binary.
fn given() -> BTreeMap<String, BTreeSet<String>> {
    let samconfig = root().join("samconfig.toml");
    let wiring = template::read(&root().join("template.yaml"), Some((&samconfig, "test")))
        .expect("the local host reads the template");
    wiring
        .functions
        .into_iter()
        .map(|function| (function.binary, function.environment.into_keys().collect()))
        .collect()
}

/// What a function's `Config` asks for, without what Lambda itself sets and what only this machine sets.
fn read(names: BTreeSet<String>) -> BTreeSet<String> {
    let is_ours = |name: &String| !name.starts_with("AWS_") && !name.starts_with("LOCAL_");
    names.into_iter().filter(is_ours).collect()
}

#[test]
fn every_function_reads_what_the_template_gives_it() {
    let expected = BTreeMap::from([
        ("ingress".to_owned(), read(names_read(ingress::Config::read))),
        ("worker".to_owned(), read(names_read(worker::config::Config::read))),
        ("relay".to_owned(), read(names_read(relay::Config::read))),
        ("deliverer".to_owned(), read(names_read(deliverer::Config::read))),
        ("sweeper".to_owned(), read(names_read(sweeper::config::Config::read))),
        ("api".to_owned(), read(names_read(api::Config::read))),
    ]);
    let given = given();
    for (binary, read) in &expected {
        let given = given.get(binary).unwrap_or_else(|| panic!("the template has no {binary}"));
        let unread: Vec<_> = given.difference(read).collect();
        let missing: Vec<_> = read.difference(given).collect();
        assert!(unread.is_empty(), "the template gives {binary} what it never reads: {unread:?}");
        assert!(missing.is_empty(), "{binary} reads what the template does not give: {missing:?}");
    }
    let known: Vec<_> = expected.into_keys().collect();
    let all: Vec<_> = given.into_keys().collect();
    assert_eq!(known, all, "this test knows every function of the template");
}
