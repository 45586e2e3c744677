use std::error::Error;
use std::fmt;
use std::time::Duration;

use posta::{Consumer, Failure, Tx};

use crate::field::{envelope, partitions_of, send};
use crate::world::effects::Effect;
use crate::world::effects::effects_of;
use crate::world::script::until_letters;
use crate::world::service::{EFFECTS, Numbered, builder, quick_retry};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(an_error_that_cannot_be_told_fails_its_own_message_only);

/// What a text of an error is stored of, at most.
const STORED_BYTES: usize = 64 * 1024;

/// An error whose own code is wrong.
#[derive(Debug)]
enum Odd {
    /// Its text panics.
    Untold,
    /// It is its own source.
    Circle,
    /// Its source panics.
    Sourceless,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untold => panic!("no words"),
            Self::Circle | Self::Sourceless => f.write_str("it is odd"),
        }
    }
}

impl Error for Odd {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Untold => None,
            Self::Circle => Some(self),
            Self::Sourceless => panic!("no source"),
        }
    }
}

/// Must not be dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped before its end");
    }
}

async fn on_odd<D: TestDatabase>(message: Numbered, tx: &mut Tx<'_, D>) -> Result<(), Failure> {
    match message.key.as_str() {
        "k0" => Err(Odd::Untold)?,
        "k1" => Err(Odd::Circle)?,
        "k2" => Err(Odd::Sourceless)?,
        "k3" => std::panic::panic_any(message.number),
        "k4" => {
            let megabyte = "a\0\u{1b}é".repeat(200_000);
            Err(anyhow::anyhow!(megabyte.clone()).context(megabyte))?
        }
        "k5" => {
            let _bomb = Bomb;
            std::future::pending().await
        }
        _ => {}
    }
    let effect = Effect {
        consumer: EFFECTS.to_owned(),
        key: message.key.clone(),
        number: message.number,
        message_id: String::new(),
        payload: Vec::new(),
    };
    Ok(D::record(tx, effect).await?)
}

async fn an_error_that_cannot_be_told_fails_its_own_message_only<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let policy = quick_retry()
        .attempts_max(2)
        .deadline(Duration::from_millis(200));
    let consumer = Consumer::named(EFFECTS)
        .partitions(4)
        .retry(policy)
        .handle_with::<Numbered, _>(on_odd::<D>);
    let posta = builder(&world).consumer(consumer).start().await;
    let posta = posta.expect("a service");
    send(&posta, (0..12).map(|key| envelope(key, 0)).collect()).await;
    let letters = until_letters::<D>(&store, 6).await;
    // Later ones, of every partition.
    send(&posta, (6..12).map(|key| envelope(key, 1)).collect()).await;
    until("all others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 12
    })
    .await;
    for name in partitions_of(EFFECTS, 4) {
        let child = posta.registry().child(&name).expect("a partition's actor");
        assert_eq!(child.restarts, 0, "{child:?}");
    }
    posta.stop().await.expect("a drain");
    let of = |key: &str| {
        let mut of = letters.iter();
        of.find(|it| it.message.key.as_deref() == Some(key))
            .expect("its letter")
    };
    for (key, reason, error) in [
        (
            "k0",
            "failed",
            "the handler failed: (an error whose text panicked: no words)",
        ),
        ("k1", "failed", "the handler failed: it is odd"),
        ("k2", "failed", "the handler failed: it is odd"),
        (
            "k3",
            "panicked",
            "the handler panicked: a value that is no text",
        ),
        ("k4", "failed", "the handler failed: a\u{fffd}\u{1b}é"),
        (
            "k5",
            "deadline",
            "the handler was not done within its deadline of 200ms",
        ),
    ] {
        let letter = of(key);
        assert_eq!(
            (letter.reason.as_str(), letter.attempts),
            (reason, 2),
            "{key}"
        );
        assert!(letter.error.starts_with(error), "{key}: {}", letter.error);
        assert!(letter.error.len() <= STORED_BYTES, "{key}");
    }
}
