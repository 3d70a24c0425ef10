//! What tests and the command line ask of a running host, below `/_local/`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    compute::{
        function::Outcome,
        pool::{Load, Pool},
        source::stream::Place,
        token::Token,
    },
    services::{Rule, Services},
};

/// What the control API looks at.
#[derive(Debug)]
pub struct Control {
    /// What callers must present.
    pub token: Token,
    /// The functions, by logical id.
    pub functions: BTreeMap<String, Pool>,
    /// The events of each function's schedules.
    pub schedules: BTreeMap<String, Vec<Bytes>>,
    /// The AWS services.
    pub services: Services,
    /// The queues that call a function. Messages elsewhere wait for nobody.
    pub consumed: Vec<String>,
    /// The streams that call a function, and how far each is read.
    pub streams: Vec<(String, Place)>,
}

type Shared = State<Arc<Control>>;

/// The routes.
pub fn router(control: Control) -> Router {
    let control = Arc::new(control);
    Router::new()
        .route("/_local/calls", get(calls).delete(forget_calls))
        .route("/_local/events", get(events).delete(forget_events))
        .route("/_local/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/_local/idle", get(idle))
        .route("/_local/processes", get(processes))
        .route("/_local/run/{function}", post(run))
        .route("/_local/kill/{function}", post(kill))
        .route("/_local/{*rest}", get(unknown).post(unknown).delete(unknown))
        .layer(middleware::from_fn_with_state(Arc::clone(&control), guard))
        .with_state(control)
}

async fn guard(State(control): Shared, request: Request, next: Next) -> Response {
    match control.token.is_in(request.headers()) {
        true => next.run(request).await,
        false => refused(
            StatusCode::UNAUTHORIZED,
            "send `Authorization: Bearer <token>`; the token is in the file `token` of the state folder",
        ),
    }
}

async fn calls(State(control): Shared) -> Response {
    Json(control.services.recorder.calls()).into_response()
}

async fn forget_calls(State(control): Shared) -> StatusCode {
    control.services.recorder.clear();
    StatusCode::NO_CONTENT
}

async fn events(State(control): Shared) -> Response {
    Json(control.services.buses.events()).into_response()
}

async fn forget_events(State(control): Shared) -> StatusCode {
    control.services.buses.clear();
    StatusCode::NO_CONTENT
}

async fn faults(State(control): Shared) -> Response {
    Json(control.services.faults.rules()).into_response()
}

async fn add_fault(State(control): Shared, body: Bytes) -> Response {
    match serde_json::from_slice::<Rule>(&body) {
        Ok(rule) => {
            control.services.faults.add(rule);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => refused(StatusCode::BAD_REQUEST, &format!("this is no fault rule: {error}")),
    }
}

async fn clear_faults(State(control): Shared) -> StatusCode {
    control.services.faults.clear();
    StatusCode::NO_CONTENT
}

async fn processes(State(control): Shared) -> Response {
    Json(control.functions.values().flat_map(Pool::processes).collect::<Vec<_>>()).into_response()
}

async fn kill(State(control): Shared, Path(function): Path<String>) -> Response {
    match control.functions.get(&function) {
        Some(pool) => Json(json!({ "killed": pool.kill() })).into_response(),
        None => no_function(&control, &function),
    }
}

async fn run(State(control): Shared, Path(function): Path<String>) -> Response {
    let Some(pool) = control.functions.get(&function) else {
        return no_function(&control, &function);
    };
    let events = control.schedules.get(&function).map(Vec::as_slice).unwrap_or_default();
    let Some((last, first)) = events.split_last() else {
        return refused(
            StatusCode::BAD_REQUEST,
            &format!("{function} has no schedule in the template"),
        );
    };
    for event in first {
        if let Outcome::Failed(failure) = pool.invoke(event.clone()).await {
            return Json(json!({ "status": "failed", "error": failure.to_json() })).into_response();
        }
    }
    let result = match pool.invoke(last.clone()).await {
        Outcome::Answer(answer) => {
            let text = || Value::String(String::from_utf8_lossy(&answer).into_owned());
            json!({ "status": "succeeded", "answer": serde_json::from_slice(&answer).unwrap_or_else(|_| text()) })
        }
        Outcome::Failed(failure) => json!({ "status": "failed", "error": failure.to_json() }),
    };
    Json(result).into_response()
}

/// Nothing waits and nothing runs. What is in neither place for a moment is with a function, and a function that began or ran
/// between the first and the last look shows in the second.
async fn idle(State(control): Shared) -> Response {
    let before = control.loads();
    let mut idle = before.values().all(|load| load.waiting + load.running == 0);
    let mut queues = Map::new();
    for arn in &control.consumed {
        if let Ok(counts) = control.services.queues.counts(arn) {
            idle &= counts.visible + counts.in_flight + counts.delayed == 0;
            let counts = json!({ "visible": counts.visible, "in_flight": counts.in_flight, "delayed": counts.delayed });
            queues.insert(last_part(arn, ':').to_owned(), counts);
        }
    }
    // what a move still has to send is in no queue with a consumer
    idle &= !control.services.queues.is_moving().unwrap_or(true);
    // and an event that waits for the next try of its function is with no function
    idle &= control.services.buses.under_way() == 0;
    let mut streams = Map::new();
    for (arn, place) in &control.streams {
        let read = control.services.streams.read(arn, place.done().as_ref(), 1).await;
        let behind = place.is_busy() || read.map_or(true, |records| !records.is_empty());
        idle &= !behind;
        // Several lanes may read one stream.
        let before = streams.get(arn).is_some_and(|stream: &Value| stream["behind"] == true);
        streams.insert(arn.clone(), json!({ "behind": behind || before }));
    }
    let functions = control.loads();
    idle &= functions == before;
    Json(json!({ "idle": idle, "queues": queues, "streams": streams, "functions": functions }))
        .into_response()
}

impl Control {
    fn loads(&self) -> BTreeMap<&str, Load> {
        self.functions.iter().map(|(id, pool)| (id.as_str(), pool.load())).collect()
    }
}

async fn unknown() -> Response {
    refused(
        StatusCode::NOT_FOUND,
        "the control API has calls, events, faults, idle, processes, run/{function} and kill/{function}",
    )
}

fn no_function(control: &Control, function: &str) -> Response {
    let known: Vec<_> = control.functions.keys().map(String::as_str).collect();
    let message = format!("the template has no function {function:?}; it has {}", known.join(", "));
    refused(StatusCode::NOT_FOUND, &message)
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "error": message }))).into_response()
}

fn last_part(text: &str, separator: char) -> &str {
    text.rsplit(separator).next().unwrap_or(text)
}
