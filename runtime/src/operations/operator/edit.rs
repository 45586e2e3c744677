use bytes::Bytes;

use super::act::expect_dead;
use super::check::KnownHandlers;
use super::operator::{Deed, check_reason};
use super::{Decodes, Operator, OperatorError};
use crate::message::RawMessage;
use crate::message::limits::{CONTENT_TYPE_BYTES_MAX, VERSION_MAX};
use crate::store::{
    Database, DeadLetter, DeadLetterStore, HandledType, LetterId, NewRevision, Origin, RecordStore,
};

/// An operator's version of a letter's message. Message id, type, key and headers stay.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// The payload: at most what the configuration of a running process allows, else 16 MiB.
    pub payload: Bytes,
    /// The schema's version, from 1; as it is if `None`.
    pub version: Option<u32>,
    /// The payload's content type; as it is if `None`.
    pub content_type: Option<String>,
    /// The revision that it was made from: another one meanwhile is an error. Not checked if
    /// `None`.
    pub base: Option<u32>,
}

/// What an edit changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Edited {
    /// Which letter.
    pub letter: LetterId,
    /// The number of the new revision; of a preview, the number that it would get.
    pub revision: u32,
    /// The payload before.
    pub before: Bytes,
    /// The payload after.
    pub after: Bytes,
    /// The content type after.
    pub content_type: Option<String>,
    /// The schema's version after.
    pub version: Option<i64>,
    /// Whether the payload decodes now.
    pub decodes: Decodes,
}

impl<D: Database> Operator<D> {
    /// What an edit would change; changes nothing.
    ///
    /// # Errors
    /// As [`Operator::edit`].
    pub async fn preview_edit(
        &self,
        letter: LetterId,
        edit: &Edit,
    ) -> Result<Edited, OperatorError> {
        let shown = self.show(letter, 0).await?;
        let announced = self
            .read(async |connection| self.store.handled_types(connection).await)
            .await?;
        let newest = shown.revisions.last().map_or(0, |revision| revision.number);
        let mut edited = self.compare(&shown.letter, edit, announced)?;
        edited.revision = newest + 1;
        Ok(edited)
    }

    /// Adds a revision to a dead letter and makes it the current one: the next replay sends it, and
    /// never the one before. The original is kept. The letter stays `Dead`; replay it then.
    ///
    /// # Errors
    /// When the letter is not `Dead`, the edit breaks a limit or changes nothing, or somebody else
    /// was faster ([`Edit::base`]).
    pub async fn edit(
        &self,
        letter: LetterId,
        edit: &Edit,
        reason: &str,
    ) -> Result<Edited, OperatorError> {
        check_reason(reason)?;
        self.transact(async |connection| {
            let found = self.locked(connection, letter).await?;
            let announced = self.store.handled_types(connection).await?;
            let mut edited = self.compare(&found, edit, announced)?;
            let new = NewRevision {
                payload: edited.after.clone(),
                version: edited.version,
                content_type: edited.content_type.clone(),
                who: self.who.clone(),
                reason: reason.to_owned(),
            };
            let revision = self.store.revise(connection, letter, &new).await?;
            edited.revision = revision.expect("a letter that is locked stays dead");
            let deed = Deed {
                action: "edit",
                reason,
                letter: Some(letter),
                run: None,
                details: format!(
                    "revision {}: {} bytes, before {}",
                    edited.revision,
                    edited.after.len(),
                    edited.before.len()
                ),
            };
            self.write_down(connection, deed).await?;
            Ok(edited)
        })
        .await
    }

    fn compare(
        &self,
        letter: &DeadLetter,
        edit: &Edit,
        announced: Vec<HandledType>,
    ) -> Result<Edited, OperatorError> {
        expect_dead(letter)?;
        edit.check(self.payload_bytes_max())?;
        if let Some(base) = edit.base.filter(|base| *base != letter.revision) {
            return Err(OperatorError::Edited {
                letter: letter.id,
                base,
                current: letter.revision,
            });
        }
        let after = RawMessage {
            payload: edit.payload.clone(),
            version: edit.version.map(i64::from).or(letter.message.version),
            content_type: edit
                .content_type
                .clone()
                .or_else(|| letter.message.content_type.clone()),
            ..letter.message.clone()
        };
        if after == letter.message {
            let reason = "the edit changes nothing".to_owned();
            return Err(OperatorError::argument("payload", reason));
        }
        let handlers = KnownHandlers::new(self.wiring.as_ref(), announced);
        // On its way to the broker nobody has failed to decode it; but what calls itself JSON shall
        // be JSON there too.
        let origin: &Origin = &letter.origin;
        Ok(Edited {
            letter: letter.id,
            revision: letter.revision + 1,
            before: letter.message.payload.clone(),
            decodes: handlers.decodes(origin, &after),
            after: after.payload,
            content_type: after.content_type,
            version: after.version,
        })
    }
}

impl Edit {
    fn check(&self, payload_bytes_max: usize) -> Result<(), OperatorError> {
        let bytes = self.payload.len();
        if bytes > payload_bytes_max {
            let problem =
                format!("it has {bytes} bytes, more than the {payload_bytes_max} allowed");
            return Err(OperatorError::argument("payload", problem));
        }
        if self
            .version
            .is_some_and(|version| version == 0 || version > VERSION_MAX)
        {
            let problem = format!("it must be 1 to {VERSION_MAX}");
            return Err(OperatorError::argument("version", problem));
        }
        if let Some(content_type) = &self.content_type
            && (content_type.is_empty()
                || content_type.len() > CONTENT_TYPE_BYTES_MAX
                || content_type.chars().any(char::is_control))
        {
            let problem = format!(
                "it must be 1 to {CONTENT_TYPE_BYTES_MAX} bytes without control characters"
            );
            return Err(OperatorError::argument("content type", problem));
        }
        Ok(())
    }
}
