//! A world for one test: a fresh database and a fresh place on a broker, a service that runs on
//! them, in this process or in child processes, and a judge that reads tables only.
//!
//! The driver of a test and its judge are apart: [`service`] knows handlers, [`effects`] knows
//! rows.

pub(crate) mod child;
pub(crate) mod database;
pub(crate) mod effects;
pub(crate) mod gate;
pub(crate) mod log;
pub(crate) mod script;
pub(crate) mod service;

use std::time::{Duration, Instant};

use posta::{Broker, Tables};

pub(crate) use self::database::TestDatabase;
use crate::harness::rabbitmq::Vhost;

/// The longest time that a test waits for something that is to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Which broker a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerKind {
    Database,
    RabbitMq,
}

/// A fresh database and a fresh place on a broker; both are gone when it is dropped.
pub(crate) struct World<D: TestDatabase> {
    pub(crate) database_url: String,
    pub(crate) tables: Tables,
    pub(crate) broker_url: String,
    _database: D::Guard,
    vhost: Option<Vhost>,
}

impl<D: TestDatabase> World<D> {
    /// Makes a world with Posta's and the test's own tables in it.
    pub(crate) async fn fresh(broker: BrokerKind) -> Self {
        let vhost = match broker {
            BrokerKind::Database => None,
            BrokerKind::RabbitMq => Some(Vhost::fresh().await),
        };
        Self::on(vhost).await
    }

    /// The same on RabbitMQ, for a test that disturbs the server: it waits for all others and has
    /// the server to itself.
    pub(crate) async fn alone() -> Self {
        Self::on(Some(Vhost::alone().await)).await
    }

    async fn on(vhost: Option<Vhost>) -> Self {
        log::show_logs();
        let (database_url, tables, guard) = D::fresh().await;
        let broker_url = match &vhost {
            None => "database".to_owned(),
            Some(vhost) => vhost.url(),
        };
        let world = Self {
            database_url,
            tables,
            broker_url,
            _database: guard,
            vhost,
        };
        let store = world.store();
        posta::store::MigrationStore::migrate(&store)
            .await
            .expect("migrations run");
        effects::create_table::<D>(&store).await;
        world
    }

    pub(crate) fn broker(&self) -> Broker {
        Broker::from_url(&self.broker_url).expect("a valid broker URL")
    }

    /// Its virtual host, in a world on RabbitMQ.
    pub(crate) fn vhost(&self) -> &Vhost {
        self.vhost.as_ref().expect("a world on RabbitMQ")
    }

    /// A store of its own, for looking at tables from outside.
    pub(crate) fn store(&self) -> D::Store {
        database::store::<D>(&self.database_url, &self.tables)
    }
}

/// Asks again and again until the answer is yes.
///
/// # Panics
/// When it is not within [`PATIENCE`].
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(
            started.elapsed() < PATIENCE,
            "in vain waited {PATIENCE:?} until {what}"
        );
        actix_rt::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Instantiates generic tests `async fn name<D: TestDatabase>(broker: BrokerKind)` on all four
/// combinations of database and broker.
macro_rules! on_every_combination {
    ($($name:ident),+ $(,)?) => {
        mod sqlite_with_database_broker {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Sqlite>($crate::world::BrokerKind::Database).await;
            })+
        }
        mod sqlite_with_rabbitmq {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Sqlite>($crate::world::BrokerKind::RabbitMq).await;
            })+
        }
        mod postgres_with_database_broker {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Postgres>($crate::world::BrokerKind::Database).await;
            })+
        }
        mod postgres_with_rabbitmq {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Postgres>($crate::world::BrokerKind::RabbitMq).await;
            })+
        }
    };
}

pub(crate) use on_every_combination;
