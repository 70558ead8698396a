//! A list is the same list in every format.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use datafusion::arrow::ipc::reader::StreamReader;
use model::batch::{messages, row_json};
use model::filter::{DeadLetterFilter, LogFilter, MetricFilter, RawForm};
use model::{LogRecord, MetricPoint, Table, TelemetryRecord as _};
use serde_json::{Map, Value, json};

use super::random_world::{self, Random};
use super::{Bench, append_batch};
use crate::{JsonPage, ListAnswer, ListQuery, RowFormat};

type Row = Map<String, Value>;

fn written(list: &ListAnswer, format: RowFormat) -> Vec<u8> {
    let mut writer = list.writer(format).unwrap();
    let rows = list.rows();
    let mut out = Vec::new();
    for at in (0..rows.num_rows()).step_by(7) {
        let slice = rows.slice(at, 7.min(rows.num_rows() - at));
        let mut written = 0;
        while written < slice.num_rows() {
            written = writer.write(&slice, written, 500).unwrap();
            out.append(&mut writer.take());
        }
    }
    writer.end(&json!({ "stats": list.stats })).unwrap();
    out.append(&mut writer.take());
    out
}

/// Cells of RFC 4180 text; nothing where there is nothing, not even quotes.
fn cells(text: &str) -> Vec<Vec<Option<String>>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), None::<String>, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.get_or_insert_default().push(chars.next().unwrap()),
            '"' => {
                quoted = !quoted;
                cell.get_or_insert_default();
            }
            ',' if !quoted => row.push(cell.take()),
            '\n' if !quoted => {
                row.push(cell.take());
                rows.push(std::mem::take(&mut row));
            }
            c => cell.get_or_insert_default().push(c),
        }
    }
    assert!(
        row.is_empty() && cell.is_none() && !quoted,
        "a row has no end: {text:?}"
    );
    rows
}

/// Rows of CSV are objects; what is text in `expected` is taken as it is, all else as JSON.
fn of_csv(text: &str, expected: &[Row]) -> Vec<Row> {
    let mut rows = cells(text).into_iter();
    let names: Vec<_> = rows.next().unwrap().into_iter().map(Option::unwrap).collect();
    let rows = rows.zip(expected).map(|(cells, expected)| {
        assert_eq!(cells.len(), names.len());
        let value = |name: &String, cell: Option<String>| match (cell, expected.get(name)) {
            (None, _) => Value::Null,
            (Some(cell), Some(Value::String(_))) => Value::String(cell),
            (Some(cell), _) => serde_json::from_str(&cell).unwrap(),
        };
        let cells = names.iter().zip(cells);
        cells.map(|(name, cell)| (name.clone(), value(name, cell))).collect()
    });
    rows.collect()
}

fn of_arrow(bytes: &[u8]) -> Vec<Row> {
    let batches = StreamReader::try_new(bytes, None).unwrap();
    let rows = batches.flat_map(|batch| {
        let batch = batch.unwrap();
        (0..batch.num_rows())
            .map(|row| row_json(&batch, row))
            .collect::<Vec<_>>()
    });
    rows.collect()
}

/// What JSON can say of a value, read back: the parser is a hair off in the last digit of some numbers.
fn read_back(rows: &[Row]) -> Vec<Row> {
    serde_json::from_str(&serde_json::to_string(rows).unwrap()).unwrap()
}

/// The same rows where every row has all columns: those that objects leave out are null.
fn full(rows: &[Row], columns: &BTreeSet<String>) -> Vec<Row> {
    let value = |row: &Row, name: &String| row.get(name).cloned().unwrap_or_default();
    let full = |row: &Row| columns.iter().map(|name| (name.clone(), value(row, name))).collect();
    rows.iter().map(full).collect()
}

async fn agrees(bench: &Bench, query: &ListQuery) -> usize {
    let list = bench.querier.list(query).await.unwrap();
    let columns: BTreeSet<String> = list
        .rows()
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let page = JsonPage::from(list.clone());
    let expected = read_back(&page.rows);
    let json: Value = serde_json::from_slice(&written(&list, RowFormat::Json)).unwrap();
    assert_eq!(json["data"], json!(expected), "{query:?}");
    assert_eq!(json["stats"], json!(page.stats), "{query:?}");
    let lines = String::from_utf8(written(&list, RowFormat::Ndjson)).unwrap();
    let lines: Vec<Row> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, expected, "{query:?}");
    let csv = of_csv(&String::from_utf8(written(&list, RowFormat::Csv)).unwrap(), &expected);
    assert_eq!(csv, full(&expected, &columns), "{query:?}");
    let arrow = of_arrow(&written(&list, RowFormat::Arrow));
    assert_eq!(arrow, full(&page.rows, &columns), "{query:?}");
    expected.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_has_the_same_rows_in_all_formats() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let logs: Vec<_> = (0..300).map(|_| random_world::log(&mut random)).collect();
    let spans: Vec<_> = (0..300).map(|_| random_world::span(&mut random)).collect();
    let sent: Vec<_> = (0..300).map(|_| random_world::message(&mut random)).collect();
    let odd = [f64::NAN, f64::INFINITY, -0.0, 0.1, 1e300, -5e-324].into_iter();
    let odd: Vec<_> = odd
        .map(|value| MetricPoint {
            value,
            ..random_world::point(&mut random)
        })
        .collect();
    let points: Vec<_> = (0..300).map(|_| random_world::point(&mut random)).chain(odd).collect();
    for part in 0..3 {
        let rows = part * 100..(part + 1) * 100;
        bench.append(&logs[rows.clone()]).await;
        bench.append(&spans[rows.clone()]).await;
        bench.append(&points[rows.clone()]).await;
        append_batch(&bench.engine, Table::Messages, messages(&sent[rows]).unwrap()).await;
        if part == 0 {
            bench.seal().await;
        } else if part == 1 {
            bench.publish().await;
        }
    }
    bench.append(&points[300..]).await;
    let mut rows = 0;
    for _ in 0..40 {
        let mut messages = random_world::message_filter(&mut random);
        messages.raw = random.maybe(2, |random| {
            *random.pick(&[RawForm::None, RawForm::Base64, RawForm::Hex])
        });
        for query in [
            ListQuery::Logs(random_world::log_filter(&mut random)),
            ListQuery::Traces(random_world::trace_filter(&mut random)),
            ListQuery::Metrics(MetricFilter {
                limit: random.maybe(2, |random| u32::try_from(1 + random.below(40)).unwrap()),
                ..MetricFilter::default()
            }),
            ListQuery::Metrics(random_world::summary_filter(&mut random)),
            ListQuery::Messages(messages),
            ListQuery::DeadLetters(DeadLetterFilter::default()),
        ] {
            rows += agrees(&bench, &query).await;
        }
    }
    assert!(rows > 1_000, "{rows}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn series_have_the_same_lists_of_values_in_all_formats() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let points: Vec<_> = (0..300).map(|_| random_world::point(&mut random)).collect();
    bench.append(&points).await;
    for parameters in [
        json!({"interval": "1h", "shape": "series"}),
        json!({"interval": "10m", "shape": "series", "group_by": "cpu", "agg": "max"}),
        json!({"interval": "30m", "shape": "series", "group_by": "entity_id", "agg": "rate", "fill": true}),
    ] {
        let query = ListQuery::Metrics(serde_json::from_value(parameters).unwrap());
        assert!(agrees(&bench, &query).await > 0);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_was_stored_in_lines_or_with_what_cannot_be_read_spoils_no_answer() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let texts = [
        "{\n  \"a\": 1,\r\n  \"b\": [2] }",
        "{\"a\":[1e999]}",
        "{\"a\":[\"\\ud800\"]}",
        "{\"a\": -0.0, \"b\": 18446744073709551616}",
        "no json",
    ];
    let logs: Vec<_> = texts.iter().map(|_| random_world::log(&mut random)).collect();
    let batch = LogRecord::to_batch(&logs).unwrap();
    let mut columns = batch.columns().to_vec();
    columns[6] = Arc::new(StringArray::from_iter_values(texts));
    let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
    append_batch(&bench.engine, Table::Logs, batch).await;
    assert_eq!(
        agrees(&bench, &ListQuery::Logs(LogFilter::default())).await,
        texts.len()
    );
    bench.close().await;
}
