use diesel::{ExpressionMethods, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::{Consumer, Failure, Tx};
use uuid::Uuid;

use super::Db;
use crate::messages::{InvoiceIssued, OrderCancelled, OrderChanged, OrderPlaced};

diesel::table! {
    /// See billing.sql.
    accounts (order_id) {
        order_id -> Text,
        unit_cents -> BigInt,
        revision -> BigInt,
        cancelled -> Bool,
        misordered -> BigInt,
    }
}

diesel::table! {
    /// See billing.sql.
    invoices (order_id, revision) {
        order_id -> Text,
        revision -> BigInt,
        cents -> BigInt,
    }
}

/// The consumer `billing`: an invoice for every order, a new one when it changes, none any more
/// when it is cancelled.
#[derive(Clone, Copy, Debug, Consumer)]
#[consumer(
    name = "billing",
    handles(OrderPlaced => placed, OrderChanged => changed, OrderCancelled => cancelled)
)]
pub(super) struct Billing;

impl Billing {
    async fn placed(&self, message: OrderPlaced, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let OrderPlaced {
            order_id,
            quantity,
            unit_cents,
            ..
        } = message;
        diesel::insert_into(accounts::table)
            .values((
                accounts::order_id.eq(order_id.to_string()),
                accounts::unit_cents.eq(unit_cents),
                accounts::revision.eq(0),
                accounts::cancelled.eq(false),
                accounts::misordered.eq(0),
            ))
            .execute(tx)
            .await?;
        issue(tx, order_id, 1, quantity).await
    }

    async fn changed(&self, message: OrderChanged, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        issue(tx, message.order_id, message.revision, message.quantity).await
    }

    async fn cancelled(&self, message: OrderCancelled, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        advance(tx, message.order_id, message.revision).await?;
        diesel::update(accounts::table.find(message.order_id.to_string()))
            .set(accounts::cancelled.eq(true))
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// Issues an invoice, and tells the shop.
async fn issue(
    tx: &mut Tx<'_, Db>,
    order_id: Uuid,
    revision: i64,
    quantity: i64,
) -> Result<(), Failure> {
    let cents = quantity * advance(tx, order_id, revision).await?;
    diesel::insert_into(invoices::table)
        .values((
            invoices::order_id.eq(order_id.to_string()),
            invoices::revision.eq(revision),
            invoices::cents.eq(cents),
        ))
        .execute(tx)
        .await?;
    tracing::info!(order = %order_id, revision, cents, "invoice issued");
    tx.enqueue(&InvoiceIssued {
        order_id,
        revision,
        cents,
    })?;
    Ok(())
}

/// Notes an account's revision; gives back its price of one piece.
async fn advance(tx: &mut Tx<'_, Db>, order_id: Uuid, revision: i64) -> Result<i64, Failure> {
    let account = accounts::table.find(order_id.to_string());
    let (unit_cents, before): (i64, i64) = account
        .clone()
        .select((accounts::unit_cents, accounts::revision))
        .first(tx)
        .await?;
    diesel::update(account)
        .set((
            accounts::revision.eq(revision),
            accounts::misordered.eq(accounts::misordered + i64::from(revision != before + 1)),
        ))
        .execute(tx)
        .await?;
    Ok(unit_cents)
}
