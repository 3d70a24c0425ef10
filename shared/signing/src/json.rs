//! A few values out of a JSON text, without building a tree. Numbers keep the digits that were sent.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON pointer (RFC 6901), taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// `/a/0/b`; `~1` is a slash and `~0` a tilde. Not the empty pointer: a whole body is not a name of anything.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::parse_or_whole(text).filter(|pointer| !pointer.0.is_empty())
    }

    /// The same, or the empty pointer, which is the whole body.
    pub(crate) fn parse_or_whole(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let steps = text.strip_prefix('/')?;
        Some(Self(
            steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
        ))
    }
}

/// A string or a number found at a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Text(String),
    /// Exactly as written.
    Number(String),
}

impl Leaf {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text,
        }
    }

    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Number(text) => text,
        }
    }
}

/// Looks up all pointers in one pass over the body; none are found in a body that is not one whole JSON value in UTF-8.
/// A byte order mark in front is skipped. Of a key that occurs twice the last wins, as in nearly every parser.
///
/// Bounded: depth is never recursed into except along a pointer, and nothing is copied but the values found.
pub(crate) fn pick(body: &[u8], pointers: &[&Pointer]) -> Vec<Option<Leaf>> {
    let mut found = vec![None; pointers.len()];
    let Some(text) = text(body) else { return found };
    let wanted: Vec<Wanted<'_>> = pointers
        .iter()
        .enumerate()
        .map(|(slot, pointer)| Wanted { slot, steps: &pointer.0 })
        .collect();
    if descend(text, &wanted, &mut found).is_none() {
        found.fill(None);
    }
    found
}

/// The text of the value at a pointer, without the blanks around it. `None` if it is not there, or the body is not JSON.
pub(crate) fn find<'a>(body: &'a [u8], pointer: &Pointer) -> Option<&'a str> {
    let mut value = text(body)?;
    for step in &pointer.0 {
        let wanted = [Wanted { slot: 0, steps: std::slice::from_ref(step) }];
        let (_, child) = children(value, &wanted)?.pop()?;
        value = child;
    }
    Some(value)
}

/// Why a value could not be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotElements {
    /// It is not an array.
    NotAnArray,
    /// It has more elements than allowed.
    TooMany,
}

/// The texts of the elements of an array, as exact slices and without the blanks around them.
pub(crate) fn elements(json: &str, most: usize) -> Result<Vec<&str>, NotElements> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut elements = Vec::new();
    let mut too_many = false;
    let visitor = Elements { most, elements: &mut elements, too_many: &mut too_many };
    let read = reader.deserialize_any(visitor).and_then(|()| reader.end());
    match read {
        Ok(()) => Ok(elements),
        Err(_) if too_many => Err(NotElements::TooMany),
        Err(_) => Err(NotElements::NotAnArray),
    }
}

/// The values behind `/array/*/value`, in order; `None` if an element has none, there are no elements, or more than `most`.
pub(crate) fn every(body: &[u8], pointers: &[Pointer], most: usize) -> Option<Vec<Leaf>> {
    let (value, arrays) = pointers.split_last()?;
    let mut found = vec![text(body)?];
    for array in arrays {
        let mut inner = Vec::new();
        for json in found {
            let array = find(json.as_bytes(), array)?;
            inner.extend(elements(array, most.checked_sub(inner.len())?).ok()?);
        }
        found = inner;
    }
    let leaves = found.into_iter().map(|json| pick(json.as_bytes(), &[value]).pop().flatten());
    leaves.collect::<Option<Vec<Leaf>>>().filter(|leaves| !leaves.is_empty())
}

struct Elements<'e, 'de> {
    most: usize,
    elements: &'e mut Vec<&'de str>,
    too_many: &'e mut bool,
}

impl<'de> Visitor<'de> for Elements<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if self.elements.len() == self.most {
                *self.too_many = true;
                return Err(serde::de::Error::custom("too many elements"));
            }
            self.elements.push(element.get());
        }
        Ok(())
    }
}

/// Whether the body is one whole JSON value.
pub(crate) fn is_json(body: &[u8]) -> bool {
    text(body).is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Whether the body is one whole JSON object.
pub(crate) fn is_object(body: &[u8]) -> bool {
    text(body).is_some_and(|text| text.trim_start().starts_with('{')) && is_json(body)
}

fn text(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).ok()
}

#[derive(Clone, Copy)]
struct Wanted<'p> {
    slot: usize,
    steps: &'p [String],
}

/// Follows the pointers one level down. `None` when the text is not JSON.
fn descend(json: &str, wanted: &[Wanted<'_>], found: &mut [Option<Leaf>]) -> Option<()> {
    for (step, child) in children(json, wanted)? {
        let below: Vec<Wanted<'_>> = wanted
            .iter()
            .filter_map(|wanted| match wanted.steps.split_first() {
                Some((first, rest)) if *first == step => {
                    Some(Wanted { slot: wanted.slot, steps: rest })
                }
                _ => None,
            })
            .collect();
        for ended in below.iter().filter(|wanted| wanted.steps.is_empty()) {
            if let Some(slot) = found.get_mut(ended.slot) {
                *slot = leaf(child);
            }
        }
        let deeper: Vec<Wanted<'_>> =
            below.into_iter().filter(|wanted| !wanted.steps.is_empty()).collect();
        if !deeper.is_empty() {
            descend(child, &deeper, found)?;
        }
    }
    Some(())
}

/// The wanted members of one object or array. `None` when the text is not JSON.
fn children<'a>(json: &'a str, wanted: &[Wanted<'_>]) -> Option<Found<'a>> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let children = reader.deserialize_any(Children { wanted }).ok()?;
    reader.end().ok()?;
    Some(children)
}

fn leaf(json: &str) -> Option<Leaf> {
    match json.bytes().next()? {
        b'"' => serde_json::from_str(json).ok().map(Leaf::Text),
        b'-' | b'0'..=b'9' => Some(Leaf::Number(json.to_owned())),
        _ => None,
    }
}

/// Collects the wanted members of one object or array as raw text, and skips the rest.
struct Children<'w, 'p> {
    wanted: &'w [Wanted<'p>],
}

impl Children<'_, '_> {
    fn wants(&self, step: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted.steps.first().is_some_and(|first| first == step))
    }

    fn wants_index(&self, index: usize) -> bool {
        self.wanted
            .iter()
            .any(|wanted| wanted.steps.first().is_some_and(|first| is_index(first, index)))
    }
}

/// Whether a step is this index, written as RFC 6901 has it: no sign, no leading zero.
fn is_index(step: &str, index: usize) -> bool {
    let is_canonical = step == "0" || step.starts_with(|first| matches!(first, '1'..='9'));
    is_canonical && step.parse() == Ok(index)
}

type Found<'de> = Vec<(Cow<'de, str>, &'de str)>;

impl<'de> Visitor<'de> for Children<'_, '_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: Found<'de> = Vec::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if self.wants(&key.0) {
                let value = map.next_value::<&'de RawValue>()?.get();
                match found.iter_mut().find(|(name, _)| *name == key.0) {
                    Some(earlier) => earlier.1 = value,
                    None => found.push((key.0, value)),
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        for index in 0_usize.. {
            if self.wants_index(index) {
                let Some(value) = seq.next_element::<&'de RawValue>()? else { break };
                found.push((Cow::Owned(index.to_string()), value.get()));
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

/// An object key, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, pointer: &str, expected: Option<&str>) {
        let pointer = Pointer::parse(pointer).unwrap();
        let found = pick(body.as_bytes(), &[&pointer]).remove(0);
        assert_eq!(found.map(Leaf::into_text).as_deref(), expected, "{body}");
    }

    #[test]
    fn strings_and_numbers_are_found_as_they_were_sent() {
        check(r#"{"id":"evt_1"}"#, "/id", Some("evt_1"));
        check("\u{feff}{\"id\":\"evt_1\"}", "/id", Some("evt_1"));
        check(r#"{"id":820982911946154500123456789}"#, "/id", Some("820982911946154500123456789"));
        check(r#"{"id":1.50e3}"#, "/id", Some("1.50e3"));
        check(r#"{"a":{"b":[{"c":"x"},{"c":"y"}]}}"#, "/a/b/1/c", Some("y"));
        check(r#"{"a/b":{"c~d":"x"}}"#, "/a~1b/c~0d", Some("x"));
        check(r#"["x"]"#, "/0", Some("x"));
        for step in ["/00", "/+0", "/-0", "/ 0", "/0x0", "/"] {
            check(r#"["x"]"#, step, None);
            assert!(find(br#"["x"]"#, &Pointer::parse(step).unwrap()).is_none(), "{step}");
        }
        check(r#"{"\u0069d":"\u00e9"}"#, "/id", Some("é"));
        check(r#"{"id":"first","id":"last"}"#, "/id", Some("last"));
        check(r#"{"a":{"id":"first"},"a":{}}"#, "/a/id", None);
    }

    #[test]
    fn whatever_is_not_there_is_absent() {
        for body in [
            "{}",
            "[]",
            "1",
            "\"id\"",
            "null",
            "true",
            "-1.5",
            r#"{"id":null}"#,
            r#"{"id":{"id":1}}"#,
            r#"{"id":[1]}"#,
        ] {
            check(body, "/id", None);
        }
        for not_json in
            ["", "hello", r#"{"id":"x""#, r#"{"id":"x"}}"#, r#"{"id":"x",}"#, "{\"id\":\"x\"}\0"]
        {
            check(not_json, "/id", None);
        }
        check(r#"{"id":"\ud800"}"#, "/id", None);
        let pointer = Pointer::parse("/id").unwrap();
        assert_eq!(pick(b"{\"id\":\"x\",\"a\":\"\xff\"}", &[&pointer]), [None]);
    }

    #[test]
    fn a_value_is_found_as_an_exact_slice() {
        let body = b"\xef\xbb\xbf { \"a\" : [ {\"b\": 1.50} , [2,3] ] } \n";
        let at = |pointer: &str| find(body, &Pointer::parse_or_whole(pointer).unwrap());
        assert_eq!(at("/a"), Some("[ {\"b\": 1.50} , [2,3] ]"));
        assert_eq!(at("/a/0"), Some("{\"b\": 1.50}"));
        assert_eq!(at("/a/1/1"), Some("3"));
        assert_eq!(at("").map(str::trim), Some("{ \"a\" : [ {\"b\": 1.50} , [2,3] ] }"));
        assert_eq!((at("/b"), at("/a/2"), at("/a/x"), at("/a/0/b/c")), (None, None, None, None));
        assert_eq!(find(b"\xff", &Pointer::parse_or_whole("").unwrap()), None);
        assert_eq!(find(b"{\"a\":1}}", &Pointer::parse("/a").unwrap()), None);
    }

    #[test]
    fn a_star_stands_for_every_element_and_all_must_have_the_value() {
        let check = |body: &str, pointers: &[&str], expected: Option<&[&str]>| {
            let pointers: Vec<Pointer> =
                pointers.iter().map(|text| Pointer::parse_or_whole(text).unwrap()).collect();
            let found = every(body.as_bytes(), &pointers, 3);
            let found =
                found.map(|leaves| leaves.into_iter().map(Leaf::into_text).collect::<Vec<_>>());
            assert_eq!(
                found.as_deref(),
                expected
                    .map(|texts| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
                    .as_deref(),
                "{body}"
            );
        };
        check(r#"{"v":[{"s":"a"},{"s":"b"}]}"#, &["/v", "/s"], Some(&["a", "b"]));
        check(r#"[{"s":"a"}]"#, &["", "/s"], Some(&["a"]));
        check(
            r#"{"v":[{"w":[{"s":1},{"s":2}]},{"w":[]}]}"#,
            &["/v", "/w", "/s"],
            Some(&["1", "2"]),
        );
        check(r#"{"v":[{"s":"a"},{}]}"#, &["/v", "/s"], None);
        check(r#"{"v":[{"s":"a"},{"s":null}]}"#, &["/v", "/s"], None);
        check(r#"{"v":[]}"#, &["/v", "/s"], None);
        check(r#"{"v":{"s":"a"}}"#, &["/v", "/s"], None);
        check(r#"{"v":[{"s":1},{"s":1},{"s":1},{"s":1}]}"#, &["/v", "/s"], None);
        check(
            r#"{"v":[{"w":[{"s":1},{"s":2}]},{"w":[{"s":1},{"s":2}]}]}"#,
            &["/v", "/w", "/s"],
            None,
        );
        check("", &["", "/s"], None);
    }

    #[test]
    fn an_array_is_taken_apart_up_to_a_limit() {
        assert_eq!(
            elements(" [ 1 , {\"a\": [2 ]},\"x\"] ", 3),
            Ok(vec!["1", "{\"a\": [2 ]}", "\"x\""])
        );
        assert_eq!(elements("[]", 0), Ok(vec![]));
        assert_eq!(elements("[1,2,3,4]", 3), Err(NotElements::TooMany));
        for other in ["", "{}", "1", "null", "[1", "[1,]", "[1] 2", "[1}", "\"[1]\""] {
            assert_eq!(elements(other, 9), Err(NotElements::NotAnArray), "{other}");
        }
        assert_eq!(elements(&"[".repeat(1_000_000), 9), Err(NotElements::NotAnArray));
        let deep = format!("[{}{}]", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(elements(&deep, 9).map(|found| found.len()), Ok(1));
    }

    #[test]
    fn a_nesting_bomb_neither_overflows_nor_hides_the_id() {
        let bomb = format!(r#"{{"id":"x","a":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
        check(&bomb, "/id", Some("x"));
        check(&bomb, "/a/0/0/0", None);
        check(&"[".repeat(1_000_000), "/0/0", None);
        check(&format!(r#"{{"id":{}}}"#, "9".repeat(1_000_000)), "/a", None);
    }
}
