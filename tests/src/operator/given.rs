//! Letters that are written through the store, as a consumer's process writes them.

use posta::Envelope;
use posta::message::{MessageId, RawMessage};
use posta::operations::Operator;
use posta::store::{DeadLetterStore, LetterId, NewDeadLetter, NewHold, Origin, RetryStore, Store};

use crate::world::effects::table;
use crate::world::service::{EFFECTS, Fate, Numbered};
use crate::world::{TestDatabase, World};

/// Rows of one statement, at most.
const CHUNK: usize = 500;

/// An operator without a running service around.
pub(super) fn operator<D: TestDatabase>(world: &World<D>, who: &str) -> Operator<D> {
    Operator::new(world.store(), who).expect("a valid name")
}

/// A message of [`EFFECTS`].
pub(super) fn numbered(key: &str, number: i64) -> Envelope {
    Envelope::of(&Numbered {
        key: key.to_owned(),
        number,
        fate: Fate::Succeed,
    })
    .expect("a valid message")
}

/// A letter of [`EFFECTS`], as it is written down; its key goes on.
pub(super) fn letter(message: impl Into<RawMessage>, error: &str) -> NewDeadLetter {
    let message = message.into();
    let slot = message.clone().parse().ok().map(|envelope| envelope.slot());
    NewDeadLetter {
        origin: Origin::Consumer(EFFECTS.to_owned()),
        message,
        reason: "failed",
        error: error.to_owned(),
        fingerprint: posta::dead_letter::fingerprint(error),
        attempts: 15,
        again: None,
        parked: false,
        discarded: false,
        slot,
        first_failed_at: None,
    }
}

/// Buries letters, with their inbox rows where they have an id.
pub(super) async fn bury<D: TestDatabase>(
    store: &D::Store,
    letters: &[NewDeadLetter],
) -> Vec<LetterId> {
    let mut ids = Vec::with_capacity(letters.len());
    for letters in letters.chunks(CHUNK) {
        let mut session = store.begin().await.expect("a transaction");
        for letter in letters {
            let id = letter.message.id.as_deref();
            let id = id.and_then(|id| id.parse::<MessageId>().ok());
            if let (Some(id), Origin::Consumer(consumer)) = (id, &letter.origin) {
                remember::<D>(store, &mut session, consumer, id).await;
            }
        }
        ids.extend(store.bury(&mut session, letters).await.expect("a burial"));
        session.commit().await.expect("a commit");
    }
    ids
}

/// Writes an inbox row, as the consumer did when the message first came.
async fn remember<D: TestDatabase>(
    store: &D::Store,
    session: &mut D::Connection,
    consumer: &str,
    id: MessageId,
) {
    let inbox = table::<D>(store, "inbox");
    let id = match D::KIND {
        "sqlite" => format!("x'{}'", id.as_uuid().simple()),
        _ => format!("'{id}'::uuid"),
    };
    D::run(
        session,
        &format!("INSERT INTO {inbox} (consumer, message_id) VALUES ('{consumer}', {id})"),
    )
    .await
    .expect("an inbox row");
}

/// Numbers 0 to `numbers` - 1 of so many keys, all of them letters; their keys go on.
pub(super) async fn bury_numbers<D: TestDatabase>(
    store: &D::Store,
    keys: usize,
    numbers: i64,
) -> Vec<LetterId> {
    let letters: Vec<NewDeadLetter> = (0..numbers)
        .flat_map(|number| (0..keys).map(move |key| (key, number)))
        .map(|(key, number)| letter(numbered(&format!("k{key}"), number), "it broke"))
        .collect();
    bury::<D>(store, &letters).await
}

/// A parked letter, its key's number 0, with so many successors behind it.
pub(super) async fn park<D: TestDatabase>(
    store: &D::Store,
    key: &str,
    successors: i64,
) -> LetterId {
    let head = numbered(key, 0);
    let slot = head.slot();
    let letter = NewDeadLetter {
        parked: true,
        ..letter(head.clone(), "it broke")
    };
    let id = bury::<D>(store, &[letter]).await[0];
    let mut holds = vec![NewHold {
        envelope: head,
        slot,
        attempts: 0,
        error: None,
        delay: None,
        parked: Some(id),
    }];
    holds.extend((1..=successors).map(|number| NewHold {
        envelope: numbered(key, number),
        slot,
        attempts: 0,
        error: None,
        delay: None,
        parked: None,
    }));
    let mut session = store.begin().await.expect("a transaction");
    for hold in &holds[1..] {
        remember::<D>(store, &mut session, EFFECTS, hold.envelope.id).await;
    }
    store
        .hold(&mut session, EFFECTS, &holds)
        .await
        .expect("held messages");
    session.commit().await.expect("a commit");
    id
}
