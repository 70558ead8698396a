//! Deduplication of samples with a time of their own: a target shows such a sample again at each scrape until there is a newer one.
//!
//! # Invariants
//!
//! - Of a series a sample is taken that is newer than the one before, as Prometheus takes it. One that is as old, or older, is not.
//! - What is remembered are the series of the last scrape that was stored, so no more than a scrape has.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use model::Timestamp;
use protocols::prometheus_text::ScrapedPoint;

/// The newest time of each series that came with one; a series by its hash, whose key no target knows.
#[derive(Debug, Default)]
pub(super) struct SampleTimes {
    key: RandomState,
    newest: HashMap<u64, Timestamp>,
}

/// What is remembered once the samples of a scrape are stored.
#[derive(Debug)]
pub(super) struct NewTimes(HashMap<u64, Timestamp>);

impl SampleTimes {
    /// Leaves the samples that are new.
    pub(super) fn retain_new(&self, points: &mut Vec<ScrapedPoint>) -> NewTimes {
        let mut newest: HashMap<u64, Timestamp> = HashMap::new();
        points.retain(|point| {
            let Some(ts) = point.ts else { return true };
            let series = self.series(point);
            let before = newest.get(&series).or_else(|| self.newest.get(&series)).copied();
            let is_new = before.is_none_or(|before| ts > before);
            newest.insert(series, before.map_or(ts, |before| before.max(ts)));
            is_new
        });
        NewTimes(newest)
    }

    /// Remembers the times of a scrape that is stored.
    pub(super) fn set(&mut self, NewTimes(newest): NewTimes) {
        self.newest = newest;
    }

    /// The series of a point: its name and the labels that the target gave it.
    fn series(&self, point: &ScrapedPoint) -> u64 {
        let mut hasher = self.key.build_hasher();
        point.name.hash(&mut hasher);
        let labels = point.labels.as_map().iter();
        // No label of a target has a dot: what is said of the point beside is its own.
        for (name, value) in labels.filter(|(name, _)| !name.contains('.')) {
            (name, value.as_str()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use protocols::prometheus_text::{PrometheusFormat, parse};

    use super::*;

    /// The values that a text leaves.
    fn left(times: &SampleTimes, text: &str) -> (Vec<f64>, NewTimes) {
        let mut points = parse(text, PrometheusFormat::Text, 100).unwrap();
        let new = times.retain_new(&mut points);
        (points.iter().map(|point| point.value).collect(), new)
    }

    #[test]
    fn a_sample_with_a_time_is_taken_once_and_one_without_each_time() {
        let mut times = SampleTimes::default();
        let mut taken = |text: &str, is_stored: bool| {
            let (values, new) = left(&times, text);
            if is_stored {
                times.set(new);
            }
            values
        };
        let text = "a{b=\"x\"} 1 1000\na{b=\"y\"} 2 1000\nc 3\n";
        assert_eq!(taken(text, false), [1.0, 2.0, 3.0]);
        assert_eq!(taken(text, true), [1.0, 2.0, 3.0], "it was not stored before");
        assert_eq!(taken(text, true), [3.0]);
        assert_eq!(taken("a{b=\"x\"} 4 1001\na{b=\"y\"} 5 999\nc 3\n", true), [4.0, 3.0]);
        // An older one is no new place to begin at.
        assert_eq!(taken("a{b=\"x\"} 6 1001\na{b=\"y\"} 7 1000\n", true), Vec::<f64>::new());
        assert_eq!(taken("d 1 5\nd 2 6\nd 3 6\n", true), [1.0, 2.0]);
        // What a target did not show meanwhile is not remembered.
        assert_eq!(taken(text, true), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn what_is_said_of_a_point_beside_its_labels_makes_no_other_series() {
        let mut times = SampleTimes::default();
        let histogram = |count: u8| {
            format!(
                "# TYPE h histogram\nh_bucket{{le=\"1\"}} {count} 1000\nh_bucket{{le=\"+Inf\"}} {count} 1000\nh_sum {count} 1000\nh_count {count} 1000\n"
            )
        };
        let (values, new) = left(&times, &histogram(1));
        assert_eq!(values, [1.0]);
        times.set(new);
        assert_eq!(left(&times, &histogram(2)).0, Vec::<f64>::new());
    }
}
