//! Spans as a process exported them: JSON lines in a file.

use std::collections::BTreeMap;
use std::path::Path;

use opentelemetry::KeyValue;
use opentelemetry_sdk::trace::SpanData;
use serde::{Deserialize, Serialize};

/// One span, as a backend gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: String,
    pub(super) parent_is_remote: bool,
    /// (trace id, span id)
    pub(super) links: Vec<(String, String)>,
    pub(super) tracestate: String,
    pub(super) status: String,
    pub(super) attributes: BTreeMap<String, String>,
    /// The attributes of each event, its name as `name`.
    pub(super) events: Vec<BTreeMap<String, String>>,
    pub(super) nanoseconds: u128,
}

impl Span {
    fn of(span: &SpanData) -> Self {
        let links = span.links.iter().map(|link| {
            let context = &link.span_context;
            (
                context.trace_id().to_string(),
                context.span_id().to_string(),
            )
        });
        let events = span.events.iter().map(|event| {
            let mut attributes = texts(&event.attributes);
            attributes.insert("name".to_owned(), event.name.to_string());
            attributes
        });
        let duration = span.end_time.duration_since(span.start_time);
        Self {
            name: span.name.to_string(),
            kind: format!("{:?}", span.span_kind),
            trace_id: span.span_context.trace_id().to_string(),
            span_id: span.span_context.span_id().to_string(),
            parent_span_id: span.parent_span_id.to_string(),
            parent_is_remote: span.parent_span_is_remote,
            links: links.collect(),
            tracestate: span.span_context.trace_state().header(),
            status: format!("{:?}", span.status),
            attributes: texts(&span.attributes),
            events: events.collect(),
            nanoseconds: duration.expect("no span ends before it starts").as_nanos(),
        }
    }

    /// An attribute; empty when the span has none of that name.
    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_child_of(&self, parent: &Span) -> bool {
        self.trace_id == parent.trace_id && self.parent_span_id == parent.span_id
    }

    pub(super) fn is_root(&self) -> bool {
        self.parent_span_id.chars().all(|digit| digit == '0')
    }

    pub(super) fn as_link(&self) -> (String, String) {
        (self.trace_id.clone(), self.span_id.clone())
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| (pair.key.to_string(), pair.value.to_string());
    let texts: BTreeMap<String, String> = attributes.iter().map(text).collect();
    assert_eq!(
        texts.len(),
        attributes.len(),
        "an attribute is there twice: {attributes:?}"
    );
    texts
}

/// Writes spans, one a line.
pub(super) fn write(path: &Path, spans: &[SpanData]) {
    let line =
        |span: &SpanData| serde_json::to_string(&Span::of(span)).expect("a span as JSON") + "\n";
    std::fs::write(path, spans.iter().map(line).collect::<String>()).expect("a file of spans");
}

/// Reads what a process wrote.
pub(super) fn read(path: &Path) -> Vec<Span> {
    let text = std::fs::read_to_string(path).expect("the spans that a process has exported");
    let span = |line: &str| serde_json::from_str(line).expect("a span");
    text.lines().map(span).collect()
}
