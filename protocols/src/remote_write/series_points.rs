//! Samples, native histograms and exemplars as points.

use std::ops::Range;

use model::telemetry_codec::{
    AttributeBuffer, FoundRecord, PointFields, PublisherIdentity, RecordBatchBuilder, RecordFormat,
};
use model::{MetricType, SpanId, Timestamp, TraceId};
use serde_json::{Map, Value};

use super::metric_family::{FamilyTypes, metric_type};
use super::native_histogram::NativeHistogram;
use super::series_walker::{METADATA, RecordKind, SeriesWalker, UNIT, WriteVersion, label_bytes, labels};
use super::symbol_table::SymbolTable;
use crate::prometheus_text::time_text;
use crate::protobuf::FieldReader;
use crate::record_shape;
use crate::sender::{EntityField, MOST_LABELS, SenderSettings, check_labels};

const NAME: &str = "__name__";
/// What is behind the name of a metric whose exemplars are rows.
const EXEMPLAR: &str = "_exemplar";
/// The most characters of a metric's name in the reason of a refusal.
const MAX_SHOWN_NAME: usize = 128;
/// The value that says that a series has ended, among all that are NaN.
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The records of a request.
#[derive(Debug)]
pub(super) struct SeriesPoints {
    walker: SeriesWalker,
    symbols: SymbolTable,
    families: FamilyTypes,
    settings: SenderSettings,
    /// What was found last.
    kind: RecordKind,
    attributes: AttributeBuffer,
    entity: PublisherIdentity,
    field: EntityField,
    series: SeriesHead,
    /// The series that was read, and what is wrong with it.
    read_number: u64,
    fault: Option<String>,
}

/// What a series says of itself beside its labels.
#[derive(Debug, Default)]
struct SeriesHead {
    name: String,
    family: Option<u64>,
    has_le: bool,
}

/// A value, and when it was.
#[derive(Debug, Default)]
struct TimedValue {
    value: f64,
    millis: i64,
    start: i64,
}

impl SeriesPoints {
    pub(super) fn new(
        walker: SeriesWalker,
        (symbols, families): (SymbolTable, FamilyTypes),
        settings: SenderSettings,
    ) -> Self {
        Self {
            walker,
            symbols,
            families,
            entity: settings.fallback.clone(),
            settings,
            kind: RecordKind::Sample,
            attributes: AttributeBuffer::default(),
            field: EntityField::default(),
            series: SeriesHead::default(),
            read_number: 0,
            fault: None,
        }
    }

    /// Begins a record: only what its series has is left.
    fn start_row(&mut self, body: &[u8]) -> Result<(), String> {
        if self.read_number != self.walker.number {
            self.read_number = self.walker.number;
            self.fault = self.read_series(body).err();
        }
        self.attributes.start_row();
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn read_series(&mut self, body: &[u8]) -> Result<(), String> {
        self.attributes.clear();
        self.field.clear();
        self.series = SeriesHead::default();
        let itself = (body, self.walker.itself.clone());
        check_labels(label_bytes(itself.clone(), self.walker.version, &self.symbols)?)?;
        let (settings, field) = (&self.settings, &mut self.field);
        let (series, attributes) = (&mut self.series, &mut self.attributes);
        labels(itself, self.walker.version, &self.symbols, |key, value| {
            match key {
                "" => return Err("a label has no name".to_owned()),
                NAME => {
                    value.clone_into(&mut series.name);
                    return Ok(());
                }
                "le" => series.has_le = true,
                _ => {}
            }
            field.offer(settings, key, value);
            attributes.set("", key, value);
            Ok(())
        })?;
        if self.series.name.is_empty() {
            return Err(format!("the series has no label {NAME}"));
        }
        self.read_metadata(body)?;
        self.attributes.share();
        self.field.resolve(&self.settings, &mut self.entity)
    }

    /// What is known of its family: in version 2.0 each series says that itself.
    fn read_metadata(&mut self, body: &[u8]) -> Result<(), String> {
        if self.walker.version == WriteVersion::V1 {
            self.series.family = self.families.of(body, &self.series.name);
            return Ok(());
        }
        // What is said again replaces what was said before: every row has it.
        let (mut unit, mut start) = (None, 0);
        let mut reader = FieldReader::new(body, self.walker.itself.clone());
        while let Some(field) = reader.next()? {
            match field.number {
                METADATA => {
                    let mut metadata = FieldReader::new(body, field.range()?);
                    while let Some(field) = metadata.next()? {
                        match field.number {
                            1 => self.series.family = Some(field.varint()?),
                            UNIT => unit = Some(field.varint()?),
                            _ => {}
                        }
                    }
                }
                6 => start = field.varint()?.cast_signed(),
                _ => {}
            }
        }
        let unit = unit.map_or(Ok(""), |unit| self.symbols.text(body, unit))?;
        if !unit.is_empty() {
            self.attributes.set("", "otel.unit", unit);
        }
        set_start(&mut self.attributes, start)
    }

    /// An exemplar as the only one of a list.
    fn set_exemplar(&mut self, body: &[u8], range: Range<usize>, point: &TimedValue) -> Result<(), String> {
        let (mut exemplar, mut others) = (Map::new(), Map::new());
        exemplar.insert("time".to_owned(), time_text(time(point.millis)?).into());
        exemplar.insert("value".to_owned(), point.value.into());
        let mut bytes = 0;
        labels((body, range), self.walker.version, &self.symbols, |key, value| {
            bytes += key.len() + value.len();
            if bytes > MOST_LABELS {
                return Err(format!("the exemplar's labels have more than {MOST_LABELS} bytes"));
            }
            if let Some(id) = record_shape::parsed_id::<TraceId>(&record_shape::TRACE_IDS, key, value) {
                exemplar.insert("trace_id".to_owned(), id.to_string().into());
            } else if let Some(id) = record_shape::parsed_id::<SpanId>(&record_shape::SPAN_IDS, key, value) {
                exemplar.insert("span_id".to_owned(), id.to_string().into());
            } else {
                others.insert(key.to_owned(), value.into());
            }
            Ok(())
        })?;
        if !others.is_empty() {
            exemplar.insert("attributes".to_owned(), others.into());
        }
        let list = Value::from(vec![Value::from(exemplar)]);
        self.attributes.set("", "otel.exemplars", &list);
        Ok(())
    }

    /// Adds a point of the present series, unless its value is no number: staleness markers, and what some applications measure all the time.
    fn push_point(
        &mut self,
        (metric_type, point): (MetricType, &TimedValue),
        rows: &mut RecordBatchBuilder,
    ) -> Result<bool, String> {
        if !point.value.is_finite() {
            return Ok(false);
        }
        set_start(&mut self.attributes, point.start)?;
        let row = PointFields {
            ts: time(point.millis)?,
            name: &self.series.name,
            entity: &self.entity,
            metric_type,
            value: point.value,
        };
        rows.push_point(row, &mut self.attributes)?;
        Ok(true)
    }
}

impl RecordFormat for SeriesPoints {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let (kind, range) = self.walker.next(body).ok().flatten()?;
        self.kind = kind;
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        self.start_row(body)?;
        let pushed = self.push_record(body, record.range.clone(), rows);
        // A record alone, as it is kept, does not say which series it is of.
        pushed.map_err(|reason| {
            let name: String = self.series.name.chars().take(MAX_SHOWN_NAME).collect();
            format!("{name} of {}: {reason}", self.entity.entity_name)
        })
    }
}

impl SeriesPoints {
    /// Adds a record of the present series, if it is a point.
    fn push_record(&mut self, body: &[u8], range: Range<usize>, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        match self.kind {
            RecordKind::Sample => {
                let point = timed_value(body, range, RecordKind::Sample)?;
                let SeriesHead { name, family, has_le } = &self.series;
                let kind = metric_type(name, *family, *has_le);
                self.push_point((kind, &point), rows)
            }
            RecordKind::Histogram => {
                let histogram = NativeHistogram::read(body, range)?;
                if histogram.sum.to_bits() == STALE {
                    return Ok(false);
                }
                histogram.set_labels(&mut self.attributes)?;
                let has_sum = histogram.sum.is_finite();
                if !has_sum {
                    self.attributes.set("", "otel.no_sum", &true);
                }
                let point = TimedValue {
                    value: if has_sum { histogram.sum } else { 0.0 },
                    millis: histogram.timestamp,
                    start: histogram.start,
                };
                self.push_point((MetricType::Histogram, &point), rows)
            }
            RecordKind::Exemplar => {
                let point = timed_value(body, range.clone(), RecordKind::Exemplar)?;
                self.set_exemplar(body, range, &point)?;
                let length = self.series.name.len();
                self.series.name.push_str(EXEMPLAR);
                let pushed = self.push_point((MetricType::Gauge, &point), rows);
                self.series.name.truncate(length);
                pushed
            }
        }
    }
}

/// The value and the time of a sample or an exemplar.
fn timed_value(body: &[u8], range: Range<usize>, kind: RecordKind) -> Result<TimedValue, String> {
    let (mut reader, mut point) = (FieldReader::new(body, range), TimedValue::default());
    while let Some(field) = reader.next()? {
        match (kind, field.number) {
            (RecordKind::Sample, 1) | (RecordKind::Exemplar, 2) => point.value = field.double()?,
            (RecordKind::Sample, 2) | (RecordKind::Exemplar, 3) => point.millis = field.varint()?.cast_signed(),
            (RecordKind::Sample, 3) => point.start = field.varint()?.cast_signed(),
            _ => {}
        }
    }
    Ok(point)
}

/// A time in milliseconds.
fn time(millis: i64) -> Result<Timestamp, String> {
    let at = millis.checked_mul(1_000).map(Timestamp::from_micros);
    at.filter(|at| (Timestamp::MIN..=Timestamp::MAX).contains(at))
        .ok_or_else(|| format!("the timestamp of {millis} milliseconds is none"))
}

/// Sets when counting began, if that is known.
fn set_start(labels: &mut AttributeBuffer, millis: i64) -> Result<(), String> {
    if millis > 0 {
        labels.set("", "otel.start_time", time_text(time(millis)?).as_str());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::fuzz::{NOON, bytes, sample, varint};
    use super::*;
    use crate::sender::tests::settings;

    #[test]
    fn what_a_series_says_of_itself_again_is_held_once() {
        let held = |count: usize| {
            let symbols = ["", "__name__", "n", "s", "ms"].map(|symbol| bytes(4, symbol.as_bytes()));
            let again = [
                bytes(5, &varint(4, 3)).repeat(count / 1_000),
                bytes(5, &varint(4, 4)),
                varint(6, 1).repeat(count),
                varint(6, 2_000),
            ];
            let series = [bytes(1, &[1, 2]), again.concat(), bytes(2, &sample(1.0, NOON))];
            let body = [symbols.concat(), bytes(5, &series.concat())].concat();
            let version = WriteVersion::V2;
            let tables = (
                SymbolTable::read(&body, version).unwrap(),
                FamilyTypes::read(&body, version).unwrap(),
            );
            let mut points = SeriesPoints::new(SeriesWalker::new(&body, version), tables, settings(&[]));
            points.find(&body).unwrap();
            points.start_row(&body).unwrap();
            let said = ["otel.unit", "otel.start_time"].map(|key| points.attributes.get(key).unwrap().to_vec());
            (points.attributes.bytes(), said)
        };
        let once = held(0);
        assert_eq!(once.1, [&b"\"ms\""[..], b"\"1970-01-01T00:00:02.000000000Z\""]);
        assert_eq!(held(1_000_000), once);
    }
}
