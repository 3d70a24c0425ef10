//! Parameters: their declarations, defaults, overrides and limits.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::{
    node::{Data, Entry, Node},
    problem::Problems,
    samconfig::Settings,
};

const HONOURED: [&str; 8] = [
    "Type",
    "Default",
    "AllowedValues",
    "AllowedPattern",
    "MinValue",
    "MaxValue",
    "MinLength",
    "MaxLength",
];
/// For people and for the console only.
const FOR_AWS: [&str; 3] = ["Description", "ConstraintDescription", "NoEcho"];

/// The value of each parameter: the override if there is one, else the default.
pub(super) fn read(
    section: Option<&Node>,
    settings: &Settings,
    samconfig: &str,
    problems: &Problems,
) -> BTreeMap<String, Node> {
    let declared = section.and_then(Node::entries).unwrap_or_default();
    for (name, (_, at)) in &settings.overrides {
        if declared.iter().all(|entry| entry.name != *name) {
            problems.push_in(
                samconfig,
                *at,
                format!("parameter {name} is not declared in the template; remove the override, or declare it under Parameters"),
            );
        }
    }
    declared
        .iter()
        .map(|entry| (entry.name.clone(), value(entry, settings, samconfig, problems)))
        .collect()
}

fn value(entry: &Entry, settings: &Settings, samconfig: &str, problems: &Problems) -> Node {
    let name = &entry.name;
    for property in entry.value.entries().unwrap_or_default() {
        if !HONOURED.contains(&property.name.as_str()) && !FOR_AWS.contains(&property.name.as_str())
        {
            problems.push(
                property.at,
                format!("parameter {name} has an unknown property {}; remove it", property.name),
            );
        }
    }
    let (given, complain): (Node, Box<dyn Fn(String) + '_>) = match settings.overrides.get(name) {
        Some((text, at)) => (
            Node::text(entry.at, text.as_str()),
            Box::new(|message| problems.push_in(samconfig, *at, message)),
        ),
        None => match entry.value.get("Default") {
            Some(default) => {
                (default.clone(), Box::new(|message| problems.push(default.at, message)))
            }
            None => {
                problems.push(
                    entry.at,
                    format!("parameter {name} has no default and no override; add `{name}=...` to parameter_overrides in samconfig.toml"),
                );
                return Node::unknown(entry.at);
            }
        },
    };
    let Some(text) = given.scalar() else {
        complain(format!("the value of parameter {name} must be a scalar"));
        return Node::unknown(entry.at);
    };
    let kind = entry.value.get("Type").and_then(Node::scalar).unwrap_or_default();
    if let Err(why) = within(&entry.value, &kind, &text) {
        complain(format!(
            "parameter {name} is {text:?}, but {why}; change the value or the declaration"
        ));
    }
    match kind.as_str() {
        "String" | "Number" => Node::text(entry.at, text),
        "CommaDelimitedList" => {
            let items = text.split(',').map(|item| Node::text(entry.at, item.trim())).collect();
            Node { at: entry.at, data: Data::List(items) }
        }
        other => {
            problems.push(
                entry.at,
                format!("parameter {name} has type {other:?}; the local host knows String, Number and CommaDelimitedList"),
            );
            Node::unknown(entry.at)
        }
    }
}

/// Whether a value keeps to its declaration; the error says what it breaks.
fn within(declaration: &Node, kind: &str, text: &str) -> Result<(), String> {
    if kind == "Number" && text.parse::<f64>().is_err() {
        return Err("a Number is wanted".to_owned());
    }
    if let Some(allowed) = declaration.get("AllowedValues").and_then(Node::items) {
        let allowed: Vec<String> = allowed.iter().filter_map(Node::scalar).collect();
        if allowed.iter().all(|value| value != text) {
            return Err(format!("AllowedValues are {}", allowed.join(", ")));
        }
    }
    if let Some(pattern) = declaration.get("AllowedPattern").and_then(Node::scalar) {
        let regex = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|_| format!("AllowedPattern {pattern} is not readable"))?;
        if !regex.is_match(text) {
            return Err(format!("AllowedPattern is {pattern}"));
        }
    }
    let limit = |name: &str| {
        declaration.get(name).and_then(Node::scalar).and_then(|value| value.parse::<f64>().ok())
    };
    let number = text.parse::<f64>().unwrap_or(f64::NAN);
    let length = text.chars().count();
    if let Some(least) = limit("MinValue").filter(|least| number < *least) {
        return Err(format!("MinValue is {least}"));
    }
    if let Some(most) = limit("MaxValue").filter(|most| number > *most) {
        return Err(format!("MaxValue is {most}"));
    }
    let whole = |name: &str| {
        declaration.get(name).and_then(Node::number).and_then(|value| usize::try_from(value).ok())
    };
    if let Some(least) = whole("MinLength").filter(|least| length < *least) {
        return Err(format!("MinLength is {least}"));
    }
    if let Some(most) = whole("MaxLength").filter(|most| length > *most) {
        return Err(format!("MaxLength is {most}"));
    }
    Ok(())
}
