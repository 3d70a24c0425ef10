//! Rules about who may do what.

use serde_json::{Value, json};

use crate::stack::Stack;

/// Resources with a wildcard that were looked at: a function makes the rest of the name, or AWS does.
const REVIEWED: &[&str] = &[
    "${BodyBucket.Arn}/in/*",
    "${BodyBucket.Arn}/out/*",
    "${FunctionLogs.Arn}:*",
    "${OutboxTable.Arn}/stream/*",
    "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:event-bus/*",
    "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${SecretPrefix}/${EnvName}/in/*",
    "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${SecretPrefix}/${EnvName}/fetch/*",
    "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:*",
];

/// Actions that take no resource, so that theirs is `*`.
const WITHOUT_RESOURCE: &[&str] = &["xray:PutTelemetryRecords", "xray:PutTraceSegments"];

/// Actions that read a whole table or change what it is; nothing in Postern may.
const NEVER: &[&str] =
    &["dynamodb:DeleteTable", "dynamodb:Scan", "dynamodb:UpdateTable", "sqs:PurgeQueue"];

fn each(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    }
}

/// Each function has one role that no other has, whose statements name actions and resources.
pub(crate) fn roles(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, function) in stack.resources("AWS::Serverless::Function") {
        let role = format!("{}Role", id.trim_end_matches("Function"));
        if function["Properties"]["Role"] != json!({ "Fn::GetAtt": format!("{role}.Arn") }) {
            found.push(format!("{id} does not have {role}"));
        }
        if function["Properties"].get("Policies").is_some() || stack.resource(&role).is_null() {
            found.push(format!("{id}: what it may do stands elsewhere than in {role}"));
        }
    }
    for (id, role) in stack.resources("AWS::IAM::Role") {
        let properties = &role["Properties"];
        if properties.get("ManagedPolicyArns").is_some() {
            found.push(format!("{id} has a policy that AWS may widen"));
        }
        let policies = properties["Policies"].as_array().into_iter().flatten();
        for statement in policies.flat_map(|policy| each(&policy["PolicyDocument"]["Statement"])) {
            let problem = problem(statement);
            found.extend(problem.map(|problem| format!("{id}, {}: {problem}", statement["Sid"])));
        }
    }
    found
}

/// What is too wide about a statement.
fn problem(statement: &Value) -> Option<String> {
    let known = ["Action", "Condition", "Effect", "Resource", "Sid"];
    if let Some(key) = statement.as_object()?.keys().find(|key| !known.contains(&key.as_str())) {
        return Some(format!("{key} allows what is not written down"));
    }
    let actions = each(&statement["Action"]);
    if let Some(action) = actions.iter().find(|action| {
        let action = action.as_str().unwrap_or("*");
        action.contains('*') || NEVER.contains(&action)
    }) {
        return Some(format!("may {action}"));
    }
    let no_resource =
        actions.iter().all(|action| WITHOUT_RESOURCE.iter().any(|known| *action == known));
    for resource in each(&statement["Resource"]) {
        let name = resource.as_str().or(resource["Fn::Sub"].as_str()).unwrap_or_default();
        let narrow =
            !name.contains('*') || REVIEWED.contains(&name) || (name == "*" && no_resource);
        if !narrow {
            return Some(format!("on {name}"));
        }
    }
    each(&statement["Resource"]).is_empty().then(|| "on nothing".to_owned())
}

/// Ingress, which faces strangers, ends what a source waits for and can change nothing else of the configuration.
pub(crate) fn ingress_configures_nothing(stack: &Stack) -> Vec<String> {
    let registry = json!({ "Fn::GetAtt": "RegistryTable.Arn" });
    let policies = stack.resource("IngressRole")["Properties"]["Policies"].as_array();
    let statements =
        policies.into_iter().flatten().flat_map(|p| each(&p["PolicyDocument"]["Statement"]));
    let mut found = Vec::new();
    for statement in statements.filter(|statement| statement["Resource"] == registry) {
        let writes = each(&statement["Action"]).iter().any(|action| **action != "dynamodb:GetItem");
        let attributes =
            &statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"];
        let narrow =
            *attributes == json!(["pk", "sk", "awaits_until", "claim_owner", "claim_until"]);
        if writes && !narrow {
            found.push(format!("{} may write {attributes}", statement["Sid"]));
        }
    }
    found
}

/// The deliverer writes to queues and buses that operators name, and never to the stack's own: its role denies them, and
/// the api knows their names. The wake queue it has to write to; the code refuses it as an endpoint.
pub(crate) fn endpoints_borrow_no_rights(stack: &Stack) -> Vec<String> {
    let policies = stack.resource("DelivererRole")["Properties"]["Policies"].as_array();
    let statements =
        policies.into_iter().flatten().flat_map(|p| each(&p["PolicyDocument"]["Statement"]));
    let denied: Vec<(&Value, &Value)> = statements
        .filter(|statement| {
            statement["Effect"] == "Deny" && spares_ours_only(&statement["Condition"])
        })
        .flat_map(|statement| {
            let resources = each(&statement["Resource"]).into_iter();
            resources.flat_map(|on| each(&statement["Action"]).into_iter().map(move |a| (a, on)))
        })
        .collect();
    let is_denied = |action: &str, id: &str| {
        let on = json!({ "Fn::GetAtt": format!("{id}.Arn") });
        denied.iter().any(|(what, resource)| **what == action && **resource == on)
    };
    let variables = &stack.resource("ApiFunction")["Properties"]["Environment"]["Variables"];
    let named = variables["OWN_QUEUES"]["Fn::Sub"].as_str().unwrap_or_default();
    let mut found = Vec::new();
    for (id, _) in stack.resources("AWS::SQS::Queue") {
        if id != "WakeQueue" && !is_denied("sqs:SendMessage", id) {
            found.push(format!("the deliverer may write to {id}"));
        }
        if !named.split(',').any(|name| name == format!("${{{id}.QueueName}}")) {
            found.push(format!("the api takes {id} for an endpoint"));
        }
    }
    for (id, _) in stack.resources("AWS::Events::EventBus") {
        if !is_denied("events:PutEvents", id) {
            found.push(format!("the deliverer may write to {id}"));
        }
        if variables["OPS_BUS_ARN"] != json!({ "Fn::GetAtt": format!("{id}.Arn") }) {
            found.push(format!("the api takes {id} for an endpoint"));
        }
    }
    found
}

/// A refusal without a condition; or one that spares what the deliverer itself says. No endpoint can: its entries come
/// from `postern.<tenant>`.
fn spares_ours_only(condition: &Value) -> bool {
    condition.is_null()
        || *condition == json!({ "StringNotEquals": { "events:source": "postern" } })
}

/// The admin API is reached by signed callers only, and nothing else calls its function but events of one bus that say that
/// they are to be published.
pub(crate) fn admin_is_signed(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    let auth = &stack.resource("AdminApi")["Properties"]["Auth"];
    if *auth != json!({ "EnableIamAuthorizer": true, "DefaultAuthorizer": "AWS_IAM" }) {
        found.push(format!("AdminApi lets in {auth}"));
    }
    for (id, _, rule) in stack.sources("EventBridgeRule") {
        if id != "ApiFunction" || rule["Pattern"] != json!({ "source": ["postern/publish"] }) {
            found.push(format!("{id} is called by events of {}", rule["Pattern"]));
        }
        if rule["EventBusName"] != json!({ "Ref": "PublishBusName" }) {
            found.push(format!("{id} is called by events of the bus {}", rule["EventBusName"]));
        }
    }
    for (id, _, route) in stack.sources("HttpApi") {
        // Whoever owns an endpoint has a door of his own: unsigned, and to nothing but what asks for his token.
        let api = match (id, route["Path"].as_str()) {
            ("ApiFunction", Some("/poll/{proxy+}")) => "SubscriberApi",
            ("ApiFunction", _) => "AdminApi",
            _ => "IngressApi",
        };
        if route["ApiId"] != json!({ "Ref": api }) || route.get("Auth").is_some() {
            found.push(format!("{id} is reached by {}, {}", route["ApiId"], route["Auth"]));
        }
    }
    found
}
