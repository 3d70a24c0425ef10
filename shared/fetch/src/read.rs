//! From a table to a fetcher, with everything that is wrong with it.

use std::{collections::BTreeMap, time::Duration};

use domain::fetch::Pace;
use http::HeaderName;
use serde_json::Value;

use crate::{
    fetcher::{About, Auth, Deletion, Spent, Terms, VersionKind, VersionRules},
    reader::{Problem, Problems, Reader},
    template::{Part, Template},
};

/// Calls a second if nothing is said: few enough for every provider we know.
const USUAL_RATE: u32 = 10;

/// Most headers of a fetcher's own, and most kinds with a path.
const MAX_HEADERS: usize = 20;
const MAX_PATHS: usize = 500;

/// Headers that are the call's own.
const OURS: [&str; 6] = [
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
];

pub(crate) fn terms(value: Value) -> Result<Terms, Problems> {
    let Value::Object(table) = value else {
        let what = "a fetcher is a table with keys such as `url` and `auth`".to_owned();
        return Err(Problems(vec![Problem { at: String::new(), what }]));
    };
    let mut problems = Vec::new();
    let mut reader = Reader::new(table, &mut problems);
    let about = about(&mut reader);
    let (host, rest) = url(&mut reader);
    let paths = paths(&mut reader, &rest);
    let auth = auth(&mut reader);
    let headers = headers(&mut reader);
    let gone = reader.statuses("gone").unwrap_or_else(|| vec![404, 410]);
    let doubtful = reader.statuses("doubtful").unwrap_or_default();
    if doubtful.iter().any(|status| gone.contains(status)) {
        reader.problem("doubtful", "says again what `gone` says; a status is in one of them");
    }
    let pace = pace(&mut reader);
    let answer = reader.within("answer", answer).unwrap_or_default();
    let version = reader.within("version", version).flatten();
    let deletion = reader.within("deletion", deletion).unwrap_or_default();
    let spent = reader.within("spent", spent).flatten();
    reader.finish();
    let Some(auth) = auth.filter(|_| problems.is_empty()) else { return Err(Problems(problems)) };
    let Answer { state, states, id, deleted } = answer;
    Ok(Terms {
        about,
        host,
        rest,
        paths,
        auth,
        headers,
        gone,
        doubtful,
        pace,
        state,
        states,
        id,
        deleted,
        version,
        deletion,
        spent,
    })
}

fn about(reader: &mut Reader<'_>) -> About {
    let mut text = |key: &str| reader.text(key).unwrap_or_default();
    let (title, docs) = (text("title"), text("docs"));
    let facts = reader.within("facts", |facts| {
        let mut text = |key: &str| facts.text(key).unwrap_or_default();
        (text("checked"), text("mark"), text("from"))
    });
    let (checked_on, mark, facts_from) = facts.unwrap_or_default();
    About { title, docs, checked_on, mark, facts_from }
}

/// The host, which is pinned, and what follows it.
fn url(reader: &mut Reader<'_>) -> (Template, Template) {
    let none = (Template::default(), Template::default());
    let Some(text) = reader.text("url") else {
        if !reader.has("url") {
            reader.problem("url", "must say where the state of an object is, such as `https://api.example.com/v1/{path}/{id}`");
        }
        return none;
    };
    let Some((host, rest)) =
        text.strip_prefix("https://").and_then(|rest| rest.split_at_checked(rest.find('/')?))
    else {
        reader.problem("url", "must begin with `https://`, a host and a `/`");
        return none;
    };
    let host = template(reader, "url", host);
    let rest = template(reader, "url", rest);
    if let Err(why) = check_host(&host) {
        reader.problem("url", why);
    }
    let literal = |template: &Template| {
        template.0.iter().all(|part| !matches!(part, Part::Literal(text) if !is_url_text(text)))
    };
    if !literal(&rest) {
        reader
            .problem("url", "has characters that do not stand in a URL, or a `#`, a `\\` or `..`");
    }
    (host, rest)
}

fn is_url_text(text: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/?&=:@!$'()*+,;%[]".contains(&byte);
    text.bytes().all(plain) && !text.contains("..") && !text.contains("//")
}

/// A stranger's text is never part of a host, and the source's configuration only a label that cannot end it.
fn check_host(host: &Template) -> Result<(), String> {
    let mut text = String::new();
    for part in &host.0 {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            // A character that no host has, to find it again.
            Part::Config(_) => text.push('{'),
            other => {
                return Err(format!(
                    "{} may not stand in the host: what an event says must not lead a token elsewhere",
                    other.name()
                ));
            }
        }
    }
    let name = text.split_once(':').map_or(text.as_str(), |(name, _)| name);
    let labels: Vec<&str> = name.split('.').collect();
    let own = labels.len().saturating_sub(2);
    let fits = labels.iter().enumerate().all(|(at, label)| match *label {
        "{" => at < own,
        label => !label.contains('{'),
    });
    if !fits {
        return Err(
            "`{config:..}` in the host is a whole label before the last two, as in `{config:shop}.example.com`"
                .to_owned(),
        );
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:{[]".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        return Err("the host is written in lower-case letters, digits, `-` and `.`".to_owned());
    }
    Ok(())
}

fn paths(reader: &mut Reader<'_>, rest: &Template) -> Option<BTreeMap<String, Template>> {
    let written = reader.has("paths");
    let texts = reader.texts_by_name("paths");
    if texts.len() > MAX_PATHS {
        reader.problem("paths", format!("has more than {MAX_PATHS} kinds"));
    }
    let mut paths = BTreeMap::new();
    for (kind, text) in texts {
        let path = template(reader, "paths", &text);
        let fits =
            path.0.iter().all(|part| !matches!(part, Part::Literal(text) if !is_url_text(text)));
        if !fits || path.has(&Part::Path) || text.is_empty() {
            reader.problem(
                &format!("paths.{kind}"),
                "is a part of a URL, without `{path}`, `#` or `..`",
            );
        }
        if !path.has(&Part::Id) && !rest.has(&Part::Id) && !path.0.iter().any(is_event) {
            reader.problem(
                &format!("paths.{kind}"),
                "does not say which object: `{id}` or `{event:..}` is missing here and in `url`",
            );
        }
        paths.insert(kind, path);
    }
    match (written, rest.has(&Part::Path)) {
        (true, false) => reader.problem("paths", "is not used: `url` has no `{path}`"),
        (false, true) => reader.problem("paths", "is missing: `url` has a `{path}`"),
        (false, false)
            if !rest.has(&Part::Id) && !rest.0.iter().any(is_event) && !rest.0.is_empty() =>
        {
            reader.problem("url", "does not say which object: `{id}` is missing");
        }
        _ => {}
    }
    written.then_some(paths)
}

fn is_event(part: &Part) -> bool {
    matches!(part, Part::Event(_))
}

fn auth(reader: &mut Reader<'_>) -> Option<Auth> {
    let what = "must be `bearer`, `basic`, `none`, or `header:` and a name";
    let Some(text) = reader.text("auth") else {
        reader.problem("auth", what);
        return None;
    };
    let auth = match text.as_str() {
        "bearer" => Some(Auth::Bearer),
        "basic" => Some(Auth::Basic),
        "none" => Some(Auth::None),
        other => other
            .strip_prefix("header:")
            .and_then(|name| name.parse().ok())
            .filter(|name: &HeaderName| !OURS.contains(&name.as_str()))
            .map(Auth::Header),
    };
    if auth.is_none() {
        reader.problem("auth", what);
    }
    auth
}

fn headers(reader: &mut Reader<'_>) -> Vec<(HeaderName, Template)> {
    let texts = reader.texts_by_name("headers");
    if texts.len() > MAX_HEADERS {
        reader.problem("headers", format!("are more than {MAX_HEADERS}"));
    }
    let mut headers = Vec::new();
    for (name, text) in texts {
        let at = format!("headers.{name}");
        let value = template(reader, &at, &text);
        let visible = |part: &Part| match part {
            Part::Literal(text) => text.bytes().all(|b| b.is_ascii_graphic() || b == b' '),
            Part::Path => false,
            _ => true,
        };
        if !value.0.iter().all(visible) {
            reader.problem(&at, "is visible ASCII text, without `{path}`");
        }
        match name.parse::<HeaderName>() {
            Ok(name) if OURS.contains(&name.as_str()) => {
                reader.problem(&at, "is a header of the call itself; tokens go by `auth`");
            }
            Ok(name) => headers.push((name, value)),
            Err(_) => reader.problem(&at, "cannot be the name of a header"),
        }
    }
    headers
}

fn pace(reader: &mut Reader<'_>) -> Pace {
    let rate = reader.number("rate", 1..=1000).unwrap_or(USUAL_RATE);
    let burst = reader.number("burst", 1..=1000).unwrap_or(rate);
    Pace { interval: Duration::from_secs(1) / rate, burst }
}

#[derive(Default)]
struct Answer {
    state: String,
    states: BTreeMap<String, String>,
    id: Option<String>,
    deleted: Option<String>,
}

fn answer(reader: &mut Reader<'_>) -> Answer {
    let states = reader.texts_by_name("states");
    for (kind, pointer) in &states {
        if !is_pointer(pointer) {
            reader.problem(&format!("states.{kind}"), POINTER);
        }
    }
    Answer {
        state: pointer(reader, "state").unwrap_or_default(),
        states: states.into_iter().collect(),
        id: pointer(reader, "id"),
        deleted: pointer(reader, "deleted"),
    }
}

const POINTER: &str = "must be a JSON pointer, such as `/data/id`";

fn is_pointer(text: &str) -> bool {
    text.is_empty() || text.starts_with('/')
}

fn pointer(reader: &mut Reader<'_>, key: &str) -> Option<String> {
    let text = reader.text(key)?;
    if is_pointer(&text) {
        return Some(text);
    }
    reader.problem(key, POINTER);
    None
}

fn version(reader: &mut Reader<'_>) -> Option<VersionRules> {
    let trusted = reader.flag("trusted");
    let part = |reader: &mut Reader<'_>| {
        let kind = reader.choice("kind", &VersionKind::ALL).unwrap_or(VersionKind::Number);
        let from = pointer(reader, "from").filter(|from| !from.is_empty());
        if from.is_none() {
            reader.problem("from", "must say where the version stands, such as `/updated_at`");
        }
        from.map(|from| (from, kind))
    };
    if !reader.has("parts") {
        return part(reader).map(|part| VersionRules { parts: vec![part], trusted });
    }
    let parts = reader.each("parts", part);
    if !(2..=4).contains(&parts.len()) {
        reader.problem("parts", "must be a list of 2 to 4 tables with `from` and `kind`");
    }
    Some(VersionRules { parts, trusted })
}

fn deletion(reader: &mut Reader<'_>) -> Deletion {
    let (type_ends, at, is) =
        (reader.texts("type_ends"), pointer(reader, "at"), reader.texts("is"));
    if at.is_some() == is.is_empty() {
        reader.problem(
            "at",
            "and `is` belong together: where an event says it, and what it says there",
        );
    }
    if type_ends.iter().any(String::is_empty) {
        reader.problem("type_ends", "must not be empty: every type ends with nothing");
    }
    Deletion { type_ends, at, is }
}

fn spent(reader: &mut Reader<'_>) -> Option<Spent> {
    let mut name = |key: &str, must: bool| {
        let text = reader.text(key);
        if text.is_none() && !must {
            return None;
        }
        let name = text.and_then(|text| text.parse::<HeaderName>().ok());
        if name.is_none() {
            reader.problem(key, "must be the name of a header");
        }
        name
    };
    let (header, until) = (name("header", true), name("until", false));
    let is = reader.text("is");
    if is.is_none() {
        reader.problem("is", "must say what the header has then, such as \"0\"");
    }
    Some(Spent { header: header?, is: is?, until })
}

fn template(reader: &mut Reader<'_>, key: &str, text: &str) -> Template {
    Template::parse(text).unwrap_or_else(|what| {
        reader.problem(key, what);
        Template::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Fetcher;

    fn problems(value: Value) -> Vec<String> {
        match Fetcher::from_value(value) {
            Ok(_) => Vec::new(),
            Err(Problems(all)) => all.into_iter().map(|problem| problem.at).collect(),
        }
    }

    fn with(key: &str, value: Value) -> Value {
        let mut own = json!({ "url": "https://api.example.com/v1/{kind}/{id}", "auth": "bearer" });
        own[key] = value;
        own
    }

    #[test]
    fn a_fetcher_needs_a_url_and_a_way_to_show_who_we_are() {
        assert!(problems(with("rate", json!(5))).is_empty());
        assert_eq!(problems(json!({})), ["url", "auth"]);
        assert_eq!(problems(json!("x")), [""]);
        assert_eq!(
            problems(json!({ "url": 5, "auth": 5, "rat": 1 })),
            ["url", "url", "auth", "auth", "rat"]
        );
    }

    /// Every address by which a token could be led elsewhere.
    #[test]
    fn the_host_is_pinned() {
        for (url, fits) in [
            ("https://api.example.com/{id}", true),
            ("https://{config:shop}.example.com/{id}", true),
            ("https://{config:a}.{config:b}.example.com/{id}", true),
            ("https://127.0.0.1:8443/{id}", true),
            ("https://[::1]:8443/{id}", true),
            ("http://api.example.com/{id}", false),
            ("//api.example.com/{id}", false),
            ("https://api.example.com", false),
            ("https:///{id}", false),
            ("https://{id}.example.com/{id}", false),
            ("https://{kind}.example.com/{id}", false),
            ("https://{event:/host}/{id}", false),
            ("https://{config:host}/{id}", false),
            ("https://example.{config:tld}/{id}", false),
            ("https://{config:domain}.com/{id}", false),
            ("https://a{config:shop}.example.com/{id}", false),
            ("https://user@example.com/{id}", false),
            ("https://user:pw@example.com/{id}", false),
            ("https://API.example.com/{id}", false),
            ("https://api.example.com\\@evil/{id}", false),
            ("https://api.example.com/../{id}", false),
            ("https://api.example.com//evil/{id}", false),
            ("https://api.example.com/{id}#x", false),
            ("https://api.example.com/a b/{id}", false),
            ("https://api.example.com/{id", false),
            ("https://api.example.com/{what}", false),
            ("https://api.example.com/all", false),
        ] {
            assert_eq!(problems(with("url", json!(url))).is_empty(), fits, "{url}");
        }
    }

    #[test]
    fn every_key_is_read_strictly_and_every_problem_has_its_name() {
        for (key, value, at) in [
            ("auth", json!("header:authorization"), "auth"),
            ("auth", json!("header:a b"), "auth"),
            ("auth", json!("token"), "auth"),
            ("headers", json!({ "authorization": "x" }), "headers.authorization"),
            ("headers", json!({ "a b": "x" }), "headers.a b"),
            ("headers", json!({ "x-a": "a\nb" }), "headers.x-a"),
            ("headers", json!({ "x-a": "{path}" }), "headers.x-a"),
            ("headers", json!({ "x-a": 5 }), "headers.x-a"),
            ("gone", json!([200]), "gone"),
            ("gone", json!([401]), "gone"),
            ("gone", json!(404), "gone"),
            ("doubtful", json!([404]), "doubtful"),
            ("rate", json!(0), "rate"),
            ("burst", json!(1001), "burst"),
            ("paths", json!({ "a": "b" }), "paths"),
            ("answer", json!({ "state": "data" }), "answer.state"),
            ("answer", json!({ "states": { "a": "data" } }), "answer.states.a"),
            ("answer", json!({ "what": 1 }), "answer.what"),
            ("version", json!({ "kind": "number" }), "version.from"),
            ("version", json!({ "from": "/v", "kind": "semver" }), "version.kind"),
            ("version", json!({ "parts": [{ "from": "/v" }] }), "version.parts"),
            ("deletion", json!({ "at": "/action" }), "deletion.at"),
            ("deletion", json!({ "type_ends": [""] }), "deletion.type_ends"),
            ("spent", json!({ "header": "x" }), "spent.is"),
            ("spent", json!({ "header": "a b", "is": "0" }), "spent.header"),
            ("facts", json!("x"), "facts"),
        ] {
            assert_eq!(problems(with(key, value.clone())), [at], "{key} = {value}");
        }
        let both = json!({ "url": "https://a.example.com/{path}", "auth": "none", "paths": { "k": "all" } });
        assert_eq!(problems(both), ["paths.k"]);
        let missing = json!({ "url": "https://a.example.com/{path}/{id}", "auth": "none" });
        assert_eq!(problems(missing), ["paths"]);
    }
}
