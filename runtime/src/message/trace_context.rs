use super::error::EnvelopeError;
use super::headers::{Headers, TRACEPARENT, TRACESTATE};
use super::trace_parent::TraceParent;

/// A W3C trace context: what connects a message's spans across processes (G9).
///
/// It is two headers, and travels whatever stands in them: a malformed context of a foreign sender
/// is carried on, and not used. [`TraceContext::parent`] says what can be used.
///
/// Without the feature `opentelemetry` the current context is always empty, and a context that a
/// foreign sender wrote still travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The `traceparent` header's value.
    pub traceparent: Option<String>,
    /// The `tracestate` header's value.
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// The context of the current span: `tracing`'s, seen by its OpenTelemetry layer; if there is
    /// none, the one that is active in OpenTelemetry itself. Empty without either, and without the
    /// feature `opentelemetry`.
    ///
    /// No propagator need be installed: the format is always the W3C's, since it is stored and read
    /// by other versions and other services.
    #[must_use]
    pub fn current() -> Self {
        #[cfg(feature = "opentelemetry")]
        return open_telemetry::current();
        #[cfg(not(feature = "opentelemetry"))]
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

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traceparent.is_none()
    }

    /// The span that created the message, if the context is well-formed.
    #[must_use]
    pub fn parent(&self) -> Option<TraceParent> {
        TraceParent::parse(self.traceparent.as_deref()?)
    }
}

/// The way from and to OpenTelemetry's own type. The W3C's propagator is part of its SDK, which is
/// for applications, not for libraries; and it takes ids of any length.
#[cfg(feature = "opentelemetry")]
mod open_telemetry {
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    };
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use super::{Headers, TRACEPARENT, TRACESTATE, TraceContext, TraceParent};

    /// Most bytes of a `tracestate` that are passed on: what the W3C asks everybody to carry.
    const TRACESTATE_BYTES_MAX: usize = 512;

    pub(super) fn current() -> TraceContext {
        let span = tracing::Span::current();
        if !span.is_disabled() {
            let context = span.context();
            let context = TraceContext::of(context.span().span_context());
            if !context.is_empty() {
                return context;
            }
        }
        opentelemetry::Context::map_current(|context| {
            TraceContext::of(context.span().span_context())
        })
    }

    impl TraceContext {
        /// The context as headers; empty for one that is not valid.
        fn of(span: &SpanContext) -> Self {
            if !span.is_valid() {
                return Self::default();
            }
            let parent = TraceParent {
                trace_id: u128::from_be_bytes(span.trace_id().to_bytes()),
                span_id: u64::from_be_bytes(span.span_id().to_bytes()),
                sampled: span.is_sampled(),
            };
            Self {
                traceparent: Some(parent.to_string()),
                tracestate: shortened(span.trace_state()),
            }
        }

        /// As [`TraceContext::parent`], of headers as they are.
        pub(crate) fn parent_in(headers: &Headers) -> Option<TraceParent> {
            TraceParent::parse(headers.get(TRACEPARENT)?)
        }

        /// What headers carry, as OpenTelemetry has it; `None` when it is malformed. A malformed
        /// `tracestate` alone is left out.
        pub(crate) fn remote(headers: &Headers) -> Option<SpanContext> {
            let parent = Self::parent_in(headers)?;
            let state = headers.get(TRACESTATE).and_then(|state| state.parse().ok());
            let flags = TraceFlags::default().with_sampled(parent.sampled);
            let (trace_id, span_id) =
                (TraceId::from(parent.trace_id), SpanId::from(parent.span_id));
            let state = state.unwrap_or_default();
            Some(SpanContext::new(trace_id, span_id, flags, true, state))
        }
    }

    /// The state as a header, without its last members if it would be too long.
    fn shortened(state: &TraceState) -> Option<String> {
        let mut header = state.header();
        while header.len() > TRACESTATE_BYTES_MAX {
            header.truncate(header.rfind(',').unwrap_or(0));
        }
        (!header.is_empty()).then_some(header)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn headers(traceparent: &str, tracestate: &str) -> Headers {
            let mut headers = Headers::default();
            let (traceparent, tracestate) =
                (Some(traceparent.to_owned()), Some(tracestate.to_owned()));
            TraceContext {
                traceparent,
                tracestate,
            }
            .write(&mut headers)
            .unwrap();
            headers
        }

        const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

        #[test]
        fn a_context_comes_back_from_open_telemetry_as_it_went_there() {
            let headers = headers(VALID, "a=1,b@v=2");
            let span = TraceContext::remote(&headers).unwrap();
            assert!(span.is_remote() && span.is_sampled());
            assert_eq!(TraceContext::of(&span), TraceContext::read(&headers));
            assert!(TraceContext::of(&SpanContext::NONE).is_empty());
        }

        #[test]
        fn a_malformed_tracestate_does_not_cost_the_parent() {
            let span = TraceContext::remote(&headers(VALID, "no list at all")).unwrap();
            assert_eq!(span.trace_state(), &TraceState::NONE);
            assert!(TraceContext::remote(&headers("no parent", "a=1")).is_none());
        }

        #[test]
        fn a_long_tracestate_loses_its_last_members() {
            let members: Vec<(String, String)> = (0..10)
                .map(|n| (format!("k{n}"), "v".repeat(100)))
                .collect();
            let state = TraceState::from_key_value(members).unwrap();
            let header = shortened(&state).unwrap();
            assert!(header.len() <= TRACESTATE_BYTES_MAX);
            assert!(state.header().starts_with(&header) && header.contains("k3="));
            let one = TraceState::from_key_value([("k", "v".repeat(256))]).unwrap();
            assert_eq!(shortened(&one).unwrap(), one.header());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_context_is_carried_but_not_used() {
        let context = TraceContext {
            traceparent: Some("whatever it is".to_owned()),
            tracestate: Some("and this".to_owned()),
        };
        let mut headers = Headers::default();
        context.write(&mut headers).unwrap();
        assert_eq!(TraceContext::read(&headers), context);
        assert_eq!(context.parent(), None);
    }

    #[test]
    fn without_a_span_there_is_no_context() {
        assert!(TraceContext::current().is_empty());
        let mut headers = Headers::default();
        TraceContext::current().write(&mut headers).unwrap();
        assert!(headers.is_empty());
    }
}
