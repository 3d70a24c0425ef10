//! Small files that are there whole or not at all, whatever is killed when.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::answer::fresh_id;

/// What to do when the file is there already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Existing {
    Replace,
    Keep,
}

/// Writes a file that only its owner may read: first beside it, then in its place, both synced.
///
/// # Errors
/// `AlreadyExists` under [`Existing::Keep`], and whatever the disk says.
pub(super) fn write(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let beside = Beside(folder.join(format!(".{}.part", fresh_id())));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match existing {
        Existing::Replace => std::fs::rename(&beside.0, path)?,
        // a link, unlike a rename, fails when the name is taken: one of two writers wins
        Existing::Keep => std::fs::hard_link(&beside.0, path)?,
    }
    File::open(folder)?.sync_all()
}

/// A file under a name of its own, removed on the way out (after a rename there is nothing left to remove).
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}
