//! Errors, for the people and the programs that meet them.

use std::{error::Error, fmt};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::ports::StoreError;
use runtime::{problem, telemetry::chain};
use serde_json::{Value, json};

/// An error answer with a stable `type`, and words that say what, why and what next.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Problem(problem::Problem);

/// Seconds after which a caller may try again what a busy store could not do.
const RETRY_AFTER: &str = "2";

impl Problem {
    fn new(status: StatusCode, slug: &str, title: &str, detail: impl Into<String>) -> Self {
        Self(problem::Problem::new(status, slug, title).detail(detail))
    }

    /// Something that only one route knows.
    pub(crate) fn outside(
        status: StatusCode,
        slug: &str,
        title: &str,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(status, slug, title, detail)
    }

    /// The body is not JSON, or is not JSON of the form that the route takes.
    pub(crate) fn unreadable(slug: &str, status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, slug, "The request cannot be read.", detail)
    }

    /// The body has more bytes than any route takes.
    pub(crate) fn too_large(most: usize) -> Self {
        let detail = format!(
            "A request's body has at most {most} bytes. Send less, or in several requests."
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large.", detail)
    }

    /// The thing does not exist.
    pub(crate) fn absent(what: &str) -> Self {
        let detail = format!("There is no {what}. Check the names in the path.");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing.", detail)
    }

    /// The thing is not in a state in which this can be done.
    pub(crate) fn conflict(slug: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, slug, "This cannot be done as things stand.", detail)
    }

    /// No such route.
    pub(crate) fn no_route() -> Self {
        let detail =
            "This path has no meaning here. Paths begin with /v1/ and have no slash at their end.";
        Self::new(StatusCode::NOT_FOUND, "no-such-route", "There is no such route.", detail)
    }

    /// The route does not know the method.
    pub(crate) fn no_method() -> Self {
        let detail =
            "The path exists, but not with this method; the header Allow names those that do.";
        let title = "The method is not allowed.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", title, detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // The caller is told neither the store's name nor its words: those are for operators.
        tracing::error!(stage = "api", result = "error", error = %chain(&error), "a store failed");
        if error.is_transient() {
            let detail = "It is not known whether the request had an effect. Send the same request again in a moment; \
                          to publish, with the same idempotency key.";
            let title = "A store is busy, or cannot be reached.";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, detail);
        }
        let detail = "The request may be fine, but the deployment is not: sending it again does not help. \
                      Its operators find the cause in the log of the function `api`.";
        let title = "A store refused the call.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store-refused", title, detail)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.0.status();
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE))];
        let mut response = (status, kind, self.0.to_json()).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = HeaderValue::from_static(RETRY_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Everything that is wrong with a request, so that its sender hears all of it at once.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<(String, String)>);

impl Findings {
    /// Notes what is wrong with a field.
    pub(crate) fn note(&mut self, field: &str, problem: impl fmt::Display) {
        self.0.push((field.to_owned(), problem.to_string()));
    }

    /// How much was found.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The value, or a note of why there is none.
    pub(crate) fn keep<T, E: Error + 'static>(
        &mut self,
        field: &str,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.note(field, chain(&error))).ok()
    }

    /// What was found, as an answer. Without findings it still is one: the caller has found that something is missing.
    pub(crate) fn problem(self) -> Problem {
        let texts: Vec<_> = self.0.iter().map(|(field, why)| format!("{field}: {why}")).collect();
        let list: Value =
            self.0.iter().map(|(field, why)| json!({"field": field, "problem": why})).collect();
        let (status, title) = (StatusCode::UNPROCESSABLE_ENTITY, "The request is not valid.");
        let problem = problem::Problem::new(status, "invalid-request", title);
        Problem(problem.detail(texts.join("; ")).with("problems", list))
    }

    /// Nothing, or everything that was found.
    pub(crate) fn done(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(self.problem()) }
    }
}
