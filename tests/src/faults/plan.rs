use std::path::{Path, PathBuf};
use std::time::Duration;

use super::checker::{Answer, Contract};
use super::ground::DatabaseKind;
use super::message::{AUDIT, BILLING, LEDGER};
use super::points::OF_LAYOUTS;
use super::service::{HELD_MAX, PREFETCH};
use crate::world::BrokerKind;

/// Which process runs what. Two processes of each service share its consumers; the last has a part
/// in all of them.
const SEATS: [(&str, &[&str], bool); 5] = [
    ("shop-1", &[LEDGER], true),
    ("shop-2", &[LEDGER, BILLING], true),
    ("books-1", &[AUDIT, BILLING], false),
    ("books-2", &[AUDIT], false),
    ("all", &[LEDGER, BILLING, AUDIT], true),
];

/// One round: what it runs on, how long, and what may happen.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) database: DatabaseKind,
    pub(super) broker: BrokerKind,
    pub(super) seed: u64,
    /// How long things happen.
    pub(super) chaos: Duration,
    /// A process more than these can be made to die at a time: none, if 0.
    pub(super) aims_max: usize,
    /// Between two faults that are no crash at a point, on average; `None`: there are none.
    pub(super) pause: Option<Duration>,
    /// The servers themselves may be disturbed.
    pub(super) servers: bool,
    /// A consumer loses its queues in the middle.
    pub(super) loses_queues: bool,
    /// The numbers of partitions change, again and again.
    pub(super) redivides: bool,
    /// Only these points are aimed at, if any is named.
    pub(super) points: &'static [&'static str],
    /// The services make this mistake.
    pub(super) mistake: Option<&'static str>,
    /// Messages a second that are sent, if the services keep up.
    pub(super) rate: u32,
    /// The tables are judged this often, if the database answers.
    pub(super) look_interval: Duration,
    /// How long everything that can go on may take to go on, when nothing disturbs it any more.
    pub(super) patience: Duration,
    /// Logs and tables are kept even if nothing is wrong.
    pub(super) keeps_all: bool,
    /// Where logs and, if something is wrong, tables are kept.
    pub(super) evidence: PathBuf,
}

impl Plan {
    /// Everything may happen, for so long.
    pub(super) fn of_everything(
        database: DatabaseKind,
        broker: BrokerKind,
        seed: u64,
        chaos: Duration,
        evidence: &Path,
    ) -> Self {
        let name = combination(database, broker);
        // A third of all rounds each: with queues lost, with other numbers of partitions, with neither.
        let redivides = seed % 3 == 1;
        Self {
            database,
            broker,
            seed,
            chaos,
            aims_max: if redivides { 5 } else { 3 },
            // A change takes longer than most things that disturb it.
            pause: Some(Duration::from_millis(if redivides { 2500 } else { 1100 })),
            servers: true,
            loses_queues: seed.is_multiple_of(3),
            redivides,
            points: if redivides { &OF_LAYOUTS } else { &[] },
            mistake: None,
            rate: 200,
            look_interval: Duration::from_secs(12),
            patience: Duration::from_secs(120),
            keeps_all: std::env::var_os("POSTA_TEST_FAULTS_KEEP").is_some(),
            evidence: evidence.join(format!("{name}-{seed}")),
        }
    }

    /// Names and consumers of the processes, and whether they send.
    pub(super) fn seats(&self) -> &'static [(&'static str, &'static [&'static str], bool)] {
        &SEATS
    }

    /// What is promised of the services.
    pub(super) fn contract(&self) -> Contract {
        Contract {
            takers: vec![
                ("faults.order", vec![LEDGER, AUDIT]),
                ("faults.invoice", vec![BILLING, AUDIT]),
                ("faults.receipt", vec![AUDIT]),
                ("faults.note", vec![AUDIT]),
            ],
            answers: vec![
                Answer {
                    of: LEDGER,
                    message_type: "faults.invoice",
                    key: ("k", "i-k"),
                },
                Answer {
                    of: BILLING,
                    message_type: "faults.receipt",
                    key: ("i", "r"),
                },
            ],
            held_max: HELD_MAX,
            prefetch: u64::from(PREFETCH),
            queues_in_database: self.broker == BrokerKind::Database,
        }
    }
}

/// Database and broker in words.
pub(super) fn combination(database: DatabaseKind, broker: BrokerKind) -> &'static str {
    match (database, broker) {
        (DatabaseKind::Sqlite, BrokerKind::Database) => "sqlite-database",
        (DatabaseKind::Sqlite, BrokerKind::RabbitMq) => "sqlite-rabbitmq",
        (DatabaseKind::Postgres, BrokerKind::Database) => "postgres-database",
        (DatabaseKind::Postgres, BrokerKind::RabbitMq) => "postgres-rabbitmq",
    }
}
