use diesel::QueryResult;

/// How far a list has been read.
struct Read {
    /// The last position that was read.
    after: i64,
    /// Whether there may be more behind it.
    more: bool,
}

/// The first `limit` positions of several lists that are each in order, merged in order.
///
/// `read` gets lists (by index) with the position after which to go on, and how many of each; it
/// gives back, in any order, list and position. All lists are read at once, and of each little more
/// than is taken, however long it is: that is what keeps a long backlog from slowing the reading of
/// its beginning.
pub(super) fn first_positions(
    lists: usize,
    limit: usize,
    mut read: impl FnMut(&[(usize, i64)], usize) -> QueryResult<Vec<(usize, i64)>>,
) -> QueryResult<Vec<i64>> {
    if lists == 0 || limit == 0 {
        return Ok(Vec::new());
    }
    let mut state: Vec<Read> = (0..lists)
        .map(|_| Read {
            after: i64::MIN,
            more: true,
        })
        .collect();
    let mut found: Vec<i64> = Vec::new();
    let mut count = (limit / lists + 1).min(limit);
    loop {
        found.sort_unstable();
        // What is behind this position is not wanted; without enough there is no such position.
        let last = found.get(limit - 1).copied().unwrap_or(i64::MAX);
        let wanted: Vec<(usize, i64)> = state
            .iter()
            .enumerate()
            .filter(|(_, list)| list.more && list.after < last)
            .map(|(index, list)| (index, list.after))
            .collect();
        if wanted.is_empty() {
            found.truncate(limit);
            return Ok(found);
        }
        let mut counts = vec![0; lists];
        for (index, position) in read(&wanted, count)? {
            counts[index] += 1;
            state[index].after = state[index].after.max(position);
            found.push(position);
        }
        for (index, _) in wanted {
            state[index].more = counts[index] == count;
        }
        count = (count * 2).min(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_positions_are_the_lists_first_ones_in_order() {
        let lists: [&[i64]; 5] = [
            &[1, 2, 3, 4, 5, 6, 7],
            &[],
            &[10, 20],
            &[0, 8],
            &[11, 12, 13, 14, 15, 16],
        ];
        let mut all: Vec<i64> = lists.concat();
        all.sort_unstable();
        for limit in 0..20 {
            let merged = first_positions(lists.len(), limit, |wanted, count| {
                let of_list = |(index, after): &(usize, i64)| {
                    let (index, after) = (*index, *after);
                    let rest = lists[index]
                        .iter()
                        .filter(move |position| **position > after);
                    rest.take(count).map(move |position| (index, *position))
                };
                Ok(wanted.iter().flat_map(of_list).collect())
            });
            assert_eq!(
                merged.unwrap(),
                all[..limit.min(all.len())],
                "limit {limit}"
            );
        }
    }

    #[test]
    fn a_long_list_is_not_read_to_its_end() {
        let mut given = 0;
        let merged = first_positions(4, 100, |wanted, count| {
            let rows: Vec<(usize, i64)> = wanted
                .iter()
                .flat_map(|(index, after)| {
                    let (index, first) = (*index, (*after).max(0) + 1);
                    (first..).take(count).map(move |position| (index, position))
                })
                .collect();
            given += rows.len();
            Ok(rows)
        });
        assert_eq!(merged.unwrap().len(), 100);
        assert!(given <= 400, "{given}");
    }
}
