use diesel::{ExpressionMethods, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::store::Store;
use posta::{Consumer, Failure, Tx};
use uuid::Uuid;

use super::Db;
use crate::catalogue::ITEMS;
use crate::messages::{OrderCancelled, OrderChanged, OrderPlaced, StockReserved, StockShort};

diesel::table! {
    /// See inventory.sql.
    stock (item) {
        item -> Text,
        initial -> BigInt,
        available -> BigInt,
    }
}

diesel::table! {
    /// See inventory.sql.
    reservations (order_id) {
        order_id -> Text,
        item -> Text,
        quantity -> BigInt,
        revision -> BigInt,
        misordered -> BigInt,
    }
}

/// The consumer `inventory`: reserves what is ordered as far as it is there, and says which.
#[derive(Clone, Copy, Debug, Consumer)]
#[consumer(
    name = "inventory",
    handles(OrderPlaced => placed, OrderChanged => changed, OrderCancelled => cancelled)
)]
pub(super) struct Inventory;

impl Inventory {
    async fn placed(&self, message: OrderPlaced, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let OrderPlaced {
            order_id,
            item,
            quantity,
            ..
        } = message;
        diesel::insert_into(reservations::table)
            .values((
                reservations::order_id.eq(order_id.to_string()),
                reservations::item.eq(item),
                reservations::quantity.eq(0),
                reservations::revision.eq(0),
                reservations::misordered.eq(0),
            ))
            .execute(tx)
            .await?;
        answer(tx, order_id, 1, quantity).await
    }

    async fn changed(&self, message: OrderChanged, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        answer(tx, message.order_id, message.revision, message.quantity).await
    }

    async fn cancelled(&self, message: OrderCancelled, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        reserve(tx, message.order_id, message.revision, 0).await?;
        Ok(())
    }
}

/// Reserves, and tells the shop.
async fn answer(
    tx: &mut Tx<'_, Db>,
    order_id: Uuid,
    revision: i64,
    quantity: i64,
) -> Result<(), Failure> {
    if reserve(tx, order_id, revision, quantity).await? {
        tracing::info!(order = %order_id, revision, quantity, "reserved");
        tx.enqueue(&StockReserved { order_id, revision })?;
    } else {
        tracing::info!(order = %order_id, revision, quantity, "short");
        tx.enqueue(&StockShort { order_id, revision })?;
    }
    Ok(())
}

/// Makes the order's reservation what the revision asks for; if there is not enough, nothing. Says
/// whether it could.
async fn reserve(
    tx: &mut Tx<'_, Db>,
    order_id: Uuid,
    revision: i64,
    quantity: i64,
) -> Result<bool, Failure> {
    let reservation = reservations::table.find(order_id.to_string());
    let (item, old, before): (String, i64, i64) = reservation
        .clone()
        .select((
            reservations::item,
            reservations::quantity,
            reservations::revision,
        ))
        .first(tx)
        .await?;
    // The row decides, not what was read of it before: other orders take from it meanwhile.
    let there = stock::table
        .find(item.clone())
        .filter(stock::available.ge(quantity - old));
    let taken = diesel::update(there)
        .set(stock::available.eq(stock::available - (quantity - old)))
        .execute(tx)
        .await?;
    let reserved = taken == 1;
    if !reserved {
        diesel::update(stock::table.find(item))
            .set(stock::available.eq(stock::available + old))
            .execute(tx)
            .await?;
    }
    diesel::update(reservation)
        .set((
            reservations::quantity.eq(if reserved { quantity } else { 0 }),
            reservations::revision.eq(revision),
            reservations::misordered
                .eq(reservations::misordered + i64::from(revision != before + 1)),
        ))
        .execute(tx)
        .await?;
    Ok(reserved)
}

/// Puts so many pieces of each item on the shelves, unless they were filled before.
pub(super) async fn fill(store: &impl Store<Database = Db>, pieces: i64) -> anyhow::Result<()> {
    let mut session = store.begin().await?;
    for (item, _) in ITEMS {
        diesel::insert_into(stock::table)
            .values((
                stock::item.eq(item),
                stock::initial.eq(pieces),
                stock::available.eq(pieces),
            ))
            .on_conflict_do_nothing()
            .execute(&mut *session)
            .await?;
    }
    session.commit().await?;
    Ok(())
}
