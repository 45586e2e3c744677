use std::collections::{HashSet, VecDeque};

use crate::message::OrderingKey;
use crate::store::OutboxRow;

/// Rows that were claimed together, handed out in waves in which no two rows have the same key.
///
/// A key's next row is handed out only after its previous one has been confirmed, and never after
/// one that failed: so a failure can never be overtaken (G4).
pub(crate) struct Waves {
    rows: VecDeque<OutboxRow>,
    failed: HashSet<OrderingKey>,
}

impl Waves {
    /// Rows in insertion order within each lane.
    pub(crate) fn new(rows: Vec<OutboxRow>) -> Self {
        Self {
            rows: rows.into(),
            failed: HashSet::new(),
        }
    }

    /// The next wave, at most `size` rows: the first row of each key that has not failed, and rows
    /// without a key. Empty at the end.
    pub(crate) fn next(&mut self, size: usize) -> Vec<OutboxRow> {
        let mut wave = Vec::new();
        let mut keys: HashSet<OrderingKey> = HashSet::new();
        let mut later = VecDeque::new();
        while let Some(row) = self.rows.pop_front() {
            if wave.len() == size {
                later.push_back(row);
                break;
            }
            match key(&row) {
                Some(key) if self.failed.contains(key) => {}
                Some(key) if !keys.insert(key.clone()) => later.push_back(row),
                _ => wave.push(row),
            }
        }
        later.append(&mut self.rows);
        self.rows = later;
        wave
    }

    /// Takes a key's further rows out of this claim.
    pub(crate) fn fail(&mut self, row: &OutboxRow) {
        if let Some(key) = key(row) {
            self.failed.insert(key.clone());
        }
    }
}

fn key(row: &OutboxRow) -> Option<&OrderingKey> {
    row.message
        .as_ref()
        .ok()
        .and_then(|envelope| envelope.key.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Envelope, MessageType, Slot};
    use crate::store::RowId;

    fn rows(keys: &[Option<&str>]) -> Vec<OutboxRow> {
        let row = |(position, key): (usize, &Option<&str>)| OutboxRow {
            failed_at: None,
            letter: None,
            id: RowId {
                slot: Slot::new(0).unwrap(),
                position: position as i64,
            },
            attempts: 0,
            message: Ok(Envelope::builder(MessageType::new("t").unwrap(), "")
                .key(key.map(|key| OrderingKey::new(key).unwrap()))
                .build()
                .unwrap()),
        };
        keys.iter().enumerate().map(row).collect()
    }

    fn positions(wave: &[OutboxRow]) -> Vec<i64> {
        wave.iter().map(|row| row.id.position).collect()
    }

    #[test]
    fn no_two_rows_of_a_wave_have_one_key_and_order_holds_across_waves() {
        let (a, b) = (Some("a"), Some("b"));
        let mut waves = Waves::new(rows(&[a, a, b, None, None, a]));
        assert_eq!(positions(&waves.next(10)), [0, 2, 3, 4]);
        assert_eq!(positions(&waves.next(10)), [1]);
        assert_eq!(positions(&waves.next(10)), [5]);
        assert!(waves.next(10).is_empty());
    }

    #[test]
    fn a_failed_keys_successors_are_not_handed_out() {
        let (a, b) = (Some("a"), Some("b"));
        let mut waves = Waves::new(rows(&[a, b, a, b]));
        let first = waves.next(10);
        waves.fail(&first[0]);
        assert_eq!(positions(&waves.next(10)), [3]);
        assert!(waves.next(10).is_empty());
    }

    #[test]
    fn a_full_wave_leaves_the_rest_in_order() {
        let mut waves = Waves::new(rows(&[None, Some("a"), Some("a"), None]));
        assert_eq!(positions(&waves.next(2)), [0, 1]);
        assert_eq!(positions(&waves.next(2)), [2, 3]);
    }
}
