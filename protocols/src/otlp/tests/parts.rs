//! Parts of a body: whatever their size, the rows and their positions are the same; a body is read on from any position.

use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{Summary, SummaryDataPoint};

use super::*;

/// Log records of three resources, of which every fifth is bad.
fn log_body() -> Vec<u8> {
    let record = |number: u32| LogRecord {
        trace_id: if number % 5 == 2 { vec![1; 3] } else { vec![] },
        ..record(&format!("line {number} {}", "x".repeat(number as usize % 40)))
    };
    let of = |name: &str, numbers: std::ops::Range<u32>| {
        let service = resource(vec![attribute("service.name", text(name))]);
        logs_of(service, None, numbers.map(record).collect())
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![of("a", 0..37), of("b", 37..38), of("c", 38..100)],
    };
    request.encode_to_vec()
}

/// Summaries, each of which is several rows, and some of which are none.
fn summary_body() -> Vec<u8> {
    let point = |number: u32| SummaryDataPoint {
        time_unix_nano: AT + u64::from(number),
        count: number.into(),
        quantile_values: (0..number % 4)
            .map(|quantile| ValueAtQuantile {
                quantile: f64::from(quantile) / 4.0,
                value: if quantile == 1 { f64::NAN } else { f64::from(number) },
            })
            .collect(),
        flags: u32::from(number % 7 == 6),
        ..SummaryDataPoint::default()
    };
    let data = Data::Summary(Summary {
        data_points: (0..40).map(point).collect(),
    });
    metrics(vec![metric("latency", "s", data)]).encode_to_vec()
}

fn bodies() -> [(Table, Vec<u8>); 2] {
    [(Table::Logs, log_body()), (Table::Metrics, summary_body())]
}

#[test]
fn parts_of_any_size_have_the_same_rows() {
    for (table, body) in bodies() {
        let whole = rest(reader(table, OtlpEncoding::Protobuf, body.clone()).unwrap(), WHOLE);
        assert_eq!(whole.ends.len(), 1);
        assert!(whole.rows.len() > 70, "{}", whole.rows.len());
        for size in [1, 100, 333, 1_000, 5_000] {
            let parts = rest(reader(table, OtlpEncoding::Protobuf, body.clone()).unwrap(), size);
            assert!(parts.ends.len() > 1, "{table} {size}");
            assert_eq!(parts.rows, whole.rows, "{table} {size}");
            assert_eq!(parts.refused, whole.refused, "{table} {size}");
            assert_eq!(
                parts.ends.last().map(|(last, _)| last),
                whole.ends.last().map(|(last, _)| last)
            );
        }
    }
    let read = read_bytes(Table::Logs, log_body()).unwrap();
    assert_eq!((read.rows.len(), read.rejected), (80, 20));
    let bad: Vec<u64> = read.refused.iter().map(|(row, ..)| *row).collect();
    assert_eq!(bad, (0..20).map(|number| 5 * number + 2).collect::<Vec<u64>>());
}

#[test]
fn a_body_of_which_a_part_is_stored_is_read_on_from_there() {
    for (table, body) in bodies() {
        let whole = rest(reader(table, OtlpEncoding::Protobuf, body.clone()).unwrap(), WHOLE);
        for first in [1, 200, 1_000, 3_000] {
            for then in [1, 700, WHOLE] {
                let mut begun = reader(table, OtlpEncoding::Protobuf, body.clone()).unwrap();
                let part = begun.next_part(first).unwrap().unwrap();
                drop(begun);
                let mut again = reader(table, OtlpEncoding::Protobuf, body.clone()).unwrap();
                let stored = again.skip_to(part.to, then).unwrap();
                assert_eq!(stored, part.batch.num_rows() as u64, "{table} {first} {then}");
                let left = rest(again, then);
                let stored = usize::try_from(stored).unwrap();
                assert_eq!(left.rows, whole.rows[stored..], "{table} {first} {then}");
                assert_eq!(left.refused, whole.refused, "bad records are named in every repetition");
            }
        }
    }
}
