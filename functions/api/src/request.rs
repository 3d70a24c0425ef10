//! What routes read from a request: JSON, names in the path, who calls. What cannot be read is a [`Problem`].

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use lambda_http::request::RequestContext;
use serde::de::DeserializeOwned;

use crate::Problem;

/// Most bytes of a request's body, but for those that publish.
pub const MAX_BODY: usize = 2 * 1024 * 1024;

/// A body in JSON. A route that takes more than [`MAX_BODY`] says so here, and in its layer.
#[derive(Debug)]
pub struct Json<T, const MOST: usize = MAX_BODY>(pub T);

impl<T: DeserializeOwned, S: Send + Sync, const MOST: usize> FromRequest<S> for Json<T, MOST> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "Send the body as JSON, with the header `Content-Type: application/json`.";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::unreadable("wrong-media-type", status, detail));
        }
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return Problem::too_large(MOST);
            }
            let detail = "The body did not arrive whole. Send the request again.";
            Problem::unreadable("broken-body", StatusCode::BAD_REQUEST, detail)
        })?;
        let axum::Json(value) = axum::Json::from_bytes(&body).map_err(|error| refused(&error))?;
        Ok(Self(value))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// Says where the JSON is wrong: with the name of an unknown, a missing or a mistyped field.
fn refused(rejection: &JsonRejection) -> Problem {
    let text = rejection.body_text();
    // After the colon stands what serde says of the sender's own text.
    let text = text.split_once(": ").map_or(text.as_str(), |(_, what)| what);
    match rejection {
        JsonRejection::JsonSyntaxError(_) => {
            let detail = format!("The body is not JSON: {text}.");
            Problem::unreadable("not-json", StatusCode::BAD_REQUEST, detail)
        }
        _ => {
            let detail = format!("The body is not of the form that this route takes: {text}.");
            Problem::unreadable("invalid-request", StatusCode::UNPROCESSABLE_ENTITY, detail)
        }
    }
}

/// The names in the path.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Self(names)),
            // Only a name that is not UTF-8 comes here, and nothing has such a name.
            Err(_) => Err(Problem::absent("thing whose name is not UTF-8")),
        }
    }
}

/// What stands after the question mark.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let text = text.split_once(": ").map_or(text.as_str(), |(_, what)| what);
                let detail = format!("The query is not of the form that this route takes: {text}.");
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Err(Problem::unreadable("invalid-request", status, detail))
            }
        }
    }
}

/// Keeps the routes of operators and those of endpoints' owners apart, which come through gateways of their own. These
/// send nothing else; but whether a stranger reaches an operator's route must not hang on how a path is spelled.
pub(crate) async fn at_its_door(request: Request, next: Next) -> Response {
    if is_at_its_door(&request) {
        next.run(request).await
    } else {
        Problem::no_route().into_response()
    }
}

fn is_at_its_door(request: &Request) -> bool {
    let Some(RequestContext::ApiGatewayV2(context)) = request.extensions().get() else {
        return true;
    };
    // `ANY /poll/{proxy+}`; nothing else than a gateway says where it came in.
    let door = context.route_key.as_deref().and_then(|door| door.split_once(' '));
    let fixed = door.and_then(|(_, path)| path.split('{').next());
    fixed.is_none_or(|fixed| request.uri().path().starts_with(fixed))
}

/// Who calls, as the gateway says after it has checked the signature.
#[derive(Clone, Debug)]
pub struct Actor(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let caller = match parts.extensions.get::<RequestContext>() {
            Some(RequestContext::ApiGatewayV2(context)) => context
                .authorizer
                .as_ref()
                .and_then(|authorizer| authorizer.iam.as_ref())
                .and_then(|iam| iam.user_arn.clone()),
            _ => None,
        };
        Ok(Self(caller.unwrap_or_else(|| "unknown".to_owned())))
    }
}
