//! Keys in files, and bytes sealed with them (AES-256-GCM, random nonce in front).

use std::{fmt, io, path::Path};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::files::{self, Existing};

const KEY_BYTES: usize = 32;

/// A 256-bit key that lives in a file only its owner may read.
pub(super) struct Key(LessSafeKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Reads the key, making it first where there is none.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        match files::write(path, &rand::random::<[u8; KEY_BYTES]>(), Existing::Keep) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let bytes = std::fs::read(path)?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} does not hold a key of {KEY_BYTES} bytes", path.display()),
            )
        })?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Nonce, ciphertext and tag; opens only with the same `bound` bytes.
    pub(super) fn seal(&self, plain: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut sealed = nonce.to_vec();
        let mut text = plain.to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound),
                &mut text,
            )
            .ok()?;
        sealed.append(&mut text);
        Some(sealed)
    }

    /// The plain bytes; `None` if they were sealed with another key or bound to something else, or were changed.
    pub(super) fn open(&self, sealed: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let plain = self
            .0
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(bound), &mut text)
            .ok()?;
        Some(plain.to_vec())
    }
}
