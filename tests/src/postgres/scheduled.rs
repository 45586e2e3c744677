use std::time::Duration;

use futures_util::future::join;
use posta::store::{Database, Due, NewScheduled, Resource, ScheduleStore, Store};
use posta::{Postgres, Slot};

use super::{blocked, keyed, own};
use crate::harness::postgres::{migrated, number};

/// Who cancels waits for who enqueues, and finds the message gone; who enqueues waits for nobody,
/// and leaves what somebody is about to cancel.
#[tokio::test]
async fn a_message_is_cancelled_or_enqueued_and_never_both() {
    let (guard, store) = migrated().await;
    let fences = own(&store, &Resource::Lanes, 64).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut connection = guard.connection().await;
    let tables = store.tables();
    for cancelled_first in [true, false] {
        let message = NewScheduled {
            envelope: keyed("k", "later"),
            due: Due::After(Duration::ZERO),
        };
        let id = message.envelope.id;
        let mut session = store.begin().await.unwrap();
        Postgres::insert_scheduled(&mut session, tables, &[message])
            .await
            .unwrap();
        session.commit().await.unwrap();

        let cancel = async |expected: bool| {
            let mut session = store.begin().await.unwrap();
            let cancelled = Postgres::cancel_scheduled(&mut session, tables, id).await;
            assert_eq!(cancelled.unwrap(), expected);
            session.commit().await.unwrap();
        };
        let enqueue = async |expected: usize, meanwhile: bool| {
            let mut session = store.begin().await.unwrap();
            let moved = store.enqueue_due(&mut session, &fences, &lanes, 10).await;
            assert_eq!(moved.unwrap(), expected);
            let commit = async {
                if meanwhile {
                    blocked(&mut guard.connection().await, 1).await;
                }
                session.commit().await.unwrap();
            };
            let second = async {
                if meanwhile {
                    cancel(false).await;
                }
            };
            join(commit, second).await;
        };
        let waiting = number(
            &mut connection,
            &format!("SELECT count(*) FROM {}.outbox", tables.name()),
        )
        .await;
        if cancelled_first {
            let mut session = store.begin().await.unwrap();
            let cancelled = Postgres::cancel_scheduled(&mut session, tables, id).await;
            assert!(cancelled.unwrap());
            enqueue(0, false).await;
            session.commit().await.unwrap();
            enqueue(0, false).await;
        } else {
            enqueue(1, true).await;
        }
        let outbox = format!("SELECT count(*) FROM {}.outbox", tables.name());
        let moved = number(&mut connection, &outbox).await - waiting;
        assert_eq!(moved, i64::from(!cancelled_first));
        let mut session = store.begin().await.unwrap();
        assert_eq!(store.scheduled(&mut session).await.unwrap(), 0);
        session.rollback().await;
    }
}

/// Points in time that PostgreSQL does not know are none that it fails at.
#[tokio::test]
async fn the_ends_of_time_can_be_scheduled_for() {
    use time::PrimitiveDateTime;
    let (_guard, store) = migrated().await;
    let fences = own(&store, &Resource::Lanes, 64).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let message = |payload: &str, due| NewScheduled {
        envelope: keyed("k", payload),
        due,
    };
    let mut session = store.begin().await.unwrap();
    let messages = [
        message("never", Due::At(PrimitiveDateTime::MAX.assume_utc())),
        message("no more", Due::After(Duration::MAX)),
        message("long ago", Due::At(PrimitiveDateTime::MIN.assume_utc())),
    ];
    Postgres::insert_scheduled(&mut session, store.tables(), &messages)
        .await
        .unwrap();
    let next = store.next_scheduled(&mut session, &lanes).await.unwrap();
    assert_eq!(next, Some(Duration::ZERO));
    let moved = store.enqueue_due(&mut session, &fences, &lanes, 10).await;
    assert_eq!(moved.unwrap(), 1);
    let next = store.next_scheduled(&mut session, &lanes).await.unwrap();
    assert!(next > Some(Duration::from_secs(3600)), "{next:?}");
    session.rollback().await;
}
