//! A service whose handler has a bug, until it is mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posta::store::{DeadLetter, LetterFilter, LetterId, LetterState};
use posta::{Consumer, Data, DeliveryInfo, Failure, Message, Operator, Posta, Tx};
use serde::{Deserialize, Serialize};

use crate::world::effects::Effect;
use crate::world::service::builder;
use crate::world::{TestDatabase, World, until};

/// The consumer with the bug.
pub(super) const BILLING: &str = "billing";

/// A message that the bug meets when its amount is negative.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "test.invoice", version = 1, key = key)]
pub(super) struct Invoice {
    pub(super) key: String,
    pub(super) number: i64,
    pub(super) amount: i64,
}

/// Whether the handler still has its bug.
#[derive(Clone, Debug, Default)]
pub(super) struct Bug {
    mended: Arc<AtomicBool>,
}

impl Bug {
    pub(super) fn mend(&self) {
        self.mended.store(true, Ordering::SeqCst);
    }
}

/// A running service whose handler has this bug.
pub(super) async fn service<D: TestDatabase>(world: &World<D>, bug: &Bug) -> Posta<D> {
    let consumer = Consumer::named(BILLING)
        .partitions(2)
        .data(bug.clone())
        .handle_with::<Invoice, _>(on_invoice::<D>);
    builder(world)
        .consumer(consumer)
        .start()
        .await
        .expect("a running service")
}

async fn on_invoice<D: TestDatabase>(
    invoice: Invoice,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
    bug: Data<Bug>,
) -> Result<(), Failure> {
    let effect = Effect {
        consumer: BILLING.to_owned(),
        key: invoice.key.clone(),
        number: invoice.number,
        message_id: info.id.to_string(),
        payload: serde_json::to_vec(&invoice)?,
    };
    // The effect comes first: the failure after it must undo it.
    D::record(tx, effect).await?;
    if invoice.amount < 0 && !bug.mended.load(Ordering::SeqCst) {
        return Err(Failure::permanent(format!(
            "amount {} of invoice {} is negative",
            invoice.amount, invoice.number
        )));
    }
    Ok(())
}

/// Enqueues numbers 0 to `numbers` - 1 of each key; the first of each key meets the bug.
pub(super) async fn invoice<D: TestDatabase>(posta: &Posta<D>, keys: usize, numbers: i64) {
    posta
        .transaction(async |tx| {
            for number in 0..numbers {
                for key in 0..keys {
                    tx.enqueue(&Invoice {
                        key: format!("k{key}"),
                        number,
                        amount: if number == 0 { -5 } else { 5 },
                    })?;
                }
            }
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction that enqueues");
}

/// Waits until so many letters are dead with so many successors behind them; returns them.
pub(super) async fn until_dead<D: TestDatabase>(
    operator: &Operator<D>,
    letters: usize,
    successors: u64,
) -> Vec<DeadLetter> {
    let mut found = Vec::new();
    until(
        &format!("{letters} letters are dead, {successors} behind them"),
        async || {
            found = operator
                .letters(&LetterFilter::default(), None, 1_000)
                .await
                .expect("the letters");
            let behind: u64 = found.iter().map(|letter| letter.successors).sum();
            found.len() == letters && behind == successors
        },
    )
    .await;
    found
}

/// Waits until a letter is in a state.
pub(super) async fn until_letter<D: TestDatabase>(
    operator: &Operator<D>,
    letter: LetterId,
    state: LetterState,
) {
    until(
        &format!("letter {letter} is {}", state.as_str()),
        async || {
            let shown = operator.show(letter, 0).await.expect("the letter");
            shown.letter.state == state
        },
    )
    .await;
}

/// Whoever does it in these tests.
pub(super) fn ada<D: TestDatabase>(posta: &Posta<D>) -> Operator<D> {
    posta.operator("ada").expect("a valid name")
}
