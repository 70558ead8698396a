//! Labels of a metric point: which of them are of this point alone, and what they say of it.
//!
//! A series is a metric's name, type, entity, and labels without [`POINT_LABELS`].
//!
//! # Invariants
//!
//! - Labels are walked as the text that is stored, a flat JSON object with plain keys: no tree is built of them.
//! - What names a series is written as it is stored, so a point with exemplars is of the same series as one without.

use std::borrow::Cow;

use model::Timestamp;

/// Labels that belong to one point, not to its series.
const POINT_LABELS: [&str; 17] = [
    "otel.bounds",
    "otel.buckets",
    "otel.count",
    EXEMPLARS,
    "otel.int",
    "otel.max",
    "otel.min",
    "otel.negative.counts",
    "otel.negative.offset",
    "otel.no_sum",
    "otel.positive.counts",
    "otel.positive.offset",
    "otel.scale",
    "otel.start_time",
    "otel.sum",
    "otel.zero_count",
    "otel.zero_threshold",
];
/// The label with the exemplars of a point, a list of objects.
pub(crate) const EXEMPLARS: &str = "otel.exemplars";
/// What the keys of all of them begin with.
const PREFIX: &str = "otel.";

/// What labels say of a point, each as JSON; empty where they do not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointLabels<'a> {
    temporality: &'a str,
    start_time: &'a str,
    pub(crate) bounds: &'a str,
    pub(crate) buckets: &'a str,
    pub(crate) count: &'a str,
    pub(crate) no_sum: &'a str,
    pub(crate) scale: &'a str,
    pub(crate) zero_count: &'a str,
    pub(crate) zero_threshold: &'a str,
    /// Offset and counts.
    pub(crate) positive: (&'a str, &'a str),
    pub(crate) negative: (&'a str, &'a str),
}

impl<'a> PointLabels<'a> {
    pub(crate) fn of(labels: &'a str) -> Self {
        let mut of_point = Self::default();
        for (key, value) in members(labels).into_iter().flatten().filter_map(key_value) {
            let place = match key {
                "otel.bounds" => &mut of_point.bounds,
                "otel.buckets" => &mut of_point.buckets,
                "otel.count" => &mut of_point.count,
                "otel.negative.counts" => &mut of_point.negative.1,
                "otel.negative.offset" => &mut of_point.negative.0,
                "otel.no_sum" => &mut of_point.no_sum,
                "otel.positive.counts" => &mut of_point.positive.1,
                "otel.positive.offset" => &mut of_point.positive.0,
                "otel.scale" => &mut of_point.scale,
                "otel.start_time" => &mut of_point.start_time,
                "otel.temporality" => &mut of_point.temporality,
                "otel.zero_count" => &mut of_point.zero_count,
                "otel.zero_threshold" => &mut of_point.zero_threshold,
                _ => continue,
            };
            *place = value;
        }
        of_point
    }

    /// Whether it tells what came since the point before it.
    pub(crate) fn is_delta(&self) -> bool {
        self.temporality == "\"delta\""
    }

    /// Since when it counts.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        self.start_time.trim_matches('"').parse().ok()
    }
}

/// The number that a label is.
pub(crate) fn number(label: &str) -> Option<f64> {
    serde_json::from_str(label).ok()
}

/// The whole number that a label is.
pub(crate) fn whole(label: &str) -> Option<i32> {
    serde_json::from_str(label).ok()
}

/// The numbers that a label lists.
pub(crate) fn numbers(label: &str) -> Option<Vec<f64>> {
    serde_json::from_str(label).ok()
}

/// The counts that a label lists.
pub(crate) fn counts(label: &str) -> Option<Vec<f64>> {
    numbers(label).filter(|counts| counts.iter().all(|count| *count >= 0.0))
}

/// Whether a label is of one point, not of its series.
pub(crate) fn is_of_point(key: &str) -> bool {
    POINT_LABELS.contains(&key)
}

/// Labels without those of one point.
pub(crate) fn without_point_labels(labels: &str) -> Cow<'_, str> {
    let Some(members) = members(labels) else {
        return Cow::Borrowed(labels);
    };
    let is_of_series = |member: &&str| key_value(member).is_none_or(|(key, _)| !is_of_point(key));
    let kept: Vec<&str> = members.filter(is_of_series).collect();
    Cow::Owned(format!("{{{}}}", kept.join(",")))
}

/// The members of labels as they are written; `None` where none can be one of a point, or it is no object.
fn members(object: &str) -> Option<impl Iterator<Item = &str>> {
    if !object.contains(PREFIX) {
        return None;
    }
    let inner = object.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut depth, mut is_in_text, mut is_escaped) = (0usize, false, false);
    Some(inner.split(move |letter: char| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match letter {
            '"' => is_in_text = !is_in_text,
            '\\' => is_escaped = is_in_text,
            _ if is_in_text => {}
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ',' => return depth == 0,
            _ => {}
        }
        false
    }))
}

/// A member's plain key, and its value as JSON; `None` for a key with a quote in it.
fn key_value(member: &str) -> Option<(&str, &str)> {
    let (key, value) = member.trim_start().strip_prefix('"')?.split_once('"')?;
    Some((key, value.trim_start().strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn a_series_is_named_by_what_its_points_share() {
        let point = json!({
            "a": r#"x,"otel.count":1,"#, "cpu": "0", "otel.bounds": [1.5, 2], "otel.buckets": [1, 2, 0], "otel.count": 3,
            "otel.exemplars": [{ "value": 1, "trace_id": "0a", "attributes": { "otel.count": [1, "}]"] } }],
            "otel.int": 9_007_199_254_740_993_i64, "otel.max": 9, "otel.min": 1, "otel.negative.counts": [1],
            "otel.negative.offset": -4, "otel.no_sum": true, "otel.positive.counts": [1], "otel.positive.offset": 2,
            "otel.scale": 3, "otel.start_time": "2026-11-21T10:00:00.000000000Z", "otel.sum": 3, "otel.unit": "s",
            "otel.zero_count": 1, "otel.zero_threshold": 0.5, "resource.service.name": "a \"b\", c", "z": [1, [2, 3]],
        });
        let named = json!({
            "a": r#"x,"otel.count":1,"#, "cpu": "0", "otel.unit": "s", "resource.service.name": "a \"b\", c", "z": [1, [2, 3]],
        });
        assert_eq!(without_point_labels(&point.to_string()), named.to_string());
        assert_eq!(without_point_labels(&named.to_string()), named.to_string());
        assert_eq!(without_point_labels(r#"{"otel.count":1}"#), "{}");
    }

    #[test]
    fn labels_that_only_resemble_those_of_points_name_a_series() {
        for labels in [
            "",
            "{}",
            "no otel. object",
            r#"{"otel.counts":1}"#,
            r#"{"x":"otel.count"}"#,
            r#"{"\"otel.count":"otel.count"}"#,
            r#"{"x":["otel.count",{"otel.count":1}]}"#,
            r#"{"b":"\\","otel.temporality":"delta"}"#,
        ] {
            assert_eq!(without_point_labels(labels), labels);
        }
    }

    #[test]
    fn what_is_left_is_what_an_object_without_these_keys_is_written_as() {
        let keys = [
            "a",
            "otel.count",
            "otel.unit",
            "otel.exemplars",
            "b\"c",
            "ü,{",
            "otel.scale",
        ];
        let values = [
            json!("x"),
            json!("\\\"},{"),
            json!([1, "]", { "k": "," }]),
            json!(-0.5),
            json!(null),
            json!("\\"),
        ];
        for seed in 0..5_000usize {
            let mut object = Map::new();
            for (at, key) in keys.iter().enumerate() {
                if (seed >> at) & 1 == 1 {
                    object.insert((*key).to_owned(), values[(seed / 7 + at * 5) % values.len()].clone());
                }
            }
            let labels = Value::Object(object.clone()).to_string();
            object.retain(|key, _| !POINT_LABELS.contains(&key.as_str()));
            assert_eq!(without_point_labels(&labels), Value::Object(object).to_string());
        }
    }
}
