//! Many events, one on each line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Write},
};

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json, value::RawValue};

use crate::{
    client::Client,
    complaint::{Complaint, printable},
    print,
};

/// Most events of one request: the api's limit.
const MOST_EVENTS: usize = 100;

/// Most bytes of one request's events, written as a JSON string: as that the gateway hands them on, in an event of 6 MB.
const MOST_BYTES: usize = 5_000_000;

/// Longest line, in bytes. A payload has 1,000,000 at most.
const MOST_LINE: u64 = 2_000_000;

/// Refusals that are shown; the others are counted.
const SHOWN: usize = 20;

/// A line that is an event, with its number and its key.
struct Line {
    number: usize,
    event: String,
}

/// What became of the lines so far.
#[derive(Default)]
struct Tally {
    published: usize,
    before: usize,
    refused: Vec<(usize, Value)>,
    /// Refused for now only: sent again, they may go.
    busy: usize,
}

pub(super) async fn run(
    name: &str,
    key: &str,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let unreadable = |error: &io::Error| {
        let what = format!("{} cannot be read", printable(name));
        Complaint::new(what, error.to_string(), again(name, key))
    };
    let mut file: Box<dyn BufRead> = match name {
        "-" => Box::new(BufReader::new(io::stdin())),
        _ => Box::new(BufReader::new(File::open(name).map_err(|error| unreadable(&error))?)),
    };
    let (mut tally, mut batch, mut bytes) = (Tally::default(), Vec::new(), 0);
    for number in 1.. {
        let Some(text) = line(&mut *file).map_err(|error| unreadable(&error))? else { break };
        let event = match keyed(&text, &format!("{key}:{number}")) {
            Ok(None) => continue,
            Ok(Some(event)) => event,
            Err(why) => {
                tally.refused.push((number, json!({ "detail": why })));
                continue;
            }
        };
        let length = Value::from(event.as_str()).to_string().len();
        if batch.len() == MOST_EVENTS || bytes + length > MOST_BYTES {
            send(client, std::mem::take(&mut batch), &mut tally)
                .await
                .map_err(|complaint| cut_off(complaint, &tally, name, key))?;
            bytes = 0;
        }
        bytes += length;
        batch.push(Line { number, event });
    }
    send(client, batch, &mut tally)
        .await
        .map_err(|complaint| cut_off(complaint, &tally, name, key))?;
    tell(&tally, name, key, json, out)
}

/// The next line, without its end. A longer one than any event has is an error: what follows it is not looked for.
fn line(file: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if file.take(MOST_LINE + 1).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() as u64 > MOST_LINE {
        return Err(io::Error::other(format!("a line has more than {MOST_LINE} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(io::Error::other)
}

/// The event of a line with a key in front, where it has none of its own; nothing for a line without anything. What else
/// stands in the line stays byte for byte.
fn keyed(line: &str, key: &str) -> Result<Option<String>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(line).map_err(|error| format!("it is not a JSON object: {error}"))?;
    let (Some(rest), false) = (line.strip_prefix('{'), members.contains_key("idempotency_key"))
    else {
        return Ok(Some(line.to_owned()));
    };
    let comma = if members.is_empty() { "" } else { "," };
    Ok(Some(format!("{{\"idempotency_key\":{}{comma}{rest}", Value::from(key))))
}

async fn send(client: &Client, batch: Vec<Line>, tally: &mut Tally) -> Result<(), Complaint> {
    if batch.is_empty() {
        return Ok(());
    }
    let events: Vec<_> = batch.iter().map(|line| line.event.as_str()).collect();
    let body = format!("{{\"events\":[{}]}}", events.join(","));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = client.call_good(Method::POST, "/v1/events", headers, body.into()).await?;
    let results = answer.get("results").and_then(Value::as_array).map(Vec::as_slice);
    let results = results.unwrap_or_default();
    if results.len() != batch.len() {
        let what = format!(
            "{} answered {} results to {} events",
            client.base(),
            results.len(),
            batch.len()
        );
        return Err(Complaint::new(what, "it is no api of Postern, or another version", ""));
    }
    for (line, result) in batch.iter().zip(results) {
        match (result.get("problem"), result.get("repeated").and_then(Value::as_bool)) {
            (Some(problem), _) => {
                let status = problem.get("status").and_then(Value::as_u64).unwrap_or_default();
                tally.busy += usize::from(status >= 500);
                tally.refused.push((line.number, problem.clone()));
            }
            (None, Some(true)) => tally.before += 1,
            (None, _) => tally.published += 1,
        }
    }
    Ok(())
}

fn tell(
    tally: &Tally,
    name: &str,
    key: &str,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let refused: Vec<_> = tally
        .refused
        .iter()
        .map(|(line, problem)| json!({ "line": line, "problem": problem }))
        .collect();
    let all = json!({
        "published": tally.published, "repeated": tally.before, "refused": refused, "idempotency_key": key,
    });
    print::either(json, out, &all, |out| {
        for (line, problem) in tally.refused.iter().take(SHOWN) {
            let why = problem.get("detail").or_else(|| problem.get("title"));
            let why = why.and_then(Value::as_str).unwrap_or("no reason is given");
            writeln!(out, "line {line}: {}", printable(why))?;
        }
        if let Some(more) = tally.refused.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            writeln!(out, "... and {more} more; --json lists all")?;
        }
        writeln!(out, "{}", counted(tally))
    })?;
    if tally.refused.is_empty() {
        return Ok(());
    }
    let what = format!("{} of the events are not published", tally.refused.len());
    let why = "each line above says why";
    if tally.busy > 0 {
        return Err(Complaint::new(what, why, again(name, key)));
    }
    let next = "mend those lines and send them in a file of their own";
    Err(Complaint::new(what, why, next).as_no())
}

fn counted(tally: &Tally) -> String {
    let Tally { published, before, refused, .. } = tally;
    format!("{published} published, {before} published before, {} refused", refused.len())
}

/// What a call that came in between does not undo.
fn cut_off(complaint: Complaint, tally: &Tally, name: &str, key: &str) -> Complaint {
    let why = format!("{} (so far: {})", complaint.why, counted(tally));
    Complaint { why, next: again(name, key), ..complaint }
}

fn again(name: &str, key: &str) -> String {
    format!(
        "repeat it with --file {} --idempotency-key {key}, which publishes nothing twice",
        printable(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gets_a_key_and_keeps_every_byte() {
        let check = |line: &str, expected: &str| {
            assert_eq!(keyed(line, "k:1").unwrap().as_deref(), Some(expected), "{line}");
        };
        check(
            r#"{ "n":1.0, "n" : 9007199254740993 }"#,
            r#"{"idempotency_key":"k:1", "n":1.0, "n" : 9007199254740993 }"#,
        );
        check("  {\"a\":\"\\u00e9\"}\r\n", r#"{"idempotency_key":"k:1","a":"\u00e9"}"#);
        check(r#"{"a":1e999}"#, r#"{"idempotency_key":"k:1","a":1e999}"#);
        check("{ }", r#"{"idempotency_key":"k:1" }"#);
        check(r#"{"idempotency_key":"own","a":1}"#, r#"{"idempotency_key":"own","a":1}"#);
        assert_eq!(keyed(" \n", "k").unwrap(), None);
        for bad in ["[]", "1", "{", "{} {}", "{\"a\":}"] {
            assert!(keyed(bad, "k").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_that_never_ends_costs_bounded_memory() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(line(&mut endless).unwrap_err().to_string().contains("more than 2000000 bytes"));
        let mut two = &b"a\nb"[..];
        let mut next = || line(&mut two).unwrap();
        assert_eq!((next(), next(), next()), (Some("a\n".to_owned()), Some("b".to_owned()), None));
    }
}
