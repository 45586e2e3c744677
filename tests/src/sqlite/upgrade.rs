use diesel_async::SimpleAsyncConnection as _;
use posta::store::{
    DeadLetterStore, LetterChange, LetterFilter, LetterState, MigrationStore, Origin, OutboxStore,
    RetryStore, SqliteStore, Store,
};
use posta::{Database as _, Slot, Sqlite};

use crate::harness::sqlite::SqliteFile;

/// What a process of version 1 has written, in its columns.
const ROWS: &str = "
    INSERT INTO posta_outbox (message_type, payload, ordering_key, slot) VALUES ('a', 'pending', 'k', 7);
    INSERT INTO posta_outbox (message_type, payload, slot, attempts, last_error, held_until)
        VALUES ('a', 'failed', 8, 1, 'returned', 1);
    INSERT INTO posta_retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type,
            attempts, last_error, due_at, payload)
        VALUES ('c', 7, x'00000000000040008000000000000001', 'a', 1, 'k', '{}', '', 1, 'failed', 1, 'head'),
            ('c', 7, x'00000000000040008000000000000002', 'a', 1, 'k', '{}', '', 0, NULL, NULL, 'successor');
    INSERT INTO posta_dead_letter (consumer, headers, attempts, reason, error, payload)
        VALUES ('c', '{}', 1, 'undecodable', 'no JSON', x'00ff'), (NULL, '{}', 0, 'malformed', 'no id', '');";

/// A file as version 1 made it.
async fn of_version_1() -> (SqliteFile, SqliteStore) {
    let file = SqliteFile::absent();
    let store = file.store();
    let all = Sqlite::migration_sql(store.tables());
    let record = "INSERT INTO posta_migration (version, name, checksum) VALUES (1, ";
    let begin = all.find(record).expect("version 1 is on record");
    let end = begin + all[begin..].find(";\n").expect("a statement ends") + 1;
    let mut session = store.begin().await.unwrap();
    let first = all[..end].replace("BEGIN IMMEDIATE;", "");
    session.batch_execute(&first).await.unwrap();
    session.batch_execute(ROWS).await.unwrap();
    session.commit().await.unwrap();
    (file, store)
}

#[tokio::test]
async fn what_version_1_wrote_is_there_in_version_2() {
    let (_file, store) = of_version_1().await;
    store.check_migrations().await.unwrap_err();
    let ran = store.migrate().await.unwrap();
    assert_eq!(
        ran.iter().map(|ran| ran.version).collect::<Vec<_>>(),
        [2, 3]
    );
    store.check_migrations().await.unwrap();
    // A process of version 1 goes on writing meanwhile.
    let mut session = store.begin().await.unwrap();
    let more = ROWS.replace("x'000000000000", "x'000000000001");
    session.batch_execute(&more).await.unwrap();
    session.commit().await.unwrap();

    let mut session = store.begin().await.unwrap();
    let lanes: Vec<Slot> = Slot::all().collect();
    let rows = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row.letter.is_none() && row.failed_at.is_none())
    );
    let backlog = store.backlog(&mut session).await.unwrap();
    assert_eq!((backlog.rows, backlog.held, backlog.parked), (4, 2, 0));

    let due = store.due(&mut session, "c", 0..=63, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].envelope.payload.as_ref(), b"head");
    assert!(!due[0].parked && due[0].letter.is_none());
    let held = store.held(&mut session, "c").await.unwrap();
    assert_eq!(held, (4, 1));

    let letters = store
        .letters(&mut session, &LetterFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(letters.len(), 4);
    assert_eq!(letters[0].message.payload.as_ref(), b"\x00\xff");
    assert_eq!(letters[1].origin, Origin::Dispatch);
    assert!(
        letters
            .iter()
            .all(|letter| letter.state == LetterState::Dead
                && !letter.parked
                && letter.first_failed_at.is_none())
    );
    let ids: Vec<_> = letters.iter().map(|letter| letter.id).collect();
    let changed = store
        .change_letters(&mut session, &ids, LetterChange::Replay)
        .await
        .unwrap();
    assert_eq!(changed, ids);
    session.rollback().await;
}
