//! Walk through a request down to the points of its metrics: resource, scope, metric, point.
//!
//! # Invariants
//!
//! - A metric's name, unit and metadata are known before its points, wherever their fields stand in it.

use std::ops::Range;

use super::signal_walker::{SignalWalker, step};
use crate::protobuf::{FieldReader, MalformedProtobuf};

/// The field of a point that stands for what cannot be read as JSON, with its text; the protocol has no such field.
pub(super) const UNREAD: u32 = 2_047;
/// What a metric says of itself, its name, unit and metadata, has at most so many bytes: every point repeats it.
pub(super) const MOST_SHARED: usize = 16 << 10;
/// What a pair of metadata takes beside its text.
const METADATA: usize = 16;
/// The first row of a summary that is one of its quantiles.
pub(super) const QUANTILES: u32 = 2;

/// The kinds of metrics, by their field's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MetricData {
    #[default]
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// The metric whose points are read.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricHead {
    pub(super) metric: Range<usize>,
    pub(super) name: Range<usize>,
    pub(super) unit: Range<usize>,
    pub(super) metadata: Vec<Range<usize>>,
    pub(super) data: MetricData,
    /// What of it is repeated in every row.
    pub(super) bytes: usize,
    pub(super) temporality: i32,
    pub(super) monotonic: bool,
}

/// Walks through a request down to the points.
#[derive(Debug, Clone)]
pub(super) struct MetricWalker {
    pub(super) scopes: SignalWalker,
    /// What is left of the present metric, and of its data.
    metric: Range<usize>,
    points: Range<usize>,
    pub(super) head: MetricHead,
}

impl MetricWalker {
    pub(super) fn new(scopes: SignalWalker) -> Self {
        Self {
            scopes,
            metric: 0..0,
            points: 0..0,
            head: MetricHead::default(),
        }
    }

    /// The next point.
    pub(super) fn next(&mut self, body: &[u8]) -> Result<Option<Range<usize>>, MalformedProtobuf> {
        loop {
            if let Some(field) = step(body, &mut self.points)? {
                if field.number == 1 {
                    return field.range().map(Some);
                }
            } else if let Some(field) = step(body, &mut self.metric)? {
                let data = match field.number {
                    5 => MetricData::Gauge,
                    7 => MetricData::Sum,
                    9 => MetricData::Histogram,
                    10 => MetricData::Exponential,
                    11 => MetricData::Summary,
                    _ => continue,
                };
                self.points = field.range()?;
                self.data(body, data)?;
            } else if let Some(metric) = self.scopes.next(body)? {
                self.head(body, &metric)?;
                self.metric = metric;
            } else {
                return Ok(None);
            }
        }
    }

    /// What a metric says of itself, wherever that stands in it.
    fn head(&mut self, body: &[u8], metric: &Range<usize>) -> Result<(), MalformedProtobuf> {
        self.head = MetricHead {
            metric: metric.clone(),
            ..MetricHead::default()
        };
        let mut reader = FieldReader::new(body, metric.clone());
        while let Some(field) = reader.next()? {
            match field.number {
                1 => self.head.name = field.range()?,
                3 => self.head.unit = field.range()?,
                12 => {
                    let range = field.range()?;
                    self.head.bytes += range.len() + METADATA;
                    if self.head.bytes <= MOST_SHARED {
                        self.head.metadata.push(range);
                    }
                }
                _ => {}
            }
        }
        self.head.bytes += self.head.name.len() + self.head.unit.len();
        Ok(())
    }

    /// What its data says beside the points.
    fn data(&mut self, body: &[u8], data: MetricData) -> Result<(), MalformedProtobuf> {
        (self.head.data, self.head.temporality, self.head.monotonic) = (data, 0, false);
        if matches!(data, MetricData::Gauge | MetricData::Summary) {
            return Ok(());
        }
        let mut reader = FieldReader::new(body, self.points.clone());
        while let Some(field) = reader.next()? {
            match field.number {
                2 => self.head.temporality = field.int32()?,
                3 if data == MetricData::Sum => self.head.monotonic = field.varint()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// As of [`SignalWalker::first`], of the points that can be read.
    pub(super) fn first(mut self, body: &[u8]) -> Result<Range<usize>, MalformedProtobuf> {
        while let Some(point) = self.next(body)? {
            if unread_text(body, &point).is_none() {
                return Ok(point);
            }
        }
        Ok(0..0)
    }

    /// As of [`SignalWalker::expanded`].
    pub(super) fn expanded(mut self, body: &[u8]) -> Result<u64, MalformedProtobuf> {
        let mut bytes = 0u64;
        while let Some(point) = self.next(body)? {
            let rows = match self.head.data {
                MetricData::Summary => u64::from(summary_rows(body, &point)),
                _ => 1,
            };
            let row = point.len() + self.scopes.shared_bytes() + self.head.bytes;
            bytes = bytes.saturating_add(rows.saturating_mul(row as u64));
        }
        Ok(bytes)
    }
}

/// The text of what cannot be read, if a point stands for that.
pub(super) fn unread_text(body: &[u8], point: &Range<usize>) -> Option<Range<usize>> {
    let field = FieldReader::new(body, point.clone()).next().ok()??;
    field.range().ok().filter(|_| field.number == UNREAD)
}

/// How many rows a summary becomes, as far as it can be read.
pub(super) fn summary_rows(body: &[u8], range: &Range<usize>) -> u32 {
    let mut reader = FieldReader::new(body, range.clone());
    let fields = std::iter::from_fn(|| reader.next().ok().flatten());
    let quantiles = fields.filter(|field| field.number == 6).count();
    u32::try_from(quantiles).unwrap_or(u32::MAX).saturating_add(QUANTILES)
}
