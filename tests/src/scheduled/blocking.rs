use std::time::Duration;

use diesel::Connection;
use diesel::connection::SimpleConnection as _;
use posta::outbox::EnqueueError;
use posta::outbox::blocking::{BlockingDatabase, BlockingOutbox};
use posta::{Outbox, Postgres, Sqlite};
use time::OffsetDateTime;

use super::{NEVER, numbered, scheduled};
use crate::world::effects::effects_of;
use crate::world::service::{EFFECTS, effects_service, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World};

/// On diesel's blocking connections: sent, taken back, refused, rolled back.
async fn it_works_on_a_blocking_connection<D: TestDatabase + BlockingDatabase>(
    connect: impl FnOnce(&str) -> D::BlockingConnection + Send + 'static,
) {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let outbox = BlockingOutbox::<D>::new(Outbox::new(world.tables.clone()));
    let url = world.database_url.clone();
    actix_rt::task::spawn_blocking(move || {
        let mut connection = connect(&url);
        let taken_back = connection.transaction(|connection| {
            outbox.enqueue_after(connection, &numbered(0, 0), Duration::from_millis(300))?;
            outbox.enqueue_at(connection, &numbered(1, 0), OffsetDateTime::UNIX_EPOCH)?;
            let refused = outbox.enqueue_after(connection, &numbered(2, 0), Duration::MAX);
            assert!(matches!(refused, Err(EnqueueError::Due { .. })));
            outbox.enqueue_after(connection, &numbered(3, 0), NEVER)?;
            Ok::<_, anyhow::Error>(outbox.enqueue_after(connection, &numbered(4, 0), NEVER)?)
        });
        let taken_back = taken_back.expect("a transaction");
        let undone = connection.transaction(|connection| {
            outbox.enqueue_after(connection, &numbered(5, 0), NEVER)?;
            assert!(outbox.cancel_scheduled(connection, taken_back)?);
            Err::<(), anyhow::Error>(anyhow::anyhow!("changed my mind"))
        });
        undone.expect_err("its own error");
        let mut cancel = || outbox.cancel_scheduled(&mut connection, taken_back);
        assert!(cancel().expect("an answer"));
        assert!(!cancel().expect("an answer"));
    })
    .await
    .expect("a thread that does not panic");
    until_quiet::<D>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 2);
    assert_eq!(scheduled::<D>(&store).await, 1);
}

#[actix_rt::test]
async fn it_works_on_a_blocking_connection_to_sqlite() {
    it_works_on_a_blocking_connection::<Sqlite>(|url| {
        let path = url.trim_start_matches("sqlite://");
        let mut connection = diesel::SqliteConnection::establish(path).expect("the file is there");
        // As any application with more than one writer has it.
        let waits = connection.batch_execute("PRAGMA busy_timeout = 30000");
        waits.expect("a pragma");
        connection
    })
    .await;
}

#[actix_rt::test]
async fn it_works_on_a_blocking_connection_to_postgres() {
    it_works_on_a_blocking_connection::<Postgres>(|url| {
        diesel::PgConnection::establish(url).expect("the server takes connections")
    })
    .await;
}
