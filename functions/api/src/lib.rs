//! Configure, read, replay and publish, over HTTP.
//!
//! For operators and for the team's own programs: the gateway asks callers for IAM signatures, and this code trusts the
//! gateway. Every error is problem+json with a stable `type`, and says what, why and what next. Never here: the text of
//! a cause in an answer, a secret in an answer except the one that makes or rotates it, an effect without its audit entry.
//!
//! Reading order: [`Api`] is what every route needs; [`entry`] tells requests from events of a [`bus`]; [`router`] lists
//! the routes; [`sources`], [`objects`], [`endpoints`], [`received`], [`parked`], [`replays`], [`outgoing`],
//! [`deliveries`] and [`redeliveries`] answer operators, [`polling`] answers the owners of endpoints; [`request`] and
//! [`Problem`] are the outside.

pub mod bus;
pub mod config;
pub mod deliveries;
pub mod endpoints;
pub mod entry;
pub mod objects;
pub mod outgoing;
pub mod parked;
pub mod polling;
mod problem;
pub mod received;
pub mod redeliveries;
pub mod replays;
pub mod request;
pub mod sources;
pub mod unmatched;

use std::{fmt, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, MatchedPath, Request, State},
    http::{HeaderValue, header},
    middleware::{self, Next},
    response::Response,
    routing::{delete, get, post},
};
use domain::message::{InboundMessage, WakeMessage};
use domain::ports::{
    AuditEntry, Bodies, Bulk, Configure, Deliveries, DueInbox, Events, Fanout, Inbox, Keyring,
    Outbox, Queue, Redeliver, Redeliveries, SetSourceSecrets, State as Objects, Walk, Watch,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

pub use self::{config::Config, problem::Problem};

/// Names the ports of this function once, so that its routes need one parameter.
pub trait Ports: Send + Sync + 'static {
    /// Events received.
    type Inbox: Inbox + DueInbox + Walk + Send + 'static;
    /// Outgoing events.
    type Outbox: Outbox + Events + Send + 'static;
    /// Deliveries.
    type Deliveries: Deliveries + Fanout + Redeliver + Send + 'static;
    /// Configuration, and bulk work.
    type Registry: Configure + Bulk + Redeliveries + Send + 'static;
    /// The inbound and the wake queue.
    type Queues: Queue<InboundMessage> + Send + 'static;
    /// The wake queue.
    type Wakes: Queue<WakeMessage> + Send + 'static;
    /// Secrets of endpoints.
    type Keyring: Keyring + Send + 'static;
    /// Secrets of sources.
    type Secrets: SetSourceSecrets + Send + 'static;
    /// The health of sources, and their objects.
    type Watch: Watch + Objects + Send + 'static;
    /// Large payloads.
    type Bodies: Bodies + Send + 'static;
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
    /// Tokens to ask the sources' providers with.
    pub tokens: P::Secrets,
    /// The health of sources, and their objects.
    pub watch: P::Watch,
    /// Large payloads.
    pub bodies: P::Bodies,
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
    /// Which queues and buses an endpoint may be.
    pub reach: domain::destination::Reach,
    /// Endpoints that a tenant may have.
    pub endpoints_per_tenant: usize,
    /// Requests at once to an endpoint that does not say.
    pub concurrency: u32,
    /// Bytes of an outgoing event's payload.
    pub payload_bytes: usize,
    /// When the sweeper looks for an event that was re-armed.
    pub first_due: std::time::Duration,
    /// How long a redelivery is tried.
    pub delivery_deadline: std::time::Duration,
    /// How long a poller has to acknowledge, if it does not say.
    pub poll_visibility: std::time::Duration,
    /// Shards of the inbox's indexes.
    pub pending_shards: u16,
    /// Whether events are listed by source and day.
    pub list_by_source: bool,
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

impl Edge {
    /// The clock and the randomness of this machine.
    #[expect(clippy::disallowed_methods, reason = "the edge reads the clock and mints ids")]
    pub const REAL: Self =
        Self { now: Timestamp::now, uuid: Uuid::now_v7, random: rand::random::<[u8; 32]> };
}

/// The ports of a deployment on AWS.
#[derive(Debug)]
pub enum Deployed {}

impl Ports for Deployed {
    type Inbox = dynamo::InboxTable;
    type Outbox = dynamo::OutboxTable;
    type Deliveries = dynamo::DeliveriesTable;
    type Registry = dynamo::RegistryTable;
    type Queues = runtime::SqsQueue;
    type Wakes = runtime::SqsQueue;
    type Keyring = runtime::KmsKeyring;
    type Secrets = runtime::SecretsManager;
    type Watch = dynamo::StateTable;
    type Bodies = runtime::BodyStore;
}

/// The tenant of audit entries about what belongs to no tenant. Not a name that a tenant can have.
const OF_THE_DEPLOYMENT: &str = "-";

impl<P: Ports> Api<P> {
    fn now(&self) -> Timestamp {
        (self.edge.now)()
    }

    /// Writes down who does what, before it is done: nothing happens without its entry, and a failure here leaves
    /// nothing done. An entry without an effect is a call that failed, or came second.
    async fn audit(
        &self,
        tenant: &str,
        actor: String,
        action: &str,
        subject: &str,
        at: Timestamp,
    ) -> Result<(), Problem> {
        let (tenant, action, subject) = (tenant.to_owned(), action.to_owned(), subject.to_owned());
        let entry = AuditEntry { tenant, at, actor, action, subject };
        Ok(self.registry.audit(&entry).await?)
    }
}

/// What a replay or a redelivery did.
#[derive(Debug, Serialize)]
pub struct Started {
    /// Whether the function that does it was told at once. If not, the sweeper tells it within minutes.
    enqueued: bool,
}

/// Reads of a store that are under way at once for one request.
const WIDTH: usize = 16;

/// The results of many calls, in their order.
async fn at_once<T>(
    calls: Vec<impl Future<Output = Result<T, Problem>>>,
) -> Result<Vec<T>, Problem> {
    stream::iter(calls).buffered(WIDTH).try_collect().await
}

/// All routes.
pub fn router<P: Ports>(api: Arc<Api<P>>) -> Router {
    Router::new()
        .route("/v1/sources", get(sources::list::<P>).post(sources::add::<P>))
        .route("/v1/sources/{source}", get(sources::show::<P>).patch(sources::change::<P>))
        .route("/v1/sources/{source}/rejected", get(sources::rejected::<P>))
        .route("/v1/sources/{source}/pause", post(sources::pause::pause::<P>))
        .route("/v1/sources/{source}/resume", post(sources::pause::resume::<P>))
        .route("/v1/sources/{source}/objects/{kind}/{id}", get(objects::show::<P>))
        .route(
            "/v1/sources/{source}/secrets",
            get(sources::secrets::list::<P>).post(sources::secrets::add::<P>),
        )
        .route("/v1/sources/{source}/secrets/{secret}", delete(sources::secrets::remove::<P>))
        .route(
            "/v1/sources/{source}/tokens",
            get(sources::tokens::list::<P>).post(sources::tokens::add::<P>),
        )
        .route("/v1/sources/{source}/tokens/{token}", delete(sources::tokens::remove::<P>))
        .route("/v1/sources/{source}/events/{event}", get(received::story::<P>))
        .route("/v1/sources/{source}/events/{event}/replay", post(received::replay::<P>))
        .route("/v1/parked", get(parked::list::<P>))
        .route("/v1/replays", get(replays::list::<P>).post(replays::start::<P>))
        .route("/v1/replays/{replay}", get(replays::show::<P>))
        .route("/v1/replays/{replay}/cancel", post(replays::cancel::<P>))
        .merge(endpoints::routes::<P>())
        .route("/v1/tenants/{tenant}/endpoints/{endpoint}/deliveries", get(deliveries::list::<P>))
        .merge(redeliveries::routes::<P>())
        .merge(polling::routes::<P>())
        .route(
            "/v1/events",
            post(outgoing::publish::<P>).layer(DefaultBodyLimit::max(outgoing::MAX_BODY)),
        )
        .route("/v1/tenants/{tenant}/events/unmatched", get(unmatched::list::<P>))
        .route("/v1/tenants/{tenant}/events/{event}", get(outgoing::story::<P>))
        .route(
            "/v1/tenants/{tenant}/events/{event}/endpoints/{endpoint}/redeliver",
            post(outgoing::redeliver::<P>),
        )
        .fallback(|| async { Problem::no_route() })
        .method_not_allowed_fallback(|| async { Problem::no_method() })
        .layer(DefaultBodyLimit::max(request::MAX_BODY))
        .layer(middleware::from_fn(request::at_its_door))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), tell::<P>))
        .with_state(api)
}

/// One line for each request: the route, not the path, because names in a path are for the audit log.
async fn tell<P: Ports>(State(api): State<Arc<Api<P>>>, request: Request, next: Next) -> Response {
    let began = api.now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    let took = api.now().duration_since(began).as_secs_f64() * 1000.0;
    // One of the answers holds a secret, and none may be kept on the way.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    tracing::info!(
        stage = "api",
        method = method.as_str(),
        route = route.as_ref().map(MatchedPath::as_str),
        result = response.status().as_u16(),
        duration_ms = (took * 10.0).round() / 10.0,
        "answered"
    );
    response
}
