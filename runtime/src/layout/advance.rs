use crate::store::{Generation, Layout, LayoutStep};

/// What the keeper's next step with a layout is, if it is the keeper's turn: into which layout in use
/// and which step. `by_slot`: the broker has no queues that a partition owns. `leased`: leases of the
/// layout in use are alive.
pub(super) fn advance(
    layout: &Layout,
    by_slot: bool,
    leased: bool,
) -> Option<(Generation, LayoutStep)> {
    match layout.step {
        LayoutStep::Rest => {
            let next = unanimous(layout)?;
            let step = match by_slot {
                true => LayoutStep::Releasing { next },
                // Whatever was announced is to come to the queues in use by now.
                false if !all_provide(layout) => return None,
                false => LayoutStep::Binding { next },
            };
            Some((layout.generation, step))
        }
        LayoutStep::Releasing { .. } if !leased => {
            let former = layout.generation.partitions;
            let step = match by_slot {
                true => LayoutStep::Rest,
                false => LayoutStep::Clearing { former },
            };
            Some((layout.next()?, step))
        }
        // These are the mover's and the partition actors'.
        LayoutStep::Binding { .. }
        | LayoutStep::Draining { .. }
        | LayoutStep::Releasing { .. }
        | LayoutStep::Clearing { .. } => None,
    }
}

/// The number of partitions that all processes wish, if it is another than the one in use.
fn unanimous(layout: &Layout) -> Option<u8> {
    let first = layout.wishes.first()?.partitions;
    let all = layout.wishes.iter().all(|wish| wish.partitions == first);
    (all && first != layout.generation.partitions).then_some(first)
}

/// Whether every process that is alive has seen to the broker's queues for this epoch.
pub(crate) fn all_provide(layout: &Layout) -> bool {
    let mut epochs = layout.wishes.iter().map(|wish| wish.epoch);
    epochs.all(|epoch| epoch >= layout.epoch)
}

/// Whether all partitions of a layout are drained.
pub(crate) fn all_drained(generation: Generation, drained: u64) -> bool {
    drained.count_ones() == u32::from(generation.partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemberId, Wish};

    fn layout(step: LayoutStep, wishes: &[u8]) -> Layout {
        let wish = |partitions: &u8| Wish {
            member: MemberId::random(),
            partitions: *partitions,
            epoch: 7,
        };
        Layout {
            generation: Generation {
                number: 3,
                partitions: 4,
            },
            step,
            epoch: 7,
            wishes: wishes.iter().map(wish).collect(),
        }
    }

    #[test]
    fn a_layout_moves_when_all_wish_the_same_other_one() {
        for (wishes, next) in [
            (&[8, 8, 8][..], Some(8)),
            (&[3], Some(3)),
            (&[4, 8, 8], None),
            (&[8, 3], None),
            (&[4, 4], None),
            // All have gone: nobody is there to move.
            (&[], None),
        ] {
            let layout = layout(LayoutStep::Rest, wishes);
            let binding = next.map(|next| (layout.generation, LayoutStep::Binding { next }));
            assert_eq!(advance(&layout, false, true), binding, "{wishes:?}");
            let releasing = next.map(|next| (layout.generation, LayoutStep::Releasing { next }));
            assert_eq!(advance(&layout, true, true), releasing, "{wishes:?}");
        }
    }

    #[test]
    fn a_layout_does_not_move_before_all_have_seen_to_the_queues_in_use() {
        let mut layout = layout(LayoutStep::Rest, &[8, 8]);
        layout.wishes[1].epoch = layout.epoch - 1;
        assert_eq!(advance(&layout, false, true), None);
        let releasing = LayoutStep::Releasing { next: 8 };
        let without_queues = Some((layout.generation, releasing));
        assert_eq!(advance(&layout, true, true), without_queues);
    }

    #[test]
    fn a_move_that_has_begun_goes_to_its_end_whatever_is_wished_meanwhile() {
        let next = 8;
        let wishes = &[4, 4];
        for step in [
            LayoutStep::Binding { next },
            LayoutStep::Draining { next, drained: 15 },
            LayoutStep::Clearing { former: 2 },
        ] {
            assert_eq!(advance(&layout(step, wishes), false, false), None);
        }
        let releasing = layout(LayoutStep::Releasing { next }, wishes);
        assert_eq!(advance(&releasing, false, true), None);
        assert_eq!(advance(&releasing, true, true), None);
        let after = Generation {
            number: 4,
            partitions: 8,
        };
        let clearing = LayoutStep::Clearing { former: 4 };
        assert_eq!(advance(&releasing, false, false), Some((after, clearing)));
        let rest = LayoutStep::Rest;
        assert_eq!(advance(&releasing, true, false), Some((after, rest)));
    }

    #[test]
    fn a_layout_is_drained_with_its_last_partition() {
        for partitions in [1, 3, 64] {
            let generation = Generation::first(partitions);
            let all = u64::MAX >> (64 - partitions);
            assert!(all_drained(generation, all));
            assert!(!all_drained(generation, all & (all - 1)));
        }
    }
}
