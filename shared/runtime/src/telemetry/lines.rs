//! Log lines: flat JSON, one for each event, with what the spans around it know.

use std::{fmt, io::Write as _};

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Number, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    fmt::MakeWriter,
    layer::{Context, Layer},
    registry::LookupSpan,
};

/// Longest text in a field, in characters. An event's type is as long as its sender likes.
const MAX_TEXT: usize = 2000;

/// Writes each event as a line.
pub(super) struct Lines<W> {
    to: W,
}

impl<W> Lines<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to }
    }
}

/// What a span or an event knows; what comes later under the same name is what counts. There is a line for each attempt, so
/// that names are not copied.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a log line carries the time at which it is written"
        )]
        let now = jiff::Timestamp::now();
        let mut line = Fields::default();
        line.put("timestamp", Value::String(format!("{now:.3}")));
        line.put("level", Value::String(event.metadata().level().to_string()));
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                for (name, value) in &fields.0 {
                    line.put(name, value.clone());
                }
            }
        }
        event.record(&mut line);
        line.0.sort_unstable_by_key(|(name, _)| *name);
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        // One write for each line, so that lines do not mix. A log that cannot be written has nobody to tell.
        let _ = self.to.make_writer().write_all(&text);
    }
}

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Number::from_f64(value).map_or(Value::Null, Value::Number));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // Nothing to cut in a text of so few bytes.
        let text = if value.len() <= MAX_TEXT {
            value.to_owned()
        } else {
            value.chars().take(MAX_TEXT).collect()
        };
        self.put(field.name(), text.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
