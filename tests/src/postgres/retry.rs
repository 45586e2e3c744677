use std::time::Duration;

use posta::store::{MemberId, PostgresStore, RetryStore, Store};

use super::{blocked, head, keyed, parked, partition, successor};
use crate::harness::postgres::{migrated, run, store};

const LONG: Duration = Duration::from_secs(3600);

/// A key whose head somebody has deleted by hand goes on with the next message.
#[tokio::test]
async fn successors_whose_head_is_gone_become_due() {
    let (guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let mut holds = Vec::new();
    for key in 0..50 {
        holds.push(head(&format!("k{key}"), "head", LONG));
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
        .hold(&mut session, "c", &[head("other", "head", Duration::ZERO)])
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

/// The payloads of what is due, after the key's waiting ones were walked over.
async fn due(store: &PostgresStore) -> Vec<String> {
    let mut session = store.begin().await.unwrap();
    let rows = store.due(&mut session, "c", 0..=63, 100).await.unwrap();
    let next = store.next_retry(&mut session, "c", 0..=63).await.unwrap();
    session.rollback().await;
    assert_eq!(next == Some(Duration::ZERO), !rows.is_empty(), "{next:?}");
    let payload = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    rows.iter()
        .map(|row| payload(&row.envelope.payload))
        .collect()
}

/// The successor sees a head; the head, which leaves at the same time, sees no successor.
#[tokio::test]
async fn a_successor_that_joins_while_the_last_one_leaves_is_not_forgotten() {
    let (_guard, store) = migrated().await;
    let fence = partition(&store).await;
    let first = keyed("k", "1");
    let letter = parked(&store, &first).await;

    for unparked in [true, false] {
        let mut joining = store.begin().await.unwrap();
        let mut leaving = store.begin().await.unwrap();
        let held = store.held_count(&mut joining, "c", first.key.as_ref().unwrap(), 10);
        assert_eq!(held.await.unwrap(), usize::from(!unparked));
        store
            .hold(&mut joining, "c", &[successor("k", "next")])
            .await
            .unwrap();
        if unparked {
            let unpark = store.unpark_held(&mut leaving, "c", letter);
            assert!(unpark.await.unwrap());
        } else {
            let row = store.due(&mut leaving, "c", 0..=63, 1).await.unwrap();
            let positions = [row[0].position];
            let release = store.release(&mut leaving, "c", &fence, &positions);
            assert_eq!(release.await.unwrap().len(), 1);
        }
        leaving.commit().await.unwrap();
        joining.commit().await.unwrap();
        assert_eq!(due(&store).await, ["next"]);
    }
}

/// A letter without a place comes back while the last one of its key is leaving.
#[tokio::test]
async fn a_letter_that_comes_back_while_the_last_one_leaves_is_not_forgotten() {
    let (_guard, store) = migrated().await;
    let fence = partition(&store).await;
    let letter = keyed("k", "letter");
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[head("k", "last", Duration::ZERO)])
        .await
        .unwrap();
    session.commit().await.unwrap();

    let mut leaving = store.begin().await.unwrap();
    let last = store.due(&mut leaving, "c", 0..=63, 1).await.unwrap();
    store
        .release(&mut leaving, "c", &fence, &[last[0].position])
        .await
        .unwrap();
    let mut coming = store.begin().await.unwrap();
    let id = posta::store::LetterId(77);
    assert!(
        store
            .readmit_held(&mut coming, "c", id, letter.slot(), &letter)
            .await
            .unwrap()
    );
    coming.commit().await.unwrap();
    // Not before the last one has gone.
    assert_eq!(due(&store).await, ["last"]);
    leaving.commit().await.unwrap();
    assert_eq!(due(&store).await, ["letter"]);
}

/// Of a head that runs again and of what comes after it, the head's own time stays.
#[tokio::test]
async fn what_leaves_from_the_middle_of_a_key_makes_nothing_due() {
    let (_guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[head("k", "head", LONG)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    let letter = parked(&store, &keyed("k", "malformed")).await;
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[successor("k", "behind")])
        .await
        .unwrap();
    assert!(store.unpark_held(&mut session, "c", letter).await.unwrap());
    session.commit().await.unwrap();
    assert!(due(&store).await.is_empty());
}

/// Two processes of which each believes itself the owner.
#[tokio::test]
async fn of_two_processes_that_claim_at_once_one_finds_the_others_claim() {
    let (guard, first) = migrated().await;
    let second = store(&guard.url(), first.tables().clone());
    let fence = partition(&first).await;
    let mut session = first.begin().await.unwrap();
    let holds = [
        head("a", "1", Duration::ZERO),
        head("b", "2", Duration::ZERO),
    ];
    first.hold(&mut session, "c", &holds).await.unwrap();
    session.commit().await.unwrap();

    let mut session = first.begin().await.unwrap();
    let due = first.due(&mut session, "c", 0..=63, 10).await.unwrap();
    let positions: Vec<i64> = due.iter().map(|row| row.position).collect();
    let (one, other) = (MemberId::random(), MemberId::random());
    let claims = first.claim(&mut session, "c", &fence, &positions, one);
    assert!(claims.await.unwrap().iter().all(|claim| !claim.abandoned));
    let mut backwards = positions.clone();
    backwards.reverse();
    let late = async {
        let mut session = second.begin().await.unwrap();
        let claims = second
            .claim(&mut session, "c", &fence, &backwards, other)
            .await
            .unwrap();
        session.commit().await.unwrap();
        claims
    };
    let commit = async {
        blocked(&mut guard.connection().await, 1).await;
        session.commit().await.unwrap();
    };
    let (claims, ()) = futures_util::future::join(late, commit).await;
    assert_eq!(claims.len(), 2);
    assert!(
        claims
            .iter()
            .all(|claim| claim.abandoned && claim.deaths == 0)
    );
    assert_eq!(claims[0].position, positions[0]);

    let mut session = second.begin().await.unwrap();
    for (member, abandoned, deaths) in [(other, true, 1), (other, false, 1), (one, true, 2)] {
        let claim = second
            .claim_alone(&mut session, "c", &fence, positions[0], member)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((claim.abandoned, claim.deaths), (abandoned, deaths));
    }
    session.rollback().await;
}
