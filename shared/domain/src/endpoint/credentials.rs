//! Whether what an owner gave us to show who we are can be sent at all.

use super::Auth;
use crate::{
    address::{AddressPolicy, BadUrl, EndpointUrl},
    secret::SecretText,
};

/// Longest user, client id or scope, in bytes.
const MAX_NAME: usize = 256;

/// Longest password, token or client secret, in bytes: what fits into one header with every server, and into one sealed
/// secret.
const MAX_SECRET: usize = 2048;

/// What is wrong with an [`Auth`] or the secret that goes with it. Written for whoever typed it; never says the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAuth {
    /// Not a user.
    #[error(
        "the user must have 1 to {MAX_NAME} bytes, without `:` (it ends the user) and without control characters"
    )]
    User,
    /// Not a password.
    #[error("the password must have 1 to {MAX_SECRET} bytes, without control characters")]
    Password,
    /// Not a token.
    #[error(
        "the token must have 1 to {MAX_SECRET} printable ASCII characters without spaces; give it without `Bearer`"
    )]
    Token,
    /// The URL for tokens is none.
    #[error("the token URL cannot be used: {0}")]
    TokenUrl(BadUrl),
    /// Not a client's id.
    #[error("the client id must have 1 to {MAX_NAME} printable ASCII characters")]
    ClientId,
    /// Not a client's secret.
    #[error("the client secret must have 1 to {MAX_SECRET} printable ASCII characters")]
    ClientSecret,
    /// Not a scope.
    #[error(
        "the scope must be words of printable ASCII without `\"` and `\\`, with one space between them, {MAX_NAME} bytes at most"
    )]
    Scope,
}

impl Auth {
    /// Checks it and the secret that goes with it: at every create, update and test.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check(&self, secret: &SecretText, policy: &AddressPolicy) -> Result<(), Vec<BadAuth>> {
        let mut problems = self.check_shown(policy);
        let secret = secret.expose();
        let fits = (1..=MAX_SECRET).contains(&secret.len());
        let (is_good, problem) = match self {
            Self::Basic { .. } => (!secret.chars().any(char::is_control), BadAuth::Password),
            Self::Bearer => (secret.bytes().all(|b| b.is_ascii_graphic()), BadAuth::Token),
            // VSCHAR of RFC 6749.
            Self::OAuth2 { .. } => (is_printable(secret), BadAuth::ClientSecret),
        };
        if !fits || !is_good {
            problems.push(problem);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Checks what is not secret of it.
    fn check_shown(&self, policy: &AddressPolicy) -> Vec<BadAuth> {
        let mut problems = Vec::new();
        let fits = |text: &str| (1..=MAX_NAME).contains(&text.len());
        match self {
            Self::Basic { user } => {
                // RFC 7617: the first colon ends the user.
                if !fits(user) || user.contains(':') || user.chars().any(char::is_control) {
                    problems.push(BadAuth::User);
                }
            }
            Self::Bearer => {}
            Self::OAuth2 { token_url, client_id, scope, .. } => {
                if let Err(bad) = EndpointUrl::parse(token_url, policy) {
                    problems.push(BadAuth::TokenUrl(bad));
                }
                if !fits(client_id) || !is_printable(client_id) {
                    problems.push(BadAuth::ClientId);
                }
                if scope.as_ref().is_some_and(|scope| !fits(scope) || !is_scope(scope)) {
                    problems.push(BadAuth::Scope);
                }
            }
        }
        problems
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

/// RFC 6749, 3.3.
fn is_scope(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
    };
    text.split(' ').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::CredentialsIn;

    fn check(auth: &Auth, secret: &str, expected: &[BadAuth]) {
        let secret = SecretText::new(secret.to_owned());
        let found = auth.check(&secret, &AddressPolicy::default()).err().unwrap_or_default();
        assert_eq!(found, expected, "{auth:?}");
    }

    fn basic(user: &str) -> Auth {
        Auth::Basic { user: user.to_owned() }
    }

    fn oauth2(token_url: &str, client_id: &str, scope: Option<&str>) -> Auth {
        Auth::OAuth2 {
            token_url: token_url.to_owned(),
            client_id: client_id.to_owned(),
            scope: scope.map(ToOwned::to_owned),
            credentials_in: CredentialsIn::Header,
        }
    }

    /// RFC 7617
    #[test]
    fn a_user_ends_at_the_first_colon() {
        check(&basic("hooks"), "a:b ü", &[]);
        check(&basic("jürgen"), "x", &[]);
        for bad in ["", "a:b", "a\r\n", "\0", &"u".repeat(257)] {
            check(&basic(bad), "x", &[BadAuth::User]);
        }
        for bad in ["", "a\nb", &"p".repeat(2049)] {
            check(&basic("hooks"), bad, &[BadAuth::Password]);
        }
        check(&basic(""), "", &[BadAuth::User, BadAuth::Password]);
    }

    #[test]
    fn a_token_is_one_word() {
        for good in ["abc", "1|laravel", "a.b-c_d~e+f/g==", &"t".repeat(2048)] {
            check(&Auth::Bearer, good, &[]);
        }
        for bad in ["", "Bearer abc", "a\r\nx: y", "ü", " a", &"t".repeat(2049)] {
            check(&Auth::Bearer, bad, &[BadAuth::Token]);
        }
    }

    /// SSRF-update-and-test-paths: a URL for tokens is dialled like any other.
    #[test]
    fn a_token_url_obeys_the_rules_of_an_endpoints_url() {
        let url = "https://login.example.com/oauth2/token";
        check(&oauth2(url, "client", None), "s3cret", &[]);
        check(&oauth2(url, "client", Some("hooks.write hooks.read")), "with space", &[]);
        check(
            &oauth2(url, "", Some("a  b")),
            "ü",
            &[BadAuth::ClientId, BadAuth::Scope, BadAuth::ClientSecret],
        );
        for scope in ["", " a", "a\"b", "a\\b", "a\nb"] {
            check(&oauth2(url, "client", Some(scope)), "s", &[BadAuth::Scope]);
        }
        for bad in [
            "http://login.example.com/",
            "https://169.254.169.254/latest/",
            "https://127.0.0.1:9001/",
            "https://user:pw@login.example.com/",
            "https://login.example.com:22/",
        ] {
            let auth = oauth2(bad, "client", None);
            let found = auth.check(&SecretText::new("s".to_owned()), &AddressPolicy::default());
            assert!(matches!(found.unwrap_err().as_slice(), [BadAuth::TokenUrl(_)]), "{bad}");
        }
    }
}
