//! Interleaves rows of several batches into one, in a given order.
//!
//! As [`arrow_select::interleave`], which has no way of its own for ids and asks for each of them what it is: here they are
//! copied as numbers of 16 bytes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave;

/// Bytes of an id.
const ID: i32 = 16;

/// Rows of a column, each as its part and its place there.
///
/// # Errors
/// If the parts have several types, or there is none.
pub(super) fn gather(parts: &[&dyn Array], rows: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
    let ids = parts.iter().map(|part| part.as_fixed_size_binary_opt());
    let ids: Option<Vec<_>> = ids.map(|part| part.filter(|part| part.value_length() == ID)).collect();
    match ids {
        Some(ids) if !ids.is_empty() => gather_ids(&ids, rows),
        _ => interleave(parts, rows),
    }
}

/// Rows of batches of one schema, each as its batch and its place there.
///
/// # Errors
/// If there is no batch.
pub(super) fn gather_batch(batches: &[&RecordBatch], rows: &[(usize, usize)]) -> Result<RecordBatch, ArrowError> {
    let first = batches.first().map(|batch| batch.schema());
    let schema = first.ok_or_else(|| ArrowError::InvalidArgumentError("there is no batch".to_owned()))?;
    let columns = (0..schema.fields().len()).map(|at| {
        let parts = batches.iter().filter_map(|batch| batch.columns().get(at));
        gather(&parts.map(AsRef::as_ref).collect::<Vec<_>>(), rows)
    });
    let columns = columns.collect::<Result<_, _>>()?;
    RecordBatch::try_new(schema, columns)
}

fn gather_ids(parts: &[&FixedSizeBinaryArray], rows: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
    let ids: Vec<&[[u8; ID as usize]]> = parts.iter().map(|part| part.value_data().as_chunks().0).collect();
    let picked = rows.iter().map(|(part, row)| u128::from_ne_bytes(ids[*part][*row]));
    let picked = ScalarBuffer::from(picked.collect::<Vec<_>>()).into_inner();
    let nulls = parts.iter().any(|part| part.null_count() > 0).then(|| {
        let valid = rows.iter().map(|(part, row)| parts[*part].is_valid(*row));
        valid.collect::<NullBuffer>()
    });
    Ok(Arc::new(FixedSizeBinaryArray::try_new(ID, picked, nulls)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use arrow_select::interleave::interleave_record_batch;
    use model::{Attributes, EntityId, FluxId, Level, LogRecord, TelemetryRecord, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn log(n: usize, id: Option<u8>) -> LogRecord {
        let ts = Timestamp::from_micros(n as i64);
        LogRecord {
            ts,
            entity_id: EntityId::for_name(&format!("host-{n}")),
            entity_name: format!("host-{n}"),
            flux_id: id.map(|id| FluxId::at(ts, [id; 10])),
            level: Level::Info,
            message: format!("line {n}"),
            attributes: Attributes::new(),
        }
    }

    proptest! {
        #[test]
        fn what_is_gathered_is_what_arrow_gathers(
            batches in prop::collection::vec((prop::collection::vec(any::<Option<u8>>(), 4..20), 0usize..3), 1..6),
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..80),
        ) {
            let batches: Vec<RecordBatch> = batches.iter().map(|(ids, skip)| {
                let rows: Vec<_> = ids.iter().enumerate().map(|(n, id)| log(n, *id)).collect();
                // A slice: its first value is not at its buffer's beginning.
                LogRecord::to_batch(&rows).unwrap().slice(*skip, rows.len() - skip)
            }).collect();
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            let rows: Vec<(usize, usize)> = picks.iter().map(|(batch, row)| {
                let batch = batch.index(batches.len());
                (batch, row.index(batches[batch].num_rows()))
            }).collect();
            let gathered = gather_batch(&batches, &rows).unwrap();
            prop_assert_eq!(gathered, interleave_record_batch(&batches, &rows).unwrap());
        }
    }

    #[test]
    fn rows_of_no_batch_are_refused() {
        assert!(gather_batch(&[], &[]).is_err());
        assert!(gather(&[], &[]).is_err());
    }
}
