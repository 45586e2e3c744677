use diesel::QueryDsl;
use diesel_async::RunQueryDsl;
use posta::store::Store;

use super::billing::{accounts, invoices};
use super::inventory::{reservations, stock};
use super::open;
use super::shop::orders;
use crate::books::{Account, Books, Invoice, Order, Reservation, Stock};
use crate::role::Role;

/// Adds what a party has in its tables to the books, as of one moment.
pub(crate) async fn report(role: Role, database: &str, books: &mut Books) -> anyhow::Result<()> {
    let mut session = open(database)?.begin().await?;
    let connection = &mut *session;
    match role {
        Role::Shop => {
            let columns = (
                orders::order_id,
                orders::revision,
                orders::cancelled,
                orders::stock,
                orders::stock_revision,
                orders::invoice_cents,
                orders::invoice_revision,
                orders::answers,
                orders::misordered,
            );
            books.orders = orders::table
                .select(columns)
                .load::<Order>(connection)
                .await?;
        }
        Role::Inventory => {
            let columns = (stock::initial, stock::available);
            books.stock = stock::table
                .select(columns)
                .load::<Stock>(connection)
                .await?;
            let columns = (
                reservations::order_id,
                reservations::quantity,
                reservations::revision,
                reservations::misordered,
            );
            let rows = reservations::table.select(columns);
            books.reservations = rows.load::<Reservation>(connection).await?;
        }
        Role::Billing => {
            let columns = (accounts::order_id, accounts::revision, accounts::misordered);
            books.accounts = accounts::table
                .select(columns)
                .load::<Account>(connection)
                .await?;
            books.invoices = invoices::table.load::<Invoice>(connection).await?;
        }
    }
    session.commit().await?;
    Ok(())
}
