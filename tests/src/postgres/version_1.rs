//! Processes of version 1, which know nothing of what version 2 has added, while they still run.

use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use posta::store::{
    DeadLetterStore, MigrationStore, Origin, OutboxStore, Resource, RetryStore, Store,
};
use posta::{Database, Postgres, Slot};

use super::{chain, dead, head, keyed, own, parked, partition, successor};
use crate::harness::postgres::{fresh, migrated, number, run, store};

const CORE: &str = include_str!("../../../migrations/postgres/0001_core.sql");

/// What the queries of version 1 come to.
const DUE: &str = "SELECT count(*) FROM {posta}retry r
    WHERE r.consumer = 'c' AND r.due_at <= now() AND NOT EXISTS (
        SELECT FROM {posta}retry e WHERE e.ordering_key = r.ordering_key AND e.position < r.position)";
const ORPHANED: &str = "SELECT count(*) FROM {posta}retry r
    WHERE r.consumer = 'c' AND r.due_at IS NULL AND NOT EXISTS (
        SELECT FROM {posta}retry e WHERE e.ordering_key = r.ordering_key AND e.position < r.position)";
const NEXT: &str =
    "SELECT (extract(epoch FROM min(r.due_at) - now()) * 1000000)::bigint FROM {posta}retry r";
const PROMOTE: &str = "UPDATE {posta}retry SET due_at = now()
    WHERE position = (SELECT min(position) FROM {posta}retry WHERE ordering_key = 'k')";
const PENDING: &str = "SELECT count(*) FROM {posta}outbox o
    WHERE (o.held_until IS NULL OR o.held_until <= now()) AND NOT EXISTS (
        SELECT FROM {posta}outbox h
        WHERE h.ordering_key = o.ordering_key AND h.position < o.position AND h.held_until IS NOT NULL)";

#[tokio::test]
async fn a_parked_key_waits_at_a_consumer_of_version_1() {
    let (guard, store) = migrated().await;
    let of = |sql: &str| sql.replace("{posta}", &format!("{}.", store.tables().name()));
    parked(&store, &keyed("k", "1")).await;
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[successor("k", "2")])
        .await
        .unwrap();
    session.commit().await.unwrap();
    let mut connection = guard.connection().await;
    for (what, sql) in [("due", DUE), ("orphaned", ORPHANED)] {
        assert_eq!(number(&mut connection, &of(sql)).await, 0, "{what}");
    }
    assert!(number(&mut connection, &of(NEXT)).await > 3_600_000_000);
    // Where it would make a place due, it cannot: what it does then waits for a newer process.
    let refused = connection.batch_execute(&of(PROMOTE)).await.unwrap_err();
    let refused = chain(&refused);
    assert!(refused.contains("retry_parked_is_never_due"), "{refused}");
}

#[tokio::test]
async fn a_parked_key_waits_at_a_dispatcher_of_version_1() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    let fences = own(&store, &Resource::Lanes, 64).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let messages = [keyed("k", "1"), keyed("k", "2")];
    Postgres::insert_outbox(&mut session, store.tables(), &messages)
        .await
        .unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    let letter = dead(Origin::Dispatch, &messages[0], true);
    let letter = store.bury(&mut session, &[letter]).await.unwrap()[0];
    let row = rows[0].id;
    let changed = store.park(&mut session, &fences, &[(row, letter)]).await;
    assert_eq!(changed.unwrap(), [row]);
    let left = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert!(left.is_empty());
    session.commit().await.unwrap();
    let mut connection = guard.connection().await;
    let pending = PENDING.replace("{posta}", &format!("{name}."));
    assert_eq!(number(&mut connection, &pending).await, 0);
}

/// The tables of version 1 with everything in them go on as they are.
#[tokio::test]
async fn tables_in_use_become_version_2() {
    let (url, tables, guard) = fresh().await;
    let name = tables.name().to_owned();
    let core = CORE
        .replace("{posta}", &format!("{name}."))
        .replace("{name}", &name);
    let full = Postgres::migration_sql(&tables);
    let begin = full.find("INSERT INTO").expect("it records what it runs");
    let record = full[begin..].lines().next().unwrap_or_default();
    run(
        &url,
        &format!(
            "CREATE SCHEMA {name};
             CREATE TABLE {name}.migration (version integer NOT NULL PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
                                            applied_at timestamptz NOT NULL DEFAULT clock_timestamp());
             {core}
             {record}
             INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'k', '1'), ('a.b', 'k', '2');
             INSERT INTO {name}.outbox (message_type, payload, attempts, held_until, last_error)
                 VALUES ('a.b', '3', 1, now() + interval '1 hour', 'unroutable');
             INSERT INTO {name}.retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type,
                                       payload, attempts, due_at, last_error)
                 VALUES ('c', {name}.slot_of('k'), gen_random_uuid(), 'a.b', 1, 'k', '{{}}', 'x', 'head', 1, now(), 'x'),
                        ('c', {name}.slot_of('k'), gen_random_uuid(), 'a.b', 1, 'k', '{{}}', 'x', 'next', 0, NULL, NULL);
             INSERT INTO {name}.dead_letter (headers, payload, attempts, reason, error)
                 VALUES ('{{}}', '', 1, 'malformed', 'x')"
        ),
    )
    .await;
    let store = store(&guard.url(), tables);
    let applied = store.migrate().await;
    let applied = applied.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(applied.len(), 2);
    store.check_migrations().await.unwrap();

    let fence = partition(&store).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let pending = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert_eq!(pending.len(), 2);
    let backlog = store.backlog(&mut session).await.unwrap();
    assert_eq!((backlog.rows, backlog.held, backlog.parked), (3, 1, 0));
    let due = store.due(&mut session, "c", 0..=63, 10).await.unwrap();
    assert_eq!(due[0].envelope.payload, "head");
    let other = [head("other", "", Duration::ZERO)];
    store.hold(&mut session, "c", &other).await.unwrap();
    store
        .release(&mut session, "c", &fence, &[due[0].position])
        .await
        .unwrap();
    let due = store.due(&mut session, "c", 0..=63, 10).await.unwrap();
    assert_eq!(due[0].envelope.payload, "next");
    let dead = store.dead_letters(&mut session, &Origin::Dispatch).await;
    assert_eq!(dead.unwrap(), 1);
    session.rollback().await;
}
