//! The whole document, section by section.

use std::{cell::RefCell, collections::BTreeMap};

use super::{
    aws_only,
    fields::Fields,
    functions,
    names::{self, Known, Pseudo},
    node::{At, Entry, Node},
    parameters,
    problem::{Problems, TemplateProblems},
    resolve::Resolver,
    roles::{self, Role},
    samconfig::Settings,
    storage,
};
use crate::wiring::Wiring;

const SECTIONS: [&str; 9] = [
    "AWSTemplateFormatVersion",
    "Transform",
    "Description",
    "Metadata",
    "Parameters",
    "Mappings",
    "Conditions",
    "Globals",
    "Resources",
];

/// What a reading gives.
#[derive(Debug, Default)]
pub(super) struct Stack {
    pub(super) wiring: Wiring,
    pub(super) roles: Vec<Role>,
}

/// One resource whose condition holds.
struct Resource<'t> {
    id: &'t str,
    at: At,
    kind: String,
    /// Its properties, with the global ones below them, not yet resolved.
    properties: Option<Node>,
    metadata: Option<&'t Node>,
}

pub(super) fn read(
    root: &Node,
    settings: &Settings,
    samconfig: &str,
    region: &str,
    problems: Problems,
) -> Result<Stack, TemplateProblems> {
    let mut stack = Stack::default();
    region.clone_into(&mut stack.wiring.region);
    sections(root, &problems);
    let parameters = parameters::read(root.get("Parameters"), settings, samconfig, &problems);
    let stack_name = settings.stack_name.clone().unwrap_or_else(|| {
        match parameters.get("EnvName").and_then(Node::scalar) {
            Some(env) => format!("postern-{env}"),
            None => "postern".to_owned(),
        }
    });
    let conditions = root.get("Conditions").and_then(Node::entries).unwrap_or_default();
    let mut resolver = Resolver {
        problems: &problems,
        pseudo: Pseudo { region: region.to_owned(), stack_name },
        parameters,
        mappings: root.get("Mappings"),
        conditions: conditions.iter().map(|entry| (entry.name.clone(), &entry.value)).collect(),
        resources: BTreeMap::new(),
        decided: RefCell::default(),
    };
    for entry in conditions {
        resolver.condition(entry.at, &entry.name);
    }
    let resources = resources(root, &resolver);
    resolver.resources = resources
        .iter()
        .map(|resource| (resource.id.to_owned(), known(resource, &resolver)))
        .collect();
    for resource in &resources {
        honour(resource, &resolver, &mut stack);
    }
    if let Some(outputs) = root.get("Outputs") {
        for output in outputs.entries().unwrap_or_default() {
            let condition = output.value.get("Condition").and_then(Node::scalar);
            if condition.is_none_or(|condition| resolver.condition(output.at, &condition)) {
                output.value.get("Value").and_then(|value| resolver.resolve(value));
            }
        }
    }
    drop(resolver);
    problems.into_result().map(|()| stack)
}

fn sections(root: &Node, problems: &Problems) {
    let Some(entries) = root.entries() else {
        problems.push(root.at, "a template is a mapping with Resources");
        return;
    };
    for entry in entries {
        if !SECTIONS.contains(&entry.name.as_str()) && entry.name != "Outputs" {
            problems.push(
                entry.at,
                format!("the section {} is not honoured by the local host; remove it", entry.name),
            );
        }
    }
    for section in root.get("Globals").and_then(Node::entries).unwrap_or_default() {
        if section.name != "Function" && section.name != "HttpApi" {
            problems.push(
                section.at,
                format!(
                    "Globals.{} is not honoured by the local host; set it on each resource",
                    section.name
                ),
            );
        }
    }
}

/// The resources whose condition holds, with the global properties merged in.
fn resources<'t>(root: &'t Node, resolver: &Resolver<'_>) -> Vec<Resource<'t>> {
    let problems = resolver.problems;
    let declared = root.get("Resources").and_then(Node::entries).unwrap_or_default();
    let mut resources = Vec::new();
    for Entry { at, name, value } in declared {
        for attribute in value.entries().unwrap_or_default() {
            let known = ["Type", "Properties", "Condition"].contains(&attribute.name.as_str())
                || aws_only::ATTRIBUTES.contains(&attribute.name.as_str());
            if !known {
                problems.push(
                    attribute.at,
                    format!(
                        "{name} has an unknown attribute {}; did you mean it as a property?",
                        attribute.name
                    ),
                );
            }
        }
        for other in value.get("DependsOn").map(storage::depends_on).unwrap_or_default() {
            if declared.iter().all(|entry| entry.name != other) {
                problems.push(
                    *at,
                    format!("{name} depends on {other}, which is not a resource of this stack"),
                );
            }
        }
        if let Some(condition) = value.get("Condition").and_then(Node::scalar)
            && !resolver.condition(*at, &condition)
        {
            continue;
        }
        let kind = value.get("Type").and_then(Node::scalar).unwrap_or_default();
        let shared = match kind.as_str() {
            "AWS::Serverless::Function" => {
                root.get("Globals").and_then(|globals| globals.get("Function"))
            }
            "AWS::Serverless::HttpApi" => {
                root.get("Globals").and_then(|globals| globals.get("HttpApi"))
            }
            _ => None,
        };
        let properties = match (value.get("Properties"), shared) {
            (Some(own), Some(shared)) => Some(own.clone().over(shared)),
            (own, shared) => own.or(shared).cloned(),
        };
        resources.push(Resource {
            id: name,
            at: *at,
            kind,
            properties,
            metadata: value.get("Metadata"),
        });
    }
    resources
}

fn known(resource: &Resource<'_>, resolver: &Resolver<'_>) -> Known {
    let property =
        |name: &str| resource.properties.as_ref().and_then(|properties| properties.get(name));
    let given = names::name_property(&resource.kind)
        .and_then(property)
        .and_then(|name| resolver.resolve(name))
        .and_then(|name| name.scalar());
    names::known(
        &resolver.pseudo,
        resource.id,
        &resource.kind,
        given,
        property("StreamSpecification").is_some(),
    )
}

/// Makes of a resource what the wiring knows of it, and refuses what is left over.
fn honour(resource: &Resource<'_>, resolver: &Resolver<'_>, stack: &mut Stack) {
    let Some(known) = resolver.resources.get(resource.id) else { return };
    let properties =
        resource.properties.as_ref().and_then(|properties| resolver.resolve(properties));
    let kind = resource.kind.as_str();
    let fields = Fields::of(kind, resource.at, properties.as_ref(), resolver.problems);
    let attribute = |name: &str| known.attributes.get(name).cloned().unwrap_or_default();
    let wiring = &mut stack.wiring;
    match kind {
        "AWS::DynamoDB::Table" => wiring.tables.push(storage::table(resource.id, known, &fields)),
        "AWS::SQS::Queue" => wiring.queues.push(storage::queue(resource.id, known, &fields)),
        "AWS::S3::Bucket" => wiring.buckets.push(known.name.clone()),
        "AWS::KMS::Key" => wiring.keys.push(attribute("Arn")),
        "AWS::Events::EventBus" => wiring.buses.push(known.name.clone()),
        "AWS::Serverless::HttpApi" => wiring.apis.push(functions::http_api(resource.id, &fields)),
        "AWS::Serverless::Function" => {
            let binary = functions::binary(resource.metadata);
            let function = functions::function(resource.id, known, binary, &fields, resolver);
            if !fields.has("Role") {
                let statements = roles::statements(fields.take("Policies"), resolver.problems);
                stack.roles.push(Role { logical_id: function.role.clone(), statements });
            }
            wiring.functions.push(function);
        }
        "AWS::IAM::Role" => {
            let statements = roles::statements(fields.take("Policies"), resolver.problems);
            stack.roles.push(Role { logical_id: resource.id.to_owned(), statements });
            return;
        }
        other if aws_only::resource_type(other) => return,
        other => {
            resolver.problems.push(
                resource.at,
                format!("resource type {other} is not known to the local host; remove {}, or teach infra/local/src/template about it", resource.id),
            );
            return;
        }
    }
    storage::named(&fields, names::name_property(kind));
    fields.finish();
}
