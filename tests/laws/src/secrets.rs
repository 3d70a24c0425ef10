//! Secrets as people paste them.
//!
//! An input is a line with the name of a preset, and the text of a secret. Nothing of it is ever repeated, and what is
//! taken is taken again after it was written.

use signing::{EndpointSecret, Key, Scheme, Secret, SigningKey, preset_names};

use crate::{bounded, bytes::Bytes};

/// The law of an input.
pub fn law(input: &[u8]) {
    let mut input = Bytes(input);
    let presets: Vec<_> = preset_names().collect();
    let name = input.line();
    let name = presets.iter().find(|preset| preset.as_bytes() == name).unwrap_or(&presets[0]);
    let Ok(text) = std::str::from_utf8(input.0) else { return };
    let scheme = Scheme::preset(name).unwrap();
    let key = bounded(text.len(), 64, || Key::parse(&scheme, "k", &Secret::new(text)));
    let told = [
        key.as_ref().err().map(ToString::to_string),
        SigningKey::parse(&scheme, &Secret::new(text)).err().map(|error| error.to_string()),
        EndpointSecret::parse(&Secret::new(text)).err().map(|error| error.to_string()),
        Some(format!("{key:?} {:?}", Secret::new(text))),
    ];
    // Words may be in a message by themselves, and a fuzzer finds them; six digits may not.
    let is_telling = text.bytes().filter(u8::is_ascii_digit).count() >= 6;
    for told in told.into_iter().flatten() {
        assert!(!is_telling || !told.contains(text.trim()), "{told}");
    }
    if let Ok(key) = &key {
        assert!(!text.trim().is_empty());
        assert_eq!(key.id().as_str(), "k");
    }
    if let Ok(secret) = EndpointSecret::parse(&Secret::new(text)) {
        let again = EndpointSecret::parse(&secret.expose()).unwrap();
        assert_eq!(again.expose().expose(), secret.expose().expose());
        assert_eq!(again.public_key(), secret.public_key());
    }
}
