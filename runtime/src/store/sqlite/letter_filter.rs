//! Which dead letters: a filter's conditions in SQL.

use super::row::micros_of;
use super::statement::{Statement, Value};
use super::{SqliteStore, dead_letter};
use crate::store::{LetterFilter, LetterState, Origin};

/// The conditions of a filter, to stand behind `WHERE`, and the values to bind to them.
///
/// The text is put together of fixed parts, one for each field that is given: there are few of them
/// in use, and an index serves a condition that is there, not one that may be there.
pub(super) struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// Of all fields. The letters' table is `l`.
    pub(super) fn of(filter: &LetterFilter) -> Self {
        Self::in_states(filter, &filter.states)
    }

    /// Of all fields, but of dead letters only.
    pub(super) fn of_dead(filter: &LetterFilter) -> Self {
        Self::in_states(filter, &[])
    }

    fn in_states(filter: &LetterFilter, states: &[LetterState]) -> Self {
        let mut conditions = Self {
            // As the index of dead letters has it.
            text: "l.state = 'dead'".to_owned(),
            values: Vec::new(),
        };
        if !states.is_empty() && states != [LetterState::Dead] {
            let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
            conditions.text.clear();
            conditions.values.push(Value::json(&words));
            conditions.text += "l.state IN (SELECT value FROM json_each(?))";
        }
        if !filter.ids.is_empty() {
            let ids: Vec<i64> = filter.ids.iter().map(|id| id.0).collect();
            conditions.and(
                "l.position IN (SELECT value FROM json_each(?))",
                Value::json(&ids),
            );
        }
        match &filter.origin {
            Some(Origin::Dispatch) => conditions.text += " AND l.consumer IS NULL",
            Some(Origin::Consumer(name)) => conditions.and("l.consumer = ?", name.as_str()),
            None => {}
        }
        for (condition, text) in [
            ("l.message_type = ?", &filter.message_type),
            ("l.ordering_key = ?", &filter.key),
            ("l.message_id = ?", &filter.message_id),
            ("l.reason = ?", &filter.reason),
            ("l.fingerprint = ?", &filter.fingerprint),
            ("instr(l.error, ?) > 0", &filter.error_contains),
        ] {
            if let Some(text) = text {
                conditions.and(condition, dead_letter::part(text));
            }
        }
        if let Some(from) = filter.dead_from {
            conditions.and("l.dead_at >= ?", micros_of(from));
        }
        if let Some(before) = filter.dead_before {
            conditions.and("l.dead_at < ?", micros_of(before));
        }
        if let Some(parked) = filter.parked {
            conditions.and("l.parked = ?", parked);
        }
        conditions
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.text += " AND ";
        self.text += condition;
        self.values.push(value.into());
    }

    /// A statement with `{where}` in its text, where these conditions go; its other values come
    /// behind theirs.
    pub(super) fn statement(self, store: &SqliteStore, text: &str) -> Statement {
        let sql = store.sql(&text.replace("{where}", &self.text));
        self.values
            .into_iter()
            .fold(sql.statement(), Statement::bind)
    }

    /// The same, with a value that comes before theirs.
    pub(super) fn statement_after(
        self,
        store: &SqliteStore,
        text: &str,
        first: impl Into<Value>,
    ) -> Statement {
        let sql = store.sql(&text.replace("{where}", &self.text));
        self.values
            .into_iter()
            .fold(sql.bind(first), Statement::bind)
    }
}
