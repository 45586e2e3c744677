use std::fmt::Write as _;

use diesel::sql_types::{Bool, Integer, Text};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use sha2::{Digest, Sha256};

use super::PostgresStore;
use super::classify::failed;
use super::statement::{Statement, qualified, statements};
use crate::store::{AppliedMigration, MigrationStore, Store, StoreError, StoreErrorKind, Tables};

/// One version of the tables. What has been released never changes: its checksum is on record.
struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "core",
        sql: include_str!("../../../migrations/postgres/0001_core.sql"),
    },
    Migration {
        version: 2,
        name: "failure",
        sql: include_str!("../../../migrations/postgres/0002_failure.sql"),
    },
    Migration {
        version: 3,
        name: "layout",
        sql: include_str!("../../../migrations/postgres/0003_layout.sql"),
    },
];

const CREATE_SCHEMA: &str = r#"CREATE SCHEMA IF NOT EXISTS "{name}";"#;

/// Which versions have been run. Posta's own record: the application's diesel migrations have
/// theirs.
const CREATE_RECORD: &str = "\
CREATE TABLE IF NOT EXISTS {posta}migration (
    version    integer NOT NULL,
    name       text NOT NULL,
    -- SHA-256 of the version's SQL, in hexadecimal.
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);";

statements!(MigrationTexts {
    // One at a time for each schema; the lock ends with the transaction, as a pooler in transaction
    // mode needs it. Whoever had to wait then reads what the other has recorded.
    lock = "
SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended('posta migration of {name}', 0))) AS taken";

    schema_exists = "
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{name}')";

    applied = "
SELECT version, checksum FROM {posta}migration ORDER BY version";

    record = "
INSERT INTO {posta}migration (version, name, checksum) VALUES ($1, $2, $3)";

    create_schema = CREATE_SCHEMA;
    create_record = CREATE_RECORD;
});

impl MigrationStore for PostgresStore {
    async fn migrate(&self) -> Result<Vec<AppliedMigration>, StoreError> {
        let mut session = self.begin().await?;
        match self.run_missing(&mut session).await {
            Ok(applied) => {
                session.commit().await?;
                Ok(applied)
            }
            Err(error) => {
                session.rollback().await;
                Err(error)
            }
        }
    }

    async fn check_migrations(&self) -> Result<(), StoreError> {
        let mut session = self.begin().await?;
        let checked = self.missing(&mut session, CHECK).await;
        session.rollback().await;
        match checked?.first() {
            None => Ok(()),
            Some(missing) => {
                let why = format!(
                    "version {} of the tables in schema {} is missing: run posta's migrations (`migrate`, or the printed SQL)",
                    missing.version,
                    self.tables().name(),
                );
                Err(StoreError::new(CHECK, StoreErrorKind::Schema, why))
            }
        }
    }
}

const MIGRATE: &str = "run migrations";
const CHECK: &str = "check the migrations";

impl PostgresStore {
    async fn run_missing(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Vec<AppliedMigration>, StoreError> {
        let texts = &self.texts().migration;
        Statement::new(&texts.lock)
            .returning::<(Integer,)>()
            .row::<(i32,)>(connection, MIGRATE)
            .await?;
        // Not left to IF NOT EXISTS: that asks for the right to create schemas even where there is
        // nothing to create.
        let (exists,): (bool,) = Statement::new(&texts.schema_exists)
            .returning::<(Bool,)>()
            .row(connection, MIGRATE)
            .await?;
        if !exists {
            run(connection, &texts.create_schema).await?;
        }
        run(connection, &texts.create_record).await?;
        let mut applied = Vec::new();
        for migration in self.missing(connection, MIGRATE).await? {
            run(connection, &qualified(self.tables(), migration.sql)).await?;
            Statement::new(&texts.record)
                .bind::<Integer, _>(i32::try_from(migration.version).unwrap_or(i32::MAX))
                .bind::<Text, _>(migration.name)
                .bind::<Text, _>(migration.checksum())
                .run(connection, MIGRATE)
                .await?;
            applied.push(AppliedMigration {
                version: migration.version,
                name: migration.name.to_owned(),
            });
        }
        Ok(applied)
    }

    /// The migrations that are not on record. Versions on record that this code does not know are a
    /// newer process's.
    async fn missing(
        &self,
        connection: &mut AsyncPgConnection,
        operation: &'static str,
    ) -> Result<Vec<&'static Migration>, StoreError> {
        let recorded: Vec<(i32, String)> = Statement::new(&self.texts().migration.applied)
            .returning::<(Integer, Text)>()
            .rows(connection, operation)
            .await?;
        let mut missing = Vec::new();
        for migration in MIGRATIONS {
            let found = recorded.iter().find(|(version, _)| {
                u32::try_from(*version).is_ok_and(|version| version == migration.version)
            });
            match found {
                None => missing.push(migration),
                Some((_, checksum)) if *checksum == migration.checksum() => {}
                Some(_) => {
                    let why = format!(
                        "version {} ({}) is on record with another content: the tables are not this posta's",
                        migration.version, migration.name
                    );
                    return Err(StoreError::new(operation, StoreErrorKind::Schema, why));
                }
            }
        }
        Ok(missing)
    }
}

impl Migration {
    fn checksum(&self) -> String {
        let mut text = String::new();
        for byte in Sha256::digest(self.sql.as_bytes()) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

async fn run(connection: &mut AsyncPgConnection, sql: &str) -> Result<(), StoreError> {
    let result = connection.batch_execute(sql).await;
    result.map_err(|error| failed(connection, MIGRATE, error))
}

/// Everything that `migrate` would run on an empty database.
pub(super) fn sql(tables: &Tables) -> String {
    let mut sql = String::from(
        "-- Posta's tables on PostgreSQL, all versions in order, in one transaction. (A tool that begins and commits one\n\
         -- itself takes out BEGIN and COMMIT.)\n\nBEGIN;\n\n",
    );
    for part in [CREATE_SCHEMA, CREATE_RECORD] {
        sql += &format!("{}\n\n", qualified(tables, part));
    }
    for migration in MIGRATIONS {
        let record = format!(
            "INSERT INTO {{posta}}migration (version, name, checksum) VALUES ({}, '{}', '{}');",
            migration.version,
            migration.name,
            migration.checksum()
        );
        sql += &format!(
            "{}\n{}\n",
            qualified(tables, migration.sql),
            qualified(tables, &record)
        );
    }
    sql += "\nCOMMIT;\n";
    sql
}
