//! What calls a function.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    fields::Fields,
    names,
    node::{Entry, Node},
    resolve::Resolver,
};
use crate::wiring::EventSource;

/// Reads a function's `Events`.
pub(super) fn read(fields: &Fields<'_>, resolver: &Resolver<'_>) -> Vec<EventSource> {
    let Some(events) = fields.take("Events") else { return Vec::new() };
    let mut sources = Vec::new();
    for Entry { at, name, value } in events.entries().unwrap_or_default() {
        let kind = value.get("Type").and_then(Node::scalar).unwrap_or_default();
        let outer = fields.view(format!("Events.{name}"), value);
        outer.take("Type");
        outer.take("Properties");
        outer.finish();
        let empty = Node { at: *at, data: super::node::Data::Map(Vec::new()) };
        let properties = value.get("Properties").unwrap_or(&empty).clone();
        let inner = fields.view(format!("Events.{kind}"), &properties);
        let source = match kind.as_str() {
            "HttpApi" => http(&inner, resolver),
            "SQS" => queue(&inner),
            "DynamoDB" => stream(&inner, resolver),
            "ScheduleV2" => schedule(name, &inner, resolver),
            "EventBridgeRule" => rule(&inner),
            other => {
                resolver.problems.push(
                    *at,
                    format!("event type {other:?} is not known to the local host; use HttpApi, SQS, DynamoDB, ScheduleV2 or EventBridgeRule"),
                );
                continue;
            }
        };
        inner.finish();
        sources.extend(source);
    }
    sources
}

fn http(fields: &Fields<'_>, resolver: &Resolver<'_>) -> Option<EventSource> {
    fields.only("PayloadFormatVersion", "2.0");
    let api = fields.required("ApiId");
    let method = fields.required("Method");
    let path = fields.required("Path");
    let timeout = fields.number("TimeoutInMillis").unwrap_or(30_000);
    let api = api?;
    let named = resolver
        .resources
        .iter()
        .find(|(id, known)| known.kind == "AWS::Serverless::HttpApi" && names::api_id(id) == api);
    let Some((id, _)) = named else {
        fields.problem_with(
            "ApiId",
            format!("ApiId {api} is not an AWS::Serverless::HttpApi of this stack; use !Ref <Api>"),
        );
        return None;
    };
    let method = method?.to_uppercase();
    let method = if method == "*" { "ANY".to_owned() } else { method };
    Some(EventSource::Http {
        api: id.clone(),
        method,
        path: path?,
        timeout: Duration::from_millis(timeout),
    })
}

/// What SQS and stream sources have in common.
struct Batching {
    batch: usize,
    window: Duration,
    item_failures: bool,
    enabled: bool,
}

fn batching(fields: &Fields<'_>, default: u64) -> Batching {
    let batch = fields.number("BatchSize").unwrap_or(default);
    if !(1..=10_000).contains(&batch) {
        fields.problem_with("BatchSize", format!("BatchSize is {batch}; AWS takes 1 to 10000"));
    }
    let window = fields.number("MaximumBatchingWindowInSeconds").unwrap_or(0);
    if batch > 10 && default == 10 && window == 0 {
        fields.problem_with(
            "BatchSize",
            "a BatchSize over 10 needs MaximumBatchingWindowInSeconds of at least 1 on SQS",
        );
    }
    let kinds = fields.texts("FunctionResponseTypes").unwrap_or_default();
    if kinds.iter().any(|kind| kind != "ReportBatchItemFailures") {
        fields.problem_with(
            "FunctionResponseTypes",
            "FunctionResponseTypes may hold ReportBatchItemFailures only",
        );
    }
    Batching {
        batch: usize::try_from(batch).unwrap_or(usize::MAX),
        window: Duration::from_secs(window),
        item_failures: !kinds.is_empty(),
        enabled: fields.boolean("Enabled").unwrap_or(true),
    }
}

fn queue(fields: &Fields<'_>) -> Option<EventSource> {
    let arn = fields.required("Queue");
    let Batching { batch, window, item_failures, enabled } = batching(fields, 10);
    let max_concurrency = fields.inside("ScalingConfig").and_then(|scaling| {
        let most = scaling.number("MaximumConcurrency");
        scaling.finish();
        if most.is_some_and(|most| !(2..=1000).contains(&most)) {
            scaling.problem_with(
                "MaximumConcurrency",
                "ScalingConfig.MaximumConcurrency must be 2 to 1000",
            );
        }
        most.and_then(|most| u32::try_from(most).ok())
    });
    let arn = arn?;
    enabled.then_some(EventSource::Queue { arn, batch, window, item_failures, max_concurrency })
}

fn stream(fields: &Fields<'_>, resolver: &Resolver<'_>) -> Option<EventSource> {
    let arn = fields.required("Stream");
    fields.required("StartingPosition");
    fields.only("StartingPosition", "TRIM_HORIZON");
    let Batching { batch, window, item_failures, enabled } = batching(fields, 100);
    let retries =
        fields.signed("MaximumRetryAttempts").and_then(|retries| u32::try_from(retries).ok());
    let max_age = fields.signed("MaximumRecordAgeInSeconds").filter(|seconds| *seconds != -1);
    if max_age.is_some_and(|seconds| !(60..=604_800).contains(&seconds)) {
        fields.problem_with(
            "MaximumRecordAgeInSeconds",
            "MaximumRecordAgeInSeconds must be 60 to 604800, or -1 for as long as the stream keeps records",
        );
    }
    let max_age = max_age.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let bisect = fields.boolean("BisectBatchOnFunctionError").unwrap_or(false);
    let lanes = fields.number("ParallelizationFactor").unwrap_or(1);
    if !(1..=10).contains(&lanes) {
        fields.problem_with("ParallelizationFactor", "ParallelizationFactor must be 1 to 10");
    }
    let on_failure = on_failure(fields, resolver);
    let mut filters = Vec::new();
    if let Some(criteria) = fields.inside("FilterCriteria") {
        for filter in criteria.each("Filters") {
            let pattern = filter.required("Pattern").unwrap_or_default();
            match serde_json::from_str::<Value>(&pattern) {
                Ok(value @ Value::Object(_)) => filters.push(value),
                _ => filter.problem_with(
                    "Pattern",
                    format!("the filter pattern {pattern} is not a JSON object"),
                ),
            }
            filter.finish();
        }
        criteria.finish();
    }
    let arn = arn?;
    enabled.then_some(EventSource::Stream {
        arn,
        batch,
        window,
        item_failures,
        retries,
        max_age,
        bisect,
        on_failure,
        lanes,
        filters,
    })
}

/// The queue that is told of what a stream gave up.
fn on_failure(fields: &Fields<'_>, resolver: &Resolver<'_>) -> Option<String> {
    let destination = fields.inside("DestinationConfig")?;
    let target = destination.inside("OnFailure").and_then(|target| {
        target.only("Type", "SQS");
        let arn = target.required("Destination");
        target.finish();
        arn
    });
    destination.finish();
    let arn = target?;
    let is_queue = resolver.resources.iter().any(|(_, known)| {
        known.kind == "AWS::SQS::Queue" && known.attributes.get("Arn") == Some(&arn)
    });
    if !is_queue {
        destination.problem_with(
            "OnFailure",
            format!("OnFailure.Destination {arn} is not an AWS::SQS::Queue of this stack; use !GetAtt <Queue>.Arn"),
        );
    }
    Some(arn)
}

fn rule(fields: &Fields<'_>) -> Option<EventSource> {
    let bus = fields.text("EventBusName").unwrap_or_else(|| "default".to_owned());
    let enabled = fields.text("State").is_none_or(|state| state == "ENABLED");
    let Some(pattern) = fields.take("Pattern") else {
        fields.problem("an EventBridgeRule has a Pattern: which events call the function");
        return None;
    };
    let bus = bus.rsplit('/').next().unwrap_or_default().to_owned();
    enabled.then(|| EventSource::Rule { bus, pattern: pattern.json() })
}

fn schedule(event: &str, fields: &Fields<'_>, resolver: &Resolver<'_>) -> Option<EventSource> {
    let name =
        fields.text("Name").unwrap_or_else(|| format!("{}-{event}", resolver.pseudo.stack_name));
    let expression = fields.required("ScheduleExpression");
    let input = match fields.text("Input") {
        None => default_input(&name, &resolver.pseudo.region),
        Some(text) => serde_json::from_str(&text).unwrap_or_else(|_| {
            fields
                .problem_with("Input", format!("Input of the schedule {name} is not JSON: {text}"));
            Value::Null
        }),
    };
    fields.only("ScheduleExpressionTimezone", "UTC");
    let enabled = fields.text("State").is_none_or(|state| state == "ENABLED");
    let expression = expression?;
    let Some(every) = rate(&expression) else {
        fields.problem_with("ScheduleExpression", format!(
            "ScheduleExpression {expression} is not honoured by the local host; write rate(<n> minutes|hours|days)"
        ));
        return None;
    };
    enabled.then_some(EventSource::Schedule { name, every, input })
}

/// What the scheduler sends when no input is given; the host fills in `id` and `time` if a function reads them.
fn default_input(name: &str, region: &str) -> Value {
    json!({
        "version": "0",
        "id": "00000000-0000-0000-0000-000000000000",
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": names::ACCOUNT,
        "time": "1970-01-01T00:00:00Z",
        "region": region,
        "resources": [format!("arn:aws:scheduler:{region}:{}:schedule/default/{name}", names::ACCOUNT)],
        "detail": "{}",
    })
}

/// `rate(5 minutes)` and the like.
fn rate(expression: &str) -> Option<Duration> {
    let inside = expression.strip_prefix("rate(")?.strip_suffix(')')?;
    let (count, unit) = inside.trim().split_once(' ')?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
    let seconds = match unit.trim() {
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(count.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_count_and_a_unit() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(rate(text), expected.map(Duration::from_secs), "{text}");
        };
        check("rate(1 minute)", Some(60));
        check("rate(15 minutes)", Some(900));
        check("rate(2 hours)", Some(7200));
        check("rate(1 day)", Some(86_400));
        check("rate(0 minutes)", None);
        check("rate(1 second)", None);
        check("cron(0 12 * * ? *)", None);
    }
}
