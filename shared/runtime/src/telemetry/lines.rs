//! Log lines: flat JSON, one for each event, with what the spans around it know.

use std::{fmt, io::Write as _};

use serde_json::{Map, Number, Value};
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

/// The fields of a span, kept with it.
#[derive(Default)]
struct Fields(Map<String, Value>);

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
                line.0.extend(fields.0.clone());
            }
        }
        event.record(&mut line);
        // One write for each line, so that lines do not mix. A log that cannot be written has nobody to tell.
        let _ = self.to.make_writer().write_all(format!("{}\n", Value::Object(line.0)).as_bytes());
    }
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
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
        self.put(field.name(), value.chars().take(MAX_TEXT).collect::<String>().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
