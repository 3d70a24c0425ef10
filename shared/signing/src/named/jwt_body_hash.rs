//! A token signed with a shared secret that holds the hash of the body: Netlify and LiveKit.
//!
//! `config.header` names the header, `config.claim` the member with the hash (`sha256` if not given), `config.encoding`
//! how it is written (`hex` or `base64`), and `config.issuer` who must have issued the token. Without an issuer a secret
//! is written `issuer:secret`, so that both can be rotated together.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq as _};

use super::{Ask, Found, Proven, header, mac, pair};
use crate::scheme::Algorithm;
use crate::{Reason, digest, jwt};

/// Seconds that the sender's clock may differ from ours.
const LEEWAY: i64 = 60;

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let name = ask.needed("header")?;
    let encoding = ask.config("encoding").unwrap_or("hex");
    let text = header(ask.request, name)?.ok_or(Reason::SignatureMissing)?;
    let token = jwt::read(text, "HS256").ok_or(Reason::SignatureMalformed)?;
    if token.signature.len() != 32 {
        return Err(Reason::SignatureMalformed);
    }
    let claim = ask.config("claim").unwrap_or("sha256");
    let claimed = token.claims.text(claim).ok_or(Reason::SignatureMalformed)?;
    let issuer = token.claims.text("iss").ok_or(Reason::SignatureMalformed)?.as_bytes();
    let time = time(ask, &token)?;

    let configured = ask.config("issuer").map(str::as_bytes);
    let key = ask.made_by(|key| {
        let Some(secret) = key.raw() else { return Choice::from(0) };
        let own = configured.map_or_else(|| pair(secret), |issuer| Some((issuer, secret)));
        let Some((own, secret)) = own else { return Choice::from(0) };
        let expected = mac(Algorithm::HmacSha256, secret, &[token.signed]);
        expected.ct_eq(&token.signature) & Choice::from(u8::from(own == issuer))
    });
    let key = key.map_err(|reason| match reason {
        Reason::SignatureMismatch { keys, .. } => {
            Reason::SignatureMismatch { keys, fresh: time.is_ok() }
        }
        other => other,
    })?;
    let hash = digest::sha256(ask.request.body);
    let expected = match encoding {
        "hex" => hex::encode(hash),
        "base64" => STANDARD.encode(hash),
        _ => return Err(Reason::NotConfigured { name: "encoding".into() }),
    };
    if !bool::from(expected.as_bytes().ct_eq(claimed.as_bytes())) {
        return Err(ask.mismatch());
    }
    time?;
    Ok(Proven { key, signed: hash, found: Found::default() })
}

/// Judges the times that the token has; it need not have any. The outer error is a token that cannot be read, the inner
/// one a time that is not now, which is said only of a token with a right signature.
fn time(ask: &Ask<'_>, token: &jwt::Token<'_>) -> Result<Result<(), Reason>, Reason> {
    let read = |name| token.claims.seconds(name).map_err(|_| Reason::TimestampMalformed);
    let (ends, starts, issued) = (read("exp")?, read("nbf")?, read("iat")?);
    let now = ask.now.as_second();
    let late = ends.map(|ends| now.saturating_sub(ends)).filter(|late| *late > LEEWAY);
    if let Some(late) = late {
        let reason = Reason::TimestampTooOld { age_seconds: late, tolerance_seconds: LEEWAY };
        return Ok(Err(reason));
    }
    let starts = starts.max(issued);
    let early = starts.map(|starts| starts.saturating_sub(now)).filter(|early| *early > LEEWAY);
    Ok(match early {
        Some(early) => {
            Err(Reason::TimestampInFuture { ahead_seconds: early, tolerance_seconds: LEEWAY })
        }
        None => Ok(()),
    })
}
