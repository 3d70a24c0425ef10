//! What is known of a source's health: its heartbeat, the matches of its secrets, its refused requests.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    id::SourceName,
    ports::{RejectSample, SourceHealth, Stored},
};
use jiff::Timestamp;

use crate::{
    item::{Item, Reader, Writer, json},
    keys,
};

/// What the attributes that count refused requests begin with.
const COUNT: &str = "n_";

/// The attribute that counts the requests refused for a reason. Codes are our own words; should one be none, its count
/// goes to the others'.
pub(crate) fn count_name(code: &str) -> String {
    let is_word = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    format!("{COUNT}{}", if is_word { code } else { "other" })
}

/// Adds what an item of a source's partition says to the source's health. Counts of hours that began at `since` or
/// before are left out.
pub(crate) fn read_into(
    health: &mut SourceHealth,
    item: Reader<'_>,
    since: Timestamp,
) -> Stored<()> {
    let sk = item.str("sk")?;
    if sk == keys::HEARTBEAT {
        let matched_at = item.some("matched_at", Reader::time)?;
        let failing_since = item.some("failing_since", Reader::time)?;
        health.last_accepted_at = item.some("at", Reader::time)?;
        health.last_rejected_at = item.some("last_rejected_at", Reader::time)?;
        health.last_reject_reason = item.some_text("last_reject_reason")?;
        health.failing_since = failing_since.filter(|since| Some(*since) > matched_at);
    } else if sk.starts_with(keys::SECRETS) {
        health.secrets.insert(item.str("secret")?.to_owned(), item.time("at")?);
    } else if let Some(hour) = sk.strip_prefix(keys::REJECTS) {
        let hour = hour.parse().ok().and_then(|hour| Timestamp::from_millisecond(hour).ok());
        if hour.ok_or_else(|| item.bad("sk"))? > since {
            for name in item.0.keys() {
                let Some(code) = name.strip_prefix(COUNT) else { continue };
                *health.rejects.entry(code.to_owned()).or_default() += item.number::<u64>(name)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn write_sample(
    source: &SourceName,
    place: usize,
    sample: &RejectSample,
    expires_at: AttributeValue,
) -> Stored<Item> {
    let item = Writer::new(keys::sample(source, place), "reject_sample")
        .put("sample", json(sample)?)
        .put("expires_at", expires_at);
    Ok(item.done())
}

pub(crate) fn read_sample(item: &Item) -> Stored<RejectSample> {
    Reader(item).json("sample")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{ms, n, s, show};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    #[test]
    fn a_refused_request_reads_back_and_is_written_as_it_has_always_been() {
        let sample = RejectSample {
            at: at(1_790_000_000_123),
            reason: "mismatch".to_owned(),
            class: "signature".to_owned(),
            advice: "Compare the secrets.".to_owned(),
            method: "POST".to_owned(),
            headers: [("content-type".to_owned(), "text/plain".to_owned())].into(),
            body_sha256: "ab".repeat(32),
            body_length: 12,
        };
        let item = write_sample(&"hub".parse().unwrap(), 3, &sample, n(1_800_000_000)).unwrap();
        assert_eq!(read_sample(&item).unwrap(), sample);
        insta::assert_snapshot!(show(&item));
    }

    #[test]
    fn an_odd_code_cannot_break_the_wording_of_an_update() {
        assert_eq!(count_name("stale"), "n_stale");
        assert_eq!(count_name("a b#c"), "n_other");
    }

    #[test]
    fn health_is_the_sum_of_the_items() {
        let item = |sk: &str, more: &[(&str, AttributeValue)]| -> Item {
            let key = [("pk", s("HEARTBEAT#hub")), ("sk", s(sk))];
            let all = key.into_iter().chain(more.iter().cloned());
            all.map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let items = [
            item(
                "LAST",
                &[("at", ms(at(5))), ("matched_at", ms(at(9))), ("failing_since", ms(at(7)))],
            ),
            item("SECRET#old", &[("secret", s("old")), ("at", ms(at(4)))]),
            item("REJECTS#0000000000100", &[("n_stale", n(2)), ("expires_at", n(9))]),
            item("REJECTS#0000000000200", &[("n_stale", n(3)), ("n_mismatch", n(1))]),
            item("HOUR#17", &[]),
        ];
        let mut health = SourceHealth::default();
        for item in &items {
            read_into(&mut health, Reader(item), at(100)).unwrap();
        }
        let expected = SourceHealth {
            last_accepted_at: Some(at(5)),
            rejects: [("stale".to_owned(), 3), ("mismatch".to_owned(), 1)].into(),
            secrets: [("old".to_owned(), at(4))].into(),
            ..SourceHealth::default()
        };
        assert_eq!(health, expected);
    }
}
