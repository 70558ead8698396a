//! Requests that are sent again: with a key, all at once, after a full disk.

use harness::disk::Disk;
use harness::{Failure, TestMixer, duckdb, eventually};
use serde_json::json;

use super::{NDJSON, SOON, counts, lines, logs, packed, seen};

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
