//! The template as JSON, with the values that each environment gives its parameters.

use std::{collections::BTreeMap, fs, path::Path};

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// The template and the environments.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// The template; `!Ref X` is `{"Ref": "X"}`, any other `!F x` is `{"Fn::F": x}`.
    pub(crate) template: Value,
    /// By environment, what it overrides.
    pub(crate) environments: BTreeMap<String, BTreeMap<String, String>>,
}

impl Stack {
    /// The one in this repository.
    pub(crate) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let template = fs::read_to_string(root.join("template.yaml")).expect("a template");
        let config = fs::read_to_string(root.join("samconfig.toml")).expect("a samconfig");
        let documents = Yaml::load_from_str(&template).expect("YAML");
        let [document] = documents.as_slice() else { panic!("{} documents", documents.len()) };
        Self {
            template: json_of(document),
            environments: environments(&config.parse().expect("TOML")),
        }
    }

    /// The logical ids and the resources of one type.
    pub(crate) fn resources<'a>(
        &'a self,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let resources = self.template["Resources"].as_object().into_iter().flatten();
        resources.filter(move |(_, r)| r["Type"] == kind).map(|(id, r)| (id.as_str(), r))
    }

    /// A resource by its logical id; `Null` where there is none.
    pub(crate) fn resource(&self, id: &str) -> &Value {
        &self.template["Resources"][id]
    }

    /// The event sources of one type: the function's id, its properties, and the source's.
    pub(crate) fn sources(&self, kind: &str) -> Vec<(&str, &Value, &Value)> {
        let mut found = Vec::new();
        for (id, function) in self.resources("AWS::Serverless::Function") {
            let properties = &function["Properties"];
            for source in properties["Events"].as_object().into_iter().flat_map(Map::values) {
                if source["Type"] == kind {
                    found.push((id, properties, &source["Properties"]));
                }
            }
        }
        found
    }

    /// The environments that are deployed to AWS, and the template's defaults as `default`.
    pub(crate) fn deployed(&self) -> Vec<&str> {
        let names = self.environments.keys().map(String::as_str);
        names.filter(|name| *name != "test").chain(["default"]).collect()
    }

    /// A parameter's value in an environment.
    pub(crate) fn parameter(&self, name: &str, environment: &str) -> Option<String> {
        let given = self.environments.get(environment).and_then(|given| given.get(name));
        given.cloned().or_else(|| match &self.template["Parameters"][name]["Default"] {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        })
    }

    /// A value as text in an environment, a `Ref` to a parameter followed.
    pub(crate) fn text(&self, value: &Value, environment: &str) -> Option<String> {
        match value {
            Value::Object(function) => self.parameter(function.get("Ref")?.as_str()?, environment),
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    /// A value as a number in an environment; not a number is `None`.
    pub(crate) fn number(&self, value: &Value, environment: &str) -> Option<u64> {
        self.text(value, environment)?.parse().ok()
    }
}

/// `parameter_overrides` of each environment's `deploy`.
fn environments(config: &toml::Table) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (name, environment) in config {
        let overrides = environment
            .get("deploy")
            .and_then(|deploy| deploy.get("parameters"))
            .and_then(|parameters| parameters.get("parameter_overrides"))
            .and_then(toml::Value::as_array);
        if let Some(overrides) = overrides {
            let pair = |value: &toml::Value| {
                let (name, value) = value.as_str()?.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            };
            let given = overrides.iter().map(|value| pair(value).expect("Name=value"));
            found.insert(name.clone(), given.collect());
        }
    }
    found
}

fn json_of(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(values) => values.iter().map(json_of).collect(),
        Yaml::Mapping(pairs) => {
            let pair = |(key, value): (&Yaml<'_>, &Yaml<'_>)| {
                (key.as_str().expect("a key is text").to_owned(), json_of(value))
            };
            Value::Object(pairs.iter().map(pair).collect())
        }
        Yaml::Tagged(tag, value) => {
            let name = match tag.suffix.as_str() {
                name @ ("Ref" | "Condition") => name.to_owned(),
                name => format!("Fn::{name}"),
            };
            json!({ name: json_of(value) })
        }
        other => panic!("the template has a {other:?}"),
    }
}
