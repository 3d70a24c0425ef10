//! The state folder: everything that outlives one run of the host, for one host at a time.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::compute::token::Token;

/// A state folder that is ours until it is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    // The lock lives as long as the open file; the system gives it back even after `kill -9`.
    _lock: File,
}

/// A state folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another host works in it.
    #[error(
        "the state folder {path} is in use by another local host (process {holder}); \
         stop that one, or choose another folder with --state", path = path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The number of the process that holds it.
        holder: String,
    },
    /// It cannot be made, read or written.
    #[error("cannot use the state folder: {what} {path}; it must be a folder that you may read and write", path = path.display())]
    Broken {
        /// What failed.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The token in it is none.
    #[error("{path} does not hold a token; remove that file, and the next start makes a new one", path = path.display())]
    BadToken {
        /// The file.
        path: PathBuf,
    },
}

impl Folder {
    /// Makes the folder where it is missing, readable for its owner only, and takes it.
    ///
    /// # Errors
    /// [`FolderError`]
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        make(path)?;
        let path = path.canonicalize().map_err(broken("cannot find", path))?;
        let lock_path = path.join("lock");
        let mut lock =
            private().read(true).open(&lock_path).map_err(broken("cannot open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "unknown" } else { holder }.to_owned();
                return Err(FolderError::InUse { path, holder });
            }
            Err(TryLockError::Error(source)) => {
                return Err(broken("cannot lock", &lock_path)(source));
            }
        }
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(broken("cannot write", &lock_path))?;
        let folder = Self { path, _lock: lock };
        make(&folder.logs())?;
        make(&folder.streams())?;
        Ok(folder)
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the logs of functions are.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Where the places in streams are.
    #[must_use]
    pub fn streams(&self) -> PathBuf {
        self.path.join("streams")
    }

    /// The list of processes alive.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.path.join("processes.json")
    }

    /// The token, made on the first call.
    ///
    /// # Errors
    /// [`FolderError`]
    pub fn token(&self) -> Result<Token, FolderError> {
        let path = self.path.join("token");
        match fs::read_to_string(&path) {
            Ok(text) => Token::parse(&text).ok_or(FolderError::BadToken { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Token::random();
                let made = private().create_new(true).open(&path);
                made.and_then(|mut file| writeln!(file, "{}", token.reveal()))
                    .map_err(broken("cannot write", &path))?;
                Ok(token)
            }
            Err(source) => Err(broken("cannot read", &path)(source)),
        }
    }
}

fn make(path: &Path) -> Result<(), FolderError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(broken("cannot make", path))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

pub(crate) fn broken(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Broken { what, path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_is_private_and_keeps_its_token() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/.postern");
        let token = Folder::open(&path).unwrap().token().unwrap();
        assert_eq!(Folder::open(&path).unwrap().token().unwrap(), token);
        for (file, mode) in [("", 0o700), ("token", 0o600), ("lock", 0o600), ("logs", 0o700)] {
            assert_eq!(
                fs::metadata(path.join(file)).unwrap().permissions().mode() & 0o777,
                mode,
                "{file}"
            );
        }
        fs::write(path.join("token"), "").unwrap();
        assert!(matches!(Folder::open(&path).unwrap().token(), Err(FolderError::BadToken { .. })));
    }

    #[test]
    fn one_host_at_a_time_and_the_second_hears_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let first = Folder::open(folder.path()).unwrap();
        let error = Folder::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())) && error.contains("--state"),
            "{error}"
        );
        drop(first);
        Folder::open(folder.path()).unwrap();
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_named() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("state");
        fs::write(&path, "").unwrap();
        let error = Folder::open(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
