use diesel::{ExpressionMethods, OptionalExtension, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::{Consumer, Failure, Tx};

use super::Db;
use super::tables::{accounts, bookings};
use crate::amount::{cents, cents_with_bug};
use crate::posting::PostingReceived;

/// The consumer's name.
pub(super) const BOOKS: &str = "books";

/// The consumer `books`: books every posting of an account, in order, and keeps the balance.
#[derive(Clone, Copy, Debug, Consumer)]
#[consumer(name = "books", partitions = 4, handles(PostingReceived => book))]
pub(super) struct Books {
    /// Whether it is the version with the bug.
    pub(super) with_bug: bool,
}

impl Books {
    async fn book(&self, posting: PostingReceived, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let cents = match self.with_bug {
            // `?` makes a failure that may pass: it is tried again, then it is a dead letter.
            true => cents_with_bug(&posting.amount)?,
            // What is no amount today is none tomorrow: a dead letter at once.
            false => cents(&posting.amount).map_err(Failure::permanent)?,
        };
        let account = accounts::table.find(&posting.account);
        let before: Option<(i64, i64)> = account
            .select((accounts::number, accounts::balance_cents))
            .first(tx)
            .await
            .optional()?;
        let (number, balance) = before.unwrap_or_default();
        let misordered = i64::from(posting.number != number + 1);
        let now = (
            accounts::number.eq(posting.number),
            accounts::balance_cents.eq(balance + cents),
        );
        diesel::insert_into(accounts::table)
            .values((
                accounts::account.eq(&posting.account),
                now,
                accounts::misordered.eq(misordered),
            ))
            .on_conflict(accounts::account)
            .do_update()
            .set((
                now,
                accounts::misordered.eq(accounts::misordered + misordered),
            ))
            .execute(tx)
            .await?;
        diesel::insert_into(bookings::table)
            .values((
                bookings::account.eq(&posting.account),
                bookings::number.eq(posting.number),
                bookings::cents.eq(cents),
                bookings::balance_cents.eq(balance + cents),
            ))
            .execute(tx)
            .await?;
        Ok(())
    }
}
