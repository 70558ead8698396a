//! Telemetry over HTTP, on a real Mixer: what was answered with 200 is there, once, whatever dies in between.

use std::io::Write;
use std::time::Duration;

use harness::disk::Disk;
use harness::{Failure, TestMixer, api::Answer, duckdb, eventually};
use model::telemetry_codec::{self, BatchEncoding, PublisherIdentity};
use model::{EntityId, Table, Timestamp};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const NDJSON: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn now() -> String {
    Timestamp::from(std::time::SystemTime::now()).to_string()
}

fn log(message: &str) -> Value {
    json!({ "ts": now(), "level": "info", "message": message, "attributes": { "http": { "status": 200 }, "n": 1 } })
}

fn logs(name: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| log(&format!("{name} {n}"))).collect()
}

fn lines(rows: &[Value]) -> Vec<u8> {
    rows.iter()
        .map(|row| format!("{row}\n"))
        .collect::<String>()
        .into_bytes()
}

fn encoded(encoding: BatchEncoding, rows: &[Value]) -> Result<Vec<u8>, Failure> {
    let array = Value::from(rows.to_vec());
    Ok(match encoding {
        BatchEncoding::Ndjson => lines(rows),
        BatchEncoding::Json => array.to_string().into_bytes(),
        BatchEncoding::Cbor => {
            let mut bytes = Vec::new();
            ciborium::into_writer(&array, &mut bytes)?;
            bytes
        }
        BatchEncoding::Arrow => {
            let publisher = PublisherIdentity {
                entity_id: EntityId::for_name("http"),
                entity_name: "http".to_owned(),
            };
            telemetry_codec::encode_arrow(&telemetry_codec::decode(
                Table::Logs,
                BatchEncoding::Json,
                &array.to_string().into(),
                &publisher,
            )?)?
        }
    })
}

fn packed(packing: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(match packing {
        "gzip" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(body)?;
            writer.finish()?
        }
        "zstd" => zstd::encode_all(body, 1)?,
        _ => body.to_vec(),
    })
}

/// What an answer says that is 200 if no row is bad, else 207: rows stored, bad rows, whether all was a repetition.
fn counts(answer: &Answer) -> (u64, u64, bool) {
    let said = match answer.status {
        200 => &answer.json["data"],
        _ => &answer.json,
    };
    let number = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("{}", answer.text));
    let (stored, rejected) = (number("stored"), number("rejected_total"));
    let wanted = if rejected == 0 { 200 } else { 207 };
    assert_eq!(answer.status, wanted, "{}", answer.text);
    (stored, rejected, said["duplicate"].as_bool().unwrap())
}

fn seen(mixer: &TestMixer, word: &str) -> Result<usize, Failure> {
    Ok(mixer.api.all_rows(&format!("/api/v1/telemetry/logs?q={word}"))?.len())
}

#[test]
fn every_encoding_in_every_packing_is_there_when_the_answer_is_and_soon_in_duckdb() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut all = 0;
    for encoding in [
        BatchEncoding::Ndjson,
        BatchEncoding::Json,
        BatchEncoding::Cbor,
        BatchEncoding::Arrow,
    ] {
        for packing in ["identity", "gzip", "zstd"] {
            let name = format!("sent-{encoding:?}-{packing}");
            let body = packed(packing, &encoded(encoding, &logs(&name, 10))?)?;
            let headers = [("Content-Type", encoding.content_type()), ("Content-Encoding", packing)];
            let answer = mixer.api.send("/api/v1/ingest/logs", &headers, &body)?;
            assert_eq!(counts(&answer), (10, 0, false), "{name}");
            assert_eq!(seen(&mixer, &name)?, 10, "{name}");
            all += 10;
        }
    }
    let rows = mixer.api.rows("/api/v1/telemetry/logs?entity=http&limit=1000")?;
    assert_eq!(rows.len(), all);
    for row in &rows {
        assert_eq!(
            row["attributes"],
            json!({ "http.status": 200, "n": 1 }),
            "flat, whatever the encoding"
        );
    }

    let point = json!({ "ts": now(), "name": "room.temperature", "type": "gauge", "value": 21.5, "labels": { "otel.unit": "Cel" } });
    let span = json!({
        "ts": now(), "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "span_name": "get",
        "duration_ms": 1.5, "status": "ok",
    });
    let named = [NDJSON, ("Flux-Entity-Name", "kitchen")];
    assert_eq!(
        counts(&mixer.api.send("/api/v1/ingest/metrics", &named, &lines(&[point]))?).0,
        1
    );
    assert_eq!(
        counts(&mixer.api.send("/api/v1/ingest/traces", &named, &lines(&[span]))?).0,
        1
    );
    let points = mixer
        .api
        .rows("/api/v1/telemetry/metrics?name=room.temperature&entity=kitchen")?;
    assert_eq!((points.len(), &points[0]["value"]), (1, &json!(21.5)));
    let id = EntityId::for_name("kitchen").to_string();
    let spans = mixer
        .api
        .rows("/api/v1/telemetry/traces/4bf92f3577b34da6a3ce929d0e0e4736")?;
    assert_eq!(spans[0]["entity_id"], id, "made of the name");

    for (table, condition, rows) in [
        ("logs", "entity_name = 'http'", all as u64),
        ("metrics", "value = 21.5", 1),
        ("traces", "true", 1),
    ] {
        eventually("the rows in DuckDB", SOON, || {
            let count = duckdb::count(&mixer.telemetry(), table, condition).ok()?;
            assert!(count <= rows, "{table}: {count}");
            (count == rows).then_some(())
        })?;
    }
    assert_eq!(
        mixer.api.metric("platform_http_ingest_rows_total"),
        Some(all as f64 + 2.0)
    );
    Ok(())
}

#[test]
fn bad_rows_are_named_and_the_good_ones_are_stored() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut loud = log("loud");
    loud["level"] = "loud".into();
    let mut rows = lines(&[log("good 0"), loud, log("good 2")]);
    rows.extend_from_slice(b"{ not json\n");
    rows.extend_from_slice(&lines(&[log("good 4")]));
    let answer = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &rows)?;
    assert_eq!(counts(&answer), (3, 2, false));
    let problem = (answer.content_type.as_str(), &answer.json["code"]);
    assert_eq!(problem, ("application/problem+json", &json!("partly_stored")));
    let detail = answer.json["detail"].as_str().unwrap();
    let begins = "3 rows are stored, 2 are rejected and are not; row 1: level";
    assert!(detail.starts_with(begins), "{detail}");
    let rejected = answer.json["errors"].as_array().unwrap();
    let named: Vec<_> = rejected.iter().map(|bad| bad["row"].as_u64().unwrap()).collect();
    assert_eq!(named, [1, 3]);
    assert!(
        rejected[0]["reason"]
            .as_str()
            .unwrap()
            .contains("\"loud\" is none of debug"),
        "{rejected:?}"
    );
    assert_eq!(seen(&mixer, "good")?, 3);
    let accepted = mixer.api.send("/api/v1/ingest/logs?partial=accept", &[NDJSON], &rows)?;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
    let data = &accepted.json["data"];
    assert_eq!((&data["stored"], &data["rejected_total"]), (&json!(3), &json!(2)));
    assert_eq!(data["rejected"], json!(rejected), "the same rows are named");
    assert_eq!(seen(&mixer, "good")?, 6, "stored again, without a key");

    let many = b"{}\n".repeat(1_000);
    let refused = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &many)?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (400, &json!("nothing_stored")),
        "{}",
        refused.text
    );
    assert_eq!(
        refused.json["errors"].as_array().unwrap().len(),
        telemetry_codec::NAMED,
        "a list that ends"
    );
    assert_eq!(refused.json["rejected_total"], 1_000, "{}", refused.text);
    assert!(
        refused.json["detail"].as_str().unwrap().contains("1000 rows"),
        "{}",
        refused.text
    );
    Ok(())
}

/// The bytes of the dead letters that came over HTTP, by the positions of their records.
fn letters(mixer: &TestMixer) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let rows = mixer.api.rows("/api/v1/telemetry/dead_letters?limit=1000")?;
    let letter = |row: &serde_json::Map<String, Value>| {
        assert_eq!(row["subject"], "http/logs", "{row:?}");
        let record = row["headers"]["record"].as_u64().unwrap();
        (record, model::hex::decode(row["payload"].as_str().unwrap()).unwrap())
    };
    let mut letters: Vec<_> = rows.iter().map(letter).collect();
    letters.sort();
    Ok(letters)
}

#[test]
fn rejected_rows_are_dead_letters_once_where_the_sender_asks_for_that() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    let mut loud = log("loud");
    loud["level"] = "loud".into();
    let body = lines(&[log("good"), loud.clone(), json!(7), json!(7), log("good")]);
    let dropped = mixer.api.send("/api/v1/ingest/logs?rejected=drop", &[NDJSON], &body)?;
    assert_eq!((counts(&dropped), &dropped.json["kept"]), ((2, 3, false), &json!(0)));
    assert!(letters(&mixer)?.is_empty());
    let path = "/api/v1/ingest/logs?rejected=keep";
    for round in 0..3 {
        let kept = mixer.api.send(path, &[NDJSON, ("Idempotency-Key", "one")], &body)?;
        let wanted = ((2, 3, round > 0), &json!(3));
        assert_eq!((counts(&kept), &kept.json["kept"]), wanted, "{}", kept.text);
        if round == 1 {
            mixer.kill9()?;
            mixer.restart()?;
        }
    }
    let text = |row: u64, text: &str| (row, text.as_bytes().to_vec());
    let wanted = [text(1, &loud.to_string()), text(2, "7"), text(3, "7")];
    assert_eq!(letters(&mixer)?, wanted);
    let listed = mixer.api.rows("/api/v1/dlq?limit=100")?;
    let ids: std::collections::BTreeSet<_> = listed.iter().map(|letter| letter["id"].as_str()).collect();
    assert_eq!(
        (listed.len(), ids.len()),
        (3, 3),
        "records that are the same are two letters"
    );

    let cbor = encoded(BatchEncoding::Cbor, &[loud])?;
    let refused = mixer.api.send(path, &[("Content-Type", "application/cbor")], &cbor)?;
    let said = (refused.status, &refused.json["code"], &refused.json["kept"]);
    assert_eq!(said, (400, &json!("nothing_stored"), &json!(1)), "{}", refused.text);
    assert!(letters(&mixer)?.contains(&(0, cbor[1..].to_vec())));

    let small = TestMixer::start("[store]\nwal_max_size_mb = 1\n")?;
    let huge = json!({ "message": "x".repeat(1_500_000) });
    let answer = small
        .api
        .send(path, &[NDJSON], &lines(&[huge, json!(7), log("good")]))?;
    let said = (counts(&answer), &answer.json["kept"]);
    assert_eq!(
        said,
        ((1, 2, false), &json!(1)),
        "one is larger than the log: {}",
        answer.text
    );
    assert_eq!(letters(&small)?, [text(1, "7")]);
    Ok(())
}

#[test]
fn records_of_any_shape_are_rows_once_where_their_sender_says_that_they_are() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let path = "/api/v1/ingest/logs?shape=auto";
    let first = json!({ "time": now(), "lvl": "WARN", "msg": "shaped a", "hostname": "web-1", "user": { "id": 7 } });
    let rows = lines(&[first.clone(), json!({ "log": "shaped b" })]);
    let keyed = [NDJSON, ("Idempotency-Key", "one")];
    for is_again in [false, true] {
        assert_eq!(counts(&mixer.api.send(path, &keyed, &rows)?), (2, 0, is_again));
    }
    let plain = mixer.api.send("/api/v1/ingest/logs", &keyed, &rows)?;
    assert_eq!(
        (plain.status, &plain.json["code"]),
        (422, &json!("key_of_another")),
        "{}",
        plain.text
    );
    assert_eq!(seen(&mixer, "shaped")?, 2);
    let found = mixer.api.rows("/api/v1/telemetry/logs?q=shaped&entity=web-1")?;
    assert_eq!((found.len(), &found[0]["level"]), (1, &json!("warn")));
    assert_eq!(found[0]["attributes"], json!({ "hostname": "web-1", "user.id": 7 }));
    let unasked = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &rows)?;
    assert_eq!(unasked.json["code"], "nothing_stored", "{}", unasked.text);

    let array = [("Content-Type", "application/json")];
    let body = json!([first, 7]).to_string().into_bytes();
    let partly = mixer.api.send(&format!("{path}&rejected=keep"), &array, &body)?;
    assert_eq!((counts(&partly), &partly.json["kept"]), ((1, 1, false), &json!(1)));
    assert_eq!(letters(&mixer)?, [(1, b"7".to_vec())]);
    let cbor = mixer.api.send(path, &[("Content-Type", "application/cbor")], b"\x80")?;
    let detail = cbor.json["detail"].as_str().unwrap_or_default();
    assert_eq!(cbor.status, 400, "{}", cbor.text);
    assert!(detail.contains("auto is for JSON and NDJSON"), "{detail}");

    let point = json!({ "metric": "shaped.load", "value": "1.5", "tags": { "host": "web-1" } });
    let span = json!({ "traceId": "4bf92f3577b34da6", "id": "00f067aa0ba902b7", "name": "get", "duration": 1500 });
    for (table, record) in [("metrics", point), ("traces", span)] {
        let sent = mixer.api.send(
            &format!("/api/v1/ingest/{table}?shape=auto"),
            &[NDJSON],
            &lines(&[record]),
        )?;
        assert_eq!(counts(&sent), (1, 0, false), "{table}");
    }
    let points = mixer
        .api
        .rows("/api/v1/telemetry/metrics?name=shaped.load&entity=web-1")?;
    assert_eq!((points.len(), &points[0]["value"]), (1, &json!(1.5)));
    let spans = mixer
        .api
        .rows("/api/v1/telemetry/traces/00000000000000004bf92f3577b34da6")?;
    assert_eq!(spans[0]["duration_ms"], 1.5);
    Ok(())
}

#[test]
fn a_request_with_a_key_is_stored_once_over_kill_9_and_answers_the_same() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    let mut rows = logs("keyed", 3);
    rows.push(json!({ "message": "no time" }));
    let (small, large) = (lines(&rows), lines(&logs(&"bulk ".repeat(80), 12_000)));
    assert!(large.len() > 5 << 20, "several appends");
    let key = |name| [NDJSON, ("Idempotency-Key", name)];
    let post = |mixer: &TestMixer, name, body: &[u8]| mixer.api.send("/api/v1/ingest/logs", &key(name), body);
    assert_eq!(counts(&post(&mixer, "small", &small)?), (3, 1, false));
    assert_eq!(counts(&post(&mixer, "large", &large)?), (12_000, 0, false));
    for round in 0..3 {
        let again = post(&mixer, "small", &small)?;
        assert_eq!(counts(&again), (3, 1, true), "round {round}");
        assert_eq!(again.json["errors"][0]["row"], 3);
        assert_eq!(
            counts(&post(&mixer, "large", &large)?),
            (12_000, 0, true),
            "round {round}"
        );
        let zipped = mixer.api.send(
            "/api/v1/ingest/logs",
            &[NDJSON, ("Idempotency-Key", "small"), ("Content-Encoding", "gzip")],
            &packed("gzip", &small)?,
        )?;
        assert_eq!(counts(&zipped), (3, 1, true), "the same body, packed");
        let other = post(&mixer, "small", &lines(&logs("other", 1)))?;
        assert_eq!(
            (other.status, &other.json["code"]),
            (422, &json!("key_of_another")),
            "{}",
            other.text
        );
        if round < 2 {
            mixer.kill9()?;
            mixer.restart()?;
        }
    }
    assert_eq!((seen(&mixer, "keyed")?, seen(&mixer, "other")?), (3, 0));
    eventually("the rows in DuckDB", SOON, || {
        let count = duckdb::count(&mixer.telemetry(), "logs", "entity_name = 'http'").ok()?;
        assert!(count <= 12_003, "stored twice: {count}");
        (count == 12_003).then_some(())
    })?;
    Ok(())
}

#[test]
fn many_who_send_the_same_key_at_once_store_it_once() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let body = lines(&logs("raced", 500));
    let headers = [NDJSON, ("Idempotency-Key", "one")];
    let answers = std::thread::scope(|scope| {
        let send = || mixer.api.send("/api/v1/ingest/logs", &headers, &body);
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Result<Vec<_>, _>>()
    })?;
    let first = answers
        .iter()
        .filter(|answer| answer.status == 200 && !counts(answer).2)
        .count();
    assert_eq!(first, 1);
    for answer in &answers {
        assert!(matches!(answer.status, 200 | 409), "{}", answer.text);
    }
    assert_eq!(seen(&mixer, "raced")?, 500);
    Ok(())
}

#[test]
fn a_large_body_goes_through_a_small_log_and_a_row_that_never_fits_is_named() -> Result<(), Failure> {
    let mixer = TestMixer::start("[store]\nwal_max_size_mb = 1\n")?;
    let mut rows = logs(&"stream ".repeat(60), 4_000);
    rows.insert(1_234, log(&"x".repeat(1_500_000)));
    let answer = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &lines(&rows))?;
    assert_eq!(counts(&answer), (4_000, 1, false));
    let bad = &answer.json["errors"][0];
    assert!(
        bad["row"] == 1_234 && bad["reason"].as_str().unwrap().contains("larger than the log"),
        "{bad}"
    );
    assert_eq!(seen(&mixer, "stream")?, 4_000);

    let mixer = TestMixer::start("")?;
    let large = [log(&"y".repeat(2_000_000)), log("small")];
    let answer = mixer.api.send("/api/v1/ingest/logs", &[NDJSON], &lines(&large))?;
    assert_eq!(counts(&answer), (2, 0, false), "rows of 2 MB are rows");
    Ok(())
}

#[test]
fn rows_refused_on_a_full_disk_are_not_stored_later_and_a_retry_stores_them_once() -> Result<(), Failure> {
    let disk = match Disk::tmpfs(256) {
        Ok(disk) => disk,
        Err(lacking) => {
            eprintln!("{lacking}");
            return Ok(());
        }
    };
    let store = format!("{:?}", disk.path().join("data").display().to_string());
    let keys = [
        ("store.dir", store.as_str()),
        ("store.wal_max_size_mb", "64"),
        ("snake.store_dir", "\"js\""),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let keyed = [NDJSON, ("Idempotency-Key", "one")];
    let post = |headers: &[_], name| mixer.api.send("/api/v1/ingest/logs", headers, &lines(&logs(name, 3)));
    assert_eq!(counts(&post(&[NDJSON], "before")?), (3, 0, false));
    disk.fill()?;
    let refused = std::thread::scope(|scope| {
        let posts = [(&[NDJSON][..], "plain"), (&keyed, "keyed")];
        let threads = posts.map(|(headers, name)| scope.spawn(move || post(headers, name)));
        threads.map(|thread| thread.join().unwrap())
    });
    let refused = refused.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert!(refused.iter().all(|answer| answer.status == 503), "{refused:?}");
    assert_eq!(mixer.api.get("/readyz")?.status, 503);
    disk.make_room()?;
    eventually("the Mixer is ready, though nobody sends rows", SOON, || {
        (mixer.api.get("/readyz").ok()?.status == 200).then_some(())
    })?;
    assert_eq!(counts(&post(&[NDJSON], "behind")?), (3, 0, false));
    assert_eq!((seen(&mixer, "plain")?, seen(&mixer, "keyed")?), (0, 0));

    assert_eq!(counts(&post(&[NDJSON], "plain")?), (3, 0, false));
    assert_eq!(
        counts(&post(&keyed, "another")?),
        (3, 0, false),
        "the key is still free"
    );
    assert_eq!((seen(&mixer, "plain")?, seen(&mixer, "another")?), (3, 3));
    assert_eq!((seen(&mixer, "before")?, seen(&mixer, "behind")?), (3, 3));
    for answer in refused {
        assert_eq!(answer.json["code"], "busy", "{}", answer.text);
        let detail = answer.json["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("disk is almost full"), "{detail}");
        assert!(detail.contains("nothing of the request is stored"), "{detail}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_taken_is_a_problem_that_says_why() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let row = lines(&[log("never stored")]);
    let bomb = packed("gzip", &vec![b' '; (64 << 20) + 1])?;
    assert!(bomb.len() < 1 << 20);
    let cut = &packed("gzip", &row)?[..20];
    let logs = "/api/v1/ingest/logs";
    let long = "n".repeat(300);
    for (path, headers, body, status, says) in [
        ("/api/v1/ingest/cats", &[NDJSON][..], &row[..], 404, "is not a path"),
        ("/api/v1/ingest/dead_letters", &[NDJSON], &row, 404, "is not a path"),
        ("/api/v1/ingest/logs?colour=red", &[NDJSON], &row, 400, "colour"),
        (
            "/api/v1/ingest/logs?partial=perhaps",
            &[NDJSON],
            &row,
            400,
            "expected `problem` or `accept`",
        ),
        (logs, &[], &row, 415, "Content-Type is missing"),
        (logs, &[("Content-Type", "text/plain")], &row, 415, "text/plain"),
        (logs, &[NDJSON, ("Content-Encoding", "br")], &row, 415, "gzip, zstd"),
        (
            logs,
            &[NDJSON, ("Content-Encoding", "gzip, zstd")],
            &row,
            415,
            "gzip, zstd",
        ),
        (logs, &[NDJSON, ("Content-Encoding", "gzip")], &bomb, 413, "larger than"),
        (logs, &[NDJSON, ("Content-Encoding", "gzip")], cut, 400, "decompressed"),
        (logs, &[NDJSON, ("Content-Encoding", "zstd")], &row, 400, "decompressed"),
        (logs, &[NDJSON], b"\n\n", 400, "no rows"),
        (
            logs,
            &[("Content-Type", "application/json")],
            b"3",
            400,
            "neither an array",
        ),
        (
            logs,
            &[("Content-Type", "application/cbor")],
            b"\xa0",
            400,
            "begin an array",
        ),
        (
            logs,
            &[("Content-Type", "application/vnd.apache.arrow.stream")],
            b"ARROW1xx",
            400,
            "Arrow",
        ),
        (logs, &[NDJSON, ("Flux-Entity-Id", "me")], &row, 400, "Flux-Entity-Id"),
        (
            logs,
            &[NDJSON, ("Flux-Entity-Name", &long)],
            &row,
            400,
            "Flux-Entity-Name",
        ),
        (
            logs,
            &[NDJSON, ("Idempotency-Key", &long)],
            &row,
            400,
            "Idempotency-Key",
        ),
        (
            logs,
            &[NDJSON, ("Origin", "http://elsewhere")],
            &row,
            403,
            "pages of this very host",
        ),
    ] {
        let answer = mixer.api.send(path, headers, body)?;
        assert_eq!(answer.status, status, "{path} {headers:?}: {}", answer.text);
        assert_eq!(answer.content_type, "application/problem+json", "{}", answer.text);
        assert!(
            answer.json["detail"].as_str().unwrap().contains(says),
            "{says}: {}",
            answer.text
        );
    }
    let read = mixer.api.get(logs)?;
    assert_eq!((read.status, &read.json["code"]), (405, &json!("method_not_allowed")));
    assert_eq!(seen(&mixer, "never")?, 0);

    let closed = TestMixer::with(&[("observability.enabled", "false")], &[])?;
    let refused = closed.api.send(logs, &[NDJSON], &row)?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (403, &json!("not_collected")),
        "{}",
        refused.text
    );
    Ok(())
}
