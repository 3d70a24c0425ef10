//! An EventBridge rule: events of a bus that call a function.
//!
//! The call is asynchronous, as on AWS: Lambda tries a failing one again, and then tells the on-failure destination. Its
//! waits there are a minute and two; here they are short.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    clock,
    function::{Failure, Invoke, Outcome},
    source::{backoff, filter::Pattern, stopped},
};
use crate::services::{Carried, Put, Queues};

/// A rule and the function that it calls.
#[derive(Clone, Debug)]
pub struct Rule<I> {
    /// What its events are of.
    pub pattern: Pattern,
    /// The AWS region, which each event names.
    pub region: String,
    /// What a failing call may cost.
    pub limits: Limits,
    /// The ARN of the function.
    pub arn: String,
    /// The queues, under the function's role.
    pub queues: Queues,
    /// The function.
    pub function: I,
}

/// `EventInvokeConfig`: what Lambda does about a call that nobody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `MaximumRetryAttempts`, 0 to 2.
    pub retries: u32,
    /// `MaximumEventAgeInSeconds`: what is older is not tried again.
    pub age: Duration,
    /// The ARN of the queue that is told of calls that failed for good.
    pub on_failure: Option<String>,
}

impl Default for Limits {
    /// What Lambda does without one.
    fn default() -> Self {
        Self { retries: 2, age: Duration::from_secs(21_600), on_failure: None }
    }
}

/// Why there is no further try, in Lambda's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    RetriesExhausted,
    EventAgeExceeded,
}

/// Whether a call that failed for the `tries`th time is made again.
fn end(limits: &Limits, tries: u32, age: Duration) -> Option<End> {
    if tries > limits.retries {
        Some(End::RetriesExhausted)
    } else if age > limits.age {
        Some(End::EventAgeExceeded)
    } else {
        None
    }
}

impl<I: Invoke> Rule<I> {
    /// Calls the function with each event that the rule wants, until the host stops.
    pub async fn run(
        self,
        mut events: UnboundedReceiver<Carried>,
        mut stop: watch::Receiver<bool>,
    ) {
        let rule = Arc::new(self);
        let mut calls = JoinSet::new();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(_) = calls.join_next() => {}
                event = events.recv() => match event {
                    Some(carried) => {
                        let event = rule.event(&carried.put);
                        if rule.pattern.matches(&event) {
                            calls.spawn(Arc::clone(&rule).call(event, carried, stop.clone()));
                        }
                    }
                    None => break,
                },
            }
        }
        while calls.join_next().await.is_some() {}
    }

    /// The event as a function sees it.
    fn event(&self, put: &Put) -> Value {
        json!({
            "version": "0",
            "id": put.id,
            "detail-type": put.detail_type,
            "source": put.source,
            "account": "000000000000",
            "time": time(&put.time),
            "region": self.region,
            "resources": put.resources,
            "detail": put.detail,
        })
    }

    /// The event stays under way until its carrier is dropped, at the end of its last call.
    async fn call(
        self: Arc<Self>,
        event: Value,
        _under_way: Carried,
        mut stop: watch::Receiver<bool>,
    ) {
        let began = Instant::now();
        for tries in 1.. {
            let failure = match self.function.invoke(event.to_string().into()).await {
                Outcome::Answer(_) => return,
                Outcome::Failed(failure) => failure,
            };
            tracing::warn!(function = self.arn, tries, "a call by a rule failed: {failure}");
            if let Some(end) = end(&self.limits, tries, began.elapsed()) {
                return self.give_up(&event, &failure, end, tries).await;
            }
            tokio::select! {
                () = sleep(backoff(tries)) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }

    async fn give_up(&self, event: &Value, failure: &Failure, end: End, tries: u32) {
        let Some(queue) = &self.limits.on_failure else {
            tracing::error!(function = self.arn, "the tries are used up; this event is lost");
            return;
        };
        let message = json!({
            "version": "1.0",
            "timestamp": clock::now().to_string(),
            "requestContext": {
                "requestId": event["id"],
                "functionArn": format!("{}:$LATEST", self.arn),
                "condition": format!("{end:?}"),
                "approximateInvokeCount": tries,
            },
            "requestPayload": event,
            "responseContext": {
                "statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled",
            },
            "responsePayload": failure.to_json(),
        });
        if let Err(error) = self.queues.send(queue, &message.to_string()).await {
            tracing::error!(queue, %error, "the on-failure queue cannot be told");
        }
    }
}

/// Whole seconds, as EventBridge writes them.
fn time(of: &Value) -> Value {
    let seconds = of.as_f64().unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "parts of a second are left out")]
    let at = jiff::Timestamp::from_second(seconds as i64).unwrap_or_default();
    at.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_retries_and_its_age() {
        let limits = Limits { retries: 2, age: Duration::from_secs(60), on_failure: None };
        let check = |tries: u32, seconds: u64, expected: Option<End>| {
            assert_eq!(end(&limits, tries, Duration::from_secs(seconds)), expected);
        };
        check(1, 0, None);
        check(2, 60, None);
        check(2, 61, Some(End::EventAgeExceeded));
        check(3, 0, Some(End::RetriesExhausted));
        check(3, 61, Some(End::RetriesExhausted));
    }

    #[test]
    fn a_time_is_in_whole_seconds() {
        assert_eq!(time(&json!(1_790_000_000)), json!("2026-09-21T14:13:20Z"));
        assert_eq!(time(&json!(1_790_000_000.9)), json!("2026-09-21T14:13:20Z"));
        assert_eq!(time(&Value::Null), json!("1970-01-01T00:00:00Z"));
    }
}
