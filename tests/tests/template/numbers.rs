//! Rules about parameters, their values, and the variables that carry them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::stack::Stack;

/// Sums of parameters that must be below others, or at most as large, in every environment.
const BELOW: &[(&[&str], &str)] = &[
    (&["ConnectTimeoutMs"], "AttemptTimeoutMs"),
    (&["DeliveryDeadlineMs"], "DeliveryRetentionMs"),
    (&["LanePassMs", "AttemptTimeoutMs"], "LaneLeaseMs"),
    (&["FetchTimeoutMs"], "ObjectLeaseMs"),
    (&["ObjectLeaseMs"], "WorkerVisibilityMs"),
    (&["SweepBudgetMs"], "SweepLeaseMs"),
];
const AT_MOST: &[(&str, &str)] = &[
    ("BreakerProbeMs", "BreakerProbeCapMs"),
    ("DeliveryRetentionMs", "OutboxRetentionMs"),
    ("PauseSeenMs", "SourceStaleMs"),
    ("ResponseKeptBytes", "ResponseReadBytes"),
    ("RetryAfterCapMs", "DeliveryDeadlineMs"),
    ("RetryBaseMs", "RetryCapMs"),
    ("RetryCapMs", "DeliveryDeadlineMs"),
    ("RetryFloorMs", "RetryBaseMs"),
    ("SourceFreshMs", "SourceStaleMs"),
    ("SweepClaimBaseMs", "SweepClaimCapMs"),
    ("WorkerBackoffBaseMs", "WorkerBackoffCapMs"),
];

/// Variables that are not simply a parameter, a table or a queue.
const MADE: &[(&str, &str, &str)] = &[
    ("BODIES_URL", "Fn::Sub", "s3://${BodyBucket}"),
    ("INGRESS_URL", "Fn::GetAtt", "IngressApi.ApiEndpoint"),
    ("OPS_BUS_ARN", "Fn::GetAtt", "OpsBus.Arn"),
    (
        "OWN_QUEUES",
        "Fn::Sub",
        "${InboundQueue.QueueName},${InboundDlq.QueueName},${WakeQueue.QueueName},${WakeDlq.QueueName},${StreamFailures.QueueName},${PublishFailures.QueueName},${ScheduleDlq.QueueName}",
    ),
    ("SECRETS_KEY_ARN", "Fn::GetAtt", "SecretsKey.Arn"),
    ("SECRET_PREFIX", "Fn::Sub", "${SecretPrefix}/${EnvName}"),
];

/// From this on CloudFormation may write a bare number in scientific notation.
const BARE_NUMBERS_END: u64 = 10_000_000;

/// Waits, leases and limits fit together, in every environment.
pub(crate) fn relations(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for environment in stack.environments.keys().map(String::as_str).chain(["default"]) {
        let value = |name: &str| {
            stack
                .number(&json!({ "Ref": name }), environment)
                .unwrap_or_else(|| panic!("no number in {name}"))
        };
        for (parts, limit) in BELOW {
            let sum: u64 = parts.iter().map(|part| value(part)).sum();
            if sum >= value(limit) {
                found.push(format!("{parts:?} = {sum} is not below {limit} in {environment}"));
            }
        }
        for (name, limit) in AT_MOST {
            if value(name) > value(limit) {
                found.push(format!("{name} is above {limit} in {environment}"));
            }
        }
        let sweeper = &stack.resource("SweeperFunction")["Properties"]["Timeout"];
        if stack
            .number(sweeper, environment)
            .is_none_or(|timeout| value("SweepBudgetMs") >= timeout * 1000)
        {
            found.push(format!("a sweep outlives its function in {environment}"));
        }
        if value("LanePassMs") + value("AttemptTimeoutMs") >= value("WakeVisibilitySeconds") * 1000
        {
            found
                .push(format!("a wake message returns while its lane is drained in {environment}"));
        }
        let body = value("BodyDays") * 24 * 3600 * 1000;
        if body < value("InboxRetentionMs").max(value("OutboxRetentionMs")) {
            found.push(format!("a row outlives its body in {environment}"));
        }
    }
    found
}

/// Every override names a parameter and fits its type.
pub(crate) fn overrides(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (environment, given) in &stack.environments {
        for (name, value) in given {
            let parameter = &stack.template["Parameters"][name];
            let allowed = parameter["AllowedValues"].as_array();
            let fits = match parameter["Type"].as_str() {
                Some("Number") => value.parse::<u64>().is_ok(),
                Some("String") => true,
                _ => false,
            };
            let text =
                |known: &Value| known.as_str().map_or_else(|| known.to_string(), str::to_owned);
            if !fits
                || allowed.is_some_and(|allowed| !allowed.iter().any(|known| text(known) == *value))
            {
                found.push(format!("{environment}: {name}={value}"));
            }
        }
    }
    found
}

/// Every parameter has a default, names its unit, and is used.
pub(crate) fn parameters(stack: &Stack) -> Vec<String> {
    let units =
        [("Ms", "Milliseconds "), ("Seconds", "Seconds "), ("Days", "Days "), ("Bytes", "Bytes ")];
    let mut used = BTreeSet::new();
    for section in ["Conditions", "Globals", "Resources", "Outputs"] {
        references(&stack.template[section], &mut used);
    }
    let mut found = Vec::new();
    for (name, parameter) in stack.template["Parameters"].as_object().into_iter().flatten() {
        let description = parameter["Description"].as_str().unwrap_or_default();
        let unit =
            units.iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("", |(_, unit)| unit);
        if description.is_empty() || !description.starts_with(unit) {
            found.push(format!("{name} does not say its unit and its reason"));
        }
        if !used.contains(name.as_str()) {
            found.push(format!("{name} is not used"));
        }
        match &parameter["Default"] {
            Value::Null => found.push(format!("{name} has no default")),
            Value::Number(number) if number.as_u64().is_none_or(|n| n >= BARE_NUMBERS_END) => {
                found.push(format!("{name}: quote {number}"));
            }
            _ => {}
        }
    }
    found
}

/// What a value refers to, by `Ref` and by `Sub`.
fn references<'a>(value: &'a Value, into: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        Value::Object(fields) => {
            into.extend(fields.get("Ref").and_then(Value::as_str));
            let text = fields.get("Fn::Sub").and_then(Value::as_str).unwrap_or_default();
            into.extend(text.split("${").skip(1).filter_map(|rest| rest.split(['}', '.']).next()));
            fields.values().for_each(|field| references(field, into));
        }
        _ => {}
    }
}

/// Each variable is named after what it carries; each function has its own, and none come from elsewhere.
pub(crate) fn variables(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    if stack.template["Globals"]["Function"].get("Environment").is_some() {
        found.push("every function gets variables that it may not read".to_owned());
    }
    for (id, function) in stack.resources("AWS::Serverless::Function") {
        let empty = Map::new();
        let variables =
            function["Properties"]["Environment"]["Variables"].as_object().unwrap_or(&empty);
        for name in ["ENV_NAME", "LOG_LEVEL"] {
            if !variables.contains_key(name) {
                found.push(format!("{id} has no {name}"));
            }
        }
        for (name, value) in variables {
            let made = MADE.iter().find(|(made, ..)| made == name);
            let carried = name
                .strip_suffix("_QUEUE_URL")
                .map_or_else(|| name.clone(), |q| format!("{q}_QUEUE"));
            let expected = match made {
                Some((_, function, argument)) => json!({ *function: argument }),
                None => json!({ "Ref": pascal_case(&carried) }),
            };
            if *value != expected {
                found.push(format!("{id}: {name} is {value}, not {expected}"));
            }
        }
    }
    found
}

/// `LANE_PASS_MS` is `LanePassMs`.
fn pascal_case(name: &str) -> String {
    let mut first = true;
    let letters = name.chars().filter_map(|letter| {
        let upper = std::mem::replace(&mut first, letter == '_');
        (letter != '_').then(|| if upper { letter } else { letter.to_ascii_lowercase() })
    });
    letters.collect()
}
