//! Columns as outside readers see them.

use parquet::basic::{Compression as Codec, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::printer::print_schema;

use super::super::schema::parquet_schema;
use super::*;
use crate::{CompressionCodec, JsonType};

fn printed(table: Table, json: JsonType) -> String {
    let mut text = Vec::new();
    print_schema(&mut text, parquet_schema(&table.into(), json).unwrap().root_schema());
    String::from_utf8(text).unwrap()
}

#[test]
fn the_parquet_schemas_are_these() {
    let expected = [
        "message logs {
  REQUIRED INT64 ts [1] (TIMESTAMP(MICROS,true));
  REQUIRED FIXED_LEN_BYTE_ARRAY (16) entity_id [2] (UUID);
  REQUIRED BYTE_ARRAY entity_name [3] (STRING);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) flux_id [4] (UUID);
  REQUIRED BYTE_ARRAY level [5] (STRING);
  REQUIRED BYTE_ARRAY message [6] (STRING);
  REQUIRED BYTE_ARRAY attributes [7] (JSON);
}
",
        "message traces {
  REQUIRED INT64 ts [1] (TIMESTAMP(MICROS,true));
  REQUIRED BYTE_ARRAY trace_id [2] (STRING);
  REQUIRED BYTE_ARRAY span_id [3] (STRING);
  OPTIONAL BYTE_ARRAY parent_span_id [4] (STRING);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) flux_id [5] (UUID);
  REQUIRED FIXED_LEN_BYTE_ARRAY (16) entity_id [6] (UUID);
  REQUIRED BYTE_ARRAY entity_name [7] (STRING);
  REQUIRED BYTE_ARRAY span_name [8] (STRING);
  REQUIRED FLOAT duration_ms [9];
  REQUIRED BYTE_ARRAY status [10] (STRING);
  REQUIRED BYTE_ARRAY attributes [11] (JSON);
}
",
        "message metrics {
  REQUIRED INT64 ts [1] (TIMESTAMP(MICROS,true));
  REQUIRED BYTE_ARRAY name [2] (STRING);
  REQUIRED FIXED_LEN_BYTE_ARRAY (16) entity_id [3] (UUID);
  REQUIRED BYTE_ARRAY entity_name [4] (STRING);
  REQUIRED BYTE_ARRAY type [5] (STRING);
  REQUIRED DOUBLE value [6];
  REQUIRED BYTE_ARRAY labels [7] (JSON);
}
",
        "message dead_letters {
  REQUIRED INT64 ts [1] (TIMESTAMP(MICROS,true));
  REQUIRED BYTE_ARRAY subject [2] (STRING);
  REQUIRED BYTE_ARRAY reason [3] (STRING);
  OPTIONAL BYTE_ARRAY content_type [4] (STRING);
  REQUIRED BYTE_ARRAY headers [5] (JSON);
  REQUIRED BYTE_ARRAY payload [6];
}
",
        "message messages {
  REQUIRED INT64 ts [1] (TIMESTAMP(MICROS,true));
  REQUIRED BYTE_ARRAY trace_id [2] (STRING);
  REQUIRED FIXED_LEN_BYTE_ARRAY (16) flux_id [3] (UUID);
  REQUIRED FIXED_LEN_BYTE_ARRAY (16) entity_id [4] (UUID);
  REQUIRED BYTE_ARRAY entity_name [5] (STRING);
  REQUIRED BYTE_ARRAY src_gear_id [6] (STRING);
  OPTIONAL BYTE_ARRAY dst_gear_id [7] (STRING);
  REQUIRED BYTE_ARRAY msg_type [8] (STRING);
  REQUIRED BYTE_ARRAY direction [9] (STRING);
  REQUIRED BYTE_ARRAY status [10] (STRING);
  REQUIRED BYTE_ARRAY raw_msg [11];
  REQUIRED BYTE_ARRAY promoted [12] (JSON);
}
",
    ];
    assert_eq!(expected.len(), Table::ALL.len());
    for (table, expected) in Table::ALL.into_iter().zip(expected) {
        assert_eq!(printed(table, JsonType::Json), expected);
        let as_text = expected.replace("(JSON)", "(STRING)");
        assert_eq!(printed(table, JsonType::String), as_text);
    }
}

#[test]
fn the_embedded_arrow_schema_is_the_tables_where_json_is_a_plain_string() {
    for json in [JsonType::Json, JsonType::String] {
        let mut room = Room::with(WriteOptions {
            json,
            ..WriteOptions::default()
        });
        room.publish(0..10);
        room.publish(10..20);
        let metadata = metadata_at(&room.path);
        let pairs = metadata.file_metadata().key_value_metadata().unwrap();
        let embedded: Vec<_> = pairs.iter().filter(|pair| pair.key == "ARROW:schema").collect();
        let expected = parquet::arrow::encode_arrow_schema(&Table::Logs.schema());
        assert_eq!(embedded.len(), 1);
        assert_eq!(embedded[0].value, Some(expected));
    }
}

/// The columns of the first row group of an open file and of its sealed form.
fn columns(options: WriteOptions) -> [Vec<ColumnChunkMetaData>; 2] {
    let mut room = Room::with(options.clone());
    room.publish(0..1000);
    let open = metadata_at(&room.path).row_group(0).columns().to_vec();
    let sealed = seal(&room.open, &room.staged, 2, &options).unwrap();
    let sealed = metadata_at(&sealed.path).row_group(0).columns().to_vec();
    [open, sealed]
}

#[test]
fn every_column_of_logs_is_encoded_as_measured() {
    for columns in columns(WriteOptions::default()) {
        let is = |name: &str, wanted: Encoding| {
            let column = columns
                .iter()
                .find(|column| column.column_path().string() == name)
                .unwrap();
            let encodings: Vec<Encoding> = column.encodings().collect();
            assert!(encodings.contains(&wanted), "{name}: {encodings:?}");
            let dictionary = wanted == Encoding::RLE_DICTIONARY;
            assert_eq!(column.dictionary_page_offset().is_some(), dictionary, "{name}");
        };
        is("ts", Encoding::DELTA_BINARY_PACKED);
        is("entity_id", Encoding::RLE_DICTIONARY);
        is("entity_name", Encoding::RLE_DICTIONARY);
        is("flux_id", Encoding::PLAIN);
        is("level", Encoding::RLE_DICTIONARY);
        is("message", Encoding::PLAIN);
        is("attributes", Encoding::PLAIN);
        let with_statistics: Vec<String> = columns
            .iter()
            .filter(|column| column.statistics().is_some_and(|stats| stats.min_bytes_opt().is_some()))
            .map(|column| column.column_path().string())
            .collect();
        assert_eq!(with_statistics, ["ts", "entity_id", "entity_name", "flux_id", "level"]);
    }
}

#[test]
fn durations_are_split_by_byte_and_trace_ids_have_a_filter_when_sealed() {
    #[expect(clippy::cast_precision_loss, reason = "any number will do")]
    let spans: Vec<model::Span> = (0..100u64)
        .map(|n| model::Span {
            ts: log(n).ts,
            trace_id: model::TraceId::from_entropy([u8::try_from(n).unwrap() + 1; 16]),
            span_id: model::SpanId::from_entropy([u8::try_from(n).unwrap() + 1; 8]),
            parent_span_id: None,
            flux_id: None,
            entity_id: EntityId::from_bytes([1; 16]),
            entity_name: "host".to_owned(),
            span_name: "work".to_owned(),
            duration_ms: n as f32 / 7.0,
            status: model::SpanStatus::Ok,
            attributes: Attributes::new(),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let identity = FileIdentity {
        table: Table::Traces,
        ..IDENTITY
    };
    let rows = [model::batch::spans(&spans).unwrap()];
    let staged = dir.path().join("traces.sealed");
    write_sealed(
        &identity,
        &rows,
        FooterFacts::default(),
        &staged,
        &WriteOptions::default(),
    )
    .unwrap();
    let metadata = metadata_at(&staged);
    let columns = metadata.row_group(0).columns();
    assert!(
        columns[8]
            .encodings()
            .any(|encoding| encoding == Encoding::BYTE_STREAM_SPLIT)
    );
    let filtered: Vec<String> = columns
        .iter()
        .filter(|column| column.bloom_filter_offset().is_some())
        .map(|column| column.column_path().string())
        .collect();
    assert_eq!(filtered, ["trace_id", "flux_id"]);
}

#[test]
fn each_compression_is_the_one_in_the_file_and_reads_back() {
    for (compression, is) in [
        (
            CompressionCodec::Zstd,
            (|codec| matches!(codec, Codec::ZSTD(_))) as fn(Codec) -> bool,
        ),
        (CompressionCodec::Snappy, |codec| codec == Codec::SNAPPY),
        (CompressionCodec::None, |codec| codec == Codec::UNCOMPRESSED),
    ] {
        let options = WriteOptions {
            compression,
            ..WriteOptions::default()
        };
        for columns in columns(options.clone()) {
            assert!(columns.iter().all(|column| is(column.compression())), "{compression:?}");
        }
        let mut room = Room::with(options.clone());
        room.publish(0..100);
        room.publish(100..200);
        assert_eq!(numbers(rows_at(&room.path)), all(0..200));
        let sealed = seal(&room.open, &room.staged, 3, &options).unwrap();
        assert_eq!(rows_at(&sealed.path), sorted(0..200));
    }
}

#[test]
fn rows_read_back_are_the_rows_that_were_written() {
    let mut room = Room::new();
    let written = logs(0..500);
    let group = room
        .open
        .encode(std::slice::from_ref(&written), IoPriority::Yes)
        .unwrap();
    let facts = room.facts(&(0..500));
    room.open.publish(&group, facts).unwrap();
    let file = File::open(&room.path).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let read: Vec<RecordBatch> = batches.map(|batch| batch.unwrap()).collect();
    let schema = Table::Logs.schema();
    let read = arrow_select::concat::concat_batches(&read[0].schema(), &read).unwrap();
    let read = RecordBatch::try_new(schema, read.columns().to_vec()).unwrap();
    let order: arrow_array::UInt32Array = sorted(0..500).iter().map(|(_, n)| u32::try_from(*n).unwrap()).collect();
    let expected = arrow_select::take::take_record_batch(&written, &order).unwrap();
    assert_eq!(read, expected);
}
