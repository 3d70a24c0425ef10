//! The Lambda Runtime API: how a process gets events and answers them.
//!
//! Each process has its own prefix, `http://127.0.0.1:<port>/<process id>`: so the host knows who asks. `next` hangs until there
//! is an event; it never answers without a request id, which would make the runtime panic.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json, Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get, post},
    serve::ListenerExt as _,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc::UnboundedReceiver, task::JoinSet};

use super::{
    function::{ANSWER_LIMIT, Cause, Failure, Outcome},
    leftovers::Processes,
    log::Tail,
    pool::{Order, Pool},
    process,
};

/// The Runtime API of all functions, and the processes behind it.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    pools: Mutex<BTreeMap<String, Pool>>,
    list: Option<Processes>,
    attended: Mutex<JoinSet<()>>,
}

impl Runtime {
    /// A runtime whose API will be served at `address`. `list` is where its processes are written down.
    #[must_use]
    pub fn new(address: SocketAddr, list: Option<Processes>) -> Self {
        Self(Arc::new(Inner { address, pools: Mutex::default(), list, attended: Mutex::default() }))
    }

    /// Serves the API until the future is dropped.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let router = Router::new()
            .route("/{process}/2018-06-01/runtime/invocation/next", get(next))
            .route("/{process}/2018-06-01/runtime/invocation/{request}/response", post(response))
            .route("/{process}/2018-06-01/runtime/invocation/{request}/error", post(error))
            .route("/{process}/2018-06-01/runtime/init/error", post(init_error))
            .with_state(self);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await
    }

    /// `AWS_LAMBDA_RUNTIME_API` of a process: with a prefix the scheme is needed too.
    pub(crate) fn base_of(&self, process: &str) -> String {
        format!("http://{}/{process}", self.0.address)
    }

    pub(crate) fn attend(
        &self,
        pool: Pool,
        process: String,
        tail: Arc<Tail>,
        orders: UnboundedReceiver<Order>,
    ) {
        self.0
            .pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(process.clone(), pool.clone());
        let runtime = self.clone();
        let mut attended = self.0.attended.lock().unwrap_or_else(PoisonError::into_inner);
        while attended.try_join_next().is_some() {}
        attended.spawn(async move {
            process::run(pool, process.clone(), tail, orders).await;
            runtime.0.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
        });
    }

    pub(crate) fn started(&self, pid: u32) {
        if let Some(list) = &self.0.list {
            list.started(pid);
        }
    }

    pub(crate) fn ended(&self, pid: u32) {
        if let Some(list) = &self.0.list {
            list.ended(pid);
        }
    }

    fn pool(&self, process: &str) -> Option<Pool> {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner).get(process).cloned()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("address", &self.0.address).finish_non_exhaustive()
    }
}

async fn next(State(runtime): State<Runtime>, Path(process): Path<String>) -> Response {
    let Some(pool) = runtime.pool(&process) else { return refused("InvalidProcess") };
    let Some(handed) = pool.next(&process).await else { return refused("InvalidProcess") };
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("lambda-runtime-aws-request-id", handed.request),
        ("lambda-runtime-deadline-ms", handed.deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", pool.spec().arn.clone()),
        ("lambda-runtime-trace-id", trace_id()),
    ];
    (headers, handed.event).into_response()
}

async fn response(
    State(runtime): State<Runtime>,
    Path((process, request)): Path<(String, String)>,
    body: Body,
) -> Response {
    let Some(pool) = runtime.pool(&process) else { return refused("InvalidProcess") };
    let Ok(body) = to_bytes(body, ANSWER_LIMIT).await else {
        let message = format!(
            "Response payload size exceeded maximum allowed payload size ({ANSWER_LIMIT} bytes)."
        );
        let failure = Failure::new(Cause::Reported, "Function.ResponseSizeTooLarge", message);
        pool.complete(&process, &request, Outcome::Failed(failure.clone()));
        return (StatusCode::PAYLOAD_TOO_LARGE, Json(failure.to_json())).into_response();
    };
    settled(pool.complete(&process, &request, Outcome::Answer(body)))
}

async fn error(
    State(runtime): State<Runtime>,
    Path((process, request)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(pool) = runtime.pool(&process) else { return refused("InvalidProcess") };
    let failure = reported(Cause::Reported, &headers, body).await;
    settled(pool.complete(&process, &request, Outcome::Failed(failure)))
}

async fn init_error(
    State(runtime): State<Runtime>,
    Path(process): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(pool) = runtime.pool(&process) else { return refused("InvalidProcess") };
    pool.init_failed(&process, reported(Cause::Init, &headers, body).await);
    settled(true)
}

/// What a function says of its failure; a body that is no error object still is a failure.
async fn reported(cause: Cause, headers: &HeaderMap, body: Body) -> Failure {
    let body = to_bytes(body, ANSWER_LIMIT).await.unwrap_or_else(|_| Bytes::new());
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let header =
        || headers.get("lambda-runtime-function-error-type")?.to_str().ok().map(str::to_owned);
    let kind = text("errorType").or_else(header).unwrap_or_else(|| "Unhandled".to_owned());
    Failure::new(cause, &kind, text("errorMessage").unwrap_or_else(|| "(no message)".to_owned()))
}

fn settled(known: bool) -> Response {
    match known {
        true => (StatusCode::ACCEPTED, Json(json!({ "status": "OK" }))).into_response(),
        false => refused("InvalidRequestID"),
    }
}

fn refused(kind: &str) -> Response {
    let body = json!({ "errorType": kind, "errorMessage": "the local host does not know this process or invocation (any more)" });
    (StatusCode::FORBIDDEN, Json(body)).into_response()
}

fn trace_id() -> String {
    let (root, parent): (u128, u64) = (rand::random(), rand::random());
    format!(
        "Root=1-{:08x}-{:024x};Parent={parent:016x};Sampled=0",
        root >> 96,
        root & ((1 << 96) - 1)
    )
}
