//! A public key and its time of validity out of a certificate. Nothing else in it is believed: the certificate is trusted
//! because it came over TLS from the one host that the scheme names, so no chain is built here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use x509_parser::certificate::X509CertificateParser;
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::time::ASN1Time;

use crate::asymmetric::PublicKey;

/// Characters of a PEM text with its chain. Providers send about 2 000 a certificate.
const MOST_TEXT: usize = 32 * 1024;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Reads the RSA key of the first certificate of a PEM text; whatever follows is its chain.
pub(crate) fn read(pem: &str) -> Option<PublicKey> {
    let der = block(pem)?;
    // extensions stay unparsed: nothing of them is used, and they are the larger part of any such parser
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (rest, certificate) = parser.parse(&der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let body = &certificate.tbs_certificate;
    if body.subject_pki.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return None;
    }
    let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    let (from, until) = (time(body.validity.not_before)?, time(body.validity.not_after)?);
    let key = PublicKey::rsa(&body.subject_pki.subject_public_key.data).ok()?;
    Some(key.within(Some(from), Some(until)))
}

/// The bytes of a PEM text that begins with a certificate.
fn block(pem: &str) -> Option<Vec<u8>> {
    if pem.len() > MOST_TEXT {
        return None;
    }
    let (content, _) = pem.trim_ascii_start().strip_prefix(BEGIN)?.split_once(END)?;
    let content: String = content.split_ascii_whitespace().collect();
    STANDARD.decode(content).ok()
}
