//! What tests of dead letters begin with.

use std::time::Duration;

use posta::message::{Envelope, RawMessage};
use posta::store::{
    DeadLetter, DeadLetterStore, Fence, HeldRow, LetterChange, LetterFilter, LetterId, LetterState,
    NewDeadLetter, NewHold, Origin, OutboxStore, RetryStore, RowId, Successor,
};

use super::given::{Place, text_of};
use crate::harness::database::TestDatabase;

/// Every state that a letter can be in.
pub(super) const STATES: [LetterState; 4] = [
    LetterState::Dead,
    LetterState::Replaying,
    LetterState::Replayed,
    LetterState::Discarded,
];

pub(super) fn consumer(name: &str) -> Origin {
    Origin::Consumer(name.to_owned())
}

/// A message that is set aside for good.
pub(super) fn letter(origin: Origin, message: RawMessage) -> NewDeadLetter {
    NewDeadLetter {
        origin,
        message,
        reason: "undecodable",
        error: "it broke".to_owned(),
        fingerprint: "it broke".to_owned(),
        attempts: 3,
        again: None,
        parked: false,
        discarded: false,
        slot: None,
        first_failed_at: None,
    }
}

/// The same of a valid message at the consumer `c`.
pub(super) fn dead(envelope: &Envelope) -> NewDeadLetter {
    NewDeadLetter {
        slot: Some(envelope.slot()),
        ..letter(consumer("c"), envelope.clone().into())
    }
}

/// The same, its key waiting for it.
pub(super) fn dead_and_parked(envelope: &Envelope) -> NewDeadLetter {
    NewDeadLetter {
        parked: true,
        ..dead(envelope)
    }
}

/// The place of a letter, for a delivery that comes to it at once.
pub(super) fn place_of(envelope: &Envelope, letter: LetterId) -> NewHold {
    NewHold {
        envelope: envelope.clone(),
        slot: envelope.slot(),
        attempts: 1,
        error: Some("it broke".to_owned()),
        delay: None,
        parked: Some(letter),
    }
}

/// Letters in any state.
pub(super) fn any() -> LetterFilter {
    LetterFilter {
        states: STATES.to_vec(),
        ..LetterFilter::default()
    }
}

/// A message that waits behind a letter, for as long as was found.
pub(super) fn waiting(envelope: &Envelope, attempts: u32, found: &Successor) -> Successor {
    Successor {
        message_id: envelope.id.to_string(),
        message_type: envelope.message_type.as_str().to_owned(),
        payload_bytes: envelope.payload.len() as u64,
        attempts,
        waiting_for: found.waiting_for,
    }
}

/// The messages' payloads, as text.
pub(super) fn texts(rows: &[HeldRow]) -> Vec<String> {
    rows.iter().map(|row| text_of(&row.envelope)).collect()
}

impl<D: TestDatabase> Place<D> {
    /// Sets messages aside.
    pub(super) async fn bury(&self, letters: &[NewDeadLetter]) -> Vec<LetterId> {
        self.done(async |store, session| store.bury(session, letters).await)
            .await
    }

    /// The letters of a selection.
    pub(super) async fn letters(&self, filter: &LetterFilter) -> Vec<DeadLetter> {
        self.done(async |store, session| store.letters(session, filter, None, 10_000).await)
            .await
    }

    /// One letter.
    pub(super) async fn letter(&self, id: LetterId) -> DeadLetter {
        let filter = LetterFilter {
            ids: vec![id],
            ..any()
        };
        let mut letters = self.letters(&filter).await;
        assert_eq!(letters.len(), 1, "letter {id}");
        letters.remove(0)
    }

    /// What waits behind a letter.
    pub(super) async fn successors(&self, letter: LetterId, limit: usize) -> Vec<Successor> {
        self.done(async |store, session| store.successors(session, letter, limit).await)
            .await
    }

    /// Changes letters; those that changed, sorted.
    pub(super) async fn change(&self, letters: &[LetterId], change: LetterChange) -> Vec<LetterId> {
        let mut changed = self
            .done(async |store, session| store.change_letters(session, letters, change).await)
            .await;
        changed.sort_unstable();
        changed
    }

    /// Makes the place of a letter of one message, held and failed at the consumer `c`: its
    /// position, and the letter.
    pub(super) async fn park(&self, fence: &Fence, envelope: &Envelope) -> (i64, LetterId) {
        let position = self.position_of(envelope).await;
        let letter = self
            .done(async |store, session| {
                let letter = store.bury(session, &[dead_and_parked(envelope)]).await?[0];
                let parked = store
                    .park_held(session, "c", fence, position, letter)
                    .await?;
                assert!(parked, "it was there");
                Ok(letter)
            })
            .await;
        (position, letter)
    }

    /// Where a message with a key is in the retry table of the consumer `c`.
    pub(super) async fn position_of(&self, envelope: &Envelope) -> i64 {
        let key = envelope.key.as_ref().expect("a key").as_str();
        let rows = self.held_of(key).await;
        let row = rows.iter().find(|row| row.envelope.id == envelope.id);
        row.expect("it is held").position
    }

    /// What of a key is in the retry table of the consumer `c`.
    pub(super) async fn held_of(&self, key: &str) -> Vec<HeldRow> {
        let key = super::given::key_of(key);
        self.done(async |store, session| store.held_of_key(session, "c", &key, 1000).await)
            .await
    }

    /// What is due at the consumer `c`.
    pub(super) async fn due_rows(&self) -> Vec<HeldRow> {
        self.done(async |store, session| store.due(session, "c", 0..=63, 1000).await)
            .await
    }

    /// The payloads of what is due at the consumer `c`.
    pub(super) async fn due_texts(&self) -> Vec<String> {
        texts(&self.due_rows().await)
    }

    /// How long until something is due at the consumer `c`.
    pub(super) async fn next_retry(&self) -> Option<Duration> {
        self.done(async |store, session| store.next_retry(session, "c", 0..=63).await)
            .await
    }

    /// Takes messages out of the retry table of the consumer `c`; those taken, sorted.
    pub(super) async fn release(&self, fence: &Fence, positions: &[i64]) -> Vec<i64> {
        let mut taken = self
            .done(async |store, session| store.release(session, "c", fence, positions).await)
            .await;
        taken.sort_unstable();
        taken
    }

    /// Puts a letter's message back into the retry table of the consumer `c`, as an operator does.
    pub(super) async fn readmit_held(&self, letter: LetterId, envelope: &Envelope) -> bool {
        let slot = envelope.slot();
        self.done(async |store, session| {
            store
                .change_letters(session, &[letter], LetterChange::Replay)
                .await?;
            store
                .readmit_held(session, "c", letter, slot, envelope)
                .await
        })
        .await
    }

    /// Takes a letter's place in the retry table of the consumer `c` away.
    pub(super) async fn unpark_held(&self, letter: LetterId) -> bool {
        self.done(async |store, session| store.unpark_held(session, "c", letter).await)
            .await
    }

    /// Makes a row of the outbox the place of a letter.
    pub(super) async fn park_row(
        &self,
        fences: &[Fence],
        row: RowId,
        envelope: &Envelope,
    ) -> LetterId {
        let new = NewDeadLetter {
            origin: Origin::Dispatch,
            ..dead_and_parked(envelope)
        };
        self.done(async |store, session| {
            let letter = store.bury(session, &[new]).await?[0];
            let parked = store.park(session, fences, &[(row, letter)]).await?;
            assert_eq!(parked, [row]);
            Ok(letter)
        })
        .await
    }

    /// Takes a letter's place in the outbox away.
    pub(super) async fn unpark_row(&self, letter: LetterId) -> bool {
        self.done(async |store, session| store.unpark(session, letter).await)
            .await
    }

    /// Puts a letter's message back into the outbox, as an operator does.
    pub(super) async fn readmit(&self, letter: LetterId, envelope: &Envelope) -> bool {
        self.done(async |store, session| {
            store
                .change_letters(session, &[letter], LetterChange::Replay)
                .await?;
            store.readmit(session, letter, envelope).await
        })
        .await
    }
}
