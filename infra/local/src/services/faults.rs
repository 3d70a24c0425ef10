//! Faults on request: which call fails, when, how and how often.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Service,
    answer::{AwsError, dropped},
};

/// When a fault strikes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// The effect does not happen.
    Before,
    /// The effect happens and the answer is lost.
    After,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The service's throttling error.
    Throttle,
    /// The service's internal error.
    Internal,
    /// No right to do this.
    AccessDenied,
    /// The connection is closed without an answer.
    Drop,
    /// The call (`before`) or its answer (`after`) takes `delay_ms` longer.
    Delay,
    /// DynamoDB: another transaction holds the item.
    Conflict,
    /// SQS: a send makes two messages; what a receive returned is visible again at once.
    Duplicate,
    /// SQS: a receive takes the newest first.
    Reorder,
    /// SQS: what is sent arrives `delay_ms` late.
    Hold,
    /// SQS: a delete or a change of visibility says yes and does nothing.
    Lost,
    /// SQS, EventBridge: the first entry of a batch fails.
    Partial,
}

/// Which calls a fault strikes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `dynamodb`, `sqs`, `s3`, `secretsmanager`, `kms` or `eventbridge`.
    pub service: Service,
    /// The API's action, such as `PutItem`, or `*`.
    pub action: String,
    /// Only calls of this function.
    #[serde(default)]
    pub function: Option<String>,
    /// Before or after the effect.
    #[serde(default = "before")]
    pub when: When,
    /// What goes wrong.
    pub error: Kind,
    /// So many matching calls are let through first.
    #[serde(default)]
    pub skip: u32,
    /// So many calls are struck.
    #[serde(default = "once")]
    pub times: u32,
    /// For `delay` and `hold`.
    #[serde(default)]
    pub delay_ms: u64,
}

fn before() -> When {
    When::Before
}

fn once() -> u32 {
    1
}

/// The rules that still have calls to strike.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Armed>>>);

/// A rule, and how many of its strikes are under way: they count once their effect has happened.
#[derive(Debug)]
struct Armed {
    rule: Rule,
    under_way: Arc<AtomicU32>,
}

/// A rule that strikes a call.
#[derive(Debug)]
pub(super) struct Strike {
    rule: Rule,
    after: Option<UnderWay>,
}

/// The rule of a strike.
pub(super) fn rule_of(strike: Option<&Strike>) -> Option<&Rule> {
    strike.map(|strike| &strike.rule)
}

/// Until it is dropped the effect may not have happened; also with a caller that is gone before its answer.
#[derive(Debug)]
struct UnderWay {
    faults: Faults,
    count: Arc<AtomicU32>,
}

impl Strike {
    /// Says that the effect has happened.
    pub(super) fn happened(self) -> Rule {
        drop(self.after);
        self.rule
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut rules = self.faults.locked();
        self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(armed) =
            rules.iter_mut().find(|armed| Arc::ptr_eq(&armed.under_way, &self.count))
        {
            armed.rule.times -= 1;
        }
        rules.retain(|armed| armed.rule.times > 0);
    }
}

impl Faults {
    /// Adds a rule behind those there are.
    pub fn add(&self, rule: Rule) {
        self.locked().push(Armed { rule, under_way: Arc::default() });
    }

    /// Forgets all rules.
    pub fn clear(&self) {
        self.locked().clear();
    }

    /// The rules as they stand now, with what is left of `skip` and `times`. One that strikes after an effect is spent
    /// when the effect has happened.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        self.locked().iter().map(|armed| armed.rule.clone()).collect()
    }

    /// The first rule that strikes this call, used up by one. Rules that only skipped it are counted down as well.
    pub(super) fn strike(&self, service: Service, action: &str, function: &str) -> Option<Strike> {
        let mut rules = self.locked();
        let mut struck = None;
        for Armed { rule, under_way } in rules.iter_mut() {
            let matches = rule.service == service
                && (rule.action == "*" || rule.action == action)
                && rule.function.as_deref().is_none_or(|only| only == function);
            if !matches || rule.times <= under_way.load(Ordering::Relaxed) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if struck.is_none() {
                let after = (rule.when == When::After).then(|| {
                    under_way.fetch_add(1, Ordering::Relaxed);
                    UnderWay { faults: self.clone(), count: Arc::clone(under_way) }
                });
                if after.is_none() {
                    rule.times -= 1;
                }
                struck = Some(Strike { rule: rule.clone(), after });
            }
        }
        rules.retain(|armed| armed.rule.times > 0);
        struck
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Armed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer that a fault gives instead of the service's; `None` for faults that are not answers.
pub(super) fn answer(rule: &Rule, action: &str) -> Option<Response> {
    let service = rule.service;
    let error = match rule.error {
        Kind::Drop => return Some(dropped()),
        Kind::Throttle => throttle(service),
        Kind::Internal => internal(service),
        Kind::AccessDenied => denied(service),
        Kind::Conflict => conflict(action),
        _ => return None,
    };
    Some(service.error(error))
}

const INJECTED: &str = "injected by a fault rule of the local host";

fn throttle(service: Service) -> AwsError {
    match service {
        Service::DynamoDb => AwsError::sender(
            "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            INJECTED,
        ),
        Service::Sqs => AwsError {
            query_code: Some("RequestThrottled".to_owned()),
            ..AwsError::sender("com.amazonaws.sqs#RequestThrottled", INJECTED)
        },
        Service::SecretsManager | Service::Kms | Service::EventBridge => {
            AwsError::sender("ThrottlingException", INJECTED)
        }
        Service::S3 => AwsError { status: 503, ..AwsError::sender("SlowDown", INJECTED) },
    }
}

fn internal(service: Service) -> AwsError {
    match service {
        Service::DynamoDb => {
            AwsError::internal("com.amazonaws.dynamodb.v20120810#InternalServerError", INJECTED)
        }
        Service::Sqs => AwsError {
            query_code: Some("InternalError".to_owned()),
            ..AwsError::internal("com.amazonaws.sqs#InternalError", INJECTED)
        },
        Service::SecretsManager => AwsError::internal("InternalServiceError", INJECTED),
        Service::Kms => AwsError::internal("KMSInternalException", INJECTED),
        Service::EventBridge => AwsError::internal("InternalException", INJECTED),
        Service::S3 => AwsError::internal("InternalError", INJECTED),
    }
}

fn denied(service: Service) -> AwsError {
    match service {
        Service::S3 => AwsError { status: 403, ..AwsError::sender("AccessDenied", INJECTED) },
        Service::Sqs => AwsError {
            status: 403,
            query_code: Some("AccessDenied".to_owned()),
            ..AwsError::sender("com.amazonaws.sqs#AccessDeniedException", INJECTED)
        },
        _ => AwsError::sender("com.amazon.coral.service#AccessDeniedException", INJECTED),
    }
}

fn conflict(action: &str) -> AwsError {
    if action != "TransactWriteItems" && action != "TransactGetItems" {
        return AwsError::sender(
            "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
            INJECTED,
        );
    }
    AwsError {
        extra: Some(Box::new((
            "CancellationReasons",
            json!([{ "Code": "TransactionConflict", "Message": "Transaction is ongoing for the item" }]),
        ))),
        ..AwsError::sender(
            "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict]",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(skip: u32, times: u32) -> Rule {
        Rule {
            service: Service::DynamoDb,
            action: "PutItem".to_owned(),
            function: Some("ingress".to_owned()),
            when: When::Before,
            error: Kind::Throttle,
            skip,
            times,
            delay_ms: 0,
        }
    }

    #[test]
    fn a_rule_lets_calls_through_then_strikes_then_is_gone() {
        let faults = Faults::default();
        faults.add(rule(2, 2));
        let strikes: Vec<bool> = (0..6)
            .map(|_| faults.strike(Service::DynamoDb, "PutItem", "ingress").is_some())
            .collect();
        assert_eq!(strikes, [false, false, true, true, false, false]);
        assert!(faults.rules().is_empty());
    }

    /// Who waits for the last strike and then looks at the effect, or kills the caller, must not come before it.
    #[test]
    fn a_strike_after_the_effect_counts_when_the_effect_has_happened() {
        let faults = Faults::default();
        faults.add(Rule { when: When::After, ..rule(0, 2) });
        let strike = || faults.strike(Service::DynamoDb, "PutItem", "ingress");
        let left = || faults.rules().iter().map(|rule| rule.times).collect::<Vec<_>>();
        let (first, second) = (strike().unwrap(), strike().unwrap());
        assert!(strike().is_none(), "two are under way");
        assert_eq!(left(), [2]);
        assert_eq!(first.happened().when, When::After);
        assert_eq!(left(), [1]);
        assert!(strike().is_none());
        // Its caller is gone.
        drop(second);
        assert!(faults.rules().is_empty());

        faults.add(Rule { when: When::After, ..rule(0, 1) });
        let forgotten = strike().unwrap();
        faults.clear();
        faults.add(Rule { when: When::After, ..rule(0, 1) });
        drop(forgotten);
        assert_eq!(left(), [1], "another rule's");
    }

    #[test]
    fn a_rule_strikes_only_what_it_names() {
        let faults = Faults::default();
        faults.add(rule(0, 1));
        assert!(faults.strike(Service::Sqs, "PutItem", "ingress").is_none());
        assert!(faults.strike(Service::DynamoDb, "GetItem", "ingress").is_none());
        assert!(faults.strike(Service::DynamoDb, "PutItem", "worker").is_none());
        assert!(faults.strike(Service::DynamoDb, "PutItem", "ingress").is_some());
    }

    #[test]
    fn a_rule_is_read_as_the_control_page_sends_it() {
        let read = |text: &str| serde_json::from_str::<Rule>(text);
        let rule = read(r#"{"service":"sqs","action":"*","function":null,"when":"after","error":"drop","skip":1,"times":3}"#).unwrap();
        assert_eq!(
            (rule.service, rule.when, rule.error, rule.skip, rule.times),
            (Service::Sqs, When::After, Kind::Drop, 1, 3)
        );
        assert!(read(r#"{"service":"sqs","action":"*","error":"drop","tims":3}"#).is_err());
        assert!(read(r#"{"service":"sqs","action":"*","error":"explode"}"#).is_err());
    }
}
