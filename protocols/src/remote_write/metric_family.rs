//! What metadata says of metrics: their type.

use std::ops::Range;

use model::MetricType;

use super::{WriteError, WriteVersion};
use crate::protobuf::{FieldReader, MalformedProtobuf};

/// So many families of a request of version 1.0 are known; Prometheus sends 500 at a time.
const MAX_FAMILIES: usize = 1 << 16;
/// The field of metadata in a request of version 1.0.
const METADATA: u32 = 3;

/// The types that metadata names, by their numbers, which both versions share.
mod family_type {
    pub(super) const COUNTER: u64 = 1;
    pub(super) const GAUGE: u64 = 2;
    pub(super) const HISTOGRAM: u64 = 3;
    pub(super) const GAUGE_HISTOGRAM: u64 = 4;
    pub(super) const SUMMARY: u64 = 5;
    pub(super) const INFO: u64 = 6;
    pub(super) const STATE_SET: u64 = 7;
}

/// The families of a request of version 1.0: their names and types, by name.
#[derive(Debug, Default)]
pub(super) struct FamilyTypes(Vec<(Range<usize>, u64)>);

/// The most bytes of the families of a body.
pub(super) fn most_bytes(body: &[u8]) -> usize {
    MAX_FAMILIES.min(body.len() / 2) * size_of::<(Range<usize>, u64)>()
}

impl FamilyTypes {
    pub(super) fn read(body: &[u8], version: WriteVersion) -> Result<Self, WriteError> {
        let mut families = Vec::new();
        if version == WriteVersion::V1 {
            let mut reader = FieldReader::new(body, 0..body.len());
            while let Some(field) = reader.next()? {
                if field.number == METADATA && families.len() < MAX_FAMILIES {
                    families.push(family(body, field.range()?)?);
                }
            }
            families.sort_by(|(a, _), (b, _)| body.get(a.clone()).cmp(&body.get(b.clone())));
        }
        Ok(Self(families))
    }

    pub(super) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Range<usize>, u64)>()
    }

    /// The type of the family that a metric belongs to.
    pub(super) fn of(&self, body: &[u8], name: &str) -> Option<u64> {
        let find = |name: &str| {
            let place =
                |(range, _): &(Range<usize>, u64)| body.get(range.clone()).unwrap_or_default().cmp(name.as_bytes());
            let found = self.0.binary_search_by(place).ok()?;
            self.0.get(found).map(|(_, kind)| *kind)
        };
        let suffixes = ["_bucket", "_count", "_sum", "_total"];
        find(name).or_else(|| suffixes.iter().find_map(|suffix| find(name.strip_suffix(*suffix)?)))
    }
}

fn family(body: &[u8], range: Range<usize>) -> Result<(Range<usize>, u64), MalformedProtobuf> {
    let (mut reader, mut name, mut kind) = (FieldReader::new(body, range), 0..0, 0);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => kind = field.varint()?,
            2 => name = field.range()?,
            _ => {}
        }
    }
    Ok((name, kind))
}

/// What a series' value means, by the type of its family if that is known, else by its name.
pub(super) fn metric_type(name: &str, family: Option<u64>, has_le: bool) -> MetricType {
    use family_type::{COUNTER, GAUGE, GAUGE_HISTOGRAM, HISTOGRAM, INFO, STATE_SET, SUMMARY};
    let is_counter = match family {
        Some(COUNTER) => true,
        Some(HISTOGRAM | SUMMARY) => ["_bucket", "_count", "_sum"]
            .iter()
            .any(|suffix| name.ends_with(*suffix)),
        Some(GAUGE | GAUGE_HISTOGRAM | INFO | STATE_SET) => false,
        _ => name.ends_with("_total") || (has_le && name.ends_with("_bucket")),
    };
    if is_counter {
        MetricType::Counter
    } else {
        MetricType::Gauge
    }
}
