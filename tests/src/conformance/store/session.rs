//! Transactions.

use posta::store::{OutboxStore, Store, StoreErrorKind};

pub(super) use super::given::fresh as start;
use super::given::{Place, keyless};
use crate::harness::database::TestDatabase;

pub(super) async fn what_is_committed_is_seen_by_others<D: TestDatabase>(place: &Place<D>) {
    let other = place.another().await;
    place.enqueue(&[keyless(b"")]).await;
    let mut session = other.begin().await.unwrap();
    assert_eq!(other.backlog(&mut session).await.unwrap().rows, 1);
    session.commit().await.unwrap();
}

pub(super) async fn a_session_that_is_dropped_leaves_nothing<D: TestDatabase>(place: &Place<D>) {
    for _ in 0..20 {
        let mut session = place.begin().await;
        D::insert_outbox(&mut session, place.store.tables(), &[keyless(b"")])
            .await
            .unwrap();
        drop(session);
    }
    assert_eq!(place.rows("outbox").await, 0);
    place.enqueue(&[keyless(b"")]).await;
    assert_eq!(place.rows("outbox").await, 1);
}

pub(super) async fn sessions_come_back_to_the_pool<D: TestDatabase>(place: &Place<D>) {
    for round in 0..50 {
        let session = place.begin().await;
        if round % 2 == 0 {
            session.commit().await.unwrap();
        } else {
            session.rollback().await;
        }
    }
}

pub(super) async fn a_refusal_is_told_from_an_outage<D: TestDatabase>(place: &Place<D>) {
    let envelope = keyless(b"");
    place.enqueue(std::slice::from_ref(&envelope)).await;
    let mut session = place.begin().await;
    let again = D::insert_outbox(&mut session, place.store.tables(), &[envelope]).await;
    session.rollback().await;
    let error = again.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_transient()),
        (StoreErrorKind::Rejected, false)
    );
    // The next transaction knows nothing of it.
    place.enqueue(&[keyless(b"")]).await;
}
