use std::collections::HashMap;

use time::OffsetDateTime;

use super::wiring::Wiring;
use crate::message::RawMessage;
use crate::store::{Database, HandledType, Origin};
use crate::supervision::error_chain;
use crate::supervision::panic::guard;

/// Whether somebody handles a message type at a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerPresence {
    /// This process does.
    Here,
    /// A process said so when it started. It may have stopped since: what was announced stays.
    Announced {
        /// The newest version of the schema that was announced.
        version: u32,
        /// When a process said so last, by the database's clock.
        seen_at: OffsetDateTime,
    },
    /// Nobody, as far as is known.
    Absent,
    /// It died on its way to the broker: no handler is asked.
    NotNeeded,
}

/// Whether a payload decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decodes {
    /// Yes: by the handler's codec in a process that has the handler, else as JSON.
    Yes,
    /// No, and why.
    No(String),
    /// Nobody here knows its format.
    Unknown,
}

/// What is known of handlers: of this process, and of those that announced theirs.
pub(super) struct KnownHandlers<'w, D: Database> {
    wiring: Option<&'w Wiring<D>>,
    announced: HashMap<(String, String), (u32, OffsetDateTime)>,
}

impl<'w, D: Database> KnownHandlers<'w, D> {
    pub(super) fn new(wiring: Option<&'w Wiring<D>>, announced: Vec<HandledType>) -> Self {
        let announced = announced
            .into_iter()
            .map(|handled| {
                (
                    (handled.consumer, handled.message_type),
                    (handled.version, handled.seen_at),
                )
            })
            .collect();
        Self { wiring, announced }
    }

    /// Who handles a message type at this end.
    pub(super) fn presence(&self, origin: &Origin, message_type: Option<&str>) -> HandlerPresence {
        let Origin::Consumer(consumer) = origin else {
            return HandlerPresence::NotNeeded;
        };
        let Some(message_type) = message_type else {
            return HandlerPresence::Absent;
        };
        let here = self.wiring.and_then(|wiring| wiring.handlers.get(consumer));
        if here.is_some_and(|handlers| handlers.get(message_type).is_some()) {
            return HandlerPresence::Here;
        }
        let place = (consumer.clone(), message_type.to_owned());
        match self.announced.get(&place) {
            Some(&(version, seen_at)) => HandlerPresence::Announced { version, seen_at },
            None => HandlerPresence::Absent,
        }
    }

    /// Whether a message's payload decodes.
    pub(super) fn decodes(&self, origin: &Origin, message: &RawMessage) -> Decodes {
        let handler = match (origin, &message.message_type) {
            (Origin::Consumer(consumer), Some(message_type)) => self
                .wiring
                .and_then(|wiring| wiring.handlers.get(consumer))
                .and_then(|handlers| handlers.get(message_type.as_str())),
            _ => None,
        };
        let Some((handler, _)) = handler else {
            return decodes_as_json(message);
        };
        let version = message.version.unwrap_or(1).try_into().unwrap_or(0);
        // The application's codec: it may panic.
        match guard(|| handler.decodes(&message.payload, version)) {
            Ok(Ok(())) => Decodes::Yes,
            Ok(Err(error)) => Decodes::No(error_chain(&error)),
            Err(panic) => {
                tracing::warn!(%panic, backtrace = panic.backtrace, "a codec panicked");
                Decodes::No("the codec panicked".to_owned())
            }
        }
    }
}

/// Whether a payload that calls itself JSON is JSON.
fn decodes_as_json(message: &RawMessage) -> Decodes {
    if !message.content_type.as_deref().is_some_and(is_json) {
        return Decodes::Unknown;
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(&message.payload) {
        Ok(_) => Decodes::Yes,
        Err(error) => Decodes::No(error.to_string()),
    }
}

/// Whether a content type says JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.to_ascii_lowercase().ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_content_type() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/cloudevents+json",
        ] {
            assert!(is_json(json), "{json}");
        }
        for other in ["", "text/plain", "application/jsonl", "json"] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn without_a_handler_only_json_is_judged() {
        let message = |content_type: Option<&str>, payload: &'static [u8]| RawMessage {
            content_type: content_type.map(str::to_owned),
            payload: payload.into(),
            ..RawMessage::default()
        };
        let json = Some("application/json");
        assert_eq!(decodes_as_json(&message(json, b"{\"a\":1}")), Decodes::Yes);
        assert!(matches!(
            decodes_as_json(&message(json, b"{\"a\":1")),
            Decodes::No(_)
        ));
        assert!(matches!(
            decodes_as_json(&message(json, b"")),
            Decodes::No(_)
        ));
        assert_eq!(decodes_as_json(&message(None, b"{}")), Decodes::Unknown);
    }
}
