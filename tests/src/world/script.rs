//! A consumer that does what a test says, each try of a message as it was told, and that can be
//! mended while it runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posta::store::{DeadLetter, DeadLetterStore, LetterFilter, Store};
use posta::{Consumer, Data, DeliveryInfo, Failure, Tx};

use super::TestDatabase;
use super::effects::Effect;
use super::service::{EFFECTS, Numbered};

/// What one try of a message comes to, after its effect was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Succeed,
    Fail,
    Permanent,
    RetryAfter(Duration),
    DeadLetter,
    /// Before the first await.
    PanicAtOnce,
    /// After an await.
    Panic,
    /// Never comes to an end.
    Hang,
}

/// One try of a message.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) key: String,
    pub(crate) number: i64,
    pub(crate) attempt: u32,
    pub(crate) at: Instant,
}

type Rule = dyn Fn(&Numbered, u32) -> Act + Send + Sync;

/// What a consumer is told to do, and what it did.
#[derive(Clone)]
pub(crate) struct Script {
    rule: Arc<Mutex<Arc<Rule>>>,
    tries: Arc<Mutex<Vec<Try>>>,
}

impl Script {
    pub(crate) fn new(rule: impl Fn(&Numbered, u32) -> Act + Send + Sync + 'static) -> Self {
        Self {
            rule: Arc::new(Mutex::new(Arc::new(rule))),
            tries: Arc::default(),
        }
    }

    /// One message never succeeds, the others always do.
    pub(crate) fn one(key: usize, number: i64, act: Act) -> Self {
        let key = format!("k{key}");
        Self::new(move |message, _| match (&message.key, message.number) {
            (it, n) if *it == key && n == number => act,
            _ => Act::Succeed,
        })
    }

    /// The bug is gone: everything succeeds.
    pub(crate) fn mend(&self) {
        let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        *rule = Arc::new(|_, _| Act::Succeed);
    }

    /// The tries of one message, in order.
    pub(crate) fn tries(&self, key: usize, number: i64) -> Vec<Try> {
        let key = format!("k{key}");
        let tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = tries
            .iter()
            .filter(|it| it.key == key && it.number == number);
        of_it.cloned().collect()
    }

    fn act(&self, message: &Numbered, attempt: u32) -> Act {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        tries.push(Try {
            key: message.key.clone(),
            number: message.number,
            attempt,
            at: Instant::now(),
        });
        let rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        rule.clone()(message, attempt)
    }
}

/// The consumer [`EFFECTS`] with a script.
pub(crate) fn scripted_consumer<D: TestDatabase>(script: &Script) -> Consumer<D> {
    Consumer::named(EFFECTS)
        .partitions(4)
        .data(script.clone())
        .handle_with::<Numbered, _>(on_scripted::<D>)
}

async fn on_scripted<D: TestDatabase>(
    message: Numbered,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
    script: Data<Script>,
) -> Result<(), Failure> {
    let act = script.act(&message, info.attempt);
    assert!(act != Act::PanicAtOnce, "told to panic at once");
    let effect = Effect {
        consumer: EFFECTS.to_owned(),
        key: message.key.clone(),
        number: message.number,
        message_id: info.id.to_string(),
        payload: serde_json::to_vec(&message)?,
    };
    D::record(tx, effect).await?;
    let cause = || {
        let cause = std::io::Error::other(format!("no such thing as {}", message.number));
        anyhow::Error::from(cause).context("told to fail")
    };
    match act {
        Act::Succeed | Act::PanicAtOnce => Ok(()),
        Act::Fail => Err(Failure::new(cause())),
        Act::Permanent => Err(Failure::permanent(cause())),
        Act::RetryAfter(delay) => Err(Failure::retry_after(delay, cause())),
        Act::DeadLetter => Err(Failure::dead_letter(cause())),
        Act::Panic => panic!("told to panic"),
        Act::Hang => std::future::pending().await,
    }
}

/// The dead letters of [`EFFECTS`] in all states that are not over.
pub(crate) async fn letters<D: TestDatabase>(store: &D::Store) -> Vec<DeadLetter> {
    let mut session = store.begin().await.expect("a transaction");
    let letters = store
        .letters(&mut session, &LetterFilter::default(), None, 1000)
        .await;
    session.commit().await.expect("a commit");
    letters.expect("the dead letters")
}

/// Waits until there are so many dead letters, and returns them.
pub(crate) async fn until_letters<D: TestDatabase>(
    store: &D::Store,
    count: usize,
) -> Vec<DeadLetter> {
    super::until(&format!("{count} dead letters"), async || {
        letters::<D>(store).await.len() == count
    })
    .await;
    letters::<D>(store).await
}
