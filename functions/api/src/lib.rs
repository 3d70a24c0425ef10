//! Configure, read, replay and publish, over HTTP.
//!
//! For operators and for the team's own programs: the gateway asks callers for IAM signatures, and this code trusts the
//! gateway. Every error is problem+json with a stable `type`, and says what, why and what next; it never carries the
//! text of a cause.
//!
//! Reading order: [`Api`] is what every route needs; [`router`] lists the routes; [`sources`], [`endpoints`],
//! [`received`] and [`outgoing`] answer them.

pub mod config;
pub mod endpoints;
pub mod outgoing;
mod problem;
pub mod received;
pub mod sources;

use std::{fmt, sync::Arc};

use axum::{
    Router,
    extract::{FromRequestParts, Request, rejection::JsonRejection},
    http::request::Parts,
    routing::{get, post},
};
use domain::message::{InboundMessage, WakeMessage};
use domain::ports::{
    Configure, Deliveries, DueInbox, Inbox, Keyring, Outbox, Queue, SetSourceSecrets,
};
use jiff::Timestamp;
use uuid::Uuid;

pub use self::{config::Config, problem::Problem};

/// Names the ports of this function once, so that its routes need one parameter.
pub trait Ports: Send + Sync + 'static {
    /// Events received.
    type Inbox: Inbox + DueInbox + Send + 'static;
    /// Outgoing events.
    type Outbox: Outbox + Send + 'static;
    /// Deliveries.
    type Deliveries: Deliveries + Send + 'static;
    /// Configuration.
    type Registry: Configure + Send + 'static;
    /// The inbound and the wake queue.
    type Queues: Queue<InboundMessage> + Send + 'static;
    /// The wake queue.
    type Wakes: Queue<WakeMessage> + Send + 'static;
    /// Secrets of endpoints.
    type Keyring: Keyring + Send + 'static;
    /// Secrets of sources.
    type Secrets: SetSourceSecrets + Send + 'static;
}

/// What every route needs.
pub struct Api<P: Ports> {
    /// Events received.
    pub inbox: P::Inbox,
    /// Outgoing events.
    pub outbox: P::Outbox,
    /// Deliveries.
    pub deliveries: P::Deliveries,
    /// Configuration.
    pub registry: P::Registry,
    /// Where the worker hears of events.
    pub inbound: P::Queues,
    /// Where the deliverer hears of lanes.
    pub wakes: P::Wakes,
    /// Secrets of endpoints.
    pub keyring: P::Keyring,
    /// Secrets of sources.
    pub secrets: P::Secrets,
    /// The limits.
    pub limits: Limits,
    /// Clock and randomness.
    pub edge: Edge,
}

impl<P: Ports> fmt::Debug for Api<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The limits of this deployment.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The base of the URLs that providers call, without a slash at its end.
    pub ingress_url: String,
    /// What an endpoint's URL may be.
    pub addresses: domain::address::AddressPolicy,
    /// Endpoints that a tenant may have.
    pub endpoints_per_tenant: usize,
    /// Bytes of an outgoing event's payload.
    pub payload_bytes: usize,
    /// When the sweeper looks for an event that was re-armed.
    pub first_due: std::time::Duration,
    /// How long a redelivery is tried.
    pub delivery_deadline: std::time::Duration,
    /// Shards of the inbox's indexes.
    pub pending_shards: u16,
}

/// The clock and the randomness of this function, given by `main` and by tests.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The present.
    pub now: fn() -> Timestamp,
    /// A new UUID of version 7.
    pub uuid: fn() -> Uuid,
    /// Bytes that nobody can guess.
    pub random: fn() -> [u8; 32],
}

/// All routes.
pub fn router<P: Ports>(api: Arc<Api<P>>) -> Router {
    Router::new()
        .route("/v1/sources", get(sources::list::<P>).post(sources::add::<P>))
        .route("/v1/sources/{source}", get(sources::show::<P>))
        .route("/v1/sources/{source}/events/{event}", get(received::story::<P>))
        .route("/v1/sources/{source}/events/{event}/replay", post(received::replay::<P>))
        .route("/v1/parked", get(received::parked::<P>))
        .route(
            "/v1/tenants/{tenant}/endpoints",
            get(endpoints::list::<P>).post(endpoints::add::<P>),
        )
        .route("/v1/events", post(outgoing::publish::<P>))
        .route("/v1/tenants/{tenant}/events/{event}", get(outgoing::story::<P>))
        .route(
            "/v1/tenants/{tenant}/events/{event}/endpoints/{endpoint}/redeliver",
            post(outgoing::redeliver::<P>),
        )
        .fallback(|| async { Problem::no_route() })
        .method_not_allowed_fallback(|| async { Problem::no_method() })
        .with_state(api)
}

/// The body of a request, or a problem that says what is wrong with it.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(JsonRejection::BytesRejection(_)) => Err(Problem::too_large()),
            // The text of a rejection speaks of fields and positions in what the caller himself sent.
            Err(rejection) => Err(Problem::invalid(&rejection.body_text())),
        }
    }
}

/// Who calls, as the gateway says.
#[derive(Clone, Debug)]
pub struct Actor(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        use lambda_http::request::RequestContext;
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
