//! Reads `template.yaml` so that what runs locally is what deploys.
//!
//! Whatever the template says is honoured, stands on the reviewed list of things that matter only on AWS (`aws_only`),
//! or is refused with its line: nothing is ignored in silence, which is how local and deployed wiring stay equal.
//! Reading order: `stack`, `resolve`, `fields`, `aws_only`, then one file per kind of resource.

mod aws_only;
mod events;
mod fields;
mod functions;
mod names;
mod node;
mod parameters;
mod problem;
mod resolve;
mod roles;
mod samconfig;
mod stack;
mod storage;
mod substitution;

use std::{collections::BTreeMap, path::Path};

use node::{At, Node};
use problem::Problems;
pub use problem::{Problem, TemplateProblems};
pub use roles::{Role, Statement};
use samconfig::Settings;
use stack::Stack;

use crate::wiring::Wiring;

/// Where a stack is that names no region.
const DEFAULT_REGION: &str = "us-east-1";

/// Reads a template with the overrides of one environment of a `samconfig.toml`.
///
/// The region is that environment's, else `us-east-1`.
///
/// # Errors
/// Everything that the local host cannot accept, at once, each with file, line and column.
pub fn read(path: &Path, samconfig: Option<(&Path, &str)>) -> Result<Wiring, TemplateProblems> {
    load(path, samconfig).map(|stack| stack.wiring)
}

/// What the template's roles may do.
///
/// # Errors
/// As [`read`].
pub fn roles(path: &Path, samconfig: Option<(&Path, &str)>) -> Result<Vec<Role>, TemplateProblems> {
    load(path, samconfig).map(|stack| stack.roles)
}

/// Puts the real addresses of the HTTP APIs (logical id to base URL, no slash at the end) into the environments.
///
/// Every value in which the template spells the address that an API has on AWS is changed. Ports are known later than
/// the wiring, hence apart.
pub fn locate(wiring: &mut Wiring, bases: &BTreeMap<String, String>) {
    for (logical_id, base) in bases {
        let on_aws = names::api_endpoint(&names::api_id(logical_id), &wiring.region);
        for function in &mut wiring.functions {
            for value in function.environment.values_mut() {
                if value.contains(&on_aws) {
                    *value = value.replace(&on_aws, base);
                }
            }
        }
    }
}

fn load(path: &Path, samconfig: Option<(&Path, &str)>) -> Result<Stack, TemplateProblems> {
    let file = name_of(path);
    let problems = Problems::of(&file);
    let (settings, config_file) = match samconfig {
        None => (Settings::default(), String::new()),
        Some((config, env)) => {
            let name = name_of(config);
            match std::fs::read_to_string(config) {
                Ok(text) => (samconfig::read(&name, &text, env, &problems), name),
                Err(error) => {
                    problems.push_in(
                        &name,
                        At::default(),
                        format!("{} cannot be read: {error}", config.display()),
                    );
                    (Settings::default(), name)
                }
            }
        }
    };
    let root = match std::fs::read_to_string(path) {
        Ok(text) => Node::parse(&text),
        Err(error) => Err((At::default(), format!("{} cannot be read: {error}", path.display()))),
    };
    let root = match root {
        Ok(root) => root,
        Err((at, message)) => {
            problems.push(at, message);
            return problems.into_result().map(|()| Stack::default());
        }
    };
    let region = settings.region.as_deref().unwrap_or(DEFAULT_REGION).to_owned();
    stack::read(&root, &settings, &config_file, &region, problems)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
