use super::error::EnvelopeError;
use super::headers::{Headers, TRACEPARENT, TRACESTATE};

/// A W3C trace context: what connects a message's spans across processes (G9).
///
/// Without the feature `opentelemetry` the current context is always empty, and a context that a foreign sender wrote still travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The `traceparent` header's value.
    pub traceparent: Option<String>,
    /// The `tracestate` header's value.
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// The context of the current `tracing` span.
    #[must_use]
    pub fn current() -> Self {
        Self::default()
    }

    /// The context that headers carry.
    #[must_use]
    pub fn read(headers: &Headers) -> Self {
        Self {
            traceparent: headers.get(TRACEPARENT).map(str::to_owned),
            tracestate: headers.get(TRACESTATE).map(str::to_owned),
        }
    }

    /// Writes the context into headers; an empty one changes nothing.
    ///
    /// # Errors
    /// When the headers have no room for it.
    pub fn write(&self, headers: &mut Headers) -> Result<(), EnvelopeError> {
        if let Some(traceparent) = &self.traceparent {
            headers.set(TRACEPARENT, traceparent)?;
        }
        if let Some(tracestate) = &self.tracestate {
            headers.set(TRACESTATE, tracestate)?;
        }
        Ok(())
    }
}
