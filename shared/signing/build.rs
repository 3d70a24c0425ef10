//! Lists the folder `presets`, so that a provider that fits the data form is one file and no code.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for file in fs::read_dir(&folder)? {
        let path = file?.path();
        if let (Some(name), Some("toml")) = (
            path.file_stem().and_then(|name| name.to_str()).map(ToOwned::to_owned),
            path.extension().and_then(|extension| extension.to_str()),
        ) {
            files.push((name, path));
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (name, path) in files {
        let _ = writeln!(list, "    ({name:?}, include_str!({path:?})),");
    }
    list.push(']');
    #[expect(
        clippy::disallowed_methods,
        reason = "this is how cargo tells a build script where to write"
    )]
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("presets.rs"), list)
}
