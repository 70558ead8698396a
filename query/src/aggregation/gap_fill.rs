//! Gap filling: every group that has a row gets every bucket of a time range.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Error;
use crate::scalar_functions::bucket_start;

/// Values by the start of a bucket, newest first, and a group.
pub(crate) type BucketMap<G, T> = BTreeMap<(Reverse<i64>, G), T>;

/// Adds what is missing. `most` may come out.
pub(crate) fn fill_gaps<G: Ord + Clone, T: Default>(
    buckets: &mut BucketMap<G, T>,
    times: Range<i64>,
    width: i64,
    most: usize,
) -> Result<(), Error> {
    if times.is_empty() {
        return Ok(());
    }
    let (first, last) = (bucket_start(times.start, width), bucket_start(times.end - 1, width));
    let count = (i128::from(last) - i128::from(first)) / i128::from(width.max(1)) + 1;
    let groups: BTreeSet<G> = buckets.keys().map(|(_, group)| group.clone()).collect();
    if count * groups.len() as i128 > most as i128 {
        return Err(Error::TooManyGroups(most));
    }
    for group in groups {
        let mut bucket = first;
        while bucket <= last {
            buckets.entry((Reverse(bucket), group.clone())).or_default();
            bucket = bucket.saturating_add(width);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_group_gets_every_bucket_that_meets_the_times_and_keeps_what_it_has() {
        let mut buckets = BTreeMap::from([((Reverse(20), "a"), 7), ((Reverse(0), "b"), 8)]);
        fill_gaps(&mut buckets, -3..21, 10, 100).unwrap();
        let of = |name: &str| -> Vec<(i64, i32)> {
            let own = buckets.iter().filter(|((_, group), _)| *group == name);
            own.map(|((bucket, _), value)| (bucket.0, *value)).collect()
        };
        assert_eq!(of("a"), [(20, 7), (10, 0), (0, 0), (-10, 0)]);
        assert_eq!(of("b"), [(20, 0), (10, 0), (0, 8), (-10, 0)]);
    }

    #[test]
    fn all_of_time_is_too_much_and_no_time_or_no_group_is_nothing() {
        let mut buckets = BTreeMap::from([((Reverse(0), "a"), 1)]);
        let all = fill_gaps(&mut buckets, i64::MIN..i64::MAX, 1, 100);
        assert!(matches!(all, Err(Error::TooManyGroups(100))));
        fill_gaps(&mut buckets, 5..5, 1, 100).unwrap();
        assert_eq!(buckets.len(), 1);
        let mut nothing: BucketMap<&str, i32> = BTreeMap::new();
        fill_gaps(&mut nothing, i64::MIN..i64::MAX, i64::MAX, 100).unwrap();
        assert!(nothing.is_empty());
    }
}
