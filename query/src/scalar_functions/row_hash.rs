//! A hash of each row's content, which cursors carry.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampMicrosecondType};
use arrow_schema::DataType;
use datafusion::error::Result;
use model::extend_stable_hash;

use super::text_columns::texts;

/// A hash of each row's content; the same in whatever form the columns are held, and in every release: cursors carry it.
pub(crate) fn hash_rows(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; rows];
    for column in columns {
        match column.data_type() {
            DataType::Timestamp(_, _) => {
                let column = column.as_primitive::<TimestampMicrosecondType>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(i64::to_le_bytes)));
            }
            DataType::Float32 => {
                let column = column.as_primitive::<Float32Type>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(f32::to_le_bytes)));
            }
            DataType::Float64 => {
                let column = column.as_primitive::<Float64Type>();
                hash_values(&mut hashes, column.iter().map(|value| value.map(f64::to_le_bytes)));
            }
            DataType::FixedSizeBinary(_) => hash_values(&mut hashes, column.as_fixed_size_binary().iter()),
            DataType::Binary => hash_values(&mut hashes, column.as_binary::<i32>().iter()),
            DataType::BinaryView => hash_values(&mut hashes, column.as_binary_view().iter()),
            _ => hash_values(&mut hashes, texts(column)?),
        }
    }
    Ok(hashes)
}

fn hash_values<T: AsRef<[u8]>>(hashes: &mut [u64], values: impl Iterator<Item = Option<T>>) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = extend_stable_hash(*hash, value.as_ref().map(T::as_ref));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringArray;

    use super::*;

    #[test]
    fn the_hash_of_a_row_is_the_same_in_every_release() {
        let columns: [ArrayRef; 3] = [
            Arc::new(arrow_array::TimestampMicrosecondArray::from(vec![1, -1])),
            Arc::new(StringArray::from(vec![Some("full"), None])),
            Arc::new(arrow_array::Float64Array::from(vec![0.5, -0.0])),
        ];
        let hashes = hash_rows(&columns, 2).unwrap_or_default();
        assert_eq!(hashes, [0x3b0d_d027_4490_7d94, 0x76f2_bd94_a138_7e79]);
    }
}
