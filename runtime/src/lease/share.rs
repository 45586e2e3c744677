use super::MemberId;

/// How many of `count` lanes or partitions belong to `member`: all members get the same number, and
/// the first ones in sorted order one more where it does not come out even. A member that is not
/// among them gets nothing.
pub(crate) fn fair_share(count: u8, members: &[MemberId], member: MemberId) -> usize {
    let Some(rank) = members.iter().position(|other| *other == member) else {
        return 0;
    };
    let count = usize::from(count);
    count / members.len() + usize::from(rank < count % members.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_differ_by_at_most_one_and_make_the_whole() {
        for size in 1..20 {
            let mut members: Vec<MemberId> = (0..size).map(|_| MemberId::random()).collect();
            members.sort();
            for count in [0u8, 1, 3, 8, 64] {
                let shares: Vec<usize> = members
                    .iter()
                    .map(|member| fair_share(count, &members, *member))
                    .collect();
                assert_eq!(shares.iter().sum::<usize>(), usize::from(count));
                assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_stranger_has_no_share() {
        assert_eq!(fair_share(64, &[MemberId::random()], MemberId::random()), 0);
    }
}
