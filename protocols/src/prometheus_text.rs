//! The text that targets of Prometheus answer with, as metric points: the text format 0.0.4 and OpenMetrics 1.0.
//!
//! | family | becomes |
//! |---|---|
//! | counter | a counter under its sample's name |
//! | gauge, untyped, info, state set | a gauge |
//! | histogram, gauge histogram | one histogram point for each set of labels: the sum, `otel.count`, `.bounds`, `.buckets` (not cumulative) |
//! | summary | a gauge for each quantile; counters `_count` and `_sum`; all with `otel.summary` |
//!
//! Exemplars are `otel.exemplars`, `_created` samples `otel.start_time`, units `otel.unit`, as those of OTLP.
//!
//! Sources: <https://prometheus.io/docs/instrumenting/exposition_formats/>, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
//!
//! # Invariants
//!
//! - One malformed line refuses the whole: half of a scrape would look like a target that lost its series.
//! - Samples that are NaN or infinite are no points. Nothing panics, and memory is a multiple of the text.
//!
//! # Not here
//!
//! Asking targets (`rack`), native histograms and names in quotes, which are only sent to who asks for them.

mod histogram_join;
mod sample_line;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use model::{Attributes, MetricType, Timestamp};
use serde_json::{Map, Value};

use histogram_join::HistogramJoin;
use sample_line::{ExemplarText, SampleLine};

/// What a text is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrometheusFormat {
    /// The text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl PrometheusFormat {
    /// The format that a content type names; what is neither is read as text, as Prometheus did.
    #[must_use]
    pub fn of_content_type(text: &str) -> Self {
        let kind = text.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// Why a text is not a scrape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrometheusTextError {
    /// A line that is none of the format.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// More than is taken at once.
    #[error("more than {0} samples")]
    TooMany(usize),
    /// The end is missing.
    #[error("the text does not end with # EOF: it was cut off")]
    Truncated,
}

/// A point of a scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapedPoint {
    /// The metric's name.
    pub name: String,
    /// What the value means.
    pub metric_type: MetricType,
    /// The value, finite.
    pub value: f64,
    /// When it was measured, if that is said.
    pub ts: Option<Timestamp>,
    /// The sample's labels, and what is said of the point beside.
    pub labels: Attributes,
}

/// Types of families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FamilyType {
    Counter,
    /// And what is stored like one.
    Gauge,
    Info,
    Histogram,
    GaugeHistogram,
    Summary,
}

/// What a sample is of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleRole {
    Value,
    Bucket,
    Count,
    Sum,
    Created,
}

/// The ends of names of samples, with the types of families that have them.
const SUFFIXES: [(&str, SampleRole, &[FamilyType]); 8] = [
    (
        "_bucket",
        SampleRole::Bucket,
        &[FamilyType::Histogram, FamilyType::GaugeHistogram],
    ),
    (
        "_count",
        SampleRole::Count,
        &[FamilyType::Histogram, FamilyType::Summary],
    ),
    ("_sum", SampleRole::Sum, &[FamilyType::Histogram, FamilyType::Summary]),
    (
        "_created",
        SampleRole::Created,
        &[FamilyType::Counter, FamilyType::Histogram, FamilyType::Summary],
    ),
    ("_total", SampleRole::Value, &[FamilyType::Counter]),
    ("_info", SampleRole::Value, &[FamilyType::Info]),
    ("_gcount", SampleRole::Count, &[FamilyType::GaugeHistogram]),
    ("_gsum", SampleRole::Sum, &[FamilyType::GaugeHistogram]),
];

/// What comments say of a family.
#[derive(Debug, Clone, Copy)]
struct FamilyHead<'a> {
    kind: FamilyType,
    unit: &'a str,
}

/// A family of which nothing is said.
const UNTYPED: FamilyHead<'static> = FamilyHead {
    kind: FamilyType::Gauge,
    unit: "",
};

/// A sample in its family.
#[derive(Debug, Clone, Copy)]
struct FamilySample<'a> {
    family: &'a str,
    head: FamilyHead<'a>,
    role: SampleRole,
}

/// Reads a text of at most so many samples.
///
/// # Errors
/// A [`PrometheusTextError`] that names the line.
pub fn parse(
    text: &str,
    format: PrometheusFormat,
    max_samples: usize,
) -> Result<Vec<ScrapedPoint>, PrometheusTextError> {
    let (mut reader, mut samples, mut is_ended) = (ScrapeReader::default(), 0, false);
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.trim_end_matches('\r').trim_start_matches([' ', '\t']);
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            if comment.trim() == "EOF" {
                is_ended = true;
                break;
            }
            reader.comment(comment);
            continue;
        }
        samples += 1;
        if samples > max_samples {
            return Err(PrometheusTextError::TooMany(max_samples));
        }
        let sample = SampleLine::parse(line, format);
        let added = sample.map(|sample| reader.add(&sample));
        added.map_err(|reason| PrometheusTextError::Line { line: number, reason })?;
    }
    if format == PrometheusFormat::OpenMetrics && !is_ended {
        return Err(PrometheusTextError::Truncated);
    }
    Ok(reader.finish())
}

/// What was read so far.
#[derive(Default)]
struct ScrapeReader<'a> {
    families: HashMap<&'a str, FamilyHead<'a>>,
    /// With the series of each that may have a start.
    points: Vec<(ScrapedPoint, Option<String>)>,
    histograms: Vec<HistogramJoin<'a>>,
    /// The places of these, by series.
    places: HashMap<String, usize>,
    /// When series began.
    starts: HashMap<String, Timestamp>,
}

impl<'a> ScrapeReader<'a> {
    /// Takes what a comment says of a family.
    fn comment(&mut self, comment: &'a str) {
        let mut words = comment.split_ascii_whitespace();
        let (Some(keyword @ ("TYPE" | "UNIT")), Some(name), Some(word)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let head = self.families.entry(name).or_insert(UNTYPED);
        if keyword == "TYPE" {
            head.kind = family_type(word);
        } else {
            head.unit = word;
        }
    }

    /// The family of a sample.
    fn family(&self, name: &'a str) -> FamilySample<'a> {
        if let Some(head) = self.families.get(name) {
            return FamilySample {
                family: name,
                head: *head,
                role: SampleRole::Value,
            };
        }
        let found = SUFFIXES.iter().find_map(|(suffix, role, kinds)| {
            let family = name.strip_suffix(*suffix)?;
            let head = self.families.get(family).filter(|head| kinds.contains(&head.kind))?;
            Some(FamilySample {
                family,
                head: *head,
                role: *role,
            })
        });
        found.unwrap_or(FamilySample {
            family: name,
            head: UNTYPED,
            role: SampleRole::Value,
        })
    }

    fn add(&mut self, sample: &SampleLine<'a>) {
        let of = self.family(sample.name);
        match (of.head.kind, of.role) {
            (_, SampleRole::Created) => {
                if let Some(start) = seconds(sample.value) {
                    self.starts.insert(series(of.family, sample, ""), start);
                }
            }
            (FamilyType::Histogram | FamilyType::GaugeHistogram, role) if role != SampleRole::Value => {
                self.add_to_histogram(of, sample);
            }
            (kind, _) => self.add_point(of, sample, kind),
        }
    }

    fn add_to_histogram(&mut self, of: FamilySample<'a>, sample: &SampleLine<'a>) {
        let series = series(of.family, sample, "le");
        let histograms = &mut self.histograms;
        let at = *self.places.entry(series).or_insert_with_key(|series| {
            let mut labels = labels_of(sample, "le");
            set_unit(&mut labels, of.head.unit);
            if of.head.kind == FamilyType::GaugeHistogram {
                labels.set("otel.monotonic", false);
            }
            histograms.push(HistogramJoin::new(of.family, series.clone(), labels));
            histograms.len() - 1
        });
        if let Some(histogram) = self.histograms.get_mut(at) {
            histogram.add(of.role, sample);
        }
    }

    fn add_point(&mut self, of: FamilySample<'a>, sample: &SampleLine<'a>, kind: FamilyType) {
        if !sample.value.is_finite() {
            return;
        }
        let is_summary = kind == FamilyType::Summary;
        let mut labels = labels_of(sample, "");
        set_unit(&mut labels, of.head.unit);
        if is_summary {
            labels.set("otel.summary", true);
        }
        set_exemplars(
            &mut labels,
            sample.exemplar.as_ref().map(exemplar_json).into_iter().collect(),
        );
        let is_counter = kind == FamilyType::Counter || (is_summary && of.role != SampleRole::Value);
        let series = (is_counter || is_summary).then(|| series(of.family, sample, "quantile"));
        let point = ScrapedPoint {
            name: sample.name.to_owned(),
            metric_type: if is_counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            },
            value: sample.value,
            ts: sample.ts,
            labels,
        };
        self.points.push((point, series));
    }

    /// The points, with the starts of their series.
    fn finish(self) -> Vec<ScrapedPoint> {
        let histograms = self.histograms.into_iter().map(HistogramJoin::finish);
        let all = self.points.into_iter().chain(histograms);
        let started = all.map(|(mut point, series)| {
            let start = series.and_then(|series| self.starts.get(&series));
            if let Some(start) = start {
                point.labels.set("otel.start_time", time_text(*start));
            }
            point
        });
        started.collect()
    }
}

fn family_type(word: &str) -> FamilyType {
    match word {
        "counter" => FamilyType::Counter,
        "histogram" => FamilyType::Histogram,
        "gaugehistogram" => FamilyType::GaugeHistogram,
        "summary" => FamilyType::Summary,
        "info" => FamilyType::Info,
        _ => FamilyType::Gauge,
    }
}

/// A family with a set of labels, without the one that tells its samples apart.
fn series(family: &str, sample: &SampleLine<'_>, without: &str) -> String {
    let mut labels: Vec<_> = sample.labels.iter().filter(|(name, _)| *name != without).collect();
    labels.sort_unstable();
    let mut series = family.to_owned();
    for (name, value) in labels {
        // No name has a quote; a value's length tells where it ends.
        series.push_str(&format!("\"{name}\"{}\"{value}", value.len()));
    }
    series
}

fn labels_of(sample: &SampleLine<'_>, without: &str) -> Attributes {
    let mut labels = Attributes::new();
    for (name, value) in sample.labels.iter().filter(|(name, _)| *name != without) {
        labels.set(name, &**value);
    }
    labels
}

fn set_unit(labels: &mut Attributes, unit: &str) {
    if !unit.is_empty() {
        labels.set("otel.unit", unit);
    }
}

fn set_exemplars(labels: &mut Attributes, exemplars: Vec<Value>) {
    if !exemplars.is_empty() {
        labels.set("otel.exemplars", Value::Array(exemplars));
    }
}

/// An exemplar as OTLP's are stored: its ids lead to traces.
fn exemplar_json(exemplar: &ExemplarText<'_>) -> Value {
    let (mut json, mut attributes) = (Map::new(), Map::new());
    if let Some(ts) = exemplar.ts {
        json.insert("time".to_owned(), time_text(ts).into());
    }
    json.insert("value".to_owned(), exemplar.value.into());
    for (name, value) in &exemplar.labels {
        let to = if matches!(*name, "trace_id" | "span_id") {
            &mut json
        } else {
            &mut attributes
        };
        to.insert((*name).to_owned(), Value::from(&**value));
    }
    if !attributes.is_empty() {
        json.insert("attributes".to_owned(), attributes.into());
    }
    Value::Object(json)
}

/// A time in seconds since the epoch; none where no calendar has it.
#[allow(
    clippy::cast_possible_truncation,
    reason = "it is within a range of whole microseconds"
)]
fn seconds(value: f64) -> Option<Timestamp> {
    const FARTHEST: f64 = 253_402_300_799.0;
    let is_time = value.is_finite() && value.abs() <= FARTHEST;
    is_time.then(|| Timestamp::from_micros((value * 1e6).round() as i64))
}

/// A time as RFC 3339 with nanoseconds, as OTLP's have them.
pub(crate) fn time_text(ts: Timestamp) -> String {
    format!("{}000Z", ts.to_string().trim_end_matches('Z'))
}
