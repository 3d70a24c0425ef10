//! The signed content, put together as the scheme says.

use std::borrow::Cow;

use crate::address;
use crate::json;
use crate::rejected::Reason;
use crate::request::Request;
use crate::scheme::{Part, Scheme, Spelling};

/// A stretch of the signed content.
pub(crate) enum Piece<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Each key puts itself here.
    Secret,
}

impl<'a> Piece<'a> {
    /// Its bytes, where the key has none of its own to add.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes_with(&[])
    }

    pub(crate) fn bytes_with<'s>(&'s self, secret: &'s [u8]) -> &'s [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Secret => secret,
        }
    }

    /// All pieces in one; most often there is only one.
    pub(crate) fn whole<'p>(message: &'p [Piece<'a>]) -> Cow<'p, [u8]> {
        match message {
            [piece] => Cow::Borrowed(piece.bytes()),
            pieces => pieces.iter().map(Self::bytes).collect::<Vec<_>>().concat().into(),
        }
    }
}

/// The signed content, in the order of the scheme; `time` as it was sent.
pub(crate) fn message<'a>(
    scheme: &'a Scheme,
    request: &Request<'a>,
    time: Option<&'a [u8]>,
) -> Result<Vec<Piece<'a>>, Reason> {
    let piece = |part: &'a Part| {
        Ok(Piece::Bytes(match part {
            Part::Secret => return Ok(Piece::Secret),
            Part::Literal(text) => Cow::Borrowed(text.as_bytes()),
            Part::Body => Cow::Borrowed(request.body),
            Part::Timestamp => Cow::Borrowed(time.ok_or(Reason::TimestampMissing)?),
            Part::Method => Cow::Borrowed(request.method.as_bytes()),
            Part::Url(Spelling::AsSent) => Cow::Borrowed(request.url.as_bytes()),
            Part::Url(Spelling::HubSpot) => address::hubspot(request.url),
            Part::PathQuery => Cow::Owned(address::contentful(request.url)),
            Part::Header(names) => Cow::Borrowed(request.required(names)?),
            Part::SignedHeaders(list) => {
                Cow::Owned(address::signed_headers(request, list, scheme.clock_header())?)
            }
            Part::Json(pointer) => {
                let value = json::pick(request.body, &[pointer]).pop().flatten();
                Cow::Owned(value.ok_or(Reason::BodyValueMissing)?.into_text().into_bytes())
            }
            Part::Config(name) => match scheme.config(name) {
                Some(value) => Cow::Borrowed(value.as_bytes()),
                None => return Err(Reason::NotConfigured { name: name.clone() }),
            },
            Part::BodySha256
            | Part::Pair(_)
            | Part::Form(_)
            | Part::HasForm(_)
            | Part::EveryJson(_)
            | Part::Received
            | Part::PathSecret => Cow::Borrowed(&[]),
        }))
    };
    scheme.terms.signed.parts().iter().map(piece).collect()
}
