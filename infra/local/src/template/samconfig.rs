//! What `samconfig.toml` says for one environment.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{node::At, problem::Problems};

/// The settings the local host honours. Where packages go, what is asked and the like is for AWS only.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) region: Option<String>,
    pub(super) stack_name: Option<String>,
    /// Parameter name to value and place.
    pub(super) overrides: BTreeMap<String, (String, At)>,
}

/// Reads the sections `[<env>.global.parameters]` and `[<env>.deploy.parameters]`; the second wins.
pub(super) fn read(file: &str, text: &str, env: &str, problems: &Problems) -> Settings {
    let mut settings = Settings::default();
    let document: Table = match toml::from_str(text) {
        Ok(document) => document,
        Err(error) => {
            let at = error.span().map_or_else(At::default, |span| place(text, span.start));
            problems.push_in(file, at, format!("not readable as TOML: {}", error.message()));
            return settings;
        }
    };
    let Some(environment) = document.get(env).and_then(Value::as_table) else {
        let known: Vec<&str> =
            document.keys().map(String::as_str).filter(|name| *name != "version").collect();
        problems.push_in(
            file,
            At::default(),
            format!("has no environment {env}; it has {}: name one of them, or add [{env}.deploy.parameters]", known.join(", ")),
        );
        return settings;
    };
    for command in ["global", "deploy"] {
        let header = format!("[{env}.{command}.parameters]");
        let Some(parameters) =
            environment.get(command).and_then(|section| section.get("parameters"))
        else {
            continue;
        };
        let text_of = |name: &str| parameters.get(name).and_then(Value::as_str).map(str::to_owned);
        settings.region = text_of("region").or(settings.region.take());
        settings.stack_name = text_of("stack_name").or(settings.stack_name.take());
        let from = text.find(&header).unwrap_or(0);
        for pair in pairs(file, parameters.get("parameter_overrides"), place(text, from), problems)
        {
            let Some((name, value)) = pair.split_once('=') else {
                problems.push_in(
                    file,
                    locate(text, from, &pair),
                    format!("{pair} is not of the form Name=value; write each override so"),
                );
                continue;
            };
            let at = locate(text, from, &format!("{name}="));
            settings.overrides.insert(name.to_owned(), (value.to_owned(), at));
        }
    }
    settings
}

fn pairs(file: &str, value: Option<&Value>, at: At, problems: &Problems) -> Vec<String> {
    match value {
        None => Vec::new(),
        Some(Value::String(text)) => words(text),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).flat_map(words).collect()
        }
        Some(_) => {
            problems.push_in(
                file,
                at,
                "parameter_overrides must be a text or a list of texts of the form Name=value",
            );
            Vec::new()
        }
    }
}

/// Words as a shell cuts them: at blanks, outside quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut begun = false;
    for letter in text.chars() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => word.push(letter),
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                begun = true;
            }
            None if letter.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            None => {
                word.push(letter);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

fn locate(text: &str, from: usize, needle: &str) -> At {
    let behind = text.get(from..).unwrap_or_default();
    behind.find(needle).map_or_else(At::default, |offset| place(text, from + offset))
}

fn place(text: &str, offset: usize) -> At {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
    At { line, column }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_cut_as_a_shell_cuts_them() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words(text), expected, "{text}");
        check("", &[]);
        check("A=b", &["A=b"]);
        check("  A=b\n C=d ", &["A=b", "C=d"]);
        check("A=\"b c\" D='e \"f\"'", &["A=b c", "D=e \"f\""]);
        check("A=\"\"", &["A="]);
    }
}
