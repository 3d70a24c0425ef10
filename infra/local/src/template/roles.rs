//! What each role may do, for the test that compares it with the calls that were made.

use serde_json::Value;

use super::{
    node::{Data, Node},
    problem::Problems,
};

/// A role and its statements, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// The logical id in the template.
    pub logical_id: String,
    /// The statements of all its policies.
    pub statements: Vec<Statement>,
}

/// One statement of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// `Allow` or `Deny`.
    pub effect: String,
    /// Such as `dynamodb:PutItem`.
    pub actions: Vec<String>,
    /// ARNs, with `*` where the template has them.
    pub resources: Vec<String>,
    /// The `Condition` block as it stands; null without one.
    pub conditions: Value,
}

/// The statements of policies as a role (`PolicyDocument` inside) or a function (the document itself) holds them.
pub(super) fn statements(policies: Option<&Node>, problems: &Problems) -> Vec<Statement> {
    let Some(policies) = policies else { return Vec::new() };
    let single = std::slice::from_ref(policies);
    let mut statements = Vec::new();
    for policy in policies.items().unwrap_or(single) {
        let document = policy.get("PolicyDocument").unwrap_or(policy);
        let Some(found) = document.get("Statement") else {
            if policy.data != Data::Unknown {
                problems.push(
                    policy.at,
                    "this policy has no Statement, so that its rights cannot be compared with the calls made; write it out",
                );
            }
            continue;
        };
        let single = std::slice::from_ref(found);
        for statement in found.items().unwrap_or(single) {
            statements.extend(read(statement, problems));
        }
    }
    statements
}

fn read(node: &Node, problems: &Problems) -> Option<Statement> {
    for entry in node.entries()? {
        if !["Sid", "Effect", "Action", "Resource", "Condition"].contains(&entry.name.as_str()) {
            problems.push(entry.at, format!("a policy statement's {} is not understood here; write it with Action and Resource", entry.name));
        }
    }
    Some(Statement {
        effect: node.get("Effect").and_then(Node::scalar).unwrap_or_default(),
        actions: texts(node.get("Action")),
        resources: texts(node.get("Resource")),
        conditions: node.get("Condition").map_or(Value::Null, Node::json),
    })
}

fn texts(node: Option<&Node>) -> Vec<String> {
    let Some(node) = node else { return Vec::new() };
    match node.items() {
        Some(items) => items.iter().filter_map(Node::scalar).collect(),
        None => node.scalar().into_iter().collect(),
    }
}
