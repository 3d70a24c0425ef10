//! Who may import whom.
//!
//! The rules are in [`ALLOWED`] and [`IMPURE`]; the tests apply them to what cargo says of this workspace, and to made-up
//! workspaces that break them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// What a package may import of ours, and what its tests may import besides.
struct Allowed {
    imports: &'static [&'static str],
    tests: &'static [&'static str],
}

/// What every function may import: never another function.
const OF_A_FUNCTION: Allowed =
    Allowed { imports: &["domain", "dynamo", "flow", "runtime", "signing"], tests: &["testkit"] };

/// What the functions may import that dial out to hosts that strangers name, or sources do.
const DIALS_OUT: Allowed = Allowed {
    imports: &["domain", "dynamo", "egress", "flow", "runtime", "signing"],
    tests: &["testkit"],
};

/// The packages besides the functions.
const ALLOWED: &[(&str, Allowed)] = &[
    ("domain", Allowed { imports: &[], tests: &[] }),
    ("signing", Allowed { imports: &[], tests: &[] }),
    ("flow", Allowed { imports: &["domain", "signing"], tests: &["testkit"] }),
    ("dynamo", Allowed { imports: &["domain"], tests: &["testkit"] }),
    // what a user's own program imports: no function's code, and nothing that calls anybody
    ("postern-outbox", Allowed { imports: &["domain", "dynamo"], tests: &[] }),
    ("runtime", Allowed { imports: &["domain"], tests: &["testkit"] }),
    ("egress", Allowed { imports: &["domain"], tests: &[] }),
    ("fetch", Allowed { imports: &["domain"], tests: &["signing"] }),
    (
        "api",
        Allowed {
            imports: &["domain", "dynamo", "fetch", "flow", "runtime", "signing"],
            tests: &["testkit"],
        },
    ),
    (
        "worker",
        Allowed {
            imports: &["domain", "dynamo", "egress", "fetch", "flow", "runtime", "signing"],
            tests: &["testkit"],
        },
    ),
    ("deliverer", DIALS_OUT),
    ("sweeper", DIALS_OUT),
    ("testkit", Allowed { imports: &["domain", "signing"], tests: &[] }),
    // hosts the binaries, and must not share their misunderstandings
    ("local", Allowed { imports: &[], tests: &[] }),
    ("postern", Allowed { imports: &["domain", "fetch", "signing"], tests: &[] }),
    // a suite's library, so that the fuzz targets need not build the other suites
    (
        "laws",
        Allowed {
            imports: &["domain", "flow", "ingress", "runtime", "signing", "testkit"],
            tests: &[],
        },
    ),
];

/// May import everything.
const SUITES: &str = "tests";

/// What `domain`, `fetch` and `signing` must not reach, not even by way of others.
const PURE: &[&str] = &["domain", "fetch", "signing"];
const IMPURE: &[&str] = &[
    "aws-config",
    "aws-credential-types",
    "aws-smithy-http-client",
    "aws-smithy-runtime",
    "aws-types",
    "aws_lambda_events",
    "axum",
    "hickory-resolver",
    "hyper",
    "hyper-util",
    "lambda_http",
    "lambda_runtime",
    "mio",
    "object_store",
    "reqwest",
    "rusqlite",
    "rustls",
    "tokio",
    "ureq",
];

/// The SDK that few packages see.
const TABLES_SDK: &str = "aws-sdk-dynamodb";
/// Who sees it: the code of the tables, and who hands a user an action of the user's own transaction.
const SEES_TABLES: &[&str] = &["dynamo", "postern-outbox"];

/// What cargo says of the workspace: `packages`, and `resolve` with the whole graph.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--all-features"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo speaks JSON")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn is_function(package: &Value) -> bool {
    text(package, "manifest_path").contains("/functions/")
}

/// The workspace's own packages.
fn ours(metadata: &Value) -> Vec<&Value> {
    let members: BTreeSet<_> =
        list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    list(metadata, "packages").filter(|package| members.contains(text(package, "id"))).collect()
}

/// Every arrow that must not be.
fn violations(metadata: &Value) -> Vec<String> {
    let ours = ours(metadata);
    let names: BTreeSet<_> = ours.iter().map(|package| text(package, "name")).collect();
    let mut found = Vec::new();
    for package in &ours {
        let name = text(package, "name");
        let known = ALLOWED.iter().find(|(known, _)| *known == name).map(|(_, allowed)| allowed);
        let allowed = match known {
            Some(allowed) => allowed,
            None if is_function(package) => &OF_A_FUNCTION,
            None if name == SUITES => continue,
            None => {
                found.push(format!("{name} is a package that this test does not know"));
                continue;
            }
        };
        for dependency in list(package, "dependencies") {
            let (to, kind) = (text(dependency, "name"), text(dependency, "kind"));
            let may =
                allowed.imports.contains(&to) || (kind == "dev" && allowed.tests.contains(&to));
            if names.contains(to) && !may {
                found.push(format!("{name} must not import {to}"));
            }
            // a function's main.rs makes the client; the test of sources below keeps it there
            let sees_tables = SEES_TABLES.contains(&name) || is_function(package) || kind == "dev";
            if to == TABLES_SDK && !sees_tables {
                found.push(format!("{name} must not see {TABLES_SDK}: only dynamo does"));
            }
        }
        if PURE.contains(&name) {
            let impure = reached(metadata, text(package, "id")).into_iter();
            let impure = impure.filter(|r| IMPURE.contains(r) || r.starts_with("aws-sdk-"));
            found.extend(impure.map(|r| format!("{name} must stay pure, but reaches {r}")));
        }
    }
    found
}

/// The names of all that a package links, by way of others too; tests and build scripts left out.
fn reached<'a>(metadata: &'a Value, from: &'a str) -> BTreeSet<&'a str> {
    let nodes: BTreeMap<_, _> =
        list(&metadata["resolve"], "nodes").map(|node| (text(node, "id"), node)).collect();
    let names: BTreeMap<_, _> =
        list(metadata, "packages").map(|p| (text(p, "id"), text(p, "name"))).collect();
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(id) = next.pop() {
        let Some(node) = nodes.get(id) else { continue };
        let linked = list(node, "deps")
            .filter(|dependency| list(dependency, "dep_kinds").any(|kind| kind["kind"].is_null()));
        for dependency in linked {
            let id = text(dependency, "pkg");
            if seen.insert(id) {
                next.push(id);
            }
        }
    }
    seen.into_iter().filter_map(|id| names.get(id).copied()).collect()
}

/// A workspace of packages, each with its folder and what it imports (`dev:` before a test's import).
fn workspace(packages: &[(&str, &str, &[&str])]) -> Value {
    let import = |to: &&str| match to.strip_prefix("dev:") {
        Some(to) => json!({ "name": to, "kind": "dev" }),
        None => json!({ "name": to, "kind": null }),
    };
    let resolved = |to: &&str| match to.strip_prefix("dev:") {
        Some(to) => json!({ "pkg": to, "dep_kinds": [{ "kind": "dev" }] }),
        None => json!({ "pkg": to, "dep_kinds": [{ "kind": null }] }),
    };
    let mine = packages.iter().filter(|(_, folder, _)| !folder.is_empty());
    json!({
        "workspace_members": mine.map(|(name, ..)| name).collect::<Vec<_>>(),
        "packages": packages.iter().map(|(name, folder, imports)| json!({
            "id": name,
            "name": name,
            "manifest_path": format!("/a/{folder}/{name}/Cargo.toml"),
            "dependencies": imports.iter().map(import).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "resolve": { "nodes": packages.iter().map(|(name, _, imports)| json!({
            "id": name,
            "deps": imports.iter().map(resolved).collect::<Vec<_>>(),
        })).collect::<Vec<_>>() },
    })
}

#[test]
fn packages_import_only_what_they_may() {
    assert_eq!(violations(&metadata()), Vec::<String>::new());
}

#[test]
fn the_rules_see_an_arrow_that_must_not_be() {
    let check = |packages: &[(&str, &str, &[&str])], expected: &[&str]| {
        assert_eq!(violations(&workspace(packages)), expected, "of {packages:?}");
    };
    check(&[("domain", "shared", &["serde"]), ("flow", "shared", &["domain"])], &[]);
    check(
        &[("ingress", "functions", &["worker"]), ("worker", "functions", &[])],
        &["ingress must not import worker"],
    );
    check(
        &[("flow", "shared", &["dynamo"]), ("dynamo", "shared", &[TABLES_SDK])],
        &["flow must not import dynamo"],
    );
    check(
        &[("worker", "functions", &["testkit"]), ("testkit", "shared", &[])],
        &["worker must not import testkit"],
    );
    check(&[("worker", "functions", &["dev:testkit"]), ("testkit", "shared", &[])], &[]);
    check(&[("sweeper", "functions", &["egress"]), ("egress", "shared", &["domain"])], &[]);
    check(
        &[("ingress", "functions", &["egress"]), ("egress", "shared", &[])],
        &["ingress must not import egress"],
    );
    check(
        &[("local", "infra", &["dev:domain"]), ("domain", "shared", &[])],
        &["local must not import domain"],
    );
    check(
        &[
            ("postern", "infra", &["flow", "domain"]),
            ("flow", "shared", &[]),
            ("domain", "shared", &[]),
        ],
        &["postern must not import flow"],
    );
    check(
        &[("runtime", "shared", &[TABLES_SDK])],
        &["runtime must not see aws-sdk-dynamodb: only dynamo does"],
    );
    check(
        &[("domain", "shared", &["innocent"]), ("innocent", "", &["tokio"]), ("tokio", "", &[])],
        &["domain must stay pure, but reaches tokio"],
    );
    check(&[("domain", "shared", &["dev:tokio"]), ("tokio", "", &[])], &[]);
    check(
        &[("signing", "shared", &["aws-sdk-kms"]), ("aws-sdk-kms", "", &[])],
        &["signing must stay pure, but reaches aws-sdk-kms"],
    );
    check(&[("misc", "shared", &[])], &["misc is a package that this test does not know"]);
    check(&[("tests", ".", &["ingress"]), ("ingress", "functions", &[])], &[]);
}

#[test]
fn the_real_graph_with_one_arrow_more_is_refused() {
    let mut metadata = metadata();
    let packages = metadata["packages"].as_array_mut().expect("packages");
    let relay = packages.iter_mut().find(|p| p["name"] == "relay").expect("relay");
    let dependencies = relay["dependencies"].as_array_mut().expect("dependencies");
    dependencies.push(json!({ "name": "worker", "kind": null }));
    assert_eq!(violations(&metadata), ["relay must not import worker"]);
}

/// Outside `dynamo`, only the wiring names the SDK: a function's `main.rs`, and what tests the local host.
#[test]
fn only_dynamo_and_the_wiring_name_the_sdk_of_the_tables() {
    let name = TABLES_SDK.replace('-', "_");
    let mut found = Vec::new();
    for folder in ["functions", "shared", "infra"] {
        for file in sources(&root().join(folder)) {
            let path = file.strip_prefix(root()).expect("below the root");
            let may = path.starts_with("shared/dynamo")
                || path.starts_with("shared/outbox")
                || path.starts_with("infra/local")
                || (path.starts_with("functions") && path.ends_with("src/main.rs"))
                || path.components().any(|part| part.as_os_str() == "tests");
            if !may && fs::read_to_string(&file).expect("a source").contains(&name) {
                found.push(path.to_owned());
            }
        }
    }
    assert_eq!(found, Vec::<PathBuf>::new());
}

/// Every Rust source below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// What a member's manifest says itself although the root should.
fn said_twice(manifest: &toml::Table) -> Vec<String> {
    let inherits =
        |value: &toml::Value| value.get("workspace") == Some(&toml::Value::Boolean(true));
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables =
        targets.into_iter().flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    for table in tables.chain([manifest]) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = table.get(kind).and_then(toml::Value::as_table);
            for (name, value) in dependencies.into_iter().flatten() {
                if !inherits(value) {
                    found.push(format!("{kind}: {name}"));
                }
            }
        }
    }
    let package = manifest.get("package").and_then(toml::Value::as_table);
    for field in ["version", "edition", "rust-version", "license", "publish"] {
        if !package.and_then(|package| package.get(field)).is_some_and(inherits) {
            found.push(format!("package: {field}"));
        }
    }
    if !manifest.get("lints").is_some_and(inherits) {
        found.push("lints".to_owned());
    }
    found
}

#[test]
fn versions_and_lints_stand_only_in_the_root() {
    let metadata = metadata();
    for package in ours(&metadata) {
        let manifest = fs::read_to_string(text(package, "manifest_path")).expect("a manifest");
        let manifest = manifest.parse().expect("TOML");
        assert_eq!(said_twice(&manifest), Vec::<String>::new(), "in {}", text(package, "name"));
    }
}

#[test]
fn a_version_in_a_member_is_seen() {
    let manifest = r#"
        package.name = "a"
        package.version = "1.0.0"
        package.edition.workspace = true
        package.rust-version.workspace = true
        package.license.workspace = true
        package.publish.workspace = true
        dependencies.serde.workspace = true
        dependencies.url = { workspace = true, features = ["serde"] }
        dependencies.uuid = "1"
        dev-dependencies.toml = { version = "1", features = [] }
        target.'cfg(unix)'.dependencies.nix = { path = "nix" }
    "#;
    assert_eq!(
        said_twice(&manifest.parse().expect("TOML")),
        [
            "dependencies: nix",
            "dependencies: uuid",
            "dev-dependencies: toml",
            "package: version",
            "lints"
        ]
    );
}
