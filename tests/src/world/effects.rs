//! What handlers did, as rows, and the judge over them. Knows nothing of Posta.

use std::collections::BTreeMap;

use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use posta::store::Store;

use super::TestDatabase;

/// One committed effect of a handler.
#[derive(Clone, Debug, PartialEq, Eq, diesel::QueryableByName)]
pub(crate) struct Effect {
    #[diesel(sql_type = Text)]
    pub(crate) consumer: String,
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) number: i64,
    #[diesel(sql_type = Text)]
    pub(crate) message_id: String,
    #[diesel(sql_type = Binary)]
    pub(crate) payload: Vec<u8>,
}

/// A message that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, diesel::QueryableByName)]
pub(crate) struct DeadLetter {
    /// `None`: on its way from the outbox to the broker.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) consumer: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) message_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) message_type: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) reason: String,
    #[diesel(sql_type = Text)]
    pub(crate) error: String,
    #[diesel(sql_type = Binary)]
    pub(crate) payload: Vec<u8>,
}

/// What the judge found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
    pub(crate) out_of_order: usize,
}

/// Makes the table of effects, and one for the state that messages tell of.
pub(crate) async fn create_table<D: TestDatabase>(store: &D::Store) {
    let number = if D::KIND == "sqlite" {
        "INTEGER PRIMARY KEY AUTOINCREMENT"
    } else {
        "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    };
    let bytes = if D::KIND == "sqlite" { "BLOB" } else { "bytea" };
    let mut session = store.begin().await.expect("a transaction");
    let sql = format!(
        "CREATE TABLE effect (position {number}, consumer text NOT NULL, key text NOT NULL, number bigint NOT NULL, \
         message_id text NOT NULL, payload {bytes} NOT NULL); \
         CREATE TABLE state (key text NOT NULL, number bigint NOT NULL)"
    );
    D::run(&mut session, &sql)
        .await
        .expect("the test's own tables");
    session.commit().await.expect("a commit");
}

/// All effects of a consumer, in order.
pub(crate) async fn effects_of<D: TestDatabase>(store: &D::Store, consumer: &str) -> Vec<Effect> {
    let mut session = store.begin().await.expect("a transaction");
    let effects = D::effects(&mut session, consumer)
        .await
        .expect("the effects");
    session.commit().await.expect("a commit");
    effects
}

/// All dead letters, in the order in which they were set aside.
pub(crate) async fn dead_letters_of<D: TestDatabase>(store: &D::Store) -> Vec<DeadLetter> {
    let table = table::<D>(store, "dead_letter");
    let mut session = store.begin().await.expect("a transaction");
    let letters = D::dead_letters(&mut session, &table).await;
    session.commit().await.expect("a commit");
    letters.expect("the dead letters")
}

/// One number out of the tables. `{posta}` in the statement stands for the qualifier of Posta's
/// tables.
pub(crate) async fn count<D: TestDatabase>(store: &D::Store, sql: &str) -> i64 {
    let mut session = store.begin().await.expect("a transaction");
    let count = D::count(
        &mut session,
        &sql.replace("{posta}", &table::<D>(store, "")),
    )
    .await;
    session.commit().await.expect("a commit");
    count.expect("a count")
}

/// How many rows a table of Posta's has that satisfy a condition.
pub(crate) async fn rows<D: TestDatabase>(store: &D::Store, table: &str, condition: &str) -> i64 {
    let sql =
        format!("SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {{posta}}{table} WHERE {condition}");
    count::<D>(store, &sql).await
}

/// The name of a table of Posta's in SQL.
pub(crate) fn table<D: TestDatabase>(store: &D::Store, noun: &str) -> String {
    let name = store.tables().name();
    if D::KIND == "sqlite" {
        format!("{name}_{noun}")
    } else {
        format!("\"{name}\".{noun}")
    }
}

/// Judges: per key the numbers 0 to n - 1 must each have taken effect once, in order.
pub(crate) fn judge(effects: &[Effect], expected: &BTreeMap<String, i64>) -> Verdict {
    let mut seen: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for effect in effects {
        seen.entry(&effect.key).or_default().push(effect.number);
    }
    let mut verdict = Verdict::default();
    for (key, count) in expected {
        let numbers = seen.remove(key.as_str()).unwrap_or_default();
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        verdict.lost +=
            *count as usize - distinct.iter().filter(|n| (0..*count).contains(n)).count();
        verdict.doubled += numbers.len() - distinct.len();
        verdict.out_of_order += numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    }
    verdict.doubled += seen.values().map(Vec::len).sum::<usize>();
    verdict
}

/// The judge's own test: it sees each kind of fault.
#[cfg(test)]
mod tests {
    use super::*;

    fn effects(numbers: &[i64]) -> Vec<Effect> {
        let effect = |number: &i64| Effect {
            consumer: "c".to_owned(),
            key: "k".to_owned(),
            number: *number,
            message_id: String::new(),
            payload: Vec::new(),
        };
        numbers.iter().map(effect).collect()
    }

    #[test]
    fn the_judge_sees_lost_doubled_and_out_of_order() {
        let expected = BTreeMap::from([("k".to_owned(), 3)]);
        let verdict = |numbers: &[i64]| {
            let Verdict {
                lost,
                doubled,
                out_of_order,
            } = judge(&effects(numbers), &expected);
            (lost, doubled, out_of_order)
        };
        assert_eq!(verdict(&[0, 1, 2]), (0, 0, 0));
        assert_eq!(verdict(&[0, 2]), (1, 0, 0));
        assert_eq!(verdict(&[0, 1, 1, 2]), (0, 1, 0));
        assert_eq!(verdict(&[1, 0, 2]), (0, 0, 1));
        assert_eq!(judge(&effects(&[0]), &BTreeMap::new()).doubled, 1);
    }
}
