use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use diesel::QueryResult;

/// The first `limit` positions of several lists that are each in order, merged in order.
///
/// `read` gives at most so many positions of a list after the one named. Of each list little more is read than is taken,
/// however long it is: that is what keeps a long backlog from slowing the reading of its beginning.
pub(super) fn first_positions<L: Copy>(
    lists: &[L],
    limit: usize,
    mut read: impl FnMut(L, i64, usize) -> QueryResult<Vec<i64>>,
) -> QueryResult<Vec<i64>> {
    if lists.is_empty() || limit == 0 {
        return Ok(Vec::new());
    }
    let step = limit / lists.len() + 1;
    let mut buffers = vec![VecDeque::new(); lists.len()];
    let mut heads = BinaryHeap::new();
    let mut refill = |index: usize, after: i64, buffers: &mut [VecDeque<i64>]| {
        buffers[index] = read(lists[index], after, step)?.into();
        Ok::<_, diesel::result::Error>(buffers[index].pop_front())
    };
    for index in 0..lists.len() {
        if let Some(position) = refill(index, i64::MIN, &mut buffers)? {
            heads.push(Reverse((position, index)));
        }
    }
    let mut merged = Vec::new();
    while let Some(Reverse((position, index))) = heads.pop() {
        merged.push(position);
        if merged.len() == limit {
            break;
        }
        let next = match buffers[index].pop_front() {
            Some(next) => Some(next),
            None => refill(index, position, &mut buffers)?,
        };
        heads.extend(next.map(|next| Reverse((next, index))));
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_positions_are_the_lists_first_ones_in_order() {
        let lists: [&[i64]; 4] = [&[1, 2, 3, 4, 5, 6, 7], &[], &[10, 20], &[0, 8]];
        let mut all: Vec<i64> = lists.concat();
        all.sort_unstable();
        for limit in 0..12 {
            let merged = first_positions(&lists, limit, |list, after, count| {
                Ok(list
                    .iter()
                    .copied()
                    .filter(|p| *p > after)
                    .take(count)
                    .collect())
            });
            assert_eq!(merged.unwrap(), all[..limit.min(all.len())]);
        }
    }
}
