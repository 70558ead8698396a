//! Numbers that their columns cannot hold, and zeros with a sign.

use super::*;

/// The stored numbers, and what is said of the records that are not stored.
fn numbers_read(table: Table, encoding: BatchEncoding, body: &[u8]) -> (Vec<f64>, Vec<String>) {
    let (batches, records) = read(table, encoding, body, usize::MAX);
    let column = if table == Table::Metrics {
        "value"
    } else {
        "duration_ms"
    };
    let numbers = batches.iter().flat_map(|batch| {
        let cast = arrow_cast_f64(batch.column_by_name(column).unwrap());
        cast.into_iter()
    });
    let reasons = records.named().iter().map(|bad| bad.reason.clone());
    (numbers.collect(), reasons.collect())
}

fn arrow_cast_f64(column: &arrow_array::ArrayRef) -> Vec<f64> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Float64Type};
    match column.as_primitive_opt::<Float64Type>() {
        Some(wide) => wide.values().to_vec(),
        None => {
            let narrow = column.as_primitive::<Float32Type>();
            narrow.values().iter().map(|value| f64::from(*value)).collect()
        }
    }
}

#[test]
fn a_number_that_is_not_finite_in_its_column_is_refused_by_name_in_every_encoding() {
    // 1e39 is a number of 64 bits and none of 32; blanks lead the second one past the quick reader.
    for number in ["1e39", "-1e39 ", "3.5e38"] {
        for encoding in [BatchEncoding::Json, BatchEncoding::Ndjson] {
            let body = of_number(Table::Traces, number);
            let (stored, reasons) = numbers_read(Table::Traces, encoding, body.as_bytes());
            assert_eq!(stored, [0.0; 0], "{number} in {encoding:?}");
            assert!(
                reasons[0].contains("duration_ms") && reasons[0].contains("finite"),
                "{reasons:?}"
            );
        }
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39] {
        for table in [Table::Metrics, Table::Traces] {
            let is_stored = table == Table::Metrics && number.is_finite();
            let column = if table == Table::Metrics {
                "value"
            } else {
                "duration_ms"
            };
            let good: Value = serde_json::from_str(&of_number(table, "1.5")).unwrap();
            let mut bad = ciborium::Value::serialized(&good).unwrap();
            for (key, value) in bad.as_map_mut().unwrap() {
                if key.as_text() == Some(column) {
                    *value = number.into();
                }
            }
            let mut body = Vec::new();
            let all = vec![ciborium::Value::serialized(&good).unwrap(), bad];
            ciborium::into_writer(&ciborium::Value::Array(all), &mut body).unwrap();
            let (stored, reasons) = numbers_read(table, BatchEncoding::Cbor, &body);
            assert_eq!(
                (stored.len(), reasons.len()),
                (1 + usize::from(is_stored), usize::from(!is_stored))
            );
            assert_eq!(
                decode(table, BatchEncoding::Cbor, &body.into(), &publisher()).is_ok(),
                is_stored,
                "{number}"
            );
            if number == 1e39 {
                continue;
            }
            let good = decode(
                table,
                BatchEncoding::Json,
                &of_number(table, "1.5").into(),
                &publisher(),
            )
            .unwrap();
            let at = good[0].schema().index_of(column).unwrap();
            let mut columns = good[0].columns().to_vec();
            columns[at] = if table == Table::Metrics {
                std::sync::Arc::new(arrow_array::Float64Array::from(vec![number]))
            } else {
                std::sync::Arc::new(arrow_array::Float32Array::from(vec![number as f32]))
            };
            let odd = RecordBatch::try_new(good[0].schema(), columns).unwrap();
            let body = encode_arrow(&[good[0].clone(), odd]).unwrap();
            let (stored, reasons) = numbers_read(table, BatchEncoding::Arrow, &body);
            assert_eq!((stored, reasons.len()), (vec![1.5], 1), "{number}");
            assert!(
                reasons[0].contains(column) && reasons[0].contains("finite"),
                "{reasons:?}"
            );
            assert!(decode_arrow(table, &body.into()).is_err(), "the bus refuses it");
        }
    }
}

#[test]
fn a_negative_zero_is_stored_as_zero_in_every_encoding() {
    // The last one is of 64 bits only, and no number of 32.
    for number in ["-0.0", "-0", "-0e0", "-1e-60"] {
        for table in [Table::Metrics, Table::Traces] {
            let body = of_number(table, number);
            let value: Value = serde_json::from_str(&body).unwrap();
            let batch = decode(table, BatchEncoding::Json, &body.clone().into(), &publisher())
                .unwrap()
                .remove(0);
            let (column, mut columns) = (
                batch.num_columns() - if table == Table::Metrics { 2 } else { 3 },
                batch.columns().to_vec(),
            );
            let zeros: arrow_array::ArrayRef = match table {
                Table::Metrics => std::sync::Arc::new(arrow_array::Float64Array::from(vec![-0.0])),
                _ => std::sync::Arc::new(arrow_array::Float32Array::from(vec![-0.0])),
            };
            columns[column] = zeros;
            let arrow = encode_arrow(&[RecordBatch::try_new(batch.schema(), columns).unwrap()]).unwrap();
            for (encoding, body) in [
                (BatchEncoding::Ndjson, body.into_bytes()),
                (BatchEncoding::Json, format!("[{value}]").into_bytes()),
                (BatchEncoding::Cbor, cbor(&json!([value]))),
                (BatchEncoding::Arrow, arrow),
            ] {
                let (stored, _) = numbers_read(table, encoding, &body);
                let is_small = number == "-1e-60" && table == Table::Metrics && encoding != BatchEncoding::Arrow;
                let wanted = if is_small { -1e-60_f64 } else { 0.0 };
                assert_eq!(
                    stored[0].to_bits(),
                    wanted.to_bits(),
                    "{number} in {encoding:?} for {table}"
                );
            }
        }
    }
}
