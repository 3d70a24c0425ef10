//! What all the providers here share: requests as they arrive, verdicts as short text, and keys.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use signing::{Identity, Key, Request, Scheme, Secret, verify};

/// 2026-01-01T00:00:00Z
pub(crate) const NOW: i64 = 1_767_225_600;
/// A key that protects nothing.
pub(crate) const RSA: &[u8] = include_bytes!("keys/rsa-2048.pk8");
pub(crate) const P256: &[u8] = include_bytes!("keys/p256.pk8");

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

pub(crate) fn scheme(toml: &str) -> Scheme {
    Scheme::from_toml(toml).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn key(scheme: &Scheme, id: &str, secret: &str) -> Key {
    Key::parse(scheme, id, &Secret::new(secret)).unwrap()
}

/// A request as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) method: &'static str,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn new(body: impl Into<Vec<u8>>) -> Self {
        let url = "https://hooks.example.test/in".into();
        Self { method: "POST", url, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with another value.
    pub(crate) fn but(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.retain(|(present, _)| present != name);
        self.with(name, value)
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(present, _)| present != name);
        self
    }

    pub(crate) fn read(
        &self,
        scheme: &Scheme,
        keys: &[Key],
        now: i64,
    ) -> Result<(String, Identity, [u8; 32]), signing::Rejected> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(name.parse::<HeaderName>().unwrap(), value);
        }
        let request = Request {
            method: self.method,
            url: &self.url,
            headers: &headers,
            body: &self.body,
            path_secret: None,
        };
        let verified = verify(scheme, keys, &request, at(now))?;
        let (key, hash) = (verified.key().to_string(), verified.signed_hash());
        Ok((key, verified.into_identity(), hash))
    }

    /// `ok`, or the class and the code of the refusal.
    pub(crate) fn verdict_at(&self, scheme: &Scheme, keys: &[Key], now: i64) -> String {
        match self.read(scheme, keys, now) {
            Ok(_) => "ok".into(),
            Err(rejected) => format!("{}: {}", rejected.class(), rejected.reason().code()),
        }
    }

    pub(crate) fn verdict(&self, scheme: &Scheme, keys: &[Key]) -> String {
        self.verdict_at(scheme, keys, NOW)
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn url_base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

pub(crate) fn sha1(bytes: &[u8]) -> Vec<u8> {
    Sha1::digest(bytes).to_vec()
}

pub(crate) fn hmac_sha1(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn rsa_sha256(message: &[u8]) -> Vec<u8> {
    let pair = RsaKeyPair::from_pkcs8(RSA).unwrap();
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
    signature
}

pub(crate) fn es256(message: &[u8]) -> Vec<u8> {
    let pair = p256();
    pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
}

fn p256() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, P256, &random).unwrap()
}

/// Both coordinates of the public key, 32 bytes each.
pub(crate) fn p256_point() -> (Vec<u8>, Vec<u8>) {
    let point = p256().public_key().as_ref().to_vec();
    (point[1..33].to_vec(), point[33..].to_vec())
}

/// A token in three parts.
pub(crate) fn token(header: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", url_base64(header), url_base64(claims));
    let signature = url_base64(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// A certificate that signs itself, valid in these whole years.
pub(crate) fn certificate(key: &[u8], years: std::ops::Range<i32>) -> String {
    let algorithm = if key == RSA { &PKCS_RSA_SHA256 } else { &PKCS_ECDSA_P256_SHA256 };
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(&key.into(), algorithm).unwrap();
    let mut params = CertificateParams::new(vec!["certificates.example.test".into()]).unwrap();
    params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
    params.self_signed(&pair).unwrap().pem()
}

/// Any single bit of these bytes turned over.
pub(crate) fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let bit = bit % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}
