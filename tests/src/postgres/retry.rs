use std::time::Duration;

use posta::store::{NewHold, RetryStore, Store};

use super::keyed;
use crate::harness::postgres::{migrated, run};

const LONG: Duration = Duration::from_secs(3600);

fn head(key: &str, delay: Duration) -> NewHold {
    let envelope = keyed(key, "head");
    NewHold {
        slot: envelope.slot(),
        envelope,
        attempts: 1,
        error: Some("failed".to_owned()),
        delay: Some(delay),
        parked: None,
    }
}

fn successor(key: &str, payload: &str) -> NewHold {
    let envelope = keyed(key, payload);
    NewHold {
        slot: envelope.slot(),
        envelope,
        attempts: 0,
        error: None,
        delay: None,
        parked: None,
    }
}

/// A key whose head somebody has deleted by hand goes on with the next message.
#[tokio::test]
async fn successors_whose_head_is_gone_become_due() {
    let (guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let mut holds = Vec::new();
    for key in 0..50 {
        holds.push(head(&format!("k{key}"), LONG));
        holds.extend((0..3).map(|n| successor(&format!("k{key}"), &format!("{key}-{n}"))));
    }
    store.hold(&mut session, "c", &holds).await.unwrap();
    assert!(
        store
            .due(&mut session, "c", 0..=63, 100)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(store.next_retry(&mut session, "c", 0..=63).await.unwrap() > Some(LONG / 2));
    session.commit().await.unwrap();

    let name = store.tables().name();
    let gone = format!(
        "DELETE FROM {name}.retry WHERE due_at IS NOT NULL AND ordering_key IN ('k7', 'k31')"
    );
    run(&guard.url(), &gone).await;
    let mut session = store.begin().await.unwrap();
    let due = store.due(&mut session, "c", 0..=63, 100).await.unwrap();
    let payloads: Vec<_> = due.iter().map(|row| row.envelope.payload.clone()).collect();
    assert_eq!(payloads, ["7-0", "31-0"]);
    assert_eq!(
        store.next_retry(&mut session, "c", 0..=63).await.unwrap(),
        Some(Duration::ZERO)
    );
    session.rollback().await;
}

/// A thousand times the successors must not be a thousand times the work, nor a million times.
#[tokio::test]
async fn the_successors_of_one_key_do_not_slow_the_others() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type,
                                       payload, attempts, due_at, last_error)
             SELECT 'c', {name}.slot_of('hot'), gen_random_uuid(), 'a.b', 1, 'hot', '{{}}', 'x', '', (n = 1)::int,
                    CASE WHEN n = 1 THEN now() + interval '1 hour' END, CASE WHEN n = 1 THEN 'x' END
             FROM generate_series(1, 50000) n"
        ),
    )
    .await;
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[head("other", Duration::ZERO)])
        .await
        .unwrap();
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(
            store
                .due(&mut session, "c", 0..=63, 100)
                .await
                .unwrap()
                .len(),
            1
        );
        assert_eq!(
            store.next_retry(&mut session, "c", 0..=63).await.unwrap(),
            Some(Duration::ZERO)
        );
    }
    // Quadratic, a single one of these takes minutes; as it should be, some milliseconds.
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    session.rollback().await;
}
