//! The binaries under test: those that this build made, or none.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail, ensure};

/// What a host needs to run.
const NAMES: &[&str] =
    &["postern-local", "postern", "ingress", "worker", "relay", "deliverer", "sweeper", "api"];

/// What to do about a binary that is not as it should be.
const ADVICE: &str =
    "run `cargo test --workspace`, or `cargo build --workspace --bins` before one suite";

/// The folder with the binaries, after all of them were found to be there and to be made from the sources as they are.
///
/// # Errors
/// One is missing, or older than a source it was made from.
pub fn folder() -> Result<&'static Path> {
    static CHECKED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let checked = CHECKED.get_or_init(|| {
        let folder = beside_this_test().map_err(|error| format!("{error:#}"))?;
        for name in NAMES {
            check(&folder.join(name)).map_err(|error| format!("{error:#}"))?;
        }
        Ok(folder)
    });
    match checked {
        Ok(folder) => Ok(folder),
        Err(why) => bail!("{why}"),
    }
}

/// An example program of a package, after it was found to be there and to be made from its sources as they are.
///
/// # Errors
/// It is missing, or older than a source it was made from.
pub fn example(name: &str) -> Result<PathBuf> {
    let program = folder()?.join("examples").join(name);
    check(&program)?;
    Ok(program)
}

/// A test runs from `target/debug/deps`; the binaries are one folder up.
fn beside_this_test() -> Result<PathBuf> {
    let test = env::current_exe().context("where is this test?")?;
    let folder = test.ancestors().nth(2).context("a test has folders above it")?;
    Ok(folder.to_owned())
}

/// Checks one binary against the list of its sources, which `cargo build` writes beside it. `cargo test` alone does not
/// write one: then all that a binary can be made of counts.
fn check(binary: &Path) -> Result<()> {
    let name = binary.display();
    let made = fs::metadata(binary).and_then(|data| data.modified());
    let made = made.with_context(|| format!("{name} is not there; {ADVICE}"))?;
    let list = binary.with_extension("d");
    let sources = match fs::read_to_string(&list) {
        Ok(text) => sources(&text),
        Err(_) => everything()?,
    };
    for source in sources {
        let changed = fs::metadata(&source).and_then(|data| data.modified());
        let changed =
            changed.with_context(|| format!("{source} is gone since {name} was made; {ADVICE}"))?;
        ensure!(changed <= made, "{name} is older than {source}; {ADVICE}");
    }
    Ok(())
}

/// Every source outside of tests.
fn everything() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders: Vec<_> =
        ["functions", "shared", "infra/local"].map(|name| crate::root().join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let is_of_tests = ["tests", "benches", "testkit", "target"]
                .iter()
                .any(|name| path.file_name().is_some_and(|own| own == *name));
            if path.is_dir() && !is_of_tests {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs")
            {
                found.push(path.display().to_string());
            }
        }
    }
    Ok(found)
}

/// The paths in a list of sources: `target: source source`, blanks in a path behind a backslash.
fn sources(list: &str) -> Vec<String> {
    let Some((_, list)) = list.split_once(": ") else { return Vec::new() };
    let mut paths = vec![String::new()];
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        let current = paths.last_mut();
        match (letter, letters.peek(), current) {
            ('\\', Some(' '), Some(path)) => {
                letters.next();
                path.push(' ');
            }
            (letter, _, Some(path)) if !letter.is_whitespace() => path.push(letter),
            _ => paths.push(String::new()),
        }
    }
    paths.retain(|path| !path.is_empty());
    paths
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_list_of_sources_is_read_with_its_blanks() {
        assert_eq!(
            sources("/t/a: /s/lib.rs /s/with\\ blank.rs\n"),
            ["/s/lib.rs", "/s/with blank.rs"]
        );
        assert!(sources("").is_empty());
    }

    #[test]
    fn a_binary_that_is_missing_or_older_than_a_source_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (binary, source) = (folder.path().join("worker"), folder.path().join("lib.rs"));
        let says = |word: &str| {
            let said = check(&binary).unwrap_err().to_string();
            assert!(said.contains(word) && said.contains("cargo"), "{said}");
        };
        says("is not there");
        fs::write(&source, "").unwrap();
        fs::write(&binary, "").unwrap();
        // Nobody has touched the product a moment ago, but this binary is of a moment ago.
        check(&binary).unwrap();
        let long_ago =
            fs::metadata(&source).unwrap().modified().unwrap() - Duration::from_hours(1_000_000);
        fs::File::options().write(true).open(&binary).unwrap().set_modified(long_ago).unwrap();
        says("is older than");
        fs::write(&binary, "").unwrap();
        fs::write(
            folder.path().join("worker.d"),
            format!("{}: {}\n", binary.display(), source.display()),
        )
        .unwrap();
        check(&binary).unwrap();
        let later = fs::metadata(&source).unwrap().modified().unwrap() + Duration::from_secs(5);
        fs::File::options().write(true).open(&source).unwrap().set_modified(later).unwrap();
        says("is older than");
        fs::remove_file(&source).unwrap();
        says("is gone");
    }

    /// `cargo test --workspace` makes a package's binary only if the package has an integration test.
    #[test]
    fn every_package_whose_binary_the_suites_run_has_an_integration_test() {
        let root = crate::root();
        let folders = ["ingress", "worker", "relay", "deliverer", "sweeper", "api"];
        let mut folders: Vec<_> =
            folders.iter().map(|name| root.join("functions").join(name)).collect();
        folders.push(root.join("infra/local"));
        let has_tests = |folder: &PathBuf| {
            fs::read_dir(folder.join("tests")).is_ok_and(|files| {
                let is_test = |path: PathBuf| {
                    path.extension().is_some_and(|end| end == "rs")
                        || path.join("main.rs").is_file()
                };
                files.flatten().any(|file| is_test(file.path()))
            })
        };
        let without: Vec<_> = folders.into_iter().filter(|folder| !has_tests(folder)).collect();
        assert!(
            without.is_empty(),
            "{without:?}: their binaries would be missing or stale in the end-to-end suites"
        );
    }
}
