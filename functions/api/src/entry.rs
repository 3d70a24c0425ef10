//! What Lambda hands to this function: a request over HTTP, or an event of a bus.

use std::sync::Arc;

use axum::Router;
use lambda_http::{
    Adapter, Error, LambdaEvent, Service as _, lambda_runtime, request::LambdaRequest, service_fn,
    tower::ServiceExt as _,
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Api, Ports,
    bus::{self, Carried},
    router,
};

/// Answers them until Lambda ends this process.
///
/// # Errors
/// Those of the runtime.
pub async fn run<P: Ports>(api: Api<P>) -> Result<(), Error> {
    let api = Arc::new(api);
    let router = router(Arc::clone(&api));
    lambda_runtime::run(service_fn(|event| handle(&api, router.clone(), event))).await
}

/// Answers one of them.
///
/// # Errors
/// An event of a bus that was not published, with its reason; Lambda tries it again. What is no request either.
pub async fn handle<P: Ports>(
    api: &Api<P>,
    router: Router,
    event: LambdaEvent<Box<RawValue>>,
) -> Result<Box<RawValue>, Error> {
    let LambdaEvent { payload, context } = event;
    let Some(carried) = Carried::read(&payload) else {
        let request: LambdaRequest = serde_json::from_str(payload.get())?;
        let mut http = Adapter::from(router);
        return raw(&http.ready().await?.call(LambdaEvent::new(request, context)).await?);
    };
    // Boxed: the layout of the whole program's future would be too deep for the compiler.
    let published = Box::pin(bus::publish(api, carried)).await;
    let result = if published.is_ok() { "published" } else { "error" };
    let why = published.as_ref().err().map(ToString::to_string);
    tracing::info!(stage = "api", route = "bus", result, error = why, "an event of a bus");
    raw(&published?)
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, Error> {
    Ok(to_raw_value(answer)?)
}
