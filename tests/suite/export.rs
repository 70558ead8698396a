//! `observability.tier = "otlp"` and forwarding: what was acknowledged is at the collector, whatever dies in between.
//!
//! `make export-long` runs the long form (`EXPORT_ROUNDS` kills, a collector that is away for `EXPORT_AWAY_SECONDS`, `EXPORT_BATCH`
//! rows in a request of the client); the suite's figures are short.

mod receiver;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::api::Api;
use harness::process::memory_of;
use harness::{Failure, Random, TestMixer, eventually, free_port};
use model::Timestamp;
use serde_json::{Value, json};

use crate::kill9::setting;
use receiver::{TestReceiver, row_text};

const SOON: Duration = Duration::from_secs(60);
const NDJSON: (&str, &str) = ("Content-Type", "application/x-ndjson");

fn now() -> String {
    Timestamp::from(std::time::SystemTime::now()).to_string()
}

fn line(text: &str) -> String {
    format!("{}\n", json!({ "ts": now(), "level": "info", "message": text }))
}

/// The keys of a Mixer that only sends to this address over HTTP, and those given.
fn sending(address: &str, more: &[(&str, &str)]) -> Result<TestMixer, Failure> {
    let endpoint = format!("\"http://{address}\"");
    let usual = [
        ("observability.tier", "\"otlp\""),
        ("observability.otlp.endpoint_http", endpoint.as_str()),
    ];
    TestMixer::with(&[&usual[..], more].concat(), &[])
}

/// Sends batches, each until it is acknowledged, one after each pause as long as the load goes on; how many rows were.
fn load(base: &Mutex<String>, is_over: &AtomicBool, pause: Duration) -> u64 {
    let (mut rows, batch) = (0, setting("EXPORT_BATCH", 40));
    while !is_over.load(Ordering::Relaxed) {
        let body: String = (rows..rows + batch).map(|number| line(&row_text(number))).collect();
        let key = format!("batch-{rows}");
        let headers = [NDJSON, ("Idempotency-Key", key.as_str())];
        let is_stored = || {
            let api = Api::new(&base.lock().ok()?);
            let answer = api.send("/api/v1/ingest/logs", &headers, body.as_bytes()).ok()?;
            (answer.status == 200).then_some(())
        };
        if eventually("a batch is acknowledged", 2 * SOON, is_stored).is_err() {
            break;
        }
        rows += batch;
        std::thread::park_timeout(pause);
    }
    rows
}

/// How often each row was accepted; and how often after a request with it of which the sender must know.
fn counts(receiver: &TestReceiver) -> (BTreeMap<u64, u64>, u64) {
    let (mut times, mut known): (BTreeMap<u64, u64>, BTreeMap<u64, bool>) = Default::default();
    let mut needless = 0;
    for request in receiver.accepted() {
        for row in request.rows {
            needless += u64::from(known.get(&row) == Some(&true));
            *times.entry(row).or_default() += 1;
            *known.entry(row).or_default() |= request.is_known;
        }
    }
    (times, needless)
}

/// The most memory that a Mixer had since its start; 0 of one that is gone.
fn peak_memory(mixer: &mut TestMixer) -> u64 {
    let process = mixer.process().ok().map(|process| process.pid());
    process.and_then(|pid| memory_of(pid, "VmHWM").ok()).unwrap_or(0)
}

/// Kills a Mixer and starts it again, under another address; the most memory that it had.
fn kill_and_restart(mixer: &mut TestMixer, base: &Mutex<String>) -> Result<u64, Failure> {
    let peak = peak_memory(mixer);
    mixer.kill9()?;
    mixer.restart()?;
    base.lock().map_err(|_| "poisoned")?.clone_from(&mixer.api.base);
    Ok(peak)
}

/// Waits until every row that was acknowledged is accepted, and prints what came since `began`. An error if one is lost, or came again
/// although the answer had been read.
fn check_all(
    receiver: &TestReceiver,
    mixer: &mut TestMixer,
    (what, rows): (&str, u64),
    (began, peak): (Instant, u64),
) -> Result<(), Failure> {
    let came = eventually("every acknowledged row is accepted", 5 * SOON, || {
        let (times, _) = counts(receiver);
        (0..rows).all(|row| times.contains_key(&row)).then_some(())
    });
    let seconds = began.elapsed().as_secs_f64();
    let (times, needless) = counts(receiver);
    let lost = (0..rows).filter(|row| !times.contains_key(row)).count();
    let doubled = times.values().filter(|times| **times > 1).count();
    let peak = peak.max(peak_memory(mixer)) >> 20;
    let speed = rows as f64 / seconds;
    eprintln!(
        "| | rows sent | at the collector | lost | doubled | of these needlessly | rows/s | peak memory, MiB |\n\
         |---|---|---|---|---|---|---|---|\n\
         | {what} | {rows} | {} | {lost} | {doubled} | {needless} | {speed:.0} | {peak} |",
        times.len()
    );
    came.map_err(|error| format!("{error}; {:?}", mixer.api.get("/api/v1/storage")))?;
    assert!(rows > 0, "there was a load");
    assert_eq!(needless, 0, "a row came again whose answer had been read");
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_when_mixer_and_collector_are_killed_under_load() -> Result<(), Failure> {
    let rounds = setting("EXPORT_ROUNDS", 4);
    let mut random = Random::for_test("nothing_acknowledged_is_lost_when_mixer_and_collector_are_killed_under_load");
    let receiver = TestReceiver::start()?;
    receiver.set_faults(10);
    let more = [("observability.otlp.compression", "\"none\"")];
    let mut mixer = sending(&receiver.address.to_string(), &more)?;
    let (base, is_over) = (Mutex::new(mixer.api.base.clone()), AtomicBool::new(false));
    let (began, mut peak) = (Instant::now(), 0);
    let rows = std::thread::scope(|threads| -> Result<u64, Failure> {
        let clients = threads.spawn(|| load(&base, &is_over, Duration::ZERO));
        let killed = (|| -> Result<(), Failure> {
            for round in 0..rounds {
                std::thread::park_timeout(Duration::from_millis(300 + random.below(1_500)));
                if round % 2 == 0 {
                    peak = kill_and_restart(&mut mixer, &base)?.max(peak);
                } else {
                    receiver.kill();
                    std::thread::park_timeout(Duration::from_millis(random.below(1_000)));
                    receiver.revive();
                }
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        let rows = clients.join().map_err(|_| "the client died")?;
        killed.map(|()| rows)
    })?;
    receiver.set_faults(0);
    let what = format!("{rounds} kills");
    check_all(&receiver, &mut mixer, (what.as_str(), rows), (began, peak))
}

#[test]
fn every_row_comes_when_a_collector_that_was_away_is_back() -> Result<(), Failure> {
    let away = Duration::from_secs(setting("EXPORT_AWAY_SECONDS", 6));
    let receiver = TestReceiver::start()?;
    receiver.kill();
    let more = [("observability.otlp.compression", "\"none\"")];
    let mut mixer = sending(&receiver.address.to_string(), &more)?;
    let (base, is_over) = (Mutex::new(mixer.api.base.clone()), AtomicBool::new(false));
    let (began, mut peak) = (Instant::now(), 0);
    let rows = std::thread::scope(|threads| -> Result<u64, Failure> {
        let clients = threads.spawn(|| load(&base, &is_over, away / 500));
        let passed = (|| -> Result<(), Failure> {
            std::thread::sleep(away / 2);
            peak = kill_and_restart(&mut mixer, &base)?;
            std::thread::sleep(away / 2);
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        let rows = clients.join().map_err(|_| "the client died")?;
        passed.map(|()| rows)
    })?;
    assert!(receiver.accepted().is_empty(), "it was away");
    receiver.revive();
    let what = format!("away for {} s", away.as_secs());
    check_all(&receiver, &mut mixer, (what.as_str(), rows), (began, peak))?;
    assert!(
        mixer.api.rows("/api/v1/telemetry/dead_letters")?.is_empty(),
        "nothing was given up"
    );
    Ok(())
}

/// Sends one record of each signal; what is to be found of them.
fn send_one_of_each(mixer: &TestMixer, name: &str) -> Result<(), Failure> {
    let span = json!({
        "ts": now(), "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "span_name": name,
        "duration_ms": 1.5, "status": "ok",
    });
    let point = json!({ "ts": now(), "name": name, "type": "gauge", "value": 21.5 });
    for (table, record) in [
        ("logs", line(name)),
        ("traces", format!("{span}\n")),
        ("metrics", format!("{point}\n")),
    ] {
        let headers = [NDJSON, ("Flux-Entity-Name", "kitchen")];
        let answer = mixer
            .api
            .send(&format!("/api/v1/ingest/{table}"), &headers, record.as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    Ok(())
}

/// The rows of a kitchen in all three tables, once they are there.
fn of_kitchen(mixer: &TestMixer) -> Option<Vec<Value>> {
    let tables = ["logs", "traces", "metrics"];
    let rows = tables.map(|table| {
        let rows = mixer
            .api
            .rows(&format!("/api/v1/telemetry/{table}?entity=kitchen"))
            .ok()?;
        (rows.len() == 1).then(|| Value::from(rows[0].clone()))
    });
    rows.into_iter().collect()
}

#[test]
fn another_mixer_has_each_signal_over_grpc_and_this_one_says_where_they_are() -> Result<(), Failure> {
    let (grpc, http) = (free_port()?.to_string(), free_port()?.to_string());
    let ports = [
        ("otlp.enabled", "true"),
        ("otlp.grpc_port", grpc.as_str()),
        ("otlp.http_port", http.as_str()),
    ];
    let collector = TestMixer::with(&ports, &[])?;
    let endpoint = format!("\"127.0.0.1:{grpc}\"");
    let keys = [
        ("observability.tier", "\"otlp\""),
        ("observability.otlp.endpoint", endpoint.as_str()),
        ("observability.otlp.insecure", "true"),
        ("observability.otlp.queue_max_size_mb", "7"),
        ("postgres.enabled", "true"),
        ("postgres.port", "0"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let wal_max = mixer.api.metric("platform_engine_wal_max_bytes");
    assert_eq!(wal_max, Some(f64::from(7 << 20)), "the size of the queue");
    send_one_of_each(&mixer, "over grpc")?;
    let rows = eventually("each signal is at the collector", SOON, || of_kitchen(&collector))?;
    assert_eq!(rows[0]["message"], "over grpc");
    assert_eq!(
        (&rows[1]["span_name"], &rows[1]["duration_ms"]),
        (&json!("over grpc"), &json!(1.5))
    );
    assert_eq!(
        (&rows[2]["name"], &rows[2]["value"]),
        (&json!("over grpc"), &json!(21.5))
    );

    for path in ["logs", "traces", "metrics", "metrics/names"] {
        let answer = mixer.api.get(&format!("/api/v1/telemetry/{path}"))?;
        assert_eq!(
            (answer.status, &answer.json["code"]),
            (403, &json!("stored_elsewhere")),
            "{path}"
        );
        assert!(answer.text.contains(&grpc), "{}", answer.text);
    }
    let statement = json!({ "query": "SELECT count(*) FROM logs" });
    let answer = mixer.api.post("/api/v1/sql", &statement)?;
    assert!(
        answer.text.contains("stored_elsewhere") && answer.text.contains(&grpc),
        "{}",
        answer.text
    );
    if harness::psql::is_installed() {
        let address = mixer.postgres.ok_or("no PostgreSQL")?;
        let mut psql = harness::psql::command(&address.ip().to_string(), address.port(), "tester");
        let done = psql.args(["-c", "SELECT * FROM traces"]).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("not stored here") && said.contains(&grpc), "{said}");
    }
    assert!(
        mixer.api.rows("/api/v1/telemetry/dead_letters")?.is_empty(),
        "these are here"
    );
    let ready = mixer.api.get("/readyz")?;
    assert_eq!(ready.json["checks"]["export"], json!({ "ok": true }));
    let storage = eventually("the answers came", SOON, || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json["data"].clone();
        let signals = &storage["export"]["signals"];
        let are_sent = ["logs", "traces", "metrics"]
            .iter()
            .all(|signal| signals[*signal]["rows"] == 1);
        are_sent.then_some(storage)
    })?;
    assert_eq!(storage["tables"]["logs"]["hot_rows"], 0, "{storage}");
    let metrics = mixer.api.get("/metrics")?.text;
    assert!(
        metrics.contains("platform_export_rows_total{signal=\"logs\"} 1"),
        "{metrics}"
    );
    Ok(())
}

#[test]
fn with_observability_otlp_forward_rows_are_here_and_there_and_without_insecure_tls_is_spoken() -> Result<(), Failure> {
    let collector = TestMixer::with(&[], &[])?;
    let endpoint = format!("{:?}", collector.api.base);
    let keys = [
        ("observability.otlp.forward", "true"),
        ("observability.otlp.endpoint_http", endpoint.as_str()),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    send_one_of_each(&mixer, "both")?;
    assert!(of_kitchen(&mixer).is_some());
    eventually("each signal is at the collector", SOON, || of_kitchen(&collector))?;

    let plain = collector.api.base.trim_start_matches("http://").to_owned();
    let address = format!("{plain:?}");
    let keys = [
        ("observability.otlp.forward", "true"),
        ("observability.otlp.endpoint_http", address.as_str()),
        ("observability.otlp.insecure", "false"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    send_one_of_each(&mixer, "never")?;
    let reason = eventually("the trouble is said", SOON, || {
        let ready = mixer.api.get("/readyz").ok()?;
        assert_eq!(ready.status, 200, "rows are still taken");
        Some(ready.json["checks"]["export"]["reason"].as_str()?.to_owned())
    })?;
    assert!(reason.contains(&format!("https://{plain}")), "{reason}");
    Ok(())
}

#[test]
fn what_the_collector_refused_is_a_letter_whose_payload_it_takes_later() -> Result<(), Failure> {
    let receiver = TestReceiver::start()?;
    let address = receiver.address.to_string();
    let mixer = sending(&address, &[("observability.otlp.compression", "\"none\"")])?;
    let is_accepted = |row: u64| receiver.accepted().iter().any(|request| request.rows.contains(&row));
    let store = |row: u64| -> Result<(), Failure> {
        let answer = mixer
            .api
            .send("/api/v1/ingest/logs", &[NDJSON], line(&row_text(row)).as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Ok(())
    };
    store(1)?;
    eventually("the first row is accepted", SOON, || is_accepted(1).then_some(()))?;
    receiver.refuse_one();
    store(2)?;
    let listed = eventually("the second one is a letter", SOON, || {
        let letters = mixer.api.rows("/api/v1/dlq?subject=otlp-export/logs").ok()?;
        letters.first().map(|letter| Value::from(letter.clone()))
    })?;
    assert!(!is_accepted(2));
    let id = listed["id"].as_str().ok_or("no id")?;
    let letter = mixer.api.get(&format!("/api/v1/dlq/{id}"))?.json["data"].clone();
    assert_eq!(
        (&letter["kind"], &letter["replayable"]),
        (&json!("export"), &json!(false))
    );
    assert_eq!(letter["headers"]["rows"], 1);
    let payload = letter["payload"].as_str().and_then(model::hex::decode);
    let headers = [("Content-Type", "application/x-protobuf")];
    let collector = Api::new(&format!("http://{address}"));
    let answer = collector.send("/v1/logs", &headers, &payload.ok_or("no payload")?)?;
    assert_eq!((answer.status, is_accepted(2)), (200, true));
    Ok(())
}

#[test]
fn requests_have_the_headers_and_the_packing_of_the_keys_and_come_again_after_the_timeout() -> Result<(), Failure> {
    let receiver = TestReceiver::start()?;
    let endpoint = format!("\"http://{}/otlp/\"", receiver.address);
    let keys = [
        ("observability.tier", "\"otlp\""),
        ("observability.otlp.endpoint_http", endpoint.as_str()),
        ("observability.otlp.headers", "{ x-api-key = \"key ${COLLECTOR_KEY}\" }"),
        ("observability.otlp.compression", "\"gzip\""),
    ];
    let mixer = TestMixer::with(&keys, &[("COLLECTOR_KEY", "s3cret")])?;
    send_one_of_each(&mixer, "packed")?;
    let heads = eventually("a request for each signal", SOON, || {
        let heads = receiver.heads();
        (heads.len() == 3).then_some(heads)
    })?;
    for path in ["/otlp/v1/logs", "/otlp/v1/traces", "/otlp/v1/metrics"] {
        assert!(
            heads
                .iter()
                .any(|head| head.starts_with(&format!("post {path} http/1.1"))),
            "{heads:?}"
        );
    }
    for head in &heads {
        for line in [
            "x-api-key: key s3cret\r\n",
            "content-encoding: gzip\r\n",
            "content-type: application/x-protobuf\r\n",
        ] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
    }

    // A listener that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?.to_string();
    let mixer = sending(&address, &[("observability.otlp.timeout", "\"100ms\"")])?;
    send_one_of_each(&mixer, "asked again")?;
    eventually("it is sent again", SOON, || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json["data"]["export"].clone();
        let logs = &storage["signals"]["logs"];
        let is_late = logs["trouble"].as_str()?.contains("100ms");
        (is_late && logs["retries"].as_u64()? >= 1).then_some(())
    })
}

#[test]
fn business_messages_are_archived_beside_the_tier_otlp_where_the_keys_say() -> Result<(), Failure> {
    let receiver = TestReceiver::start()?;
    let address = receiver.address.to_string();
    let archive = [
        ("observability.otlp.messages.enabled", "true"),
        ("observability.otlp.messages.data_dir", "\"kept\""),
        ("observability.embedded.flush_interval", "\"50ms\""),
    ];
    let mixer = sending(&address, &archive)?;
    mixer.bus()?.publish("flux.msg.rack-a.parse.out", message()?)?;
    eventually("the message is there", SOON, || {
        (mixer.api.rows("/api/v1/messages").ok()?.len() == 1).then_some(())
    })?;
    eventually("the message is a file", SOON, || {
        mixer.path().join("kept/generic").is_dir().then_some(())
    })?;

    let mixer = sending(&address, &[])?;
    let bus = mixer.bus()?;
    bus.publish("flux.telemetry.logs.press", b"?".to_vec())?;
    bus.publish("flux.gear.rack-a.parse", b"garbage".to_vec())?;
    bus.publish("flux.msg.rack-a.parse.out", message()?)?;
    eventually("dead letters are always kept, of gears, too", SOON, || {
        (mixer.api.rows("/api/v1/telemetry/dead_letters").ok()?.len() == 2).then_some(())
    })?;
    eventually("the bus may let go of messages", SOON, || {
        bus.is_drained("flux-msg", "archive").ok()?.then_some(())
    })?;
    assert!(
        mixer.api.rows("/api/v1/messages")?.is_empty(),
        "nothing of a message is kept"
    );
    Ok(())
}

/// A message of a Rack.
fn message() -> Result<Vec<u8>, Failure> {
    let now = Timestamp::from(std::time::SystemTime::now());
    let message = model::message::Message {
        trace_state: None,
        id: model::MessageId::at(now, [1; 10]),
        ts: now,
        raw: vec![1; 100],
        data: Value::Null,
        hops: 1,
        meta: model::Attributes::new().with("msg.type", "order"),
        parent: None,
        flux_id: model::FluxId::at(now, [1; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse()?,
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse()?,
    };
    Ok(message.to_cbor()?)
}
