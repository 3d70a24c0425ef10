//! Text that must not be seen.

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A secret as a person pastes it or a store returns it. Does not print, does not compare, is wiped on drop.
///
/// ```compile_fail,E0369
/// let (a, b) = (signing::Secret::new("one"), signing::Secret::new("two"));
/// let same = a == b; // no `==`: comparing secrets is the business of a constant-time function
/// ```
/// ```compile_fail,E0277
/// println!("{}", signing::Secret::new("one")); // no `Display`
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over; the caller should not keep another copy.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::new)
    }
}
