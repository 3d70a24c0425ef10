//! Rules about what calls what.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::stack::Stack;

/// The resource that an ARN belongs to: `{"Fn::GetAtt": "X.Arn"}` is X.
fn owner(arn: &Value) -> &str {
    let attribute = arn["Fn::GetAtt"].as_str().unwrap_or_default();
    attribute.split('.').next().unwrap_or_default()
}

/// A message is received often enough before SQS gives it up, and throttling does not count as receiving.
pub(crate) fn redrive(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, function) in stack.resources("AWS::Serverless::Function") {
        if function["Properties"].get("ReservedConcurrentExecutions").is_some() {
            found.push(format!(
                "{id}: a reserved concurrency throttles, and throttled receives count"
            ));
        }
    }
    for (id, _, source) in stack.sources("SQS") {
        let queue = owner(&source["Queue"]);
        let policy = &stack.resource(queue)["Properties"]["RedrivePolicy"];
        let dead = stack.resource(owner(&policy["deadLetterTargetArn"]));
        let consumed = stack
            .sources("SQS")
            .iter()
            .any(|(.., s)| owner(&s["Queue"]) == owner(&policy["deadLetterTargetArn"]));
        if dead["Type"] != "AWS::SQS::Queue" || consumed {
            found.push(format!("{queue} has no dead-letter queue of its own"));
        }
        if dead["Properties"]["MessageRetentionPeriod"] != 1_209_600 {
            found.push(format!("{queue}: its dead letters are kept for less than 14 days"));
        }
        for environment in stack.environments.keys().map(String::as_str).chain(["default"]) {
            let receives = stack.number(&policy["maxReceiveCount"], environment).unwrap_or(0);
            let attempts = stack.number(&json!({ "Ref": "WorkerAttempts" }), environment);
            if receives < 5 || (id == "WorkerFunction" && attempts.is_none_or(|a| a + 2 > receives))
            {
                found.push(format!(
                    "{queue}: {receives} receives for {attempts:?} attempts in {environment}"
                ));
            }
        }
        if stack.number(&source["ScalingConfig"]["MaximumConcurrency"], "default").is_none() {
            found.push(format!("{id}: its concurrency is not limited at the mapping"));
        }
    }
    found
}

/// Every batch answers with the items that failed.
pub(crate) fn item_failures(stack: &Stack) -> Vec<String> {
    let sources = stack.sources("SQS").into_iter().chain(stack.sources("DynamoDB"));
    let silent =
        sources.filter(|(.., s)| s["FunctionResponseTypes"] != json!(["ReportBatchItemFailures"]));
    silent.map(|(id, ..)| format!("{id} fails or succeeds with a whole batch")).collect()
}

/// The stream is read from its beginning, for new rows without a checkpoint only; a bad batch is split, tried a few times
/// within an hour and given up where somebody sees it; and what is slow does not hold up a whole shard.
pub(crate) fn stream(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    let sources = stack.sources("DynamoDB");
    let [(id, _, source)] = sources.as_slice() else {
        return vec!["there is not one stream".to_owned()];
    };
    if source["StartingPosition"] != "TRIM_HORIZON" {
        found.push(format!("{id} skips what is in the stream already"));
    }
    if source["Stream"] != json!({ "Fn::GetAtt": "OutboxTable.StreamArn" }) {
        found.push(format!("{id} reads another stream"));
    }
    if stack.number(&source["MaximumRetryAttempts"], "default").is_none_or(|retries| retries > 10) {
        found.push(format!("{id}: a bad batch blocks its shard for a day"));
    }
    if source["BisectBatchOnFunctionError"] != true {
        found.push(format!("{id}: a bad record takes its whole batch with it"));
    }
    let age = stack.number(&source["MaximumRecordAgeInSeconds"], "default");
    // The stream keeps records for a day: those behind a bad batch must not grow that old.
    if age.is_none_or(|age| age > 6 * 3600) {
        found.push(format!("{id}: a bad batch is tried for {age:?} s"));
    }
    let failures = json!({ "OnFailure": {
        "Type": "SQS", "Destination": { "Fn::GetAtt": "StreamFailures.Arn" }
    } });
    if source["DestinationConfig"] != failures {
        found.push(format!("{id} gives up unseen"));
    }
    for environment in stack.environments.keys().map(String::as_str).chain(["default"]) {
        let lanes = stack.number(&source["ParallelizationFactor"], environment);
        if !lanes.is_some_and(|lanes| (2..=10).contains(&lanes)) {
            found.push(format!("{id}: a slow batch holds up its shard in {environment}"));
        }
    }
    let pattern = source["FilterCriteria"]["Filters"][0]["Pattern"].as_str().unwrap_or_default();
    let wanted = json!({ "dynamodb": { "NewImage": {
        "relay_state": { "S": ["NEW"] },
        "checkpoint": { "S": [{ "exists": false }] },
    } } });
    if serde_json::from_str::<Value>(pattern).ok() != Some(wanted) {
        found.push(format!("{id} is called for {pattern}"));
    }
    found
}

/// What an event of the bus that cannot be published comes to: a few tries, then a queue that is looked at, whoever gives
/// it up.
pub(crate) fn published(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, function, rule) in stack.sources("EventBridgeRule") {
        let config = &function["EventInvokeConfig"];
        let target = &config["DestinationConfig"]["OnFailure"];
        let queue = json!({ "Fn::GetAtt": "PublishFailures.Arn" });
        if *target != json!({ "Type": "SQS", "Destination": queue }) {
            found.push(format!("{id} loses what its tries do not publish"));
        }
        if rule["DeadLetterConfig"] != json!({ "Arn": queue }) {
            found.push(format!("{id} loses what Lambda does not take"));
        }
        if !config["MaximumRetryAttempts"].is_u64() || !rule["RetryPolicy"].is_object() {
            found.push(format!("{id} does not say how often an event is tried"));
        }
        let policy = &stack.resource("PublishFailuresPolicy")["Properties"]["PolicyDocument"];
        let may = policy["Statement"].as_array().into_iter().flatten().any(|statement| {
            statement["Effect"] == "Allow"
                && statement["Principal"] == json!({ "Service": "events.amazonaws.com" })
                && statement["Action"] == "sqs:SendMessage"
                && statement["Condition"].pointer("/ArnLike/aws:SourceArn").is_some()
        });
        if !may {
            found.push(format!("the rule of {id} may not give anything up"));
        }
    }
    found
}

/// Every API has the stage that adds nothing to the path.
pub(crate) fn stages(stack: &Stack) -> Vec<String> {
    let named = stack
        .resources("AWS::Serverless::HttpApi")
        .filter(|(_, api)| api["Properties"]["StageName"] != "$default");
    named.map(|(id, _)| format!("{id} puts its stage in front of every path")).collect()
}

/// What the gateway refuses by itself is seen in its access log, and the log tells no address: some are secret.
pub(crate) fn access_logs(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, api) in stack.resources("AWS::Serverless::HttpApi") {
        let format = api["Properties"]["AccessLogSettings"]["Format"].as_str().unwrap_or_default();
        for needed in ["$context.routeKey", "$context.status", "$context.integrationStatus"] {
            if !format.contains(needed) {
                found.push(format!("{id} does not log {needed}"));
            }
        }
        for secret in ["$context.path", "$context.http", "$context.authorizer"] {
            if format.contains(secret) {
                found.push(format!("{id} logs {secret}"));
            }
        }
    }
    found
}

/// The function's answer wins against the gateway's time-out, and its work ends before its own.
pub(crate) fn gateway_timeouts(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, function, route) in stack.sources("HttpApi") {
        let timeout = stack.number(&function["Timeout"], "default").unwrap_or(u64::MAX);
        let integration = stack.number(&route["TimeoutInMillis"], "default").unwrap_or(0);
        if timeout.saturating_mul(1000) >= integration {
            found.push(format!("{id} may work {timeout} s, the gateway waits {integration} ms"));
        }
        if route["PayloadFormatVersion"] != "2.0" {
            found.push(format!("{id}: the payload format is not 2.0"));
        }
    }
    let timeout =
        stack.number(&stack.resource("IngressFunction")["Properties"]["Timeout"], "default");
    for environment in stack.environments.keys().map(String::as_str).chain(["default"]) {
        let budget = stack.number(&json!({ "Ref": "IngressBudgetMs" }), environment);
        if budget >= timeout.map(|timeout| timeout * 1000) {
            found.push(format!("ingress may work until it is killed in {environment}"));
        }
    }
    found
}

/// A message stays hidden for six times the function's timeout, wherever AWS would refuse less or call twice.
pub(crate) fn visibility(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for environment in stack.deployed() {
        for (id, function, source) in stack.sources("SQS") {
            let queue = &stack.resource(owner(&source["Queue"]))["Properties"];
            let hidden = stack.number(&queue["VisibilityTimeout"], environment).unwrap_or(0);
            let timeout = stack.number(&function["Timeout"], environment).unwrap_or(u64::MAX);
            if hidden < timeout.saturating_mul(6) {
                found
                    .push(format!("{id}: hidden {hidden} s, timeout {timeout} s in {environment}"));
            }
        }
    }
    for environment in stack.environments.keys().map(String::as_str).chain(["default"]) {
        let seconds = stack.number(&json!({ "Ref": "WorkerVisibilitySeconds" }), environment);
        let milliseconds = stack.number(&json!({ "Ref": "WorkerVisibilityMs" }), environment);
        if seconds.map(|seconds| seconds * 1000) != milliseconds {
            found.push(format!(
                "the worker believes in another visibility than its queue in {environment}"
            ));
        }
    }
    found
}

/// The deliverer, which sends to its own queue, is not taken for a runaway.
pub(crate) fn recursion(stack: &Stack) -> Vec<String> {
    let loops = &stack.resource("DelivererFunction")["Properties"]["RecursiveLoop"];
    if loops == "Allow" {
        Vec::new()
    } else {
        vec!["Lambda stops a deliverer that wakes itself".to_owned()]
    }
}

/// Each function is built from its folder, and each folder is a function of the template.
pub(crate) fn binaries(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions");
    let folders =
        fs::read_dir(folders).expect("functions").map(|entry| entry.expect("a folder").file_name());
    let mut folders: Vec<_> = folders.filter_map(|name| name.into_string().ok()).collect();
    for (id, function) in stack.resources("AWS::Serverless::Function") {
        let name = id.trim_end_matches("Function").to_lowercase();
        let metadata =
            json!({ "BuildMethod": "rust-cargolambda", "BuildProperties": { "Binary": name } });
        if function["Metadata"] != metadata || !folders.contains(&name) {
            found.push(format!("{id} is built as {}", function["Metadata"]));
        }
        folders.retain(|folder| *folder != name);
    }
    if !folders.is_empty() {
        found.push(format!("{folders:?} are not in the template"));
    }
    let globals = &stack.template["Globals"]["Function"];
    if globals["Runtime"] != "provided.al2023" || globals["Handler"] != "bootstrap" {
        found.push("the runtime does not start what is built".to_owned());
    }
    found
}

/// What somebody must hear of: metric, and whether silence is bad news as well.
const METRICS: &[(&str, &str, bool)] = &[
    ("AWS/ApiGateway", "5xx", false),
    ("AWS/Lambda", "Errors", false),
    ("AWS/Lambda", "IteratorAge", false),
    ("Postern", "deliveries_dead_total", false),
    ("Postern", "deliveries_unknown_total", false),
    ("Postern", "endpoints_disabled_total", false),
    ("Postern", "oldest_due_age", true),
    ("Postern", "oldest_paused_webhook_age", false),
    ("Postern", "oldest_pending_webhook_age", true),
    ("Postern", "oldest_unrelayed_age", true),
    ("Postern", "webhooks_dead_lettered_total", false),
];

/// Every queue that nobody reads has an alarm, so has every metric above, and every alarm reaches somebody.
pub(crate) fn alarms(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    let alarms: Vec<_> =
        stack.resources("AWS::CloudWatch::Alarm").map(|(id, a)| (id, &a["Properties"])).collect();
    for (id, alarm) in &alarms {
        if alarm["AlarmActions"] != json!([{ "Ref": "AlarmTopic" }]) {
            found.push(format!("{id} tells nobody"));
        }
        if !["breaching", "notBreaching"]
            .iter()
            .any(|missing| alarm["TreatMissingData"] == *missing)
        {
            found.push(format!("{id} does not say what silence means"));
        }
    }
    for (id, _) in stack.resources("AWS::SQS::Queue") {
        let read = stack.sources("SQS").iter().any(|(.., source)| owner(&source["Queue"]) == id);
        let dimension =
            json!([{ "Name": "QueueName", "Value": { "Fn::GetAtt": format!("{id}.QueueName") } }]);
        if !read && !alarms.iter().any(|(_, alarm)| alarm["Dimensions"] == dimension) {
            found.push(format!("{id} fills unseen"));
        }
    }
    for (namespace, metric, silence) in METRICS {
        let missing = if *silence { "breaching" } else { "notBreaching" };
        let watched = alarms.iter().any(|(_, alarm)| {
            alarm["Namespace"] == *namespace
                && alarm["MetricName"] == *metric
                && alarm["TreatMissingData"] == missing
        });
        if !watched {
            found.push(format!("{metric} is not watched"));
        }
    }
    found
}
