//! Aggregates points by series and bucket, as they come.
//!
//! Points of a file lie by series and time: those of one bucket come one after another, and the last bucket of a series is the
//! one that the next point most often belongs to. Others are brought together when there are many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::aggregation::metric_aggregation::GroupKey;

/// Buckets are brought together when there are so many more.
const TIDY_AT: usize = 1 << 16;

/// What points come to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PointTotals {
    pub(crate) samples: i64,
    pub(crate) sum: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// When the latest was, and its value. Where a plan summed up it is known if it is asked for, and when its bucket began.
    pub(crate) last: Option<(i64, f64)>,
}

impl PointTotals {
    pub(crate) const fn of(ts: i64, value: f64) -> Self {
        Self {
            samples: 1,
            sum: value,
            min: value,
            max: value,
            last: Some((ts, value)),
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.samples += more.samples;
        self.sum += more.sum;
        if more.min.total_cmp(&self.min).is_lt() {
            self.min = more.min;
        }
        if more.max.total_cmp(&self.max).is_gt() {
            self.max = more.max;
        }
        let later = |(at, value): (i64, f64), (than, other): (i64, f64)| {
            at > than || at == than && value.total_cmp(&other).is_gt()
        };
        if let Some(last) = more.last
            && self.last.is_none_or(|known| later(last, known))
        {
            self.last = Some(last);
        }
    }
}

/// What is common to the buckets of a line. Ordered as the groups of a bucket are.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SeriesIdentity {
    #[serde(rename = "n")]
    pub(crate) name: String,
    #[serde(rename = "t")]
    pub(crate) kind: String,
    #[serde(rename = "g")]
    pub(crate) group: Option<String>,
}

/// One bucket of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesBucket {
    pub(crate) bucket: i64,
    pub(crate) series: usize,
    pub(crate) totals: PointTotals,
}

/// Groups of an answer: the series in order, their buckets in none.
#[derive(Debug, Default)]
pub(crate) struct MetricGroups {
    pub(crate) series: Vec<SeriesIdentity>,
    pub(crate) cells: Vec<SeriesBucket>,
}

impl MetricGroups {
    pub(crate) fn key(&self, cell: &SeriesBucket) -> GroupKey {
        GroupKey {
            bucket: cell.bucket,
            series: self.series.get(cell.series).cloned().unwrap_or_default(),
        }
    }

    /// The first series after that of a group.
    pub(crate) fn next_series(&self, key: &GroupKey) -> usize {
        self.series.partition_point(|series| *series <= key.series)
    }

    /// Leaves out what comes before a group, and the group itself.
    pub(crate) fn skip_through(&mut self, key: &GroupKey) {
        let next = self.next_series(key);
        self.cells
            .retain(|cell| cell.bucket < key.bucket || cell.bucket == key.bucket && cell.series >= next);
    }

    /// The first `count` groups in order, newest bucket first, and whether there are more.
    pub(crate) fn keep_first(&mut self, count: usize) -> bool {
        let place = |cell: &SeriesBucket| (Reverse(cell.bucket), cell.series);
        let more = self.cells.len() > count;
        if more {
            self.cells.select_nth_unstable_by_key(count, place);
            self.cells.truncate(count);
        }
        self.cells.sort_unstable_by_key(place);
        more
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BucketAggregator {
    /// The numbers of series, by a text for each that no other has.
    numbers: HashMap<String, usize>,
    scratch: String,
    series: Vec<SeriesIdentity>,
    /// Each series' buckets by their starts; one may be there more than once.
    buckets: Vec<Vec<(i64, PointTotals)>>,
    entries: usize,
    tidied: usize,
    /// Bytes of words.
    words: usize,
    most: usize,
}

impl BucketAggregator {
    /// Of at most so many groups.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            numbers: HashMap::new(),
            scratch: String::new(),
            series: Vec::new(),
            buckets: Vec::new(),
            entries: 0,
            tidied: 0,
            words: 0,
            most,
        }
    }

    /// The number of a series.
    pub(crate) fn series(&mut self, name: &str, kind: &str, group: Option<&str>) -> usize {
        self.scratch.clear();
        for text in [Some(name), Some(kind), group] {
            // The length tells where a text ends, a sign that it is there.
            let length = text.map_or(u32::MAX, |text| u32::try_from(text.len()).unwrap_or(u32::MAX - 1));
            self.scratch.extend(length.to_be_bytes().map(char::from));
            self.scratch.push_str(text.unwrap_or_default());
        }
        if let Some(number) = self.numbers.get(&self.scratch) {
            return *number;
        }
        let number = self.series.len();
        self.words += 2 * self.scratch.len();
        self.numbers.insert(self.scratch.clone(), number);
        self.buckets.push(Vec::new());
        self.series.push(SeriesIdentity {
            name: name.to_owned(),
            kind: kind.to_owned(),
            group: group.map(str::to_owned),
        });
        number
    }

    /// The bucket of a series that was added to last.
    pub(crate) fn latest(&mut self, series: usize) -> Option<&mut (i64, PointTotals)> {
        self.buckets.get_mut(series)?.last_mut()
    }

    /// Adds to a bucket of a series.
    pub(crate) fn put(&mut self, series: usize, bucket: i64, totals: PointTotals) -> Result<(), Error> {
        if let Some(buckets) = self.buckets.get_mut(series) {
            buckets.push((bucket, totals));
            self.entries += 1;
        }
        if self.entries > 2 * self.tidied + TIDY_AT {
            self.merge_buckets()?;
        }
        Ok(())
    }

    /// The bytes it takes, about.
    pub(crate) fn size(&self) -> usize {
        self.entries * size_of::<(i64, PointTotals)>() + self.series.len() * 256 + self.words
    }

    /// Each bucket once.
    fn merge_buckets(&mut self) -> Result<(), Error> {
        for buckets in &mut self.buckets {
            buckets.sort_by_key(|(bucket, _)| *bucket);
            buckets.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1.add(&next.1);
                }
                same
            });
        }
        self.entries = self.buckets.iter().map(Vec::len).sum();
        self.tidied = self.entries;
        if self.entries > self.most {
            return Err(Error::TooManyGroups(self.most));
        }
        Ok(())
    }

    /// Adds all of another one.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), Error> {
        for (series, buckets) in other.series.into_iter().zip(other.buckets) {
            let number = self.series(&series.name, &series.kind, series.group.as_deref());
            for (bucket, totals) in buckets {
                self.put(number, bucket, totals)?;
            }
        }
        Ok(())
    }

    /// What came out.
    pub(crate) fn groups(mut self) -> Result<MetricGroups, Error> {
        self.merge_buckets()?;
        let order: BTreeMap<SeriesIdentity, Vec<(i64, PointTotals)>> =
            self.series.into_iter().zip(self.buckets).collect();
        let mut groups = MetricGroups::default();
        for (number, (series, buckets)) in order.into_iter().enumerate() {
            groups.series.push(series);
            groups
                .cells
                .extend(buckets.into_iter().map(|(bucket, totals)| SeriesBucket {
                    bucket,
                    series: number,
                    totals,
                }));
        }
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::aggregation::metric_aggregation::MAX_GROUPS;

    #[test]
    fn series_are_distinguished_by_each_label_and_the_presence_of_a_group() {
        let mut tally = BucketAggregator::new(MAX_GROUPS);
        let all = [
            ("a", "b", None),
            ("a", "b", Some("")),
            ("ab", "", None),
            ("", "ab", None),
            ("a", "", Some("b")),
        ];
        let numbers: Vec<_> = all
            .iter()
            .map(|(name, kind, group)| tally.series(name, kind, *group))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!(tally.series("a", "b", Some("")), 1);
    }

    #[test]
    fn groups_come_newest_bucket_first_each_once_and_after_the_one_that_was_given_last() {
        let (mut one, mut other) = (BucketAggregator::new(MAX_GROUPS), BucketAggregator::new(MAX_GROUPS));
        for (tally, value) in [(&mut one, 1.0), (&mut other, 4.0)] {
            for (name, bucket) in [("b", 10), ("a", 10), ("b", 0), ("a", 20), ("b", 10)] {
                let series = tally.series(name, "gauge", None);
                tally.put(series, bucket, PointTotals::of(bucket, value)).unwrap();
            }
        }
        one.merge(other).unwrap();
        let mut groups = one.groups().unwrap();
        assert!(!groups.keep_first(9));
        let order = |groups: &MetricGroups| -> Vec<(i64, usize, i64)> {
            let cells = groups.cells.iter();
            cells
                .map(|cell| (cell.bucket, cell.series, cell.totals.samples))
                .collect()
        };
        assert_eq!(order(&groups), [(20, 0, 2), (10, 0, 2), (10, 1, 4), (0, 1, 2)]);
        let totals = groups.cells[2].totals;
        assert_eq!(
            (totals.sum, totals.min, totals.max, totals.last),
            (10.0, 1.0, 4.0, Some((10, 4.0)))
        );
        let after = groups.key(&groups.cells[1]);
        groups.skip_through(&after);
        assert!(groups.keep_first(1));
        assert_eq!(order(&groups), [(10, 1, 4)]);
    }
}
