//! What `codec_csv` reads, writes and refuses.

#![allow(clippy::unwrap_used, reason = "tests")]

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::super::supervisor::supervise;
use super::super::testing::held::{deliver, outbox, spec, surroundings, taken_from};
use super::super::testing::{Bench, Flow};
use super::*;
use crate::inbox::GearInbox;

fn config(config: Value) -> Result<CodecCsvConfig, String> {
    gear_manifest::config(config.as_object().unwrap())
}

/// Every record, or why the body is refused.
fn read(codec: &CodecCsvConfig, body: &[u8]) -> Result<Vec<(u64, Value)>, String> {
    check_body(codec, body, 0)?;
    let mut records = CsvRecordReader::open(codec, body)?;
    let mut all = Vec::new();
    while let Some(record) = records.next()? {
        all.push((record.line, Value::Object(record.value)));
    }
    Ok(all)
}

#[test]
fn fields_become_what_they_look_like_and_nothing_is_lost() {
    for (text, wanted) in [
        ("", json!(null)),
        ("true", json!(true)),
        ("True", json!("True")),
        ("0", json!(0)),
        ("-12", json!(-12)),
        ("18446744073709551615", json!(u64::MAX)),
        ("18446744073709551616", json!("18446744073709551616")),
        ("007", json!("007")),
        ("1.50", json!(1.5)),
        ("1e3", json!(1000.0)),
        ("1e400", json!("1e400")),
        ("-", json!("-")),
        ("1 ", json!("1 ")),
        ("1,5", json!("1,5")),
        ("2026-11-22", json!("2026-11-22")),
        ("NaN", json!("NaN")),
    ] {
        assert_eq!(value_of(TypeInference::Infer, text), wanted, "{text:?}");
        assert_eq!(value_of(TypeInference::Text, text), json!(text));
    }
}

#[test]
fn records_are_read_with_their_lines_and_a_bad_one_refuses_the_body() {
    let first = config(json!({"direction": "decode"})).unwrap();
    let body = b"\xef\xbb\xbfid,text\r\n1,\"a \"\"b\"\"\n,c\"\r\n\n2,\n";
    assert_eq!(
        read(&first, body),
        Ok(vec![
            (2, json!({"id": 1, "text": "a \"b\"\n,c"})),
            (5, json!({"id": 2, "text": null}))
        ])
    );
    assert_eq!(read(&first, b"id,text\n"), Ok(vec![]));
    for (body, says) in [
        (&b"id,text\n1,a\n2\n"[..], "line 3 has 1 fields"),
        (b"id,text\n1,a,b\n", "line 2 has 3 fields"),
        (b"id,id\n1,a\n", "the header has the column \"id\" twice"),
        (b"id,text\n1,\xff\n", "line 2, field 2 is not UTF-8"),
    ] {
        let error = read(&first, body).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let named = config(
        json!({"direction": "decode", "header": ["a", "b"], "delimiter": "\t", "types": "text", "max_records": 2}),
    )
    .unwrap();
    assert_eq!(read(&named, b"1\t2"), Ok(vec![(1, json!({"a": "1", "b": "2"}))]));
    assert!(
        read(&named, b"1\n")
            .unwrap_err()
            .contains("line 1 has 1 fields, the header 2")
    );
    assert!(
        read(&named, b"1\t2\n1\t2\n1\t2\n")
            .unwrap_err()
            .contains("more than 2 records")
    );
}

#[test]
fn a_body_that_becomes_very_much_is_refused_whatever_makes_it_so() {
    let codec = config(json!({"direction": "decode"})).unwrap();
    let body = |name: usize, records: usize| format!("{}\n{}", "n".repeat(name), "1\n".repeat(records));
    for (name, records, head, fits) in [
        (1_000, 10_000, 100, true),
        (100_000, 100, 100, true),
        (100_000, 10_000, 100, false),
        (1, 10_000, 2_000, false),
    ] {
        let checked = check_body(&codec, body(name, records).as_bytes(), head);
        assert_eq!(checked.is_ok(), fits, "{name}, {records}, {head}: {checked:?}");
        let says = checked.err().unwrap_or_else(|| "more than 16777216 bytes".to_owned());
        assert!(says.contains("more than 16777216 bytes"), "{says}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_a_guaranteed_wire_that_becomes_very_much_is_one_dead_letter() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let (spec, inbox) = (
        spec("codec_csv", &json!({"direction": "decode"}), &["out"]),
        GearInbox::new(),
    );
    let body = format!("{}\n{}", "n".repeat(100_000), "1\n".repeat(10_000));
    let taken = [deliver(&inbox, 1, body.as_bytes()), deliver(&inbox, 2, b"a\n7\n")];
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let left = taken_from(&outbox, 2).await;
    let bodies: Vec<_> = left
        .iter()
        .map(|letter| Message::from_cbor(letter.body()).unwrap())
        .collect();
    assert_eq!((bodies[0].raw.len(), &bodies[1].data), (body.len(), &json!({"a": 7})));
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(std::time::Duration::from_secs(10)).await);
}

#[test]
fn what_is_written_is_read_back_whatever_the_texts() {
    const PARTS: &[&str] = &["a", "\"", ",", ";", "\n", "\r\n", "ü", " ", "1", "'"];
    let mut rng = SmallRng::seed_from_u64(11);
    for _ in 0..2_000 {
        let delimiter = *[",", ";", "\t"].choose(&mut rng).unwrap();
        let header = if rng.random() {
            json!("first")
        } else {
            json!(["x", "y"])
        };
        let codec = json!({"direction": "encode", "types": "text", "delimiter": delimiter, "header": header});
        let codec = config(codec).unwrap();
        let mut text = || {
            (0..rng.random_range(0..6))
                .map(|_| *PARTS.choose(&mut rng).unwrap())
                .collect::<String>()
        };
        let objects: Vec<Value> = (0..3).map(|_| json!({"x": text(), "y": text()})).collect();
        let bytes = write(&codec, &Value::Array(objects.clone())).unwrap();
        let back: Vec<Value> = read(&codec, &bytes)
            .unwrap()
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(back, objects, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut rng = SmallRng::seed_from_u64(12);
    let codec = config(json!({"direction": "decode", "max_records": 5})).unwrap();
    let mut read_at_all = 0;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.random_range(1..30))
            .map(|_| *b"a,\"\n\r1\xff\xc3".choose(&mut rng).unwrap())
            .collect();
        read_at_all += usize::from(read(&codec, &bytes).is_ok());
    }
    assert!((1_000..19_000).contains(&read_at_all), "{read_at_all}");
}

#[test]
fn columns_are_those_of_the_header_or_the_fields_of_the_value() {
    let named = config(json!({"direction": "encode", "header": ["b", "a", "none"]})).unwrap();
    let object = json!({"a": "x,y", "b": 1.5, "left_out": true});
    assert_eq!(write(&named, &object).unwrap(), b"1.5,\"x,y\",\n");
    let first = config(json!({"direction": "encode", "delimiter": ";"})).unwrap();
    let lines = write(&first, &json!([{"b": null, "a": true}, {"a": 1, "b": "x;"}])).unwrap();
    assert_eq!(lines, b"a;b\ntrue;\n1;\"x;\"\n");
    for (value, says) in [
        (
            json!([{"a": 1}, {"b": 1}]),
            "record 1 has other fields than the first one",
        ),
        (json!({"a": [1]}), "the field a is a list or an object"),
        (json!([1]), "something else than objects"),
        (json!("x"), "neither an object nor a list of objects"),
    ] {
        let error = write(&first, &value).unwrap_err();
        assert!(error.contains(says), "{value}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_becomes_a_message_of_the_bodys_signal_and_a_bad_body_makes_none() {
    let flow = Flow::run(
        "
  - { name: feed, type: test_feed, deploy: rack-a, config: { messages: [
      { raw: \"id,name\\n1,ann\\n2,bob\\n3,eve\\n\", meta: { from: here } }, { raw: \"id,name\\n4,x\\n5\\n\" } ] } }
  - { name: read, type: codec_csv, deploy: rack-a, config: { direction: decode, keep_raw: true } }
  - { name: whole, type: filter, deploy: rack-a, config: { where: 'text == string(data.id) + \",\" + data.name' } }
  - { name: write, type: codec_csv, deploy: rack-a, config: { direction: encode, header: [ name, id ], delimiter: ';' } }
  - { name: sink, type: log_sink, deploy: rack-a }",
        "{ from: feed.out, to: read.in }, { from: read.out, to: whole.in }, { from: whole.out, to: write.in }, { from: write.out, to: sink.in }",
    )
    .await;
    assert_eq!(flow.texts("sink"), ["ann;1\n", "bob;2\n", "eve;3\n"]);
    let rows = flow.rows("sink");
    assert!(rows.iter().all(|row| row["flux_id"] == rows[0]["flux_id"]));
    let facts = &rows[2]["attributes"];
    assert_eq!(
        (&facts["csv.line"], &facts["from"], &facts["content_type"]),
        (&json!(4), &json!("here"), &json!("text/csv"))
    );
    assert!(flow.says("read", "a message was refused: line 3 has 1 fields"));
}
