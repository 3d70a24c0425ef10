//! The call that asks for one object.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::event::ObjectRef;
use http::HeaderName;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    fetcher::{Auth, Fetcher},
    template::{Empty, Filling, Template, label, percent, visible},
};

/// Longest URL, in bytes.
const MAX_URL: usize = 2048;

/// What is asked for, and whose event asks.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The object.
    pub object: &'a ObjectRef,
    /// The type of the event.
    pub event_type: Option<&'a str>,
    /// The event's body, parsed; null if it is not JSON.
    pub event: &'a Value,
    /// What the source configures.
    pub config: &'a BTreeMap<String, String>,
}

/// A GET. Its headers hold a token, so they do not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// Always `https`, always the fetcher's host.
    pub url: String,
    /// Name and value.
    pub headers: Vec<(HeaderName, Zeroizing<String>)>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why there is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCall {
    /// The fetcher knows no such objects: events about them are taken by what they say.
    #[error("the fetcher has no path for objects of the kind {0}")]
    OtherKind(String),
    /// A hole has no value, or one that may not stand there.
    #[error("there is nothing for {0} that could stand in the fetcher's URL")]
    Empty(String),
    /// The URL would be something else than it looks like.
    #[error("the fetcher's URL would be too long, or lead out of its path")]
    BadUrl,
    /// The token cannot stand in a header.
    #[error("the token has characters that cannot stand in a header")]
    BadToken,
}

impl Fetcher {
    /// The call that asks for an object, with this token.
    ///
    /// # Errors
    /// [`NoCall`]. Nothing of the token is in it.
    pub fn call(&self, about: &About<'_>, token: Option<&str>) -> Result<Call, NoCall> {
        let url = self.url(about)?;
        let filling = filling(about);
        let mut headers = vec![
            (http::header::ACCEPT, "application/json".to_owned()),
            (http::header::USER_AGENT, "postern".to_owned()),
        ];
        for (name, template) in &self.terms.headers {
            headers.retain(|(known, _)| known != name);
            // Of an event that lacks it, the header is left out: only some are about another's account.
            if let Ok(value) = template.fill(&filling, None, visible) {
                headers.push((name.clone(), value));
            }
        }
        let mut headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, Zeroizing::new(value))).collect();
        headers.extend(self.shown(token.unwrap_or_default())?);
        Ok(Call { url, headers })
    }

    fn url(&self, about: &About<'_>) -> Result<String, NoCall> {
        let kind = about.object.kind.as_str();
        if !self.fetches(kind) {
            return Err(NoCall::OtherKind(kind.to_owned()));
        }
        let filling = filling(about);
        let empty = |Empty(hole)| NoCall::Empty(hole);
        let fill = |template: &Template| template.fill(&filling, None, percent).map_err(empty);
        let path =
            self.terms.paths.as_ref().and_then(|paths| paths.get(kind)).map(fill).transpose()?;
        let host = self.terms.host.fill(&filling, None, label).map_err(empty)?;
        let rest = self.terms.rest.fill(&filling, path.as_deref(), percent).map_err(empty)?;
        // A value of two dots is a step up, escaped or not.
        let before_query = rest.split_once('?').map_or(rest.as_str(), |(before, _)| before);
        let leads_out = before_query.split('/').any(|segment| matches!(segment, "." | ".."));
        let url = format!("https://{host}{rest}");
        if leads_out || url.len() > MAX_URL { Err(NoCall::BadUrl) } else { Ok(url) }
    }

    fn shown(&self, token: &str) -> Result<Option<(HeaderName, Zeroizing<String>)>, NoCall> {
        let plain =
            |token: &str| visible(token).filter(|token| !token.is_empty()).ok_or(NoCall::BadToken);
        Ok(match &self.terms.auth {
            Auth::None => None,
            Auth::Bearer => {
                let value = format!("Bearer {}", plain(token)?);
                Some((http::header::AUTHORIZATION, Zeroizing::new(value)))
            }
            Auth::Header(name) => Some((name.clone(), Zeroizing::new(plain(token)?))),
            Auth::Basic => {
                let colon = if token.contains(':') { "" } else { ":" };
                let pair = Zeroizing::new(format!("{}{colon}", plain(token)?));
                let value = format!("Basic {}", STANDARD.encode(pair.as_bytes()));
                Some((http::header::AUTHORIZATION, Zeroizing::new(value)))
            }
        })
    }
}

fn filling<'a>(about: &About<'a>) -> Filling<'a> {
    Filling {
        kind: &about.object.kind,
        id: &about.object.id,
        event: about.event,
        config: about.config,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(kind: &str, id: &str) -> ObjectRef {
        ObjectRef { kind: kind.to_owned(), id: id.to_owned() }
    }

    fn asked(
        fetcher: &Fetcher,
        kind: &str,
        id: &str,
        event: &Value,
        config: &[(&str, &str)],
    ) -> Result<Call, NoCall> {
        let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let about = About { object: &object(kind, id), event_type: None, event, config: &config };
        fetcher.call(&about, Some("tok_1"))
    }

    fn header<'c>(call: &'c Call, name: &str) -> Option<&'c str> {
        let mut found = call.headers.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} comes twice");
        value
    }

    #[test]
    fn the_presets_ask_where_the_providers_say() {
        let url = |preset: &str, kind: &str, id: &str, event: Value, config: &[(&str, &str)]| {
            asked(&Fetcher::preset(preset).unwrap(), kind, id, &event, config).unwrap().url
        };
        let repo = json!({ "repository": { "name": "hello", "owner": { "login": "octo" } },
            "pull_request": { "number": 7 }, "issue": { "number": 9 } });
        for (got, expected) in [
            (
                url("stripe", "invoice", "in_1", Value::Null, &[]),
                "https://api.stripe.com/v1/invoices/in_1",
            ),
            (
                url("stripe", "checkout.session", "cs_1", Value::Null, &[]),
                "https://api.stripe.com/v1/checkout/sessions/cs_1",
            ),
            (
                url("github", "pull_request", "123", repo.clone(), &[]),
                "https://api.github.com/repos/octo/hello/pulls/7",
            ),
            (
                url("github", "issues", "123", repo.clone(), &[]),
                "https://api.github.com/repos/octo/hello/issues/9",
            ),
            (
                url("github", "release", "5", repo, &[]),
                "https://api.github.com/repos/octo/hello/releases/5",
            ),
            (
                url("shopify", "orders", "820", Value::Null, &[("shop", "acme")]),
                "https://acme.myshopify.com/admin/api/2026-04/orders/820.json",
            ),
        ] {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn the_presets_show_who_we_are_as_the_providers_want_it() {
        let call = |preset: &str, kind: &str, event: Value| {
            asked(&Fetcher::preset(preset).unwrap(), kind, "1", &event, &[("shop", "acme")])
                .unwrap()
        };
        let stripe = call("stripe", "invoice", Value::Null);
        assert_eq!(header(&stripe, "authorization"), Some("Bearer tok_1"));
        assert_eq!(header(&stripe, "stripe-account"), None);
        let connect = call("stripe", "invoice", json!({ "account": "acct_1" }));
        assert_eq!(header(&connect, "stripe-account"), Some("acct_1"));
        let github = call(
            "github",
            "release",
            json!({ "repository": { "name": "r", "owner": { "login": "o" } } }),
        );
        assert_eq!(header(&github, "authorization"), Some("Bearer tok_1"));
        assert_eq!(header(&github, "accept"), Some("application/vnd.github+json"));
        assert_eq!(header(&github, "x-github-api-version"), Some("2022-11-28"));
        assert_eq!(header(&github, "user-agent"), Some("postern"));
        let shopify = call("shopify", "products", Value::Null);
        assert_eq!(header(&shopify, "x-shopify-access-token"), Some("tok_1"));
        assert_eq!(header(&shopify, "authorization"), None);
        assert!(!format!("{stripe:?}{github:?}{shopify:?}").contains("tok_1"));
    }

    #[test]
    fn a_user_and_a_password_go_as_basic_and_a_token_alone_is_the_user() {
        let own = json!({ "url": "https://a.example.com/{id}", "auth": "basic" });
        let fetcher = Fetcher::from_value(own).unwrap();
        let about = About {
            object: &object("k", "1"),
            event_type: None,
            event: &Value::Null,
            config: &BTreeMap::new(),
        };
        for (token, expected) in [("u:p", "Basic dTpw"), ("u", "Basic dTo=")] {
            let call = fetcher.call(&about, Some(token)).unwrap();
            assert_eq!(header(&call, "authorization"), Some(expected));
        }
        for bad in ["", "a b", "a\nb", "ä"] {
            assert_eq!(fetcher.call(&about, Some(bad)), Err(NoCall::BadToken), "{bad:?}");
        }
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        let stripe = Fetcher::preset("stripe").unwrap();
        let no = asked(&stripe, "balance", "x", &Value::Null, &[]).unwrap_err();
        assert_eq!(no, NoCall::OtherKind("balance".to_owned()));
        let shopify = Fetcher::preset("shopify").unwrap();
        let no = asked(&shopify, "orders", "1", &Value::Null, &[]).unwrap_err();
        assert_eq!(no, NoCall::Empty("{config:shop}".to_owned()));
        for shop in ["evil.com/", "a.b", "A", "-a", "", "evil.com#", "a@b"] {
            assert!(
                asked(&shopify, "orders", "1", &Value::Null, &[("shop", shop)]).is_err(),
                "{shop}"
            );
        }
        for id in [".", "..", ""] {
            assert!(asked(&stripe, "invoice", id, &Value::Null, &[]).is_err(), "{id:?}");
        }
        assert!(asked(&stripe, "invoice", &"x".repeat(513), &Value::Null, &[]).is_err());
        let github = Fetcher::preset("github").unwrap();
        let no = asked(&github, "release", "1", &json!({ "repository": { "name": ["x"] } }), &[]);
        assert!(matches!(no, Err(NoCall::Empty(_))));
    }

    proptest! {
        /// Whatever an event says, the host and the path before the hole stay.
        #[test]
        fn no_id_leads_a_token_elsewhere(id in "\\PC{1,60}") {
            let stripe = Fetcher::preset("stripe").unwrap();
            if let Ok(call) = asked(&stripe, "invoice", &id, &Value::Null, &[]) {
                let url = url::Url::parse(&call.url).unwrap();
                prop_assert_eq!(url.host_str(), Some("api.stripe.com"));
                prop_assert_eq!(url.path_segments().unwrap().count(), 3);
                prop_assert!(url.path().starts_with("/v1/invoices/") && url.query().is_none() && url.fragment().is_none());
                prop_assert_eq!(url.port(), None);
            }
        }
    }
}
