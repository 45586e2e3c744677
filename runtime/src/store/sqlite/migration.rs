use std::fmt::Write as _;

use diesel::connection::SimpleConnection;
use diesel::sql_types::{BigInt, Text};
use diesel::{QueryResult, SqliteConnection};
use sha2::{Digest, Sha256};

use super::SqliteStore;
use super::connect::get;
use super::connection::on_thread;
use super::statement::Sql;
use crate::store::{AppliedMigration, MigrationStore, Store, StoreError, StoreErrorKind, Tables};

/// A migration that this code knows.
struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

/// All of them, in order. A migration never changes once it was released: its checksum is in the
/// databases that ran it.
const MIGRATIONS: [Migration; 3] = [
    Migration {
        version: 1,
        name: "core",
        sql: include_str!("../../../migrations/sqlite/0001_core.sql"),
    },
    Migration {
        version: 2,
        name: "failure",
        sql: include_str!("../../../migrations/sqlite/0002_failure.sql"),
    },
    Migration {
        version: 3,
        name: "layout",
        sql: include_str!("../../../migrations/sqlite/0003_layout.sql"),
    },
];

/// Posta's own record of them, beside the application's.
const HISTORY: &str = "CREATE TABLE IF NOT EXISTS {posta}migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000)
);
";

impl Migration {
    /// SHA-256 of its text, in hexadecimal.
    fn checksum(&self) -> String {
        Sha256::digest(self.sql.as_bytes())
            .iter()
            .fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
    }
}

/// Everything that `migrate` would run on an empty database, as one transaction.
pub(super) fn sql(tables: &Tables) -> String {
    let prefix = format!("{}_", tables.name());
    let mut sql = format!("BEGIN IMMEDIATE;\n\n{HISTORY}");
    for migration in &MIGRATIONS {
        let Migration {
            version,
            name,
            sql: text,
        } = migration;
        let checksum = migration.checksum();
        let _ = write!(
            sql,
            "\n{text}\nINSERT INTO {{posta}}migration (version, name, checksum) VALUES ({version}, '{name}', '{checksum}');\n"
        );
    }
    sql.push_str("\nCOMMIT;\n");
    tables.qualify(&sql, &prefix)
}

impl MigrationStore for SqliteStore {
    async fn migrate(&self) -> Result<Vec<AppliedMigration>, StoreError> {
        // The write lock, had before anything is read, keeps other processes out until all is done.
        let mut session = self.begin().await?;
        let store = self.clone();
        let applied = on_thread(&mut session, "migrate", move |connection| {
            apply(&store, connection)
        })
        .await?;
        check("migrate", &applied.history)?;
        session.commit().await?;
        Ok(applied.ran)
    }

    async fn check_migrations(&self) -> Result<(), StoreError> {
        let mut connection = get(self.pool()).await?;
        let history = self.sql(READ_HISTORY);
        let history = on_thread(&mut connection, "check the migrations", move |connection| {
            read_history(&history, connection)
        })
        .await?;
        check("check the migrations", &history)
    }
}

const READ_HISTORY: &str = "SELECT version, checksum FROM {posta}migration ORDER BY version";

type History = Vec<(i64, String)>;

fn read_history(sql: &Sql, connection: &mut SqliteConnection) -> QueryResult<History> {
    sql.statement()
        .rows::<(BigInt, Text), (i64, String)>(connection)
}

struct Applied {
    ran: Vec<AppliedMigration>,
    history: History,
}

fn apply(store: &SqliteStore, connection: &mut SqliteConnection) -> QueryResult<Applied> {
    let prefix = format!("{}_", store.tables().name());
    connection.batch_execute(&store.tables().qualify(HISTORY, &prefix))?;
    let read = store.sql(READ_HISTORY);
    let record =
        store.sql("INSERT INTO {posta}migration (version, name, checksum) VALUES (?, ?, ?)");
    let known = read_history(&read, connection)?;
    let mut ran = Vec::new();
    for migration in &MIGRATIONS {
        let Migration { version, name, sql } = migration;
        if known.iter().any(|(known, _)| *known == i64::from(*version)) {
            continue;
        }
        connection.batch_execute(&store.tables().qualify(sql, &prefix))?;
        record
            .bind(*version)
            .bind(*name)
            .bind(migration.checksum())
            .execute(connection)?;
        ran.push(AppliedMigration {
            version: *version,
            name: (*name).to_owned(),
        });
    }
    Ok(Applied {
        ran,
        history: read_history(&read, connection)?,
    })
}

/// Whether each migration that this code knows was run, in this text. Later ones are fine: they
/// keep to the version before.
fn check(operation: &'static str, history: &History) -> Result<(), StoreError> {
    for migration in &MIGRATIONS {
        let Migration { version, name, .. } = migration;
        let ran = history.iter().find(|(ran, _)| *ran == i64::from(*version));
        let problem = match ran {
            None => format!("migration {version} ({name}) has not been run"),
            Some((_, checksum)) if *checksum != migration.checksum() => {
                format!(
                    "migration {version} ({name}) was run with another text than this code knows"
                )
            }
            Some(_) => continue,
        };
        return Err(StoreError::new(operation, StoreErrorKind::Schema, problem));
    }
    Ok(())
}
