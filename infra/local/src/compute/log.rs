//! Logs of functions: one bounded file each, and the last lines of each process for error messages.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A log file turns over at this size, in bytes; one older file is kept beside it.
pub const TURN_OVER_AT: u64 = 8 * 1024 * 1024;

/// A longer line is cut into pieces of this many bytes.
const LINE_LIMIT: usize = 64 * 1024;

/// How many lines an error message shows at most, and of how many characters.
const TAIL: (usize, usize) = (12, 400);

/// The log of one function, shared by its processes.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    turn_over_at: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl Log {
    /// Opens the log for appending.
    ///
    /// # Errors
    /// When the file cannot be opened or made.
    pub fn open(path: &Path, turn_over_at: u64) -> io::Result<Self> {
        let file = append_to(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), turn_over_at, open: Mutex::new(Open { file, size }) })
    }

    /// Writes one line. A full disk must not end a function, so a failed write is let go.
    pub fn line(&self, line: &[u8]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX).saturating_add(1);
        if open.size > 0 && open.size.saturating_add(length) > self.turn_over_at {
            let _ = self.turn_over(&mut open);
        }
        let mut whole = line.to_vec();
        whole.push(b'\n');
        if open.file.write_all(&whole).is_ok() {
            open.size = open.size.saturating_add(length);
        }
    }

    fn turn_over(&self, open: &mut Open) -> io::Result<()> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        fs::rename(&self.path, older)?;
        *open = Open { file: append_to(&self.path)?, size: 0 };
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The last lines of one process.
#[derive(Debug, Default)]
pub struct Tail(Mutex<VecDeque<String>>);

impl Tail {
    fn push(&self, line: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL.0 {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).chars().take(TAIL.1).collect());
    }

    /// The lines, oldest first, one per row.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Copies a process's output until it ends.
pub async fn copy(mut from: impl AsyncRead + Unpin, log: &Log, tail: &Tail) {
    let write = |line: &[u8]| {
        log.line(line);
        tail.push(line);
    };
    let (mut chunk, mut pending) = (vec![0; 8192], Vec::new());
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        for piece in chunk.get(..read).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    pending.extend_from_slice(end);
                    write(&pending);
                    pending.clear();
                }
                None => pending.extend_from_slice(piece),
            }
            if pending.len() >= LINE_LIMIT {
                write(&pending);
                pending.clear();
            }
        }
    }
    if !pending.is_empty() {
        write(&pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_keeps_whole_lines_and_turns_over_once_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        let (log, tail) = (Log::open(&path, 10).unwrap(), Tail::default());
        copy(&b"first\nsecond\nthird"[..], &log, &tail).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        assert_eq!(fs::read_to_string(folder.path().join("f.log.1")).unwrap(), "second\n");
        assert_eq!(tail.text(), "first\nsecond\nthird");
    }

    #[tokio::test]
    async fn an_endless_line_is_cut_and_not_kept_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.log");
        let log = Log::open(&path, TURN_OVER_AT).unwrap();
        copy(&vec![b'x'; 3 * LINE_LIMIT][..], &log, &Tail::default()).await;
        let written = fs::read_to_string(&path).unwrap();
        assert!(
            written.lines().count() >= 3 && written.lines().all(|line| line.len() < 2 * LINE_LIMIT)
        );
    }
}
