//! The creating span of a message, in another process or long ago, given to spans. Without the
//! feature `opentelemetry` nothing is.

use tracing::Span;

use crate::message::Headers;

#[cfg(feature = "opentelemetry")]
mod given {
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use super::{Headers, Span};
    use crate::message::TraceContext;

    pub(in super::super) fn recorded_trace(headers: &Headers) -> Option<u128> {
        let parent = TraceContext::parent_in(headers)?;
        parent.sampled.then_some(parent.trace_id)
    }

    pub(in super::super) fn continue_from(span: &Span, headers: &Headers) {
        use opentelemetry::trace::TraceContextExt as _;
        if span.is_disabled() {
            return;
        }
        if let Some(creation) = TraceContext::remote(headers) {
            let context = opentelemetry::Context::new().with_remote_span_context(creation);
            // It fails when no layer listens, or not to this span: nobody's loss.
            let _ = span.set_parent(context);
        }
    }

    pub(in super::super) fn link(span: &Span, headers: &Headers) {
        if span.is_disabled() {
            return;
        }
        if let Some(creation) = TraceContext::remote(headers) {
            span.add_link(creation);
        }
    }
}

#[cfg(not(feature = "opentelemetry"))]
mod given {
    use super::{Headers, Span};

    pub(in super::super) fn recorded_trace(_headers: &Headers) -> Option<u128> {
        None
    }

    pub(in super::super) fn continue_from(_span: &Span, _headers: &Headers) {}

    pub(in super::super) fn link(_span: &Span, _headers: &Headers) {}
}

/// The trace that a message belongs to, if its sender records it.
pub(super) fn recorded_trace(headers: &Headers) -> Option<u128> {
    given::recorded_trace(headers)
}

/// Makes a message's creating span the parent. Only before the span is entered or its context asked
/// for.
pub(super) fn continue_from(span: &Span, headers: &Headers) {
    given::continue_from(span, headers);
}

/// Links the span to a message's creating span.
pub(super) fn link(span: &Span, headers: &Headers) {
    given::link(span, headers);
}
