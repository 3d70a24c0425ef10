//! Building what is not up to date.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::complaint::Complaint;

/// What runs: the local host, and every function of the template.
const NEEDED: &[&str] =
    &["postern-local", "ingress", "worker", "relay", "deliverer", "sweeper", "api"];

/// The folder with the binaries, which is where this program itself is. Builds them unless they are up to date.
pub(super) fn binaries(root: &Path, as_they_are: bool) -> Result<PathBuf, Complaint> {
    let me = env::current_exe().map_err(|error| {
        Complaint::new(
            "this program does not find itself",
            error.to_string(),
            "start it by its path",
        )
    })?;
    let folder = me.parent().unwrap_or(root).to_owned();
    let lock = root.join("Cargo.lock");
    if as_they_are || NEEDED.iter().all(|name| is_fresh(&folder.join(name), &lock)) {
        return Ok(folder);
    }
    #[expect(clippy::disallowed_methods, reason = "cargo says where it is in this way only")]
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // All binaries of the workspace in one call: a call for one package would build its dependencies anew.
    build.arg("build").arg("--bins").current_dir(root);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_this_package) {
            build.env_remove(name);
        }
    }
    if folder.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    let status = build.status().map_err(|error| {
        Complaint::new(
            "cargo cannot be started",
            error.to_string(),
            "install the Rust toolchain, or give --no-build",
        )
    })?;
    if status.success() {
        return Ok(folder);
    }
    Err(Complaint::new(
        "the functions do not build",
        format!("`cargo build --bins` ended with {status}"),
        "mend what the compiler names above, and start again",
    ))
}

/// Whether cargo, which has started this program, has set a variable to tell it of its package. A build that inherits it
/// looks different to build scripts that ask for it, and they, and all that depends on them, are built anew: minutes.
fn is_of_this_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_")
        || matches!(variable, "CARGO_MANIFEST_DIR" | "CARGO_MANIFEST_PATH" | "CARGO_MANIFEST_LINKS")
}

/// Whether a binary is newer than every file that it was built from, as cargo's own note beside it says, and than the
/// versions of what it was built with. Asking cargo itself would take longer than the whole start.
fn is_fresh(binary: &Path, lock: &Path) -> bool {
    let Ok(built) = fs::metadata(binary).and_then(|data| data.modified()) else { return false };
    let Ok(note) = fs::read_to_string(binary.with_extension("d")) else { return false };
    let Some((_, sources)) = note.split_once(": ") else { return false };
    let is_older = |file: &Path| {
        fs::metadata(file).and_then(|data| data.modified()).is_ok_and(|changed| changed <= built)
    };
    is_older(lock) && paths(sources).iter().all(|source| is_older(Path::new(source)))
}

/// The paths of a dep-info line, in which a space inside a path is escaped.
fn paths(line: &str) -> Vec<String> {
    let line = line.trim_end().replace("\\ ", "\u{0}");
    line.split(' ').filter(|path| !path.is_empty()).map(|path| path.replace('\u{0}', " ")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_build_does_not_inherit_what_cargo_says_of_this_package() {
        let kept = ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "PATH"];
        assert!(!kept.into_iter().any(is_of_this_package));
        let dropped = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_DIR"];
        assert!(dropped.into_iter().all(is_of_this_package));
    }

    #[test]
    fn a_path_may_hold_spaces() {
        assert_eq!(paths("/a/b.rs /my\\ code/c.rs\n"), ["/a/b.rs", "/my code/c.rs"]);
    }

    #[test]
    fn a_binary_is_stale_when_a_source_is_newer_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let [binary, source, lock] =
            ["ingress", "lib.rs", "Cargo.lock"].map(|name| folder.path().join(name));
        fs::write(&source, "").unwrap();
        fs::write(&lock, "").unwrap();
        fs::write(&binary, "").unwrap();
        let note = format!("{}: {}\n", binary.display(), source.display());
        fs::write(binary.with_extension("d"), note).unwrap();
        let built = fs::metadata(&binary).unwrap().modified().unwrap();
        let set = |file: &Path, at| {
            fs::File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
        };
        let (before, after) = (built - Duration::from_secs(1), built + Duration::from_secs(1));

        set(&source, before);
        set(&lock, before);
        assert!(is_fresh(&binary, &lock));
        set(&lock, after);
        assert!(!is_fresh(&binary, &lock));
        set(&lock, before);
        set(&source, after);
        assert!(!is_fresh(&binary, &lock));
        fs::remove_file(&source).unwrap();
        assert!(!is_fresh(&binary, &lock));
    }
}
