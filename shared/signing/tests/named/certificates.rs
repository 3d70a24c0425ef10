//! Certificates as hostile as they may be, through the one door that they have.

use proptest::prelude::*;
use signing::{Key, KeyError, Scheme};

use crate::provider::{P256, RSA, base64, certificate, flipped, scheme};

/// RSA with 1024 bits, made once; the private key was thrown away.
const WEAK: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIICFjCCAX+gAwIBAgIUSMBZQQkIvEK3ezZ53ARy0j7aF1gwDQYJKoZIhvcNAQEL\n\
BQAwHDEaMBgGA1UEAwwRd2Vhay5leGFtcGxlLnRlc3QwIBcNMjYxMTMwMjIwMTUz\n\
WhgPMjEyNjExMDYyMjAxNTNaMBwxGjAYBgNVBAMMEXdlYWsuZXhhbXBsZS50ZXN0\n\
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC5PY2cwWxwCWtouimVJ/+Qvn2K\n\
RuHdOeBZXLujf1f3ZuNq1n64N4hx4oDdQV0uKWWh03yOgfCl1NzRiaKnRB63MWBR\n\
5KRA1UgPGAiQ20ByC+GmAflhfqjc8+LwV4cU8ACJohhGioref5ZwM8L1Dao0EQyF\n\
8OGkteHQ4HrGuS0g8wIDAQABo1MwUTAdBgNVHQ4EFgQUswk8d7Rj5I1OYZOa6MUx\n\
mtg3PvcwHwYDVR0jBBgwFoAUswk8d7Rj5I1OYZOa6MUxmtg3PvcwDwYDVR0TAQH/\n\
BAUwAwEB/zANBgkqhkiG9w0BAQsFAAOBgQCgABO1y3RP7JmqBMLtvDYcvbW9+QDT\n\
fxoYmhijzr1wYTlobSCkfkA8ZETb5PzHtaQSmrLIcuhJhnRsGV+7LK8V6anHWxdY\n\
TBszqbnLGKiX0IG0asKvVaWY66CWjmEJJVZKMETQzq26it0HIs+lgZbVLrAWrAfF\n\
hEFw9kI5Ll1yvQ==\n\
-----END CERTIFICATE-----";

fn sns() -> Scheme {
    scheme(r#"verifier = "sns""#)
}

fn published(text: &str) -> Result<Key, KeyError> {
    Key::published(
        &sns(),
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
        text,
    )
}

#[test]
fn the_first_certificate_counts_and_what_follows_is_its_chain() {
    let good = certificate(RSA, 2020..2126);
    assert!(published(&good).is_ok());
    assert!(published(&good.replace('\n', "\r\n")).is_ok());
    assert!(published(&format!("\n{good}{}", certificate(P256, 2020..2126))).is_ok());
    assert!(published(&format!("{}{good}", certificate(P256, 2020..2126))).is_err());
    assert!(published(WEAK).is_err());
}

#[test]
fn what_is_no_certificate_is_no_key() {
    let good = certificate(RSA, 2020..2126);
    let body: String = good.lines().filter(|line| !line.starts_with('-')).collect();
    let begin = "-----BEGIN CERTIFICATE-----";
    for bad in [
        String::new(),
        "hello".into(),
        body.clone(),
        begin.into(),
        good.replace("BEGIN CERTIFICATE", "BEGIN PRIVATE KEY"),
        good.replace("END CERTIFICATE", "END PRIVATE KEY"),
        good.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        good.replace("-----END", ""),
        format!("{begin}\n-----END CERTIFICATE-----\n"),
        format!("{begin}\n{}\n-----END CERTIFICATE-----\n", &body[..body.len() - 8]),
        format!("{begin}\n{body}AAAA\n-----END CERTIFICATE-----\n"),
        format!("{begin}\nProc-Type: 4,ENCRYPTED\n{body}\n-----END CERTIFICATE-----\n"),
        format!("{begin}\n{}\n-----END CERTIFICATE-----\n", "A".repeat(40_000)),
        "-----BEGIN ".repeat(1_000),
    ] {
        assert!(published(&bad).is_err(), "{bad}");
    }
}

/// A sequence inside a sequence, and so on: a parser that recurses would end the process.
#[test]
fn nesting_does_not_end_the_process() {
    for tag in [0x30_u8, 0x31, 0xa0, 0xa3, 0x24] {
        let mut der = Vec::new();
        for _ in 0..5_000 {
            let length = u16::try_from(der.len()).unwrap().to_be_bytes();
            der = [&[tag, 0x82, length[0], length[1]][..], &der].concat();
        }
        let pem =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(&der));
        assert!(published(&pem).is_err());
    }
}

proptest! {
    #[test]
    fn no_changed_certificate_panics(bit in 0_usize..20_000, cut in 0_usize..2_000) {
        let good = certificate(RSA, 2020..2126);
        let body: String = good.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).unwrap();
        for changed in [flipped(&der, bit), der[..cut.min(der.len())].to_vec()] {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(&changed));
            let _ = published(&pem);
        }
    }

    #[test]
    fn no_garbage_panics(bytes in prop::collection::vec(any::<u8>(), 0..400), text in "\\PC{0,200}") {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(&bytes));
        prop_assert!(published(&pem).is_err());
        prop_assert!(published(&text).is_err());
    }
}
