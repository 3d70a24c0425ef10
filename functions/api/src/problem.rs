//! Errors, for the people who meet them.

use axum::{
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use domain::ports::StoreError;
use problem_details::ProblemDetails;

/// An error with a stable type, and words that say what, why and what next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
}

/// Where the types of problems are explained.
const BASE: &str = "https://postern.dev/problems/";

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: &str) -> Self {
        Self { status, kind, title, detail: detail.to_owned() }
    }

    /// The request cannot be understood, or asks for something impossible.
    pub fn invalid(detail: &str) -> Self {
        let title = "The request is not valid.";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request", title, detail)
    }

    /// The request's body is too large.
    pub fn too_large() -> Self {
        let detail = "The body is larger than this route takes. Send less, or split it.";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large.", detail)
    }

    /// The thing does not exist.
    pub fn absent(what: &str) -> Self {
        let detail = format!("There is no {what}. Check the name; list what there is with a GET.");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing.", &detail)
    }

    /// The thing is not in a state in which this can be done.
    pub fn conflict(detail: &str) -> Self {
        let title = "This cannot be done in the present state.";
        Self::new(StatusCode::CONFLICT, "conflict", title, detail)
    }

    /// No such route.
    pub fn no_route() -> Self {
        let detail = "This path has no meaning here. The routes are listed in the README.";
        Self::new(StatusCode::NOT_FOUND, "no-route", "There is no such route.", detail)
    }

    /// The route does not know the method.
    pub fn no_method() -> Self {
        let detail = "The path exists, but not with this method.";
        let title = "The method is not allowed.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "no-method", title, detail)
    }

    /// The type's last part, which is stable.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(
            stage = "api",
            result = "error",
            error = &error as &dyn std::error::Error,
            "a store failed"
        );
        if error.is_transient() {
            let detail =
                "Nothing is known of the outcome. Send the same request again in a moment.";
            let title = "A store is busy or cannot be reached.";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, detail);
        }
        let detail = "The request may be fine; the deployment is not. Its operators find the cause in the log.";
        let title = "A store refused the call.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "refused", title, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = Uri::try_from(format!("{BASE}{}", self.kind)).unwrap_or_default();
        let mut response = ProblemDetails::from_status_code(self.status)
            .with_type(kind)
            .with_title(self.title)
            .with_detail(self.detail)
            .into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = axum::http::HeaderValue::from_static("2");
            response.headers_mut().insert(axum::http::header::RETRY_AFTER, seconds);
        }
        response
    }
}
