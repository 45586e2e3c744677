use diesel::{ExpressionMethods, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::store::{MigrationStore, Session, Store};
use posta::{Message, Outbox};

use super::shop::{WAITING, orders};
use super::{Db, create, open};
use crate::catalogue::{Wish, wishes};
use crate::messages::{OrderCancelled, OrderChanged, OrderPlaced};
use crate::role::Role;

/// Places orders, then changes and cancels some, each event in a transaction of its own with its
/// message.
///
/// There is no actor system in this process: it writes state and outbox in transactions that it
/// begins itself, and ends. The shop's process, on the same database, dispatches.
pub(crate) async fn place(database: &str, count: u64, changes: u64) -> anyhow::Result<()> {
    let store = open(database)?;
    store.migrate().await?;
    create(&store, Role::Shop).await?;
    let wishes = wishes(count, changes);
    for wish in &wishes {
        order(&store, wish).await?;
    }
    // All orders' first changes, then all second ones: every key has the others' messages between
    // its own.
    for round in 0..changes {
        for wish in wishes.iter().filter(|wish| round < wish.changes) {
            change(&store, wish, round).await?;
        }
    }
    for wish in wishes.iter().filter(|wish| wish.cancelled) {
        cancel(&store, wish).await?;
    }
    let total = |count: fn(&Wish) -> u64| wishes.iter().map(count).sum::<u64>();
    println!(
        "orders: placed {count}, changed {} times, cancelled {}",
        total(|wish| wish.changes),
        total(|wish| wish.cancelled.into())
    );
    Ok(())
}

async fn order(store: &impl Store<Database = Db>, wish: &Wish) -> anyhow::Result<()> {
    let mut session = store.begin().await?;
    diesel::insert_into(orders::table)
        .values((
            orders::order_id.eq(wish.order_id.to_string()),
            orders::item.eq(wish.item),
            orders::quantity.eq(wish.quantity),
            orders::revision.eq(1),
            orders::cancelled.eq(false),
            orders::stock.eq(WAITING),
            orders::stock_revision.eq(0),
            orders::invoice_revision.eq(0),
            orders::answers.eq(0),
            orders::misordered.eq(0),
        ))
        .execute(&mut *session)
        .await?;
    let placed = OrderPlaced {
        order_id: wish.order_id,
        item: wish.item.to_owned(),
        quantity: wish.quantity,
        unit_cents: wish.unit_cents,
    };
    commit_with(session, &placed).await
}

async fn change(store: &impl Store<Database = Db>, wish: &Wish, round: u64) -> anyhow::Result<()> {
    let mut session = store.begin().await?;
    let quantity = wish.quantity_after(round);
    let order = orders::table.find(wish.order_id.to_string());
    diesel::update(order.clone())
        .set((
            orders::revision.eq(orders::revision + 1),
            orders::quantity.eq(quantity),
        ))
        .execute(&mut *session)
        .await?;
    let revision = order.select(orders::revision).first(&mut *session).await?;
    commit_with(
        session,
        &OrderChanged {
            order_id: wish.order_id,
            revision,
            quantity,
        },
    )
    .await
}

async fn cancel(store: &impl Store<Database = Db>, wish: &Wish) -> anyhow::Result<()> {
    let mut session = store.begin().await?;
    let order = orders::table.find(wish.order_id.to_string());
    diesel::update(order.clone())
        .set((
            orders::revision.eq(orders::revision + 1),
            orders::cancelled.eq(true),
        ))
        .execute(&mut *session)
        .await?;
    let revision = order.select(orders::revision).first(&mut *session).await?;
    commit_with(
        session,
        &OrderCancelled {
            order_id: wish.order_id,
            revision,
        },
    )
    .await
}

/// Enqueues the message in the transaction of the state that it tells of, and commits both.
async fn commit_with(mut session: Session<Db>, message: &impl Message) -> anyhow::Result<()> {
    Outbox::<Db>::default()
        .enqueue(&mut session, message)
        .await?;
    session.commit().await?;
    Ok(())
}
