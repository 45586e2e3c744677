use crate::message::{Envelope, MessageId, RawMessage};
use crate::store::{ConnectionOf, DeadLetter, Origin, Store, StoreError};

/// Whether a letter's message went back on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Readmission {
    /// It did.
    Admitted(Admitted),
    /// It cannot, and why; nothing was changed.
    Refused(String),
}

/// How a message went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    revision: u32,
    /// The id that it got, since it had none.
    named: Option<MessageId>,
}

impl Admitted {
    /// What the record says of it.
    pub(crate) fn in_words(&self) -> String {
        let mut words = match self.revision {
            0 => "as it was set aside".to_owned(),
            revision => format!("revision {revision}"),
        };
        if let Some(id) = self.named {
            words = format!("{words}, with the new message id {id}");
        }
        words
    }
}

/// Puts a letter's message back into its place, or at the end where it kept none. The letter is
/// locked and dead; changing its state is the caller's, in the same transaction.
pub(crate) async fn readmit<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
) -> Result<Readmission, StoreError> {
    let (envelope, named) = match parse_again(&letter.message) {
        Ok(parsed) => parsed,
        Err(reason) => return Ok(Readmission::Refused(reason)),
    };
    let admitted = match &letter.origin {
        Origin::Dispatch => store.readmit(connection, letter.id, &envelope).await?,
        Origin::Consumer(consumer) => {
            // A key's messages wait in the key's slot; only one without a key has a choice.
            let slot = match (&envelope.key, letter.slot) {
                (None, Some(slot)) => slot,
                _ => envelope.slot(),
            };
            store
                .readmit_held(connection, consumer, letter.id, slot, &envelope)
                .await?
        }
    };
    if admitted {
        let revision = letter.revision;
        Ok(Readmission::Admitted(Admitted { revision, named }))
    } else {
        let id = envelope.id;
        let reason = format!("a message with its id, {id}, is on its way already");
        Ok(Readmission::Refused(reason))
    }
}

/// The envelope of a message that is to be replayed, and the id that it got if it had none that is
/// one.
///
/// Nobody has handled a message without a valid id under that id, so a new one cannot let an effect
/// happen twice.
pub(crate) fn parse_again(message: &RawMessage) -> Result<(Envelope, Option<MessageId>), String> {
    let valid = message
        .id
        .as_deref()
        .is_some_and(|id| id.parse::<MessageId>().is_ok());
    let mut message = message.clone();
    let named = (!valid).then(MessageId::new);
    if let Some(id) = named {
        message.id = Some(id.to_string());
    }
    match message.parse() {
        Ok(envelope) => Ok((envelope, named)),
        Err(malformed) => Err(malformed.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: Option<&str>) -> RawMessage {
        RawMessage {
            id: id.map(str::to_owned),
            message_type: Some("order.placed".to_owned()),
            ..RawMessage::default()
        }
    }

    #[test]
    fn a_message_keeps_its_id_and_gets_one_only_if_it_has_none() {
        let id = MessageId::new();
        let (envelope, named) = parse_again(&message(Some(&id.to_string()))).unwrap();
        assert_eq!((envelope.id, named), (id, None));
        for none in [None, Some(""), Some("7")] {
            let (envelope, named) = parse_again(&message(none)).unwrap();
            assert_eq!(named, Some(envelope.id), "{none:?}");
        }
    }

    #[test]
    fn what_is_still_no_message_is_refused_with_its_reason() {
        let nameless = RawMessage {
            message_type: None,
            ..message(None)
        };
        assert_eq!(
            parse_again(&nameless).unwrap_err(),
            "message type is missing"
        );
    }
}
