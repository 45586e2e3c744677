use diesel::{ExpressionMethods, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::{Consumer, Failure, Tx};
use uuid::Uuid;

use super::Db;
use crate::messages::{InvoiceIssued, StockReserved, StockShort};

diesel::table! {
    /// See shop.sql.
    orders (order_id) {
        order_id -> Text,
        item -> Text,
        quantity -> BigInt,
        revision -> BigInt,
        cancelled -> Bool,
        stock -> Text,
        stock_revision -> BigInt,
        invoice_cents -> Nullable<BigInt>,
        invoice_revision -> BigInt,
        answers -> BigInt,
        misordered -> BigInt,
    }
}

/// Inventory has not said anything yet.
pub(super) const WAITING: &str = "waiting";

/// The consumer `shop`: writes down what inventory and billing say of an order.
#[derive(Clone, Copy, Debug, Consumer)]
#[consumer(
    name = "shop",
    handles(StockReserved => reserved, StockShort => short, InvoiceIssued => invoiced)
)]
pub(super) struct Shop;

impl Shop {
    async fn reserved(&self, message: StockReserved, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        stock(tx, message.order_id, message.revision, "reserved").await
    }

    async fn short(&self, message: StockShort, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        stock(tx, message.order_id, message.revision, "short").await
    }

    async fn invoiced(&self, message: InvoiceIssued, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let InvoiceIssued {
            order_id,
            revision,
            cents,
        } = message;
        let order = orders::table.find(order_id.to_string());
        let before: i64 = order
            .clone()
            .select(orders::invoice_revision)
            .first(tx)
            .await?;
        diesel::update(order)
            .set((
                orders::invoice_cents.eq(cents),
                orders::invoice_revision.eq(revision),
                orders::answers.eq(orders::answers + 1),
                orders::misordered.eq(orders::misordered + i64::from(revision != before + 1)),
            ))
            .execute(tx)
            .await?;
        tracing::info!(order = %order_id, revision, cents, "invoiced");
        Ok(())
    }
}

async fn stock(
    tx: &mut Tx<'_, Db>,
    order_id: Uuid,
    revision: i64,
    state: &str,
) -> Result<(), Failure> {
    let order = orders::table.find(order_id.to_string());
    let before: i64 = order
        .clone()
        .select(orders::stock_revision)
        .first(tx)
        .await?;
    diesel::update(order)
        .set((
            orders::stock.eq(state),
            orders::stock_revision.eq(revision),
            orders::answers.eq(orders::answers + 1),
            orders::misordered.eq(orders::misordered + i64::from(revision != before + 1)),
        ))
        .execute(tx)
        .await?;
    tracing::info!(order = %order_id, revision, "{state}");
    Ok(())
}
