use posta::store::Store;

use crate::harness;
use crate::world::TestDatabase;

/// A row of a message that is on its way or waits.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Whose; empty for all.
    pub(super) consumer: String,
    pub(super) id: String,
    pub(super) key: String,
    pub(super) position: i64,
    /// Only the place of a dead letter.
    pub(super) parked: bool,
    pub(super) letter: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) number: i64,
    /// Empty: at dispatch.
    pub(super) consumer: String,
    pub(super) id: String,
    pub(super) parked: bool,
    pub(super) state: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) consumer: String,
    pub(super) id: String,
    pub(super) position: i64,
    /// How many effects of its key its handler saw.
    pub(super) seen: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) position: i64,
    pub(super) name: String,
    pub(super) letter: Option<i64>,
}

/// What the tables say at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) scheduled: Vec<Row>,
    pub(super) outbox: Vec<Row>,
    pub(super) queue: Vec<Row>,
    pub(super) retry: Vec<Row>,
    pub(super) letters: Vec<Letter>,
    pub(super) effects: Vec<Effect>,
    /// In the order in which they were done.
    pub(super) actions: Vec<Action>,
}

/// Reads all of it in one statement: nothing can move from one table to another meanwhile.
pub(super) async fn snapshot<D>(store: &D::Store) -> Snapshot
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let mut session = store.begin_read().await.expect("a transaction");
    let sql = statement::<D>(store);
    let lines = <D as harness::database::TestDatabase>::texts(&mut session, &sql).await;
    session.rollback().await;
    let mut snapshot = Snapshot::default();
    for line in lines.into_iter().flatten() {
        snapshot.add(&line);
    }
    snapshot.effects.sort_by_key(|effect| effect.position);
    snapshot.actions.sort_by_key(|action| action.position);
    snapshot
}

/// What else there is to know when something does not go on: what waits, who has claimed it, who
/// owns what until when, and who is alive.
pub(super) async fn details<D>(store: &D::Store) -> Vec<String>
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let (now, id) = match D::KIND {
        "sqlite" => (
            "CAST(CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer) AS text)",
            ["lower(hex(", "))"],
        ),
        _ => ("CAST(clock_timestamp() AS text)", ["CAST(", " AS text)"]),
    };
    let table = |noun: &str| <D as harness::database::TestDatabase>::table(store.tables(), noun);
    let id = |column: &str| format!("COALESCE({}{column}{}, '-')", id[0], id[1]);
    let text = |column: &str| format!("COALESCE(CAST({column} AS text), '-')");
    let line = |noun: &str, columns: &[(&str, String)], which: &str| {
        let columns: Vec<String> = columns
            .iter()
            .map(|(name, value)| format!("', {name} ' || {value}"))
            .collect();
        let (columns, table) = (columns.join(" || "), table(noun));
        format!(" UNION ALL SELECT '{noun}' || {columns} FROM {table} WHERE {which}")
    };
    let mut sql = format!("SELECT 'now ' || {now} AS value");
    sql += &line(
        "retry",
        &[
            ("consumer", "consumer".to_owned()),
            ("position", text("position")),
            ("slot", text("slot")),
            ("type", "message_type".to_owned()),
            ("attempts", text("attempts")),
            ("deaths", text("deaths")),
            ("held at", text("held_at")),
            ("due at", text("due_at")),
            ("claimed by", id("claimed_by")),
            ("error", text("last_error")),
        ],
        "true",
    );
    sql += &line(
        "outbox",
        &[
            ("position", text("position")),
            ("slot", text("slot")),
            ("type", "message_type".to_owned()),
            ("attempts", text("attempts")),
            ("held until", text("held_until")),
            ("error", text("last_error")),
        ],
        "true",
    );
    let until = ("until", text("expires_at"));
    sql += &line(
        "lease",
        &[
            ("of", "resource".to_owned()),
            ("number", text("number")),
            ("owner", id("owner")),
            ("epoch", text("epoch")),
            until.clone(),
        ],
        "resource LIKE 'consumer%' OR number = 0",
    );
    sql += &line(
        "member",
        &[
            ("of", "resource".to_owned()),
            ("member", id("member")),
            until,
        ],
        "true",
    );
    let mut session = store.begin_read().await.expect("a transaction");
    let lines = <D as harness::database::TestDatabase>::texts(&mut session, &sql).await;
    session.rollback().await;
    lines.into_iter().flatten().collect()
}

/// One line a row: table, consumer, message id, key, number, whether parked, letter, and the rest,
/// apart by `|`, which is in none of them.
fn statement<D>(store: &D::Store) -> String
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let binary = match D::KIND {
        "sqlite" => "lower(hex(message_id))",
        _ => "replace(CAST(message_id AS text), '-', '')",
    };
    let text = "COALESCE(replace(message_id, '-', ''), '')";
    let (key, letter) = (
        "COALESCE(ordering_key, '')",
        "COALESCE(CAST(dead_letter AS text), '')",
    );
    let parked = "CAST(CAST(parked AS integer) AS text)";
    let selects = [
        ("scheduled", ["''", binary, key, "'0'", "''", "''"]),
        ("outbox", ["''", binary, key, parked, letter, "''"]),
        ("queue", ["consumer", binary, key, "'0'", "''", "''"]),
        ("retry", ["consumer", binary, key, parked, letter, "''"]),
        (
            "dead_letter",
            [
                "COALESCE(consumer, '')",
                text,
                key,
                parked,
                "state",
                "reason",
            ],
        ),
        (
            "operator_action",
            ["''", "''", "''", "'0'", letter, "action"],
        ),
    ];
    let mut parts: Vec<String> = selects
        .iter()
        .map(|(noun, columns)| {
            let [consumer, id, key, parked, letter, rest] = columns;
            let table = <D as harness::database::TestDatabase>::table(store.tables(), noun);
            format!(
                "SELECT '{noun}|' || {consumer} || '|' || {id} || '|' || {key} || '|' || \
                 CAST(position AS text) || '|' || {parked} || '|' || {letter} || '|' || {rest} \
                 AS value FROM {table}"
            )
        })
        .collect();
    parts.push(
        "SELECT 'took|' || consumer || '|' || message_id || '|' || key || '|' || \
         CAST(position AS text) || '|0||' || CAST(seen AS text) AS value FROM took"
            .to_owned(),
    );
    parts.join(" UNION ALL ")
}

impl Snapshot {
    fn add(&mut self, line: &str) {
        let columns: Vec<&str> = line.split('|').collect();
        let [table, consumer, id, key, number, parked, letter, rest] = columns[..] else {
            panic!("not eight columns: {line}");
        };
        let (consumer, id) = (consumer.to_owned(), id.to_owned());
        let (number, parked) = (number.parse().expect("a number"), parked == "1");
        let list = match table {
            "scheduled" => &mut self.scheduled,
            "outbox" => &mut self.outbox,
            "queue" => &mut self.queue,
            "retry" => &mut self.retry,
            "dead_letter" => {
                return self.letters.push(Letter {
                    number,
                    consumer,
                    id,
                    parked,
                    state: letter.to_owned(),
                    reason: rest.to_owned(),
                });
            }
            "operator_action" => {
                return self.actions.push(Action {
                    position: number,
                    name: rest.to_owned(),
                    letter: letter.parse().ok(),
                });
            }
            _ => {
                return self.effects.push(Effect {
                    consumer,
                    id,
                    position: number,
                    seen: rest.parse().expect("a number"),
                });
            }
        };
        list.push(Row {
            consumer,
            id,
            key: key.to_owned(),
            position: number,
            parked,
            letter: letter.parse().ok(),
        });
    }
}
