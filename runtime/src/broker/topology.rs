use std::ops::RangeInclusive;

use crate::message::{MessageType, SLOTS};
use crate::store::Generation;

/// What a consumer needs the broker to have: its queues, one per partition, and the message types
/// that go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The consumer's name.
    pub consumer: String,
    /// The layout whose queues they are.
    pub generation: Generation,
    /// The message types that it takes; none for queues that get nothing new.
    pub types: Vec<MessageType>,
}

impl Topology {
    /// All partitions' queues.
    pub fn queues(&self) -> impl Iterator<Item = PartitionQueue> + '_ {
        (0..self.generation.partitions).map(|number| PartitionQueue {
            consumer: self.consumer.clone(),
            generation: self.generation,
            number,
        })
    }
}

/// One partition of a consumer: the contiguous range of slots whose messages it handles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionQueue {
    /// The consumer's name.
    pub consumer: String,
    /// The layout that it is a partition of.
    pub generation: Generation,
    /// Which of them, from 0.
    pub number: u8,
}

impl PartitionQueue {
    /// The name of its queue on a broker with queues: `<consumer>.<layout>.<partition>`.
    #[must_use]
    pub fn name(&self) -> String {
        let Self {
            consumer,
            generation,
            number,
        } = self;
        format!("{consumer}.{}.{number}", generation.number)
    }

    /// The partition's slots: the 64 slots are cut into `partitions` ranges whose sizes differ by
    /// at most one.
    #[must_use]
    pub fn slots(&self) -> RangeInclusive<u8> {
        let cut = |number: u8| {
            (u16::from(number) * u16::from(SLOTS) / u16::from(self.generation.partitions)) as u8
        };
        cut(self.number)..=cut(self.number + 1) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_of_any_number_share_all_slots_without_gap_or_overlap() {
        for partitions in 1..=SLOTS {
            let topology = Topology {
                consumer: "c".to_owned(),
                generation: Generation::first(partitions),
                types: Vec::new(),
            };
            let slots: Vec<u8> = topology.queues().flat_map(|queue| queue.slots()).collect();
            assert_eq!(
                slots,
                (0..SLOTS).collect::<Vec<_>>(),
                "{partitions} partitions"
            );
            let sizes: Vec<usize> = topology
                .queues()
                .map(|queue| queue.slots().count())
                .collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
