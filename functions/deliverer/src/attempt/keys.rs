//! What opens doors, kept for as long as the process lives: secrets that were unsealed, and tokens that were had.
//!
//! Unsealing is a call to KMS, and a token is one to a stranger's server; neither need be made for every pass over a
//! lane. Both are bounded, do not print, and are wiped when they go.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Mutex, PoisonError},
};

use domain::{
    body::Sha256Hash,
    endpoint::Endpoint,
    id::{EndpointId, TenantId},
    ports::{Keyring, Stored},
    secret::SecretText,
};
use jiff::Timestamp;

/// Secrets, and tokens, that are kept at most. A deliverer that serves more endpoints than this asks for some again.
const MOST: usize = 1000;

/// Whose secret it is, and how it is sealed. The same bytes under another endpoint's name are another secret: KMS would
/// refuse them there, and so do we.
type Sealed = (TenantId, EndpointId, Vec<u8>);

/// A keyring that remembers, and the tokens of those who ask for one.
pub struct Keys<K> {
    keyring: K,
    opened: Mutex<Kept<Sealed, SecretText>>,
    tokens: Mutex<Kept<Sha256Hash, Token>>,
}

impl<K> fmt::Debug for Keys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// An access token.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// The token.
    pub(super) value: SecretText,
    /// When it is not used any more.
    pub(super) until: Timestamp,
    /// Which one it is, among those that this process had.
    pub(super) serial: u64,
}

impl<K> Keys<K> {
    /// Nothing yet.
    pub fn new(keyring: K) -> Self {
        Self { keyring, opened: Mutex::default(), tokens: Mutex::default() }
    }

    /// The keyring itself.
    pub const fn keyring(&self) -> &K {
        &self.keyring
    }

    /// The token that is kept under this name, while it can be used.
    pub(super) fn token(&self, name: &Sha256Hash, now: Timestamp) -> Option<Token> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(name).filter(|token| now < token.until).cloned()
    }

    /// Keeps a token that was just had.
    pub(super) fn keep(&self, name: Sha256Hash, value: SecretText, until: Timestamp) -> Token {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.count += 1;
        let token = Token { value, until, serial: tokens.count };
        tokens.put(name, token.clone());
        token
    }

    /// Forgets a token that was not accepted, unless somebody has had another one since.
    pub(super) fn forget(&self, name: &Sha256Hash, serial: u64) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.get(name).is_some_and(|token| token.serial == serial) {
            tokens.remove(name);
        }
    }
}

impl<K: Keyring> Keys<K> {
    /// Unseals a secret of an endpoint, or remembers it.
    ///
    /// # Errors
    /// Those of the keyring, which are not remembered.
    pub(super) async fn unseal(&self, endpoint: &Endpoint, sealed: &[u8]) -> Stored<SecretText> {
        let name: Sealed = (endpoint.tenant.clone(), endpoint.id, sealed.to_vec());
        if let Some(known) = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(known.clone());
        }
        let secret = self.keyring.unseal(&endpoint.tenant, endpoint.id, sealed).await?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).put(name, secret.clone());
        Ok(secret)
    }
}

/// At most [`MOST`] values; the one that was put first goes first.
struct Kept<N, V> {
    values: BTreeMap<N, V>,
    order: VecDeque<N>,
    count: u64,
}

impl<N, V> Default for Kept<N, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), order: VecDeque::new(), count: 0 }
    }
}

impl<N: Ord + Clone, V> Kept<N, V> {
    fn get(&self, name: &N) -> Option<&V> {
        self.values.get(name)
    }

    fn put(&mut self, name: N, value: V) {
        if self.values.insert(name.clone(), value).is_none() {
            self.order.push_back(name);
        }
        while self.order.len() > MOST {
            if let Some(first) = self.order.pop_front() {
                self.values.remove(&first);
            }
        }
    }

    fn remove(&mut self, name: &N) {
        self.values.remove(name);
        self.order.retain(|kept| kept != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_first_goes_first() {
        let mut kept = Kept::default();
        for n in 0..=MOST {
            kept.put(n, n);
            kept.put(n, n + 1);
        }
        assert_eq!((kept.values.len(), kept.order.len()), (MOST, MOST));
        assert_eq!((kept.get(&0), kept.get(&1)), (None, Some(&2)));
        kept.remove(&1);
        assert_eq!((kept.values.len(), kept.order.len()), (MOST - 1, MOST - 1));
    }

    #[test]
    fn only_the_token_that_was_refused_is_forgotten() {
        let (keys, name) = (Keys::new(()), Sha256Hash::of(b"x"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let text = || SecretText::new("t".to_owned());
        let first = keys.keep(name, text(), at(10));
        assert!(keys.token(&name, at(9)).is_some());
        assert!(keys.token(&name, at(10)).is_none());
        let second = keys.keep(name, text(), at(20));
        keys.forget(&name, first.serial);
        assert_eq!(keys.token(&name, at(9)).unwrap().serial, second.serial);
        keys.forget(&name, second.serial);
        assert!(keys.token(&name, at(9)).is_none());
    }
}
