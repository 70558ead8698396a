//! Ids of rows: from texts, and as numbers.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Decimal128Array, FixedSizeBinaryArray};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::common::exec_err;
use datafusion::error::Result;
use uuid::Uuid;

use super::text_columns::texts;
use super::{FunctionKind, NUMBER, form};

/// The ids of a column of ids or texts. A text that is written in a statement must be one.
pub(super) fn id_values(column: &ArrayRef, constant: bool) -> Result<Vec<Option<Uuid>>> {
    if let Some(ids) = column.as_fixed_size_binary_opt() {
        return Ok(ids.iter().map(|id| Uuid::from_slice(id?).ok()).collect());
    }
    let parse = |text: &str| match Uuid::try_parse(text) {
        Ok(id) => Ok(Some(id)),
        Err(_) if constant => exec_err!("'{text}' is not a UUID"),
        Err(_) => Ok(None),
    };
    texts(column)?.map(|text| text.map_or(Ok(None), parse)).collect()
}

pub(super) fn ids(column: &ArrayRef, constant: bool) -> Result<FixedSizeBinaryArray> {
    let ids = id_values(column, constant)?;
    let bytes = ids.iter().map(|id| id.as_ref().map(Uuid::as_bytes));
    Ok(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16)?)
}

/// Without a copy where the bytes lie as numbers must.
pub(super) fn numbers(column: &ArrayRef) -> Result<Decimal128Array> {
    let Some(ids) = column.as_fixed_size_binary_opt() else {
        return exec_err!("{} was expected", form(FunctionKind::Number));
    };
    let bytes = ids.values();
    let numbers = if bytes.as_ptr().align_offset(align_of::<i128>()) == 0 {
        ScalarBuffer::new(bytes.clone(), 0, ids.len())
    } else {
        let (all, _) = bytes.as_chunks::<16>();
        let numbers: Vec<_> = all.iter().map(|id| i128::from_ne_bytes(*id)).collect();
        numbers.into()
    };
    let numbers = Decimal128Array::try_new(numbers, ids.nulls().cloned())?;
    Ok(numbers.with_data_type(NUMBER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use super::*;

    #[test]
    fn numbers_of_ids_are_equal_exactly_where_the_ids_are_wherever_their_bytes_lie() {
        let ids: Vec<_> = (0..40u128)
            .map(|n| (n % 7 != 3).then_some(((n % 5) << 64) | (n % 3)))
            .collect();
        let bytes = ids.iter().map(|id| id.map(u128::to_be_bytes));
        let whole = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).unwrap();
        // Behind a byte of another buffer they lie as no number may.
        let shifted: Vec<u8> = std::iter::once(0).chain(whole.values().iter().copied()).collect();
        let shifted = datafusion::arrow::buffer::Buffer::from_vec(shifted).slice(1);
        let shifted = FixedSizeBinaryArray::try_new(16, shifted, whole.nulls().cloned()).unwrap();
        for column in [Arc::new(whole) as ArrayRef, Arc::new(shifted)] {
            for column in [column.slice(0, 40), column.slice(3, 30), column.slice(5, 0)] {
                let made = numbers(&column).unwrap();
                let given = column.as_fixed_size_binary();
                assert_eq!(made.len(), given.len());
                for (a, b) in (0..made.len()).flat_map(|a| (0..made.len()).map(move |b| (a, b))) {
                    assert_eq!(made.is_null(a), given.is_null(a));
                    if made.is_valid(a) && made.is_valid(b) {
                        assert_eq!(made.value(a) == made.value(b), given.value(a) == given.value(b));
                    }
                }
            }
        }
    }
}
