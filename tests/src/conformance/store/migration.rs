//! Migrations.

use futures_util::future::join_all;
use posta::Tables;
use posta::store::{MigrationStore, OutboxStore, Store, StoreErrorKind};

pub(super) use super::given::empty as start;
use super::given::{Place, keyless};
use crate::harness::database::TestDatabase;

pub(super) async fn migrations_run_once<D: TestDatabase>(place: &Place<D>) {
    let ran = place.store.migrate().await.unwrap();
    let versions: Vec<u32> = ran.iter().map(|migration| migration.version).collect();
    assert!(!ran.is_empty() && versions == (1..=ran.len() as u32).collect::<Vec<_>>());
    place.store.check_migrations().await.unwrap();
    place.enqueue(&[keyless(b"stays")]).await;
    assert_eq!(place.store.migrate().await.unwrap(), []);
    place.store.check_migrations().await.unwrap();
    assert_eq!(place.rows("outbox").await, 1);
}

pub(super) async fn missing_tables_are_a_schema_error<D: TestDatabase>(place: &Place<D>) {
    for _ in 0..2 {
        let missing = place.store.check_migrations().await.unwrap_err();
        assert_eq!(missing.kind(), StoreErrorKind::Schema, "{missing:?}");
        assert!(!missing.is_transient());
    }
    let mut session = place.begin().await;
    let insert = D::insert_outbox(&mut session, place.store.tables(), &[keyless(b"")]).await;
    session.rollback().await;
    assert_eq!(insert.unwrap_err().kind(), StoreErrorKind::Schema);
    let mut session = place.begin().await;
    let backlog = place.store.backlog(&mut session).await;
    session.rollback().await;
    assert_eq!(backlog.unwrap_err().kind(), StoreErrorKind::Schema);
}

pub(super) async fn two_processes_that_migrate_at_once_run_each_migration_once<D: TestDatabase>(
    place: &Place<D>,
) {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(place.another().await);
    }
    let ran = join_all(
        stores
            .iter()
            .map(async |store| store.migrate().await.unwrap()),
    )
    .await;
    assert_eq!(
        ran.iter().filter(|ran| !ran.is_empty()).count(),
        1,
        "{ran:?}"
    );
    for store in &stores {
        store.check_migrations().await.unwrap();
    }
}

pub(super) async fn the_printed_sql_does_what_migrate_does<D: TestDatabase>(place: &Place<D>) {
    let sql = D::migration_sql(place.store.tables());
    D::run_alone(&place.home, &sql).await;
    place.store.check_migrations().await.unwrap();
    assert_eq!(place.store.migrate().await.unwrap(), []);
    place.enqueue(&[keyless(b"")]).await;
    assert_eq!(place.pending().await.len(), 1);
}

pub(super) async fn two_names_are_two_sets_of_tables<D: TestDatabase>(place: &Place<D>) {
    // Not longer than a name may be.
    let name = format!("p{}", &uuid::Uuid::new_v4().simple().to_string()[..20]);
    let tables = Tables::named(name).unwrap();
    let other = Place::<D> {
        store: D::another(&place.home, tables).await,
        home: place.home.clone(),
    };
    place.store.migrate().await.unwrap();
    assert_eq!(
        other.store.check_migrations().await.unwrap_err().kind(),
        StoreErrorKind::Schema
    );
    assert!(!other.store.migrate().await.unwrap().is_empty());
    other.enqueue(&[keyless(b"here")]).await;
    assert_eq!(
        (place.rows("outbox").await, other.rows("outbox").await),
        (0, 1)
    );
}
