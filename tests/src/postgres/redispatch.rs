use futures_util::future::join;
use posta::store::{RedispatchFilter, RedispatchStore, Store};

use crate::harness::postgres::{migrated, number, run};

/// Two operators with one selection: every row goes out again once, in the order of enqueueing.
#[tokio::test]
async fn two_that_redispatch_the_same_take_turns() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.dispatched (position, message_id, message_type, version, ordering_key, headers, content_type,
                                            payload, enqueued_at, slot, attempts)
             SELECT n, gen_random_uuid(), 'a.b', 1, 'k' || n % 3, '{{}}', 'x', convert_to(n::text, 'UTF8'), now(),
                    {name}.slot_of('k' || n % 3), 4
             FROM generate_series(1, 2000) n"
        ),
    )
    .await;
    let mut session = store.begin().await.unwrap();
    let filter = RedispatchFilter {
        from: None,
        before: store.now(&mut session).await.unwrap(),
        message_type: Some("a.b".to_owned()),
        key: None,
    };
    let preview = store.preview_redispatch(&mut session, &filter).await;
    let preview = preview.unwrap();
    assert_eq!((preview.rows, preview.keys), (2000, 3));
    session.rollback().await;
    let steps = async || {
        let (mut all, mut after) = (0, None);
        loop {
            let mut session = store.begin().await.unwrap();
            let moved = store
                .redispatch(&mut session, &filter, after, 100)
                .await
                .unwrap();
            session.commit().await.unwrap();
            (all, after) = (all + moved.rows, moved.last);
            if moved.rows == 0 {
                return all;
            }
        }
    };
    let (one, other) = join(steps(), steps()).await;
    assert_eq!(one + other, 2000);
    let mut connection = guard.connection().await;
    let disorder = format!(
        "SELECT count(*) FROM (
             SELECT convert_from(payload, 'UTF8')::bigint <> row_number() OVER (ORDER BY position) AS wrong
             FROM {name}.outbox WHERE attempts = 0) AS rows WHERE wrong"
    );
    assert_eq!(number(&mut connection, &disorder).await, 0);
    let rows = format!("SELECT count(*) FROM {name}.outbox");
    assert_eq!(number(&mut connection, &rows).await, 2000);
}
