use std::time::Duration;

use super::partition::Partition;
use crate::dead_letter::{NewDeadLetter, Origin, Reason, fingerprint};
use crate::message::{Envelope, Malformed, MessageId, MessageType, OrderingKey, RawMessage, Slot};
use crate::retry::AfterDeadLetter;
use crate::store::{
    Database, DeadLetterStore, HeldRow, LetterId, NewHold, RetryStore, Session, StoreError,
};

/// What a transaction of deliveries puts aside instead of handling it: holds and dead letters, in
/// the order of the deliveries.
#[derive(Default)]
pub(super) struct Aside {
    holds: Vec<NewHold>,
    letters: Vec<NewDeadLetter>,
    /// Which hold is the place of which letter, as indices.
    places: Vec<(usize, usize)>,
}

impl Aside {
    pub(super) fn hold(&mut self, hold: NewHold) {
        self.holds.push(hold);
    }

    /// Adds a dead letter and, if its key waits for it, the place that keeps the key waiting.
    pub(super) fn bury(&mut self, letter: NewDeadLetter, place: Option<NewHold>) {
        if let Some(place) = place {
            self.places.push((self.holds.len(), self.letters.len()));
            self.holds.push(place);
        }
        self.letters.push(letter);
    }

    /// How many messages wait for a later try or for their key's head.
    pub(super) fn waiting(&self) -> usize {
        self.holds.len() - self.places.len()
    }

    pub(super) fn dead(&self) -> usize {
        self.letters.len()
    }

    /// The keys of those that wait, one for each.
    pub(super) fn keys(&self) -> impl Iterator<Item = &OrderingKey> {
        self.holds
            .iter()
            .filter_map(|hold| hold.envelope.key.as_ref())
    }
}

/// What is needed to write a dead letter of this end.
pub(super) struct Death {
    pub(super) reason: Reason,
    pub(super) error: String,
    pub(super) attempts: u32,
}

impl<D: Database> Partition<D> {
    /// Writes holds and dead letters; says when the first hold is due.
    pub(super) async fn put_aside(
        &self,
        session: &mut Session<D>,
        aside: &mut Aside,
    ) -> Result<Option<Duration>, StoreError> {
        if !aside.letters.is_empty() {
            let letters = self.store.bury(session, &aside.letters).await?;
            for (hold, letter) in &aside.places {
                aside.holds[*hold].parked = Some(letters[*letter]);
            }
        }
        if !aside.holds.is_empty() {
            self.store
                .hold(session, &self.queue.consumer, &aside.holds)
                .await?;
        }
        Ok(aside.holds.iter().filter_map(|hold| hold.delay).min())
    }

    /// A message that was tried so often and waits for its next try.
    pub(super) fn failed(
        &self,
        envelope: &Envelope,
        attempts: u32,
        error: String,
        delay: Duration,
    ) -> NewHold {
        NewHold {
            attempts,
            error: Some(error),
            delay: Some(delay),
            ..self.untried(envelope)
        }
    }

    /// A message that was not tried yet, behind its key's head.
    pub(super) fn untried(&self, envelope: &Envelope) -> NewHold {
        NewHold {
            envelope: envelope.clone(),
            slot: self.slot_of(envelope),
            attempts: 0,
            error: None,
            delay: None,
            parked: None,
        }
    }

    /// Whether the key of a dead letter of this type waits for it.
    pub(super) fn parks(&self, message_type: &str) -> bool {
        self.handlers.policy(message_type).after_dead_letter == AfterDeadLetter::Parked
    }

    /// The dead letter of a delivery, with its place if its key is to wait.
    pub(super) fn letter(
        &self,
        envelope: &Envelope,
        death: Death,
    ) -> (NewDeadLetter, Option<NewHold>) {
        let parks = envelope.key.is_some() && self.parks(envelope.message_type.as_str());
        let place = parks.then(|| self.untried(envelope));
        let slot = Some(self.slot_of(envelope));
        let letter = self.new_letter(envelope.clone().into(), slot, death);
        let letter = NewDeadLetter {
            parked: parks,
            ..letter
        };
        (letter, place)
    }

    /// The dead letter of a delivery that is no valid envelope. Its key waits too, if what is known
    /// of it is enough to keep its place: id and key.
    pub(super) fn malformed_letter(
        &self,
        malformed: &Malformed,
    ) -> (NewDeadLetter, Option<NewHold>) {
        let raw = &*malformed.raw;
        let death = Death {
            reason: Reason::Malformed,
            error: malformed.reason.clone(),
            attempts: 0,
        };
        let message_type = raw.message_type.as_deref().unwrap_or_default();
        let stand_in = stand_in(raw).filter(|_| self.parks(message_type));
        let place = stand_in.map(|envelope| self.untried(&envelope));
        let slot = place.as_ref().map(|place| place.slot);
        let letter = self.new_letter(raw.clone(), slot, death);
        let letter = NewDeadLetter {
            parked: place.is_some(),
            ..letter
        };
        (letter, place)
    }

    /// The dead letter of a message in the retry table; whether it is parked is the caller's to do.
    pub(super) fn letter_of_row(&self, row: &HeldRow, parked: bool, death: Death) -> NewDeadLetter {
        let slot = Some(self.slot_of(&row.envelope));
        NewDeadLetter {
            again: row.letter,
            parked,
            first_failed_at: row.failed_at,
            ..self.new_letter(row.envelope.clone().into(), slot, death)
        }
    }

    fn new_letter(&self, message: RawMessage, slot: Option<Slot>, death: Death) -> NewDeadLetter {
        let Death {
            reason,
            error,
            attempts,
        } = death;
        tracing::warn!(
            consumer = %self.queue.consumer,
            message_id = message.id.as_deref().unwrap_or_default(),
            message_type = message.message_type.as_deref().unwrap_or_default(),
            %reason,
            attempts,
            %error,
            "a message is set aside as a dead letter"
        );
        NewDeadLetter {
            origin: Origin::Consumer(self.queue.consumer.clone()),
            message,
            reason: reason.as_str(),
            fingerprint: fingerprint(&error),
            error,
            attempts,
            again: None::<LetterId>,
            parked: false,
            discarded: false,
            slot,
            first_failed_at: None,
        }
    }

    /// The slot under which a message waits. A foreign publisher routes one without a key as it
    /// likes; it is this partition's then.
    fn slot_of(&self, envelope: &Envelope) -> Slot {
        let slots = self.queue.slots();
        match envelope.slot() {
            slot if envelope.key.is_some() || slots.contains(&slot.number()) => slot,
            slot => Slot::new(*slots.start()).unwrap_or(slot),
        }
    }
}

/// What keeps the place of a malformed message of a key: its id and key, if both are valid, under
/// its type, if that is; nothing else of it is believed.
fn stand_in(raw: &RawMessage) -> Option<Envelope> {
    let id: MessageId = raw.id.as_deref()?.parse().ok()?;
    let key = OrderingKey::new(raw.key.clone()?).ok()?;
    let named = raw.message_type.clone().map(MessageType::new);
    let message_type = named
        .and_then(Result::ok)
        .or_else(|| MessageType::from_static("malformed").ok())?;
    let envelope = Envelope::builder(message_type, "").id(id).key(Some(key));
    envelope.build().ok()
}
