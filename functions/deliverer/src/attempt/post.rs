//! An event as a request to a URL.

use std::sync::Arc;

use domain::{
    delivery::{Cause, Delivery},
    endpoint::StaticHeaders,
    ports::{Bodies, Keyring, Outbox},
};
use flow::leaving::{Content, Leaving, needs_payload};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Attempts, Missing, Target, Unready,
    auth::{Shown, bearer},
    keys::Token,
    receiver::Receiver,
    token::{Client, secret_value},
};
use crate::transport::{Answered, Failed, Post, Transport};

/// Who we are.
pub(super) const USER_AGENT: &str = concat!("Postern/", env!("CARGO_PKG_VERSION"));

/// A request to a URL.
#[derive(Debug)]
pub struct Posted {
    post: Post,
    /// Whose token it carries.
    token: Option<Lent>,
}

/// A token that a request carries.
#[derive(Debug)]
struct Lent {
    client: Arc<Client>,
    token: Token,
    /// Asked for just now: if it is not accepted, another would not be either.
    is_new: bool,
}

/// The headers of one attempt, but for `Authorization`. `None` if one of them cannot be written, which our own ids and
/// numbers always can.
///
/// The endpoint's own come first and ours replace them: whatever was let in by an older rule, a receiver finds one of
/// each, and ours is ours.
fn headers(leaving: &Leaving<'_>, own: &StaticHeaders) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in own.iter() {
        headers.insert(HeaderName::try_from(name).ok()?, secret_value(value)?);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    // We read a bounded number of bytes as they come: nothing is gained by packing them.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &leaving.headers()? {
        headers.insert(name, value.clone());
    }
    Some(headers)
}

impl<O, K, B, T, A> Attempts<'_, O, K, B, T, A>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
    T: Transport,
{
    /// The request to a URL: signed now, with what is active now.
    pub(super) async fn posted(
        &self,
        receiver: &Receiver,
        target: &Target,
        delivery: &Delivery,
        number: u32,
        sent: Timestamp,
    ) -> Result<Posted, Unready> {
        let url = receiver
            .url
            .clone()
            .map_err(|bad| Failed { cause: Cause::BlockedAddress, source: Some(bad.into()) })?;
        let secrets = receiver.active(sent);
        if secrets.is_empty() {
            return Err(Missing::Secret.into());
        }
        let own = receiver.own.as_ref().ok_or(Missing::Own)?;
        let shown = receiver.shown.as_ref().ok_or(Missing::Auth)?;
        let event = self.row(target, delivery).await?;
        let payload = match needs_payload(receiver.style) {
            true => self.payload(&event).await?,
            false => Vec::new(),
        };
        let content = Content::of(receiver.style, &event, payload).map_err(Missing::Style)?;
        let leaving = Leaving {
            event: &event,
            content: &content,
            endpoint: receiver.endpoint,
            secrets: &secrets,
            attempt: number,
            at: sent,
        };
        let mut headers = headers(&leaving, own).ok_or(Missing::Header)?;
        // The time of the attempt begins here; whatever is asked of strangers is in it.
        let by = Instant::now() + self.within;
        let token = match shown {
            Shown::Nothing => None,
            Shown::Always(value) => {
                headers.insert(header::AUTHORIZATION, value.clone());
                None
            }
            Shown::Token(client) => {
                let (token, is_new) = client
                    .token(self.keys, self.transport, sent, by)
                    .await
                    .map_err(Failed::from)?;
                let value = bearer(&token.value).ok_or(Missing::Header)?;
                headers.insert(header::AUTHORIZATION, value);
                Some(Lent { client: Arc::clone(client), token, is_new })
            }
        };
        Ok(Posted { post: Post { url, headers, body: content.bytes.into(), by }, token })
    }

    /// Sends it.
    pub(super) async fn post(&self, Posted { post, token }: Posted) -> Result<Answered, Failed> {
        match token {
            None => self.transport.post(post).await,
            // On the heap: most requests carry none, and should not hold the room for it.
            Some(lent) => Box::pin(self.post_with(lent, post)).await,
        }
    }

    /// Sends a request with a token. If one is not accepted that was had before, one more is asked for: it may have been
    /// withdrawn, and a 401 has done nothing.
    async fn post_with(
        &self,
        Lent { client, token, is_new }: Lent,
        mut post: Post,
    ) -> Result<Answered, Failed> {
        let answered = self.transport.post(post.clone()).await?;
        if answered.status != 401 || answered.steer.is_some() {
            return Ok(answered);
        }
        client.refused(self.keys, token.serial);
        if is_new {
            return Ok(answered);
        }
        let (token, _) =
            client.token(self.keys, self.transport, (self.edge.now)(), post.by).await?;
        let value = bearer(&token.value).ok_or(Missing::Header)?;
        post.headers.insert(header::AUTHORIZATION, value);
        self.transport.post(post).await
    }
}
