//! What somebody who has no secret can do with a request.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    library::Call,
    party::{Clock, Party, Place},
};

/// One thing that is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Body,
    Signature,
    /// The signature is left out.
    Unsigned,
    /// The time is another, as fresh as before.
    Time,
    /// Signed well, long ago.
    Old,
    /// A signed header.
    Header(&'static str),
    Address,
    /// Signed well, with another secret.
    Secret,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("with another body"),
            Self::Signature => f.write_str("with another signature"),
            Self::Unsigned => f.write_str("without its signature"),
            Self::Time => f.write_str("with another time"),
            Self::Old => f.write_str("signed two hours ago"),
            Self::Header(name) => write!(f, "with another {name}"),
            Self::Address => f.write_str("at another address"),
            Self::Secret => f.write_str("signed with another secret"),
        }
    }
}

impl Change {
    /// All that can be wrong with a request of this party.
    pub(crate) fn all(party: &Party) -> Vec<Self> {
        let mut all = vec![Self::Body, Self::Signature, Self::Secret];
        all.extend(matches!(party.signature, Place::Header(_)).then_some(Self::Unsigned));
        all.extend((!matches!(party.clock, Clock::Absent | Clock::Token)).then_some(Self::Time));
        all.extend((!matches!(party.clock, Clock::Absent)).then_some(Self::Old));
        all.extend(party.signed.iter().map(|name| Self::Header(name)));
        all.extend(party.is_addressed.then_some(Self::Address));
        all
    }

    /// Does it to a request that was good. `Old` and `Secret` are done by the signer.
    pub(crate) fn apply(self, party: &Party, good: &Call) -> Result<Call> {
        let mut call = good.clone();
        match self {
            Self::Body => call.body = call.body.replacen(party.tampered.0, party.tampered.1, 1),
            Self::Signature => match party.signature {
                Place::Header(name) => {
                    let value = call.headers.get_mut(name).context("a signature")?;
                    let middle = value.len() / 2;
                    // Base64 has other signs too.
                    let rest = value.bytes().skip(middle);
                    let next = rest.take_while(|byte| !byte.is_ascii_alphanumeric()).count();
                    alter(value, middle + next)?;
                }
                Place::Body(before) => alter(&mut call.body, after(&good.body, before)?)?,
            },
            Self::Unsigned => {
                if let Place::Header(name) = party.signature {
                    call.headers.remove(name);
                }
            }
            Self::Time => match (party.clock, party.signature) {
                (Clock::Header(name), _) => alter_last(&mut call, name)?,
                (Clock::Pair(before), Place::Header(name)) => {
                    let value = call.headers.get_mut(name).context("a signature")?;
                    let at = last_digit(value, after(value, before)?);
                    alter(value, at)?;
                }
                (Clock::Body(before), _) => {
                    let at = last_digit(&call.body, after(&call.body, before)?);
                    alter(&mut call.body, at)?;
                }
                _ => {}
            },
            Self::Header(name) => alter_last(&mut call, name)?,
            Self::Address => call.url.push_str("&z=1"),
            Self::Old | Self::Secret => return Ok(call),
        }
        let same = (&call.headers, &call.body, &call.url) == (&good.headers, &good.body, &good.url);
        ensure!(!same, "{}: a request {self} is no other", party.source);
        Ok(call)
    }
}

fn after(text: &str, before: &str) -> Result<usize> {
    let at = text.find(before).with_context(|| format!("no {before} in {text}"))?;
    Ok(at + before.len())
}

/// The last of the digits that begin here.
fn last_digit(text: &str, from: usize) -> usize {
    let digits = text.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    from + digits.saturating_sub(1)
}

fn alter_last(call: &mut Call, header: &str) -> Result<()> {
    let value = call.headers.get_mut(header).with_context(|| format!("no {header}"))?;
    let last = value.len().saturating_sub(1);
    alter(value, last)
}

/// Replaces an ASCII letter or digit by another of its kind, so that the text keeps its form.
fn alter(text: &mut String, at: usize) -> Result<()> {
    let old = text.as_bytes().get(at).copied();
    let new = match old.with_context(|| format!("{text} ends before {at}"))? {
        b'0' => "1",
        b'1'..=b'9' => "0",
        b'a' => "b",
        b'b'..=b'z' => "a",
        b'A' => "B",
        b'B'..=b'Z' => "A",
        other => bail!("{text} has {} at {at}", char::from(other)),
    };
    text.replace_range(at..=at, new);
    Ok(())
}
