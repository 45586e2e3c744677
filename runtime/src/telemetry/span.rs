use std::fmt::Display;

use tracing::Span;

/// What all spans come from, as filters name it: `posta::telemetry=off`.
pub(super) const TARGET: &str = "posta::telemetry";

/// A span of one operation, with the attributes that all of them have. The values are worked out
/// only if somebody listens.
///
/// `otel.name` and `otel.kind` are what an OpenTelemetry layer makes the name and kind of;
/// `otel.status_description` makes the status an error. In brackets stands `parent: None,` for a
/// span that is nobody's child in this process.
macro_rules! messaging_span {
    ([$($parent:tt)*] $level:ident, $operation:literal, $kind:literal, $client:expr, $destination:expr, $($more:tt)*) => {
        ::tracing::span!(
            target: $crate::telemetry::span::TARGET,
            $($parent)*
            ::tracing::Level::$level,
            $operation,
            "otel.name" = $destination.span_name($operation),
            "otel.kind" = $kind,
            "otel.status_description" = ::tracing::field::Empty,
            "error.type" = ::tracing::field::Empty,
            "messaging.system" = $client.system(),
            "messaging.operation.name" = $operation,
            "messaging.operation.type" = $operation,
            "messaging.destination.template" = $destination.template(),
            "messaging.client.id" = $client.id(),
            "server.address" = $client.server_address(),
            "server.port" = $client.server_port(),
            $($more)*
        )
    };
}

pub(super) use messaging_span;

/// Says that an operation failed: a word out of a small set, and the text.
pub(super) fn fail(span: &Span, error_type: &'static str, text: &dyn Display) {
    if span.is_disabled() {
        return;
    }
    span.record("error.type", error_type);
    span.record("otel.status_description", tracing::field::display(text));
}
