//! Errors as HTTP clients see them: problem details (RFC 9457) with a stable `type`.

use serde::Serialize;
use serde_json::{Map, Value};

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request was refused, for a program (`type`, `status`) and for a person (`title`, `detail`).
///
/// Never holds the text of a cause: what failed inside is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Problem {
    /// A problem whose `type` is `urn:postern:problem:<slug>`, for ever.
    pub fn new(status: http::StatusCode, slug: &str, title: &str) -> Self {
        Self {
            kind: format!("urn:postern:problem:{slug}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: None,
            more: Map::new(),
        }
    }

    /// What is wrong with this request, and what to do.
    #[must_use]
    pub fn detail(mut self, text: impl Into<String>) -> Self {
        self.detail = Some(text.into());
        self
    }

    /// One more member. Names of the standard members are left alone.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if !matches!(name, "type" | "title" | "status" | "detail" | "instance") {
            self.more.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The status to answer with.
    pub fn status(&self) -> http::StatusCode {
        // It came from one.
        http::StatusCode::from_u16(self.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body to answer with.
    pub fn to_json(&self) -> String {
        // Texts and numbers always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.title, self.detail.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_problem_is_flat_json_with_a_stable_type() {
        let problem = Problem::new(StatusCode::NOT_FOUND, "not-found", "There is no such endpoint")
            .detail("Check its id.")
            .with("endpoint", "ep_1")
            .with("status", 200);
        assert_eq!(problem.status(), StatusCode::NOT_FOUND);
        assert_eq!(
            problem.to_json(),
            r#"{"type":"urn:postern:problem:not-found","title":"There is no such endpoint","status":404,"detail":"Check its id.","endpoint":"ep_1"}"#
        );
    }
}
