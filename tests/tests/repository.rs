//! What the repository as a whole keeps to.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// All that may lie at the root.
const AT_THE_ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".config",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "deny.toml",
    "functions",
    "infra",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "samconfig.toml",
    "shared",
    "template.yaml",
    "tests",
];

/// Past this a module is split by noun.
const LONGEST_MODULE: usize = 400;

/// Modules that may be longer: path, lines, why. An entry that is no longer needed fails too.
const LONGER: &[(&str, usize, &str)] = &[];

/// At most this long is the wiring of a function.
const LONGEST_MAIN: usize = 40;

/// Names that say nothing of what a module holds.
const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "models", "service", "types", "util", "utils",
];

/// Every file of the repository, tracked or about to be, with its text. Files that are not text are left out.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names in UTF-8");
    let read = |name: &str| Some((name.to_owned(), fs::read_to_string(root.join(name)).ok()?));
    let files: Vec<_> = names.split_terminator('\0').filter_map(read).collect();
    assert!(files.iter().any(|(name, _)| name == "Cargo.toml"), "the root is elsewhere");
    files
}

fn rust_files() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| name.ends_with(".rs")).collect()
}

fn is_test_code(name: &str) -> bool {
    name.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches")
}

/// Lines of code: no blank lines, no comments, and nothing from the tests module on.
fn lines_of_code(source: &str) -> usize {
    let mut lines = source.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod ")) {
            break;
        }
        let line = line.trim();
        if !line.is_empty() && !line.starts_with("//") {
            count += 1;
        }
    }
    count
}

/// Types that hold a secret.
const SECRETS: &[&str] =
    &["EndpointSecret", "Key", "Keyed", "Material", "Secret", "SecretText", "SigningKey"];

/// Where the source of a module compares secrets with `==`, or lets others do it. Tests may.
fn plain_comparisons(source: &str) -> Vec<String> {
    let production = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut derived = "";
    for line in production.lines().map(str::trim) {
        let name = line
            .split_once("struct ")
            .or_else(|| line.split_once("enum "))
            .map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
        if name.is_some_and(|name| SECRETS.contains(&name)) && derived.contains("PartialEq") {
            found.push(line.to_owned());
        }
        let implements = SECRETS.iter().any(|name| {
            line.starts_with("impl PartialEq") && line.contains(&format!(" for {name} "))
        });
        let compares = line.contains("expose()") && (line.contains("==") || line.contains("!="));
        if (implements || compares) && !line.starts_with("//") {
            found.push(line.to_owned());
        }
        match line.starts_with("#[derive") {
            true => derived = line,
            false if !line.starts_with('#') && !line.starts_with("//") => derived = "",
            false => {}
        }
    }
    found
}

/// Where a text promises what nobody can keep. Saying that it is *not* promised is allowed: a "not", "no" or "never"
/// stands shortly before.
fn promises(text: &str) -> Vec<String> {
    let flat =
        text.split_whitespace().filter(|word| !matches!(*word, "//" | "///" | "//!" | "#" | ">"));
    let flat = flat.collect::<Vec<_>>().join(" ").to_lowercase().replace('-', " ");
    let promise = concat!("exactly", " once");
    let denied = |before: &str| {
        let near: Vec<_> = before.split(' ').rev().take(12).collect();
        ["not", "no", "never"].iter().any(|no| near.contains(no))
    };
    let places = flat.match_indices(promise).filter_map(|(at, _)| flat.get(..at));
    places
        .filter(|before| !denied(before))
        .map(|before| {
            let start: Vec<_> = before.split(' ').rev().take(8).collect();
            format!("... {} {promise}", start.into_iter().rev().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

#[test]
fn the_root_holds_what_people_expect_there() {
    let present: BTreeSet<_> = files()
        .into_iter()
        .filter_map(|(name, _)| Some(name.split('/').next()?.to_owned()))
        .collect();
    let strangers: Vec<_> =
        present.iter().filter(|name| !AT_THE_ROOT.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "{strangers:?} do not belong at the root");
}

#[test]
fn the_main_of_a_function_only_wires() {
    let mains: Vec<_> = rust_files()
        .into_iter()
        .filter(|(name, _)| name.starts_with("functions/") && name.ends_with("/src/main.rs"))
        .collect();
    assert!(mains.len() >= 6, "the functions are elsewhere");
    for (name, source) in mains {
        let lines = source.lines().count();
        assert!(
            lines <= LONGEST_MAIN,
            "{name} has {lines} lines; what is more than wiring belongs in lib.rs"
        );
    }
}

#[test]
fn modules_are_split_before_they_grow_too_long() {
    let mut unneeded: BTreeSet<_> = LONGER.iter().map(|(name, ..)| *name).collect();
    for (name, source) in rust_files() {
        if is_test_code(&name) {
            continue;
        }
        let lines = lines_of_code(&source);
        let longer = LONGER.iter().find(|(longer, ..)| *longer == name);
        let limit = longer.map_or(LONGEST_MODULE, |(_, limit, _)| *limit);
        assert!(
            lines <= limit,
            "{name} has {lines} lines of code, more than {limit}: split it by noun"
        );
        if lines > LONGEST_MODULE {
            unneeded.remove(name.as_str());
        }
    }
    assert!(unneeded.is_empty(), "{unneeded:?} need no exception");
}

#[test]
fn lines_of_code_leave_out_comments_blank_lines_and_tests() {
    let check = |source: &str, expected| assert_eq!(lines_of_code(source), expected, "{source}");
    check("//! Doc.\n\nfn a() {} // why\n", 1);
    check("fn a() {\n    // why\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n", 2);
    check("#[cfg(test)]\nuse x;\nfn a() {}\n", 3);
}

#[test]
fn no_test_is_left_out() {
    let ignored = concat!("#[ig", "nore");
    let found: Vec<_> = rust_files()
        .into_iter()
        .filter(|(_, s)| s.contains(ignored))
        .map(|(name, _)| name)
        .collect();
    assert!(found.is_empty(), "{found:?}: a test that does not run proves nothing");
}

/// VFY-constant-time: a digest has no type of its own; that all go through one comparison is `digest.rs`'s to keep.
#[test]
fn secrets_and_digests_are_compared_in_constant_time() {
    let found: Vec<_> = rust_files()
        .into_iter()
        // The keys of tables are no secrets.
        .filter(|(name, _)| !is_test_code(name) && !name.starts_with("shared/dynamo/"))
        .flat_map(|(name, text)| {
            plain_comparisons(&text).into_iter().map(move |line| format!("{name}: {line}"))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_plain_comparison_of_secrets_is_seen() {
    for bad in [
        "#[derive(Clone, PartialEq)]\n/// Doc.\npub struct Secret(String);",
        "impl PartialEq for Key {",
        "    if given.expose() == wanted {",
    ] {
        assert_eq!(plain_comparisons(bad).len(), 1, "{bad}");
    }
    for good in [
        "#[derive(PartialEq)]\npub struct KeyId(String);\npub struct Key;",
        "#[cfg(x)]\npub struct Secret(String);",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    a.expose() == b\n}",
    ] {
        assert_eq!(plain_comparisons(good), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn nothing_is_promised_that_nobody_can_keep() {
    for (name, text) in files() {
        let prose = [".md", ".rs", ".toml", ".yaml", ".html"].iter().any(|end| name.ends_with(end));
        if prose {
            assert_eq!(promises(&text), Vec::<String>::new(), "in {name}");
        }
    }
}

#[test]
fn a_promise_is_seen_across_lines_and_its_denial_is_allowed() {
    let promise = |words: &str| words.replace("@", "exactly");
    let check =
        |text: &str, expected| assert_eq!(promises(&promise(text)).len(), expected, "{text}");
    check("Postern delivers @ once.", 1);
    check("It is delivered @\nonce, always", 1);
    check("/// delivered @\n/// once", 1);
    check("guarantees @-once delivery", 1);
    check("@-ONCE", 1);
    check("Not promised: @-once delivery; delivery order.", 0);
    check("We never say @ once.", 0);
    check("at least once, effectively once", 0);
}

#[test]
fn names_say_what_a_module_holds() {
    for (name, source) in rust_files() {
        let stem = name.rsplit('/').find(|part| *part != "mod.rs").unwrap_or(&name);
        let stem = stem.trim_end_matches(".rs");
        assert!(!EMPTY_NAMES.contains(&stem), "{name}: name it after the noun it holds");
        let ends = |line: &str| {
            line.trim_start().trim_start_matches("pub ").starts_with("struct ")
                && line
                    .split(['{', '(', '<', ';', ' '])
                    .any(|word| word.len() > 4 && word.ends_with("Impl"))
        };
        assert!(
            !source.lines().any(ends),
            "{name}: what does the type do that its trait does not say?"
        );
    }
}

#[test]
fn every_crate_says_what_it_is() {
    let is_root = |name: &str| {
        ["/src/lib.rs", "/src/main.rs"].iter().any(|end| name.ends_with(end))
            || (name.starts_with("tests/tests/") && name.matches('/').count() == 2)
    };
    for (name, source) in rust_files().iter().filter(|(name, _)| is_root(name)) {
        assert!(source.starts_with("//! "), "{name} begins with what it is");
    }
}
