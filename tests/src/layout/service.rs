//! A service with three message types, of which a version knows two.

use posta::{Consumer, DeliveryInfo, Failure, Message, Posta, Tx};
use serde::{Deserialize, Serialize};

use crate::world::TestDatabase;
use crate::world::effects::Effect;

/// The consumer whose layout changes.
pub(super) const MOVED: &str = "moved";

/// A key whose messages never succeed: it is on hold for ever.
pub(super) const HOPELESS: &str = "hopeless";

/// A key whose first message is a dead letter at once: it is parked.
pub(super) const PARKED: &str = "parked";

/// Which two of the three types a process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Alpha and beta.
    One,
    /// Beta and gamma.
    Two,
}

macro_rules! messages {
    ($($name:ident $message_type:literal),*) => {
        $(#[derive(Clone, Debug, Serialize, Deserialize, Message)]
        #[message(type = $message_type, version = 1, key = key)]
        pub(super) struct $name {
            pub(super) key: String,
            pub(super) number: i64,
        })*
    };
}

messages!(Alpha "test.alpha", Beta "test.beta", Gamma "test.gamma");

macro_rules! handlers {
    ($($handler:ident $message:ident),*) => {
        $(async fn $handler<D: TestDatabase>(
            message: $message,
            tx: &mut Tx<'_, D>,
            info: DeliveryInfo,
        ) -> Result<(), Failure> {
            take_effect(message.key, message.number, tx, &info).await
        })*
    };
}

handlers!(on_alpha Alpha, on_beta Beta, on_gamma Gamma);

async fn take_effect<D: TestDatabase>(
    key: String,
    number: i64,
    tx: &mut Tx<'_, D>,
    info: &DeliveryInfo,
) -> Result<(), Failure> {
    if key == HOPELESS {
        return Err(Failure::new("it never succeeds"));
    }
    if key == PARKED {
        return Err(Failure::dead_letter("it is set aside"));
    }
    let effect = Effect {
        consumer: MOVED.to_owned(),
        key,
        number,
        message_id: info.id.to_string(),
        payload: Vec::new(),
    };
    D::record(tx, effect).await?;
    Ok(())
}

/// The consumer as a version has it.
pub(super) fn consumer<D: TestDatabase>(partitions: u8, version: Version) -> Consumer<D> {
    let consumer = Consumer::named(MOVED)
        .partitions(partitions)
        .handle_with::<Beta, _>(on_beta::<D>);
    match version {
        Version::One => consumer.handle_with::<Alpha, _>(on_alpha::<D>),
        Version::Two => consumer.handle_with::<Gamma, _>(on_gamma::<D>),
    }
}

/// Enqueues one message of each key, in one transaction.
pub(super) async fn enqueue<D, M>(
    posta: &Posta<D>,
    keys: &[String],
    number: i64,
    message: impl Fn(String, i64) -> M,
) where
    D: TestDatabase,
    M: Message,
{
    posta
        .transaction(async |tx| {
            for key in keys {
                tx.enqueue(&message(key.clone(), number))?;
            }
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction that enqueues");
}

pub(super) fn alpha(key: String, number: i64) -> Alpha {
    Alpha { key, number }
}

pub(super) fn beta(key: String, number: i64) -> Beta {
    Beta { key, number }
}

pub(super) fn gamma(key: String, number: i64) -> Gamma {
    Gamma { key, number }
}

/// So many keys that succeed.
pub(super) fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("k{key}")).collect()
}
