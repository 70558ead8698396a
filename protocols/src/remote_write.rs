//! Prometheus' remote write, 1.0 and 2.0, into rows of `metrics`: series with labels, and their samples, native histograms and
//! exemplars.
//!
//! ```text
//! 1.0  request ─ series (labels) ─ samples, exemplars, histograms      metadata of families, mostly in requests of their own
//! 2.0  request ─ symbols ─ series (references, metadata) ─ the same
//! ```
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and `remote_write_spec_2_0`; `prompb` of Prometheus.
//!
//! | record | `type` | `name`, `value` | labels beside the series' own |
//! |---|---|---|---|
//! | sample | that of the metadata; else counter if its name ends in `_total`, or in `_bucket` and it has `le`; else gauge | the value | `otel.unit`, `otel.start_time` where metadata has them |
//! | native histogram | histogram | the sum | `otel.count`, `.scale`, `.zero_count`, `.zero_threshold`, `.positive.offset`, `.positive.counts`, `.negative.…`; of custom buckets `.bounds` and `.buckets`; `otel.no_sum` |
//! | exemplar | gauge | `_exemplar` behind the name; its value | `otel.exemplars` |
//!
//! # Invariants
//!
//! - A sample or exemplar whose value is not finite, a staleness marker among them, is no row and not refused; a histogram without a finite sum
//!   has none.
//! - A bucket of Prometheus with index i, which ends at base^i, is OTLP's with index i - 1: `otel.positive.offset` counts as OTLP.
//! - A request has 262,144 symbols at most, a histogram 16,384 buckets of one sign, gaps between them included.
//!
//! # Not here
//!
//! Snappy (`mixer`). What metrics mean (`help`) is not kept.

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod metric_family;
mod native_histogram;
mod series_points;
mod series_walker;
mod symbol_table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use model::{EntityId, extend_stable_hash, stable_hash};

use crate::MalformedProtobuf;
use crate::sender::{EntityField, ExpandedTooFar, OpenedRequest, SenderSettings, check_labels};
use metric_family::FamilyTypes;
use series_points::SeriesPoints;
use series_walker::{SeriesWalker, label_bytes, labels};
use symbol_table::SymbolTable;

pub use series_walker::{RecordKind, WriteVersion};

/// The message of version 2.0, as a content type names it.
pub const V2_MESSAGE: &str = "io.prometheus.write.v2.Request";
/// The message of version 1.0.
pub const V1_MESSAGE: &str = "prometheus.WriteRequest";

/// What the headers say of a request, and where its records are told.
#[derive(Debug, Clone)]
pub struct WriteSettings {
    /// Its version.
    pub version: WriteVersion,
    /// What each record is, once the request was looked through.
    pub kinds: Arc<OnceLock<Vec<RecordKind>>>,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Not a message.
    #[error("the body is no remote write request: {0}")]
    Protobuf(#[from] MalformedProtobuf),
    /// More symbols than a request may have.
    #[error("the request has more than {0} symbols: send several smaller ones")]
    Symbols(usize),
    /// Many samples under many labels.
    #[error(transparent)]
    Expanded(#[from] ExpandedTooFar),
}

/// The most bytes that are held of a body while it is looked through.
#[must_use]
pub fn opening_bytes(body: &[u8]) -> usize {
    // A record has two bytes at least; both lists grow by doubling.
    body.len() + 2 * (symbol_table::most_bytes(body) + metric_family::most_bytes(body))
}

/// Looks through a request.
///
/// # Errors
/// A [`WriteError`] that says what is wrong with the body.
pub fn request(body: Bytes, write: WriteSettings, settings: SenderSettings) -> Result<OpenedRequest, WriteError> {
    let symbols = SymbolTable::read(&body, write.version)?;
    let families = FamilyTypes::read(&body, write.version)?;
    let walker = SeriesWalker::new(&body, write.version);
    let (mut walk, mut kinds, mut expanded) = (walker.clone(), Vec::new(), 0u64);
    let (mut number, mut labels) = (0, 0);
    let publisher = settings.fallback.entity_id;
    let mut entity = publisher;
    while let Some((kind, range)) = walk.next(&body)? {
        if number != walk.number {
            labels = label_bytes((&body, walk.itself.clone()), write.version, &symbols)?;
            if number == 0 && check_labels(labels).is_ok() {
                entity = entity_of(&body, &walk, &symbols, &settings);
            }
            number = walk.number;
        }
        let mut bytes = range.len() + labels;
        if kind == RecordKind::Exemplar {
            bytes += label_bytes((&body, range), write.version, &symbols)?;
        }
        kinds.push(kind);
        expanded = expanded.saturating_add(bytes as u64);
    }
    ExpandedTooFar::check(expanded, body.len())?;
    let held = kinds.capacity() + symbols.bytes() + families.bytes();
    write.kinds.get_or_init(|| kinds);
    Ok(OpenedRequest {
        records: Box::new(SeriesPoints::new(walker, (symbols, families), settings)),
        body,
        expanded,
        held,
        sender: Some(sender_of(publisher, entity)),
    })
}

/// Who sent a request whose first series is of an entity. Series of one Prometheus come in any order, those of one target in that of time: it is a
/// few senders, however many targets it has, so that it does not push out what is known of others.
fn sender_of(publisher: EntityId, entity: EntityId) -> u64 {
    const SENDERS: u64 = 16;
    let part = stable_hash(entity.as_bytes()) % SENDERS;
    extend_stable_hash(part, Some(publisher.as_bytes().as_slice()))
}

/// Whose the present series is. What is wrong with its labels refuses its records, later.
fn entity_of(body: &[u8], walk: &SeriesWalker, symbols: &SymbolTable, settings: &SenderSettings) -> EntityId {
    let (mut field, mut entity) = (EntityField::default(), settings.fallback.clone());
    let named = labels((body, walk.itself.clone()), walk.version, symbols, |key, value| {
        field.offer(settings, key, value);
        Ok(())
    });
    let named = named.and_then(|()| field.resolve(settings, &mut entity));
    named.map_or(settings.fallback.entity_id, |()| entity.entity_id)
}
