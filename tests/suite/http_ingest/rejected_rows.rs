//! Rows that are not what they are sent for: named, kept as dead letters, or taken in another shape.

use harness::{Failure, TestMixer};
use model::telemetry_codec::{self, BatchEncoding};
use serde_json::{Value, json};

use super::{NDJSON, counts, encoded, lines, log, now, seen};

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
