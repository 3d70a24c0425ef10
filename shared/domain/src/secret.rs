//! Secret text on its way from a keyring to the code that signs or verifies.

use std::fmt;

use zeroize::Zeroizing;

/// A secret. It does not print, does not compare with `==`, and is wiped when dropped.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Wraps a secret.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself, for the code that computes with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-secret-in-logs
    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", SecretText::new("whsec_x".to_owned())), "SecretText(..)");
    }
}
