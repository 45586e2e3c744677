use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use diesel::QueryDsl;
use diesel_async::RunQueryDsl;
use posta::store::{DeadLetterStore, LetterFilter, LetterState, Origin, RetryStore, Store};
use posta::{Database, OrderingKey};

use super::books::BOOKS;
use super::tables::{accounts, bookings, received};
use super::{Db, check, open};
use crate::posting::ACCOUNTS;
use crate::standing::{Account, Standing};

/// Between two looks at the tables.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// More than the story has of anything.
const MOST: usize = 1_000;

/// Counts what stands where, until everything is booked or `patience` is over.
pub(crate) async fn look(database: &str, patience: Duration) -> anyhow::Result<Standing> {
    let store = open(database)?;
    check(&store).await?;
    settle(&store, patience, Standing::is_done).await
}

/// Counts again and again until it is as it should be, or `patience` is over.
pub(super) async fn settle(
    store: &<Db as Database>::Store,
    patience: Duration,
    is_right: impl Fn(&Standing) -> bool,
) -> anyhow::Result<Standing> {
    let end = Instant::now() + patience;
    loop {
        let standing = count(store).await?;
        if is_right(&standing) || Instant::now() >= end {
            return Ok(standing);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Counts from the tables, the bank's and Posta's, as of one moment.
pub(super) async fn count(store: &<Db as Database>::Store) -> anyhow::Result<Standing> {
    let mut session = store.begin_read().await?;
    let connection = &mut *session;
    let received: Vec<String> = received::table
        .select(received::account)
        .load(connection)
        .await?;
    let booked: Vec<(String, i64)> = bookings::table
        .select((bookings::account, bookings::number))
        .load(connection)
        .await?;
    let kept: Vec<(String, i64, i64)> = accounts::table
        .select((
            accounts::account,
            accounts::balance_cents,
            accounts::misordered,
        ))
        .load(connection)
        .await?;
    let mut standing = Standing::default();
    for name in ACCOUNTS {
        let mut account = count_posta(store, connection, name).await?;
        account.received = received.iter().filter(|account| *account == name).count() as i64;
        let of_account = booked.iter().filter(|(account, _)| account == name);
        let numbers: HashSet<i64> = of_account.clone().map(|(_, number)| *number).collect();
        account.booked = of_account.count() as i64;
        account.doubled = account.booked - numbers.len() as i64;
        if let Some((_, balance, misordered)) = kept.iter().find(|(account, ..)| account == name) {
            (account.balance_cents, account.misordered) = (*balance, *misordered);
        }
        standing.accounts.push(account);
    }
    session.rollback().await;
    Ok(standing)
}

/// What Posta has of an account's key: in the retry table, and among the dead letters.
async fn count_posta(
    store: &<Db as Database>::Store,
    connection: &mut <Db as Database>::Connection,
    name: &str,
) -> anyhow::Result<Account> {
    let key = OrderingKey::new(name.to_owned()).context("an account's name is a key")?;
    let held = store.held_of_key(connection, BOOKS, &key, MOST).await?;
    // A parked row is a dead letter's place.
    let retrying = matches!(held.as_slice(), [head, ..] if !head.parked);
    let waiting = held.iter().filter(|row| !row.parked).count() as i64;
    let filter = LetterFilter {
        origin: Some(Origin::Consumer(BOOKS.to_owned())),
        key: Some(name.to_owned()),
        states: vec![
            LetterState::Dead,
            LetterState::Replayed,
            LetterState::Discarded,
        ],
        ..LetterFilter::default()
    };
    let letters = store.letters(connection, &filter, None, MOST).await?;
    let in_state = |state| {
        letters
            .iter()
            .filter(|letter| letter.state == state)
            .count() as i64
    };
    Ok(Account {
        name: name.to_owned(),
        retrying: i64::from(retrying),
        behind: waiting - i64::from(retrying),
        dead: in_state(LetterState::Dead),
        replayed: in_state(LetterState::Replayed),
        discarded: in_state(LetterState::Discarded),
        ..Account::default()
    })
}
