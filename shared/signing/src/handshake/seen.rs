//! What a request carries, at the places that handshakes name.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::Value;

use crate::request::Request;
use crate::scheme::{Fixed, Place};

pub(super) struct Seen<'a> {
    pub(super) request: Request<'a>,
    query: OnceCell<Pairs>,
    fields: OnceCell<Pairs>,
    json: OnceCell<Option<Value>>,
}

type Pairs = Vec<(String, String)>;

/// What stands at a place.
#[derive(Debug)]
pub(super) enum Found<'s> {
    Absent,
    Text(Cow<'s, str>),
    Number(i64),
    /// Something, but neither of these, or more than one.
    Other,
}

impl Found<'_> {
    pub(super) fn is(&self, fixed: &Fixed) -> bool {
        match (self, fixed) {
            (Self::Text(text), Fixed::Text(wanted)) => text == wanted,
            (Self::Number(number), Fixed::Number(wanted)) => number == wanted,
            _ => false,
        }
    }
}

impl<'a> Seen<'a> {
    pub(super) fn of(request: Request<'a>) -> Self {
        Self { request, query: OnceCell::new(), fields: OnceCell::new(), json: OnceCell::new() }
    }

    pub(super) fn at(&self, place: &Place) -> Found<'_> {
        match place {
            Place::Query(name) => one(self.query(), name),
            Place::Field(name) => one(self.fields(), name),
            Place::Header(name) => {
                let mut lines = self.request.headers.get_all(name).iter();
                match (lines.next(), lines.next()) {
                    (None, _) => Found::Absent,
                    // a comma: the gateway may have joined two
                    (Some(line), None) if !line.as_bytes().contains(&b',') => {
                        line.to_str().map_or(Found::Other, |text| Found::Text(text.into()))
                    }
                    _ => Found::Other,
                }
            }
            Place::Json(pointer) => match self.json().and_then(|json| json.pointer(pointer)) {
                None => Found::Absent,
                Some(Value::String(text)) => Found::Text(text.into()),
                Some(value) => value.as_i64().map_or(Found::Other, Found::Number),
            },
        }
    }

    pub(super) fn has_members(&self, names: &[String]) -> bool {
        let members = self.json().and_then(Value::as_object);
        members.is_some_and(|members| {
            members.len() == names.len() && names.iter().all(|name| members.contains_key(name))
        })
    }

    pub(super) fn has_fields(&self, names: &[String]) -> bool {
        let fields = self.fields();
        fields.len() == names.len()
            && names.iter().all(|name| fields.iter().any(|(field, _)| field == name))
    }

    fn query(&self) -> &Pairs {
        self.query.get_or_init(|| {
            let query = self.request.url.split_once('?').map_or("", |(_, query)| query);
            crate::form::pairs(query.as_bytes())
        })
    }

    fn fields(&self) -> &Pairs {
        self.fields.get_or_init(|| crate::form::pairs(self.request.body))
    }

    fn json(&self) -> Option<&Value> {
        self.json.get_or_init(|| serde_json::from_slice(self.request.body).ok()).as_ref()
    }
}

fn one<'s>(pairs: &'s Pairs, name: &str) -> Found<'s> {
    let mut values = pairs.iter().filter(|(field, _)| field == name);
    match (values.next(), values.next()) {
        (None, _) => Found::Absent,
        (Some((_, value)), None) => Found::Text(value.into()),
        _ => Found::Other,
    }
}
