use std::sync::Arc;
use std::time::Duration;

use posta::Sqlite;
use posta::broker::BrokerDriver;
use posta::broker::database::DatabaseBroker;
use posta::broker::rabbitmq::RabbitMq;
use posta::store::{Database, MigrationStore, SqliteStore};

use crate::harness::rabbitmq::Vhost;
use crate::harness::sqlite::SqliteFile;
use crate::world::database::{self, TestDatabase};

/// A broker with nothing in it, for one test.
pub(crate) trait BrokerUnderTest: Sized {
    /// The database beside which it runs, or in which it is.
    type Database: Database;

    /// Most unacknowledged deliveries of one subscription, if the broker bounds them by a number.
    const PREFETCH: Option<usize>;

    /// Makes one.
    async fn start() -> Self;

    /// Its driver.
    fn driver(&self) -> Arc<dyn BrokerDriver<Self::Database>>;

    /// A store on its database.
    fn store(&self) -> &<Self::Database as Database>::Store;
}

/// RabbitMQ beside a SQLite file.
pub(crate) struct RabbitMqUnderTest {
    _vhost: Vhost,
    broker: RabbitMq,
    _file: SqliteFile,
    store: SqliteStore,
}

impl BrokerUnderTest for RabbitMqUnderTest {
    type Database = Sqlite;

    const PREFETCH: Option<usize> = Some(20);

    async fn start() -> Self {
        let vhost = Vhost::fresh().await;
        let prefetch = Self::PREFETCH.unwrap_or_default() as u16;
        let broker = RabbitMq::new(vhost.options().prefetch(prefetch));
        let (file, store) = SqliteFile::migrated().await;
        Self {
            _vhost: vhost,
            broker,
            _file: file,
            store,
        }
    }

    fn driver(&self) -> Arc<dyn BrokerDriver<Sqlite>> {
        Arc::new(self.broker.clone())
    }

    fn store(&self) -> &SqliteStore {
        &self.store
    }
}

/// Queue tables in a database.
pub(crate) struct DatabaseUnderTest<D: TestDatabase> {
    store: D::Store,
    broker: Arc<DatabaseBroker<D>>,
    _guard: D::Guard,
}

impl<D: TestDatabase> BrokerUnderTest for DatabaseUnderTest<D> {
    type Database = D;

    const PREFETCH: Option<usize> = None;

    async fn start() -> Self {
        let (url, tables, guard) = D::fresh().await;
        let store = database::store::<D>(&url, &tables);
        store
            .migrate()
            .await
            .expect("migrations run on an empty database");
        let broker = Arc::new(DatabaseBroker::new(
            store.clone(),
            Duration::from_millis(50),
        ));
        Self {
            store,
            broker,
            _guard: guard,
        }
    }

    fn driver(&self) -> Arc<dyn BrokerDriver<D>> {
        self.broker.clone()
    }

    fn store(&self) -> &D::Store {
        &self.store
    }
}
