//! The service that tests run: it enqueues numbered messages per key, and consumers write down each
//! effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posta::retry::RetryPolicy;
use posta::store::Store;
use posta::{Builder, Consumer, Data, DeliveryInfo, Failure, Message, Posta, Tx};
use serde::{Deserialize, Serialize};

use super::effects::Effect;
use super::gate::Gate;
use super::{TestDatabase, World};

/// A message that says which of its key's it is.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "test.numbered", version = 1, key = key)]
pub(crate) struct Numbered {
    pub(crate) key: String,
    pub(crate) number: i64,
    /// What the handler is to do with it.
    pub(crate) fate: Fate,
}

/// What a handler does with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// Writes the effect.
    #[default]
    Succeed,
    /// Fails this many times first, after having written the effect.
    FailTimes(u32),
    /// Panics this many times first, after an await.
    PanicTimes(u32),
    /// Writes the effect and enqueues an [`Echo`].
    Echo,
    /// Waits at the consumer's [`Gate`] first, within its transaction.
    Wait,
    /// Ends the process, after having written the effect.
    Abort,
}

/// What a handler enqueues.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "test.echo", version = 1, key = key)]
pub(crate) struct Echo {
    pub(crate) key: String,
    pub(crate) number: i64,
}

/// How often handlers were called, whatever became of it: the difference to the effects is what was
/// rolled back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<AtomicU64>);

impl Calls {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) const EFFECTS: &str = "effects";
pub(crate) const ECHOES: &str = "echoes";

/// Settings that make a test quick: short leases, short backoff.
pub(crate) fn builder<D: TestDatabase>(world: &World<D>) -> Builder<D> {
    quick(Posta::<D>::builder(&world.database_url, world.broker()).tables(world.tables.clone()))
}

pub(crate) fn quick<D: TestDatabase>(builder: Builder<D>) -> Builder<D> {
    builder
        .lease_ttl(Duration::from_secs(4))
        .retry(quick_retry())
        .poll_interval_max(Duration::from_millis(200))
        .grace(Duration::from_secs(10))
}

/// Short delays, and more tries than any test waits for.
pub(crate) fn quick_retry() -> RetryPolicy {
    RetryPolicy::default()
        .backoff(Duration::from_millis(50), Duration::from_millis(400))
        .attempts_max(1000)
}

/// The consumer that writes down each effect of [`Numbered`].
pub(crate) fn effects_consumer<D: TestDatabase>(calls: &Calls) -> Consumer<D> {
    named_consumer(EFFECTS, calls)
}

/// A running service with that consumer and nothing else.
pub(crate) async fn effects_service<D: TestDatabase>(world: &World<D>) -> Posta<D> {
    let consumer = effects_consumer(&Calls::default());
    let service = builder(world).consumer(consumer).start();
    service.await.expect("a running service")
}

/// The same with a gate, for messages that wait.
pub(crate) fn gated_consumer<D: TestDatabase>(gate: &Gate) -> Consumer<D> {
    effects_consumer(&Calls::default()).data(gate.clone())
}

/// The same, and it takes [`Echo`] too, as one consumer.
pub(crate) fn whole_consumer<D: TestDatabase>(gate: &Gate) -> Consumer<D> {
    gated_consumer(gate).handle_with::<Echo, _>(on_echo::<D>)
}

/// The same under another name.
pub(crate) fn named_consumer<D: TestDatabase>(name: &'static str, calls: &Calls) -> Consumer<D> {
    Consumer::named(name)
        .partitions(4)
        .data(calls.clone())
        .data(ConsumerName(name))
        .data(Gate::default())
        .handle_with::<Numbered, _>(on_numbered::<D>)
}

/// The consumer that writes down each effect of [`Echo`].
pub(crate) fn echoes_consumer<D: TestDatabase>() -> Consumer<D> {
    Consumer::named(ECHOES)
        .partitions(2)
        .handle_with::<Echo, _>(on_echo::<D>)
}

struct ConsumerName(&'static str);

async fn on_numbered<D: TestDatabase>(
    message: Numbered,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
    calls: Data<Calls>,
    name: Data<ConsumerName>,
    gate: Data<Gate>,
) -> Result<(), Failure> {
    calls.0.fetch_add(1, Ordering::SeqCst);
    let effect = Effect {
        consumer: name.0.to_owned(),
        key: message.key.clone(),
        number: message.number,
        message_id: info.id.to_string(),
        payload: serde_json::to_vec(&message)?,
    };
    if message.fate == Fate::Wait {
        gate.pass().await;
    }
    // The effect comes first: a failure after it must undo it.
    D::record(tx, effect).await?;
    match message.fate {
        Fate::FailTimes(times) if info.attempt <= times => {
            Err(Failure::new(format!("told to fail, try {}", info.attempt)))
        }
        Fate::PanicTimes(times) if info.attempt <= times => panic!("told to panic"),
        Fate::Abort => std::process::abort(),
        Fate::Echo => {
            tx.enqueue(&Echo {
                key: message.key,
                number: message.number,
            })?;
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn on_echo<D: TestDatabase>(
    message: Echo,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    let effect = Effect {
        consumer: ECHOES.to_owned(),
        key: message.key,
        number: message.number,
        message_id: info.id.to_string(),
        payload: Vec::new(),
    };
    D::record(tx, effect).await?;
    Ok(())
}

/// Enqueues numbers `from` to `to` - 1 of each key, each transaction with one message of every key,
/// together with a row of the state.
pub(crate) async fn enqueue<D: TestDatabase>(
    posta: &Posta<D>,
    keys: usize,
    numbers: std::ops::Range<i64>,
    fate: impl Fn(usize, i64) -> Fate,
) {
    for number in numbers {
        posta
            .transaction(async |tx| {
                for key in 0..keys {
                    let sql =
                        format!("INSERT INTO state (key, number) VALUES ('k{key}', {number})");
                    D::run(tx, &sql).await?;
                    let fate = fate(key, number);
                    tx.enqueue(&Numbered {
                        key: format!("k{key}"),
                        number,
                        fate,
                    })?;
                }
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("a transaction that enqueues");
    }
}

/// What [`enqueue`] promises: so many numbers per key.
pub(crate) fn expected(keys: usize, numbers: i64) -> BTreeMap<String, i64> {
    (0..keys).map(|key| (format!("k{key}"), numbers)).collect()
}

/// Waits until the consumer's effects are this many at least, and nothing waits anywhere.
pub(crate) async fn until_quiet<D: TestDatabase>(store: &D::Store, consumer: &str, count: usize) {
    super::until(
        &format!("{count} effects of {consumer:?} and all quiet"),
        async || {
            let effects = super::effects::effects_of::<D>(store, consumer).await.len();
            let mut waiting = 0;
            for table in ["outbox", "queue", "retry"] {
                let sql = format!("SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {{posta}}{table}");
                waiting += super::effects::count::<D>(store, &sql).await;
            }
            effects >= count && waiting == 0
        },
    )
    .await;
    let _ = store.tables();
}
