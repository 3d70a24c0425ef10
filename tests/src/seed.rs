//! Randomness that can be had again.

use rand::{SeedableRng as _, rngs::StdRng};
use sha2::{Digest as _, Sha256};

/// The seeds of a suite: its own, or the one in `POSTERN_SEED`.
pub fn seeds(own: &[u64]) -> Vec<u64> {
    match crate::setting("POSTERN_SEED").and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => own.to_vec(),
    }
}

/// The randomness of one seed.
pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Prints how to replay a seed, if the test fails before it is dropped or told that all is well.
#[derive(Debug)]
pub struct Replay {
    suite: &'static str,
    seed: u64,
    is_well: bool,
}

impl Replay {
    /// Watches over one seed of a suite.
    pub fn of(suite: &'static str, seed: u64) -> Self {
        Self { suite, seed, is_well: false }
    }

    /// Nothing has failed.
    pub fn well(mut self) {
        self.is_well = true;
    }
}

impl Drop for Replay {
    #[expect(clippy::print_stderr, reason = "for whoever reads the failed test")]
    fn drop(&mut self) {
        if !self.is_well {
            let Self { suite, seed, .. } = self;
            eprintln!(
                "seed {seed} failed; replay it: POSTERN_SEED={seed} cargo test -p tests --test {suite}"
            );
        }
    }
}

/// 32 bytes that belong to a name, as a key that a test can make again.
pub fn bytes_of(name: &str) -> [u8; 32] {
    Sha256::digest(name).into()
}

/// The same in hexadecimal.
pub fn text_of(name: &str) -> String {
    hex::encode(bytes_of(name))
}
