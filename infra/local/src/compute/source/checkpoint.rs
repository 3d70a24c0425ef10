//! How far a function has read a stream; it survives a restart of the host.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Where the place in one stream is kept: a file, or nowhere when the stream itself is in memory.
#[derive(Clone, Debug)]
pub struct Checkpoint(Option<PathBuf>);

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    sequence: String,
}

/// A checkpoint that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the place in a stream from {path}; remove that file to read the stream from its start", path = path.display())]
pub struct Unreadable {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Checkpoint {
    /// A checkpoint in this file.
    #[must_use]
    pub fn file(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// A checkpoint that is forgotten with the process.
    #[must_use]
    pub fn memory() -> Self {
        Self(None)
    }

    /// The last sequence number that is done. `None`: nothing is yet.
    ///
    /// # Errors
    /// When there is a file that does not hold one.
    pub fn load(&self) -> Result<Option<String>, Unreadable> {
        let Some(path) = &self.0 else { return Ok(None) };
        let read = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        };
        let kept: Kept = read.map_err(|source| Unreadable { path: path.clone(), source })?;
        Ok(Some(kept.sequence))
    }

    /// Keeps a place. When that fails, records come again after a restart, which is allowed at any time.
    pub fn save(&self, sequence: &str) {
        let Some(path) = &self.0 else { return };
        let fresh = path.with_extension("new");
        let kept = Kept { sequence: sequence.to_owned() };
        let written = serde_json::to_vec(&kept)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&fresh, text));
        if let Err(error) = written.and_then(|()| fs::rename(&fresh, path)) {
            tracing::warn!(path = %path.display(), %error, "cannot keep the place in a stream");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_again_and_nonsense_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("relay.json");
        let checkpoint = Checkpoint::file(path.clone());
        assert_eq!(checkpoint.load().unwrap(), None);
        checkpoint.save("000000000000000000007");
        assert_eq!(
            Checkpoint::file(path.clone()).load().unwrap().as_deref(),
            Some("000000000000000000007")
        );
        fs::write(&path, "{").unwrap();
        assert!(checkpoint.load().unwrap_err().to_string().contains("remove that file"));
    }
}
