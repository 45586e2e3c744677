use bytes::Bytes;
use posta::message::{Envelope, MessageType};
use posta::store::*;
use posta::{OrderingKey, Postgres, Slot};
use std::time::Duration;

use crate::harness::postgres::migrated;

#[tokio::test]
async fn smoke() {
    let (_file, store) = migrated().await;
    store.check_migrations().await.unwrap();
    let all: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let envelopes: Vec<Envelope> = (0..100u8)
        .map(|n| {
            Envelope::builder(MessageType::new("a.b").unwrap(), Bytes::from(vec![n]))
                .key(Some(OrderingKey::new(format!("k{}", n % 7)).unwrap()))
                .build()
                .unwrap()
        })
        .collect();
    Postgres::insert_outbox(&mut session, store.tables(), &envelopes)
        .await
        .unwrap();
    session.commit().await.unwrap();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &all, &[], 50).await.unwrap();
    assert_eq!(rows.len(), 50);
    let member = MemberId::random();
    let ttl = Duration::from_secs(10);
    assert_eq!(
        store
            .join(&mut session, &Resource::Lanes, 64, member, ttl)
            .await
            .unwrap(),
        [member]
    );
    let grants = store
        .acquire(&mut session, &Resource::Lanes, 64, member, ttl, 64)
        .await
        .unwrap();
    assert_eq!(grants.len(), 64);
    let fences: Vec<Fence> = grants
        .iter()
        .map(|grant| Fence {
            resource: Resource::Lanes,
            owner: member,
            grant: *grant,
        })
        .collect();
    let ids: Vec<RowId> = rows.iter().map(|r| r.id).collect();
    store
        .subscribe(&mut session, "c", &[MessageType::new("a.b").unwrap()])
        .await
        .unwrap();
    assert_eq!(store.route(&mut session, &ids).await.unwrap(), ids);
    assert_eq!(
        store
            .queued(&mut session, "c", 0..=63, 100)
            .await
            .unwrap()
            .len(),
        50
    );
    assert_eq!(
        store
            .mark_dispatched(&mut session, &fences, &ids)
            .await
            .unwrap(),
        ids
    );
    assert_eq!(store.backlog(&mut session).await.unwrap().rows, 50);
    assert_eq!(store.held(&mut session, "c").await.unwrap(), (0, 0));
    assert!(
        store
            .due(&mut session, "c", 0..=63, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .next_retry(&mut session, "c", 0..=63)
            .await
            .unwrap()
            .is_none()
    );
    assert!(store.next_due(&mut session, &all).await.unwrap().is_none());
    session.commit().await.unwrap();
}
