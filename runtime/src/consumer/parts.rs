/// How many of the deliveries that are left are handled together next: all, until one fails; then
/// those before it, it alone, and all again.
///
/// So a failure costs its batch three transactions more, not one for each message, and a handler is
/// called at most twice for a failure of somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// All.
    All,
    /// So many, then one alone, then all.
    Before(usize),
    /// One alone, then all.
    One,
}

impl Parts {
    /// Around one that has failed with so many before it in its part.
    pub(super) fn around(failed: usize) -> Self {
        match failed {
            0 => Self::One,
            before => Self::Before(before),
        }
    }

    /// The size of the next part: at least 1 and at most `left`, which is not 0.
    pub(super) fn next(&mut self, left: usize) -> usize {
        let (size, then) = match *self {
            Self::All => (left, Self::All),
            Self::Before(size) => (size, Self::One),
            Self::One => (1, Self::All),
        };
        *self = then;
        size.clamp(1, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the parts that are tried, of so many deliveries of which these fail.
    fn parts(deliveries: usize, failing: &[usize]) -> Vec<usize> {
        let (mut parts, mut done, mut sizes) = (Parts::All, 0, Vec::new());
        while done < deliveries {
            let size = parts.next(deliveries - done);
            sizes.push(size);
            let failed = failing.iter().find(|it| (done..done + size).contains(it));
            match failed {
                Some(failed) if size > 1 => parts = Parts::around(failed - done),
                _ => done += size,
            }
        }
        sizes
    }

    #[test]
    fn one_that_fails_is_parted_from_those_before_it_and_those_behind() {
        assert_eq!(parts(256, &[]), [256]);
        assert_eq!(parts(256, &[100]), [256, 100, 1, 155]);
        assert_eq!(parts(256, &[0]), [256, 1, 255]);
        assert_eq!(parts(256, &[255]), [256, 255, 1]);
        assert_eq!(parts(1, &[0]), [1]);
        assert_eq!(parts(256, &[10, 200]), [256, 10, 1, 245, 189, 1, 55]);
        assert_eq!(parts(4, &[0, 1, 2, 3]), [4, 1, 3, 1, 2, 1, 1]);
    }
}
