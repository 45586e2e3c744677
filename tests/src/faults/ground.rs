//! What a round runs on: a fresh database and a fresh place on a broker, gone at its end.

use std::path::{Path, PathBuf};
use std::process::Command;

use posta::operations::Operator;
use posta::operations::operator::{RedispatchSelection, RunOrder};
use posta::store::{LetterFilter, MigrationStore as _};
use posta::{Postgres, Sqlite};
use tokio::runtime::Runtime;

use super::checker::Queue;
use super::service::partitions;
use super::tables::Tables;
use crate::harness::postgres::{Guard, fresh};
use crate::harness::rabbitmq::Vhost;
use crate::world::BrokerKind;
use crate::world::database::store;

/// Which database a round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// The file system of a SQLite database, small enough to fill.
const DISK: &str = "256m";

pub(super) struct Ground {
    pub(super) database: DatabaseKind,
    pub(super) broker: BrokerKind,
    pub(super) database_url: String,
    pub(super) tables_name: String,
    pub(super) broker_url: String,
    pub(super) tables: Tables,
    pub(super) disk: Option<Disk>,
    pub(super) vhost: Option<Vhost>,
    operator: Hand,
    runtime: Runtime,
    _guard: Option<Guard>,
}

/// An operator at either database.
enum Hand {
    Sqlite(Operator<Sqlite>),
    Postgres(Operator<Postgres>),
}

/// Has the operator do something, whichever database it is at.
macro_rules! by_hand {
    ($ground:expr, $operator:ident => $action:expr) => {
        match &$ground.operator {
            Hand::Sqlite($operator) => $ground.runtime.block_on($action),
            Hand::Postgres($operator) => $ground.runtime.block_on($action),
        }
    };
}

impl Ground {
    pub(super) fn fresh(database: DatabaseKind, broker: BrokerKind) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let vhost = match broker {
            BrokerKind::Database => None,
            BrokerKind::RabbitMq => Some(runtime.block_on(Vhost::fresh())),
        };
        let broker_url = vhost.as_ref().map_or("database".to_owned(), Vhost::url);
        let (url, names, guard, disk) = match database {
            DatabaseKind::Sqlite => {
                let disk = Disk::fresh();
                let url = format!("sqlite://{}", disk.file().display());
                (url, posta::Tables::default(), None, Some(disk))
            }
            DatabaseKind::Postgres => {
                let (url, names, guard) = runtime.block_on(fresh());
                (url, names, Some(guard), None)
            }
        };
        let name = names.name().to_owned();
        let tables = match &disk {
            Some(disk) => Tables::Sqlite {
                file: disk.file(),
                prefix: name.clone(),
            },
            None => Tables::Postgres {
                url: url.clone(),
                schema: name.clone(),
            },
        };
        let who = "a fault run's operator";
        let operator = runtime.block_on(async {
            match database {
                DatabaseKind::Sqlite => {
                    let store = store::<Sqlite>(&url, &names);
                    store.migrate().await.expect("migrations run");
                    Hand::Sqlite(Operator::new(store, who).expect("an operator"))
                }
                DatabaseKind::Postgres => {
                    let store = store::<Postgres>(&url, &names);
                    store.migrate().await.expect("migrations run");
                    Hand::Postgres(Operator::new(store, who).expect("an operator"))
                }
            }
        });
        tables.create().expect("the services' tables");
        Self {
            database,
            broker,
            database_url: url,
            tables_name: name,
            broker_url,
            tables,
            disk,
            vhost,
            operator,
            runtime,
            _guard: guard,
        }
    }

    /// Mends everything that is dead, and begins a replay run of it, of so many a second; `false`: there
    /// is nothing, or the database does not answer.
    pub(super) fn replay(&self, rate: Option<u32>) -> bool {
        let mend = "INSERT INTO mended SELECT DISTINCT replace(message_id, '-', '') \
                    FROM {posta}dead_letter WHERE state = 'dead' ON CONFLICT DO NOTHING";
        if self.tables.run(mend).is_err() {
            return false;
        }
        let all = LetterFilter::default();
        let order = RunOrder {
            rate,
            ..RunOrder::default()
        };
        let begun = by_hand!(self, operator => async {
            operator.begin_run(&all, order, "it is mended").await.map(drop)
        });
        begun.is_ok()
    }

    /// Sends everything again that was dispatched.
    pub(super) fn redispatch(&self) -> Result<u64, String> {
        let all = RedispatchSelection::default();
        by_hand!(self, operator => async {
            let mut redispatch = operator.redispatch(&all, "a queue is gone").await?;
            redispatch.finish(drop).await
        })
        .map_err(|error| error.to_string())
    }

    /// What the broker says of its queues; nothing if they are tables.
    pub(super) fn queues(&self) -> Result<Vec<Queue>, String> {
        let Some(vhost) = &self.vhost else {
            return Ok(Vec::new());
        };
        let queues = vhost.queues().map_err(|error| error.to_string())?;
        let count = |queue: &serde_json::Value, name: &str| queue[name].as_u64();
        let queues = queues.iter().map(|queue| {
            Some(Queue {
                name: queue["name"].as_str()?.to_owned(),
                ready: count(queue, "messages_ready")?,
                unacknowledged: count(queue, "messages_unacknowledged")?,
            })
        });
        let all: Option<Vec<Queue>> = queues.collect();
        all.ok_or_else(|| "not all queues are counted yet".to_owned())
    }

    /// Deletes a consumer's queues with all that is in them; returns how many messages that were.
    pub(super) fn delete_queues(&self, consumer: &str) -> Result<i64, String> {
        let Some(vhost) = &self.vhost else {
            let its = format!("FROM {{posta}}queue WHERE consumer = '{consumer}'");
            let count = self.tables.number(&format!("SELECT COUNT(*) {its}"))?;
            self.tables.run(&format!("DELETE {its}"))?;
            return Ok(count);
        };
        let mut count = 0;
        for partition in 0..partitions(consumer, 0) {
            // Its first layout: in such a round nobody changes it.
            let name = format!("{consumer}.1.{partition}");
            count += vhost.queue(&name)["messages"].as_i64().unwrap_or_default();
            vhost.delete_queue(&name);
        }
        Ok(count)
    }
}

/// The folder of a SQLite file. If it may, it is a file system of its own, which can be filled.
pub(super) struct Disk {
    folder: PathBuf,
    is_mounted: bool,
}

impl Disk {
    fn fresh() -> Self {
        let name = format!("posta-faults-{}", uuid::Uuid::now_v7().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("the temporary directory can be written");
        let is_mounted = mount(&folder);
        Self { folder, is_mounted }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("posta.db")
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    /// Whether it can be filled: only root can have a file system of its own.
    pub(super) fn can_be_filled(&self) -> bool {
        self.is_mounted
    }

    /// Takes all that is left, until [`Disk::free`].
    pub(super) fn fill(&self) {
        use std::io::Write as _;
        let mut ballast = std::fs::File::create(self.ballast()).expect("a file");
        for piece in [1 << 20, 4096] {
            let bytes = vec![0_u8; piece];
            while ballast.write_all(&bytes).is_ok() {}
        }
    }

    pub(super) fn free(&self) {
        // There may be none.
        let _ = std::fs::remove_file(self.ballast());
    }
}

fn mount(folder: &Path) -> bool {
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o"])
        .arg(format!("size={DISK}"));
    let mounted = mount.arg("posta-faults").arg(folder).output();
    mounted.is_ok_and(|output| output.status.success())
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            let mut unmount = Command::new("umount");
            // Lazily: whoever was killed a moment ago may still have the file open.
            let _ = unmount.arg("-l").arg(&self.folder).output();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
