//! Buckets without rows, beside those with some: every group that has a row has every bucket of a stretch of time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Error;
use crate::functions::bucket_start;
use crate::metrics::Key;

/// Adds what is missing. `most` groups may come out.
pub(crate) fn fill<T: Default>(
    groups: &mut BTreeMap<Key, T>,
    times: Range<i64>,
    width: i64,
    most: usize,
) -> Result<(), Error> {
    if times.is_empty() || groups.is_empty() {
        return Ok(());
    }
    let (first, last) = (bucket_start(times.start, width), bucket_start(times.end - 1, width));
    let buckets = (i128::from(last) - i128::from(first)) / i128::from(width.max(1)) + 1;
    // No bucket starts before the least number.
    let series: BTreeSet<Key> = groups
        .keys()
        .map(|key| Key {
            bucket: 0,
            ..key.clone()
        })
        .collect();
    if buckets * series.len() as i128 > most as i128 {
        return Err(Error::TooManyGroups(most));
    }
    for series in series {
        let mut bucket = first;
        while bucket <= last {
            let key = Key {
                bucket,
                ..series.clone()
            };
            groups.entry(key).or_default();
            bucket = bucket.saturating_add(width);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(bucket: i64, name: &str) -> Key {
        Key {
            bucket,
            name: name.to_owned(),
            kind: String::new(),
            group: None,
        }
    }

    #[test]
    fn every_group_gets_every_bucket_that_meets_the_times_and_keeps_what_it_has() {
        let mut groups = BTreeMap::from([(key(20, "a"), 7), (key(0, "b"), 8)]);
        fill(&mut groups, -3..21, 10, 100).unwrap();
        let of = |name: &str| -> Vec<(i64, i32)> {
            let own = groups.iter().filter(|(key, _)| key.name == name);
            own.map(|(key, value)| (key.bucket, *value)).collect()
        };
        assert_eq!(of("a"), [(20, 7), (10, 0), (0, 0), (-10, 0)]);
        assert_eq!(of("b"), [(20, 0), (10, 0), (0, 8), (-10, 0)]);
    }

    #[test]
    fn all_of_time_is_too_much_and_no_time_or_no_group_is_nothing() {
        let mut groups = BTreeMap::from([(key(0, "a"), 1)]);
        let all = fill(&mut groups, i64::MIN..i64::MAX, 1, 100);
        assert!(matches!(all, Err(Error::TooManyGroups(100))));
        fill(&mut groups, 5..5, 1, 100).unwrap();
        assert_eq!(groups.len(), 1);
        let mut nothing: BTreeMap<Key, i32> = BTreeMap::new();
        fill(&mut nothing, i64::MIN..i64::MAX, i64::MAX, 100).unwrap();
        assert!(nothing.is_empty());
    }
}
