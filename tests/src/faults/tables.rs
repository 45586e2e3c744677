//! The tables, read past Posta: one statement, one moment.

use std::path::PathBuf;

use diesel::connection::SimpleConnection as _;
use diesel::sql_types::{Nullable, Text};
use diesel::{Connection as _, PgConnection, RunQueryDsl as _, SqliteConnection};

/// A database, reached without Posta. Each call has a connection of its own, since the server may be
/// killed at any moment.
#[derive(Clone, Debug)]
pub(super) enum Tables {
    Sqlite { file: PathBuf, prefix: String },
    Postgres { url: String, schema: String },
}

#[derive(diesel::QueryableByName)]
struct Row {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

/// A message that a transaction says it has sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) message_type: String,
    pub(super) key: String,
    pub(super) number: i64,
    pub(super) id: String,
    /// How many tries fail at the consumer that answers it; below zero, all until it is mended.
    pub(super) failures: i64,
    pub(super) hash: i64,
}

/// What a handler did.
#[derive(Clone, Debug)]
pub(super) struct Took {
    pub(super) consumer: String,
    pub(super) key: String,
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) position: i64,
    /// The greatest number of its key that its handler saw.
    pub(super) seen: i64,
    pub(super) attempt: i64,
    pub(super) hash: i64,
}

/// A row of a message that is on its way, or waits.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Empty: on its way to all.
    pub(super) consumer: String,
    pub(super) id: String,
    pub(super) key: String,
    pub(super) position: i64,
    pub(super) attempts: i64,
    /// Only the place of a dead letter.
    pub(super) parked: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) number: i64,
    /// Empty: at dispatch.
    pub(super) consumer: String,
    pub(super) id: String,
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) error: String,
}

/// What the tables say at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) sent: Vec<Sent>,
    pub(super) took: Vec<Took>,
    pub(super) scheduled: Vec<Way>,
    pub(super) outbox: Vec<Way>,
    pub(super) dispatched: Vec<Way>,
    /// Of the database broker.
    pub(super) queue: Vec<Way>,
    pub(super) inbox: Vec<Way>,
    pub(super) retry: Vec<Way>,
    pub(super) letters: Vec<Letter>,
}

impl Tables {
    /// Runs statements.
    pub(super) fn run(&self, sql: &str) -> Result<(), String> {
        let sql = self.named(sql);
        match self {
            Self::Sqlite { .. } => self.sqlite()?.batch_execute(&sql),
            Self::Postgres { .. } => self.postgres()?.batch_execute(&sql),
        }
        .map_err(|error| error.to_string())
    }

    /// The column `value`, a text, of what a query returns.
    pub(super) fn lines(&self, sql: &str) -> Result<Vec<String>, String> {
        let query = diesel::sql_query(self.named(sql));
        let rows: Result<Vec<Row>, _> = match self {
            Self::Sqlite { .. } => query.load(&mut self.sqlite()?),
            Self::Postgres { .. } => query.load(&mut self.postgres()?),
        };
        let rows = rows.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().filter_map(|row| row.value).collect())
    }

    /// One number.
    pub(super) fn number(&self, sql: &str) -> Result<i64, String> {
        let lines = self.lines(&format!("SELECT CAST(({sql}) AS text) AS value"))?;
        let number = lines.first().and_then(|line| line.parse().ok());
        number.ok_or_else(|| format!("{sql}: {lines:?} is no number"))
    }

    /// Makes the tables of the services.
    pub(super) fn create(&self) -> Result<(), String> {
        let number = match self {
            Self::Sqlite { .. } => "INTEGER PRIMARY KEY AUTOINCREMENT",
            Self::Postgres { .. } => "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        };
        self.run(&format!(
            "CREATE TABLE sent (position {number}, type text NOT NULL, key text NOT NULL, \
                 number bigint NOT NULL, message_id text NOT NULL, failures bigint NOT NULL, \
                 hash bigint NOT NULL);
             CREATE TABLE took (position {number}, consumer text NOT NULL, key text NOT NULL, \
                 number bigint NOT NULL, message_id text NOT NULL, seen bigint NOT NULL, \
                 attempt bigint NOT NULL, hash bigint NOT NULL);
             CREATE INDEX took_key ON took (consumer, key, number);
             CREATE TABLE counter (key text PRIMARY KEY, number bigint NOT NULL);
             CREATE TABLE control (name text PRIMARY KEY, value bigint NOT NULL);
             CREATE TABLE mended (message_id text PRIMARY KEY);
             INSERT INTO control VALUES ('rate', 0);"
        ))
    }

    /// Reads all of it in one statement: nothing can move from one table to another meanwhile.
    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        let id = self.plain("message_id");
        let key = "COALESCE(ordering_key, '')";
        let parked = "CAST(CAST(parked AS integer) AS text)";
        let line = |noun: &str, columns: &[&str]| {
            let columns = columns.join(" || '|' || ");
            let table = match noun {
                "sent" | "took" => noun.to_owned(),
                noun => format!("{{posta}}{noun}"),
            };
            format!("SELECT '{noun}|' || {columns} AS value FROM {table}")
        };
        let text = |column: &str| format!("CAST({column} AS text)");
        let (position, attempts) = (text("position"), text("attempts"));
        let zero = "'0'";
        let selects = [
            line(
                "sent",
                &[
                    "type",
                    "key",
                    &text("number"),
                    "message_id",
                    &text("failures"),
                    &text("hash"),
                ],
            ),
            line(
                "took",
                &[
                    "consumer",
                    "key",
                    &text("number"),
                    "message_id",
                    &position,
                    &text("seen"),
                    &text("attempt"),
                    &text("hash"),
                ],
            ),
            line("scheduled", &["''", &id, key, &position, zero, zero]),
            line("outbox", &["''", &id, key, &position, &attempts, parked]),
            line("dispatched", &["''", &id, key, &position, zero, zero]),
            line("queue", &["consumer", &id, key, &position, zero, zero]),
            line("inbox", &["consumer", &id, "''", zero, zero, zero]),
            line(
                "retry",
                &["consumer", &id, key, &position, &attempts, parked],
            ),
            line(
                "dead_letter",
                &[
                    &position,
                    "COALESCE(consumer, '')",
                    "COALESCE(replace(message_id, '-', ''), '')",
                    "state",
                    "reason",
                    "substr(error, 1, 300)",
                ],
            ),
        ];
        let mut snapshot = Snapshot::default();
        for line in self.lines(&selects.join(" UNION ALL "))? {
            snapshot
                .add(&line)
                .ok_or_else(|| format!("not understood: {line}"))?;
        }
        snapshot.took.sort_unstable_by_key(|took| took.position);
        snapshot.retry.sort_unstable_by_key(|row| row.position);
        Ok(snapshot)
    }

    /// The payloads that Posta's tables keep, in hexadecimal: message id and payload. Of what is on
    /// its way, of what was dispatched, and of dead letters.
    pub(super) fn payloads(&self) -> Result<Vec<(String, String)>, String> {
        let hex = match self {
            Self::Sqlite { .. } => "lower(hex(payload))",
            Self::Postgres { .. } => "encode(payload, 'hex')",
        };
        let selects: Vec<String> = ["outbox", "dispatched", "retry"]
            .into_iter()
            .map(|noun| (noun, self.plain("message_id")))
            .chain([("dead_letter", "replace(message_id, '-', '')".to_owned())])
            .map(|(noun, id)| {
                // A dead letter's place is without its payload.
                let which = match noun {
                    "outbox" | "retry" => "NOT parked",
                    _ => "message_id IS NOT NULL",
                };
                format!("SELECT {id} || '|' || {hex} AS value FROM {{posta}}{noun} WHERE {which}")
            })
            .collect();
        let split = |line: String| {
            let (id, payload) = line.split_once('|')?;
            Some((id.to_owned(), payload.to_owned()))
        };
        let lines = self.lines(&selects.join(" UNION ALL "))?;
        Ok(lines.into_iter().filter_map(split).collect())
    }

    /// Who owns what until when, who is alive, and what waits for what: to tell of when something does
    /// not go on.
    pub(super) fn details(&self) -> Vec<String> {
        let (now, binary) = match self {
            Self::Sqlite { .. } => (
                "CAST(CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer) AS text)",
                ["lower(hex(", "))"],
            ),
            Self::Postgres { .. } => ("CAST(clock_timestamp() AS text)", ["CAST(", " AS text)"]),
        };
        let binary = |column: &str| format!("COALESCE({}{column}{}, '-')", binary[0], binary[1]);
        let text = |column: &str| format!("COALESCE(CAST({column} AS text), '-')");
        let line = |noun: &str, columns: &[String], which: &str| {
            let columns = columns.join(" || ' ' || ");
            format!(" UNION ALL SELECT '{noun} ' || {columns} FROM {{posta}}{noun} WHERE {which}")
        };
        let sql = [
            format!("SELECT 'now ' || {now} AS value"),
            line(
                "lease",
                &[
                    "resource".to_owned(),
                    text("number"),
                    binary("owner"),
                    text("epoch"),
                    text("expires_at"),
                ],
                "resource LIKE 'consumer%' OR number < 4",
            ),
            line(
                "member",
                &["resource".to_owned(), binary("member"), text("expires_at")],
                "1 = 1",
            ),
            line(
                "retry",
                &[
                    "consumer".to_owned(),
                    text("position"),
                    binary("message_id"),
                    text("ordering_key"),
                    text("attempts"),
                    text("deaths"),
                    text("due_at"),
                    binary("claimed_by"),
                    text("last_error"),
                ],
                "1 = 1",
            ),
            line(
                "outbox",
                &[
                    text("position"),
                    binary("message_id"),
                    text("ordering_key"),
                    text("attempts"),
                    text("held_until"),
                    text("last_error"),
                ],
                "1 = 1",
            ),
            line(
                "replay_run",
                &[
                    text("position"),
                    "state".to_owned(),
                    text("waiting"),
                    text("replaying"),
                ],
                "ended_at IS NULL",
            ),
        ];
        self.lines(&sql.concat())
            .unwrap_or_else(|error| vec![error])
    }

    /// `{posta}` in a statement stands for the qualifier of Posta's tables.
    fn named(&self, sql: &str) -> String {
        match self {
            Self::Sqlite { prefix, .. } => sql.replace("{posta}", &format!("{prefix}_")),
            Self::Postgres { schema, .. } => sql.replace("{posta}", &format!("\"{schema}\".")),
        }
    }

    fn plain(&self, column: &str) -> String {
        match self {
            Self::Sqlite { .. } => format!("lower(hex({column}))"),
            Self::Postgres { .. } => format!("replace(CAST({column} AS text), '-', '')"),
        }
    }

    fn sqlite(&self) -> Result<SqliteConnection, String> {
        let Self::Sqlite { file, .. } = self else {
            return Err("not a file".to_owned());
        };
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let path = file.to_string_lossy();
        let mut connection = SqliteConnection::establish(&path).map_err(|error| told(&error))?;
        let patience = "PRAGMA busy_timeout = 10000";
        let set = connection.batch_execute(patience);
        set.map(|()| connection).map_err(|error| told(&error))
    }

    fn postgres(&self) -> Result<PgConnection, String> {
        let Self::Postgres { url, .. } = self else {
            return Err("not a server".to_owned());
        };
        let url = format!("{url}?connect_timeout=3");
        PgConnection::establish(&url).map_err(|error| error.to_string())
    }
}

impl Snapshot {
    fn add(&mut self, line: &str) -> Option<()> {
        let mut parts = line.split('|');
        let table = parts.next()?;
        let mut text = || parts.next().map(str::to_owned);
        match table {
            "sent" => self.sent.push(Sent {
                message_type: text()?,
                key: text()?,
                number: text()?.parse().ok()?,
                id: text()?,
                failures: text()?.parse().ok()?,
                hash: text()?.parse().ok()?,
            }),
            "took" => self.took.push(Took {
                consumer: text()?,
                key: text()?,
                number: text()?.parse().ok()?,
                id: text()?,
                position: text()?.parse().ok()?,
                seen: text()?.parse().ok()?,
                attempt: text()?.parse().ok()?,
                hash: text()?.parse().ok()?,
            }),
            "dead_letter" => self.letters.push(Letter {
                number: text()?.parse().ok()?,
                consumer: text()?,
                id: text()?,
                state: text()?,
                reason: text()?,
                error: text()?,
            }),
            _ => {
                let way = Way {
                    consumer: text()?,
                    id: text()?,
                    key: text()?,
                    position: text()?.parse().ok()?,
                    attempts: text()?.parse().ok()?,
                    parked: text()? == "1",
                };
                match table {
                    "scheduled" => self.scheduled.push(way),
                    "outbox" => self.outbox.push(way),
                    "dispatched" => self.dispatched.push(way),
                    "queue" => self.queue.push(way),
                    "inbox" => self.inbox.push(way),
                    "retry" => self.retry.push(way),
                    _ => return None,
                }
            }
        }
        Some(())
    }
}
