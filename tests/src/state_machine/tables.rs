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

/// What else there is to know when something does not go on: the retry table and the leases of
/// partitions, with times and owners.
pub(super) async fn details<D>(store: &D::Store) -> Vec<String>
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let (now, owner) = match D::KIND {
        "sqlite" => (
            "CAST(CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer) AS text)",
            ["lower(hex(claimed_by))", "lower(hex(owner))"],
        ),
        _ => (
            "CAST(clock_timestamp() AS text)",
            ["CAST(claimed_by AS text)", "CAST(owner AS text)"],
        ),
    };
    let table = |noun| <D as harness::database::TestDatabase>::table(store.tables(), noun);
    let [claimed_by, owner] = owner;
    let sql = format!(
        "SELECT 'now ' || {now} AS value UNION ALL \
         SELECT 'retry ' || CAST(position AS text) || ', slot ' || CAST(slot AS text) || \
         ', attempts ' || CAST(attempts AS text) || ', deaths ' || CAST(deaths AS text) || \
         ', due ' || COALESCE(CAST(due_at AS text), '-') || ', claimed by ' || \
         COALESCE({claimed_by}, '-') || ', ' || COALESCE(last_error, '') FROM {} UNION ALL \
         SELECT resource || ' ' || CAST(number AS text) || ', owner ' || COALESCE({owner}, '-') || \
         ', epoch ' || CAST(epoch AS text) || ', until ' || \
         COALESCE(CAST(expires_at AS text), '-') FROM {} WHERE resource LIKE 'consumer%'",
        table("retry"),
        table("lease"),
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
