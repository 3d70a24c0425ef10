//! Functions and HTTP APIs.

use std::{collections::BTreeMap, time::Duration};

use super::{events, fields::Fields, names::Known, node::Node, resolve::Resolver};
use crate::wiring::{Function, HttpApi, Unattended};

/// `Metadata.BuildProperties.Binary`.
pub(super) fn binary(metadata: Option<&Node>) -> Option<String> {
    metadata?.get("BuildProperties")?.get("Binary")?.scalar()
}

pub(super) fn function(
    logical_id: &str,
    known: &Known,
    binary: Option<String>,
    fields: &Fields<'_>,
    resolver: &Resolver<'_>,
) -> Function {
    fields.take("FunctionName");
    fields.only("Runtime", "provided.al2023");
    if binary.is_none() {
        fields.problem(format!(
            "AWS::Serverless::Function {logical_id} names no binary; add Metadata: {{ BuildMethod: rust-cargolambda, BuildProperties: {{ Binary: ... }} }}"
        ));
    }
    let timeout = fields.number("Timeout").unwrap_or(3);
    let memory =
        fields.number("MemorySize").and_then(|size| u32::try_from(size).ok()).unwrap_or(128);
    let reserved =
        fields.number("ReservedConcurrentExecutions").and_then(|count| u32::try_from(count).ok());
    Function {
        logical_id: logical_id.to_owned(),
        name: known.name.clone(),
        binary: binary.unwrap_or_default(),
        timeout: Duration::from_secs(timeout),
        memory_mb: memory,
        reserved_concurrency: reserved,
        environment: environment(fields),
        role: role(logical_id, fields, resolver),
        unattended: unattended(fields),
        events: events::read(fields, resolver),
    }
}

fn environment(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let Some(section) = fields.inside("Environment") else { return variables };
    if let Some(node) = section.take("Variables") {
        for entry in node.entries().unwrap_or_default() {
            match entry.value.scalar() {
                Some(value) => {
                    variables.insert(entry.name.clone(), value);
                }
                None if entry.value.data == super::node::Data::Unknown => {}
                None => section
                    .problem(format!("the value of the variable {} must be a text", entry.name)),
            }
        }
    }
    section.finish();
    variables
}

/// `EventInvokeConfig`.
fn unattended(fields: &Fields<'_>) -> Unattended {
    let Some(section) = fields.inside("EventInvokeConfig") else { return Unattended::default() };
    let retries = section.number("MaximumRetryAttempts");
    if retries.is_some_and(|retries| retries > 2) {
        section.problem_with("MaximumRetryAttempts", "MaximumRetryAttempts must be 0 to 2");
    }
    let age = section.number("MaximumEventAgeInSeconds");
    if age.is_some_and(|age| !(60..=21_600).contains(&age)) {
        section.problem_with(
            "MaximumEventAgeInSeconds",
            "MaximumEventAgeInSeconds must be 60 to 21600",
        );
    }
    let on_failure = section.inside("DestinationConfig").and_then(|destinations| {
        let on_failure = destinations.inside("OnFailure").and_then(|target| {
            target.only("Type", "SQS");
            let arn = target.required("Destination");
            target.finish();
            arn
        });
        destinations.finish();
        on_failure
    });
    section.finish();
    let retries = retries.and_then(|retries| u32::try_from(retries).ok());
    Unattended { retries, age: age.map(Duration::from_secs), on_failure }
}

/// The logical id of the role: the one named by ARN, else the one that SAM makes.
fn role(logical_id: &str, fields: &Fields<'_>, resolver: &Resolver<'_>) -> String {
    fields.take("Policies");
    let Some(arn) = fields.text("Role") else { return format!("{logical_id}Role") };
    let named = resolver.resources.iter().find(|(_, known)| {
        known.kind == "AWS::IAM::Role" && known.attributes.get("Arn").is_some_and(|own| *own == arn)
    });
    match named {
        Some((id, _)) => id.clone(),
        None => {
            fields.problem(format!("AWS::Serverless::Function {logical_id} has the role {arn}, which is not of this stack; use !GetAtt <Role>.Arn"));
            String::new()
        }
    }
}

pub(super) fn http_api(logical_id: &str, fields: &Fields<'_>) -> HttpApi {
    if !fields.has("StageName") {
        fields.problem("AWS::Serverless::HttpApi needs StageName: $default; the local host serves no other stage");
    }
    fields.only("StageName", "$default");
    let mut iam = false;
    if let Some(auth) = fields.inside("Auth") {
        auth.only("EnableIamAuthorizer", "true");
        auth.only("DefaultAuthorizer", "AWS_IAM");
        iam = auth.has("DefaultAuthorizer");
        auth.finish();
    }
    HttpApi { logical_id: logical_id.to_owned(), iam }
}
