//! Live tail over real HTTP: each row once, over breaks and kills, or told how many are missing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::process::Process;
use harness::tail::Tail;
use harness::{Api, Failure, TestMixer, TestRack, binary, eventually};
use model::Timestamp;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(60);

fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

/// Stores numbered rows; tries again until it is told that they are.
fn post(api: &Api, key: &str, numbers: std::ops::Range<u64>, filling: &str) -> Result<(), Failure> {
    let row =
        |number| json!({ "ts": now().to_string(), "level": "info", "message": format!("row {number} {filling}") });
    let body: String = numbers.map(|number| format!("{}\n", row(number))).collect();
    let headers = [("Content-Type", "application/x-ndjson"), ("Idempotency-Key", key)];
    eventually("rows that are stored", SOON, || {
        let answer = api.send("/api/v1/ingest/logs", &headers, body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    })
}

fn number(row: &Value) -> u64 {
    let words = row["message"].as_str().and_then(|message| message.split(' ').nth(1));
    words.and_then(|number| number.parse().ok()).expect("a numbered row")
}

#[test]
fn every_row_comes_once_while_the_mixer_is_killed_and_connections_break() -> Result<(), Failure> {
    const ROUNDS: u64 = 3;
    const BATCHES: u64 = 60;
    let mut mixer = TestMixer::start("")?;
    let (got, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let api = mixer.api.clone();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let reading = scope.spawn(|| -> Result<BTreeMap<u64, u64>, Failure> {
            let (mut rows, mut last): (BTreeMap<u64, u64>, Option<String>) = (BTreeMap::new(), None);
            let mut breaks = 0;
            while !over.load(Ordering::Relaxed) {
                let Ok(mut tail) = Tail::open(&api, "?min_level=info", last.as_deref()) else {
                    std::thread::park_timeout(Duration::from_millis(20));
                    continue;
                };
                while let Ok(event) = tail.next_event() {
                    assert_eq!(event.name, "", "{event:?}");
                    if !event.data.is_null() {
                        *rows.entry(number(&event.data)).or_default() += 1;
                        got.store(rows.len() as u64, Ordering::Relaxed);
                    }
                    last = event.id.or(last);
                    // Hangs up in the middle of things.
                    breaks += 1;
                    if over.load(Ordering::Relaxed) || breaks % 97 == 0 {
                        break;
                    }
                }
            }
            Ok(rows)
        });
        let written = (|| {
            eventually("a follower", SOON, || {
                (mixer.api.metric("platform_tail_followers")? > 0.0).then_some(())
            })?;
            for round in 0..ROUNDS {
                for batch in round * BATCHES..(round + 1) * BATCHES {
                    post(&mixer.api, &format!("batch-{batch}"), batch * 10..(batch + 1) * 10, "")?;
                }
                mixer.kill9()?;
                mixer.restart()?;
            }
            let all = ROUNDS * BATCHES * 10;
            eventually("every row", SOON, || (got.load(Ordering::Relaxed) == all).then_some(()))
        })();
        over.store(true, Ordering::Relaxed);
        // Something for a reader that waits.
        let woken = post(&mixer.api, "last", 1_000_000..1_000_001, "");
        let rows = reading.join().map_err(|_| "the reader died")??;
        written.and(woken)?;
        let wanted: BTreeMap<u64, u64> = (0..ROUNDS * BATCHES * 10).map(|number| (number, 1)).collect();
        assert_eq!(
            rows.into_iter()
                .filter(|row| row.0 != 1_000_000)
                .collect::<BTreeMap<_, _>>(),
            wanted
        );
        Ok(())
    })
}

#[test]
fn a_reader_that_is_too_slow_is_told_how_many_rows_it_missed_and_a_larger_buffer_misses_none() -> Result<(), Failure> {
    const ROWS: u64 = 20_000;
    for (buffer, misses) in [("1", true), ("256", false)] {
        let mixer = TestMixer::with(&[("tail.buffer_mb", buffer)], &[])?;
        let mut tail = Tail::open(&mixer.api, "", None)?;
        tail.next_event()?;
        // More than what sockets hold.
        let filling = "x".repeat(1_000);
        for batch in 0..ROWS / 500 {
            post(
                &mixer.api,
                &format!("batch-{batch}"),
                batch * 500..(batch + 1) * 500,
                &filling,
            )?;
        }
        let (mut next, mut missed) = (0, 0);
        while next < ROWS {
            let event = tail.next_event()?;
            if event.name == "lagged" {
                let rows = event.data["missed"].as_u64().expect("a number");
                (next, missed) = (next + rows, missed + rows);
            } else if !event.data.is_null() {
                assert_eq!(number(&event.data), next, "after {missed} missed rows");
                next += 1;
            }
        }
        assert_eq!((next, missed > 0), (ROWS, misses), "{missed} missed with {buffer} MiB");
    }
    Ok(())
}

#[test]
fn a_tail_has_the_lists_filters_begins_in_the_past_and_is_refused_beyond_its_number() -> Result<(), Failure> {
    let mut mixer = TestMixer::with(&[("tail.max_followers", "4")], &[])?;
    post(&mixer.api, "old", 0..20, "")?;
    let mut since = Tail::open(&mixer.api, "?since=1h&q=row%201", None)?;
    let mut newest = Tail::open(&mixer.api, "?limit=3", None)?;
    let path = "/api/v1/telemetry/logs/tail";
    let refused = mixer.api.get(path)?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (429, &json!("too_many")),
        "{}",
        refused.text
    );
    assert!(
        refused.text.contains("half of what tail.max_followers allows"),
        "{}",
        refused.text
    );
    post(&mixer.api, "new", 100..110, "")?;
    let take = |tail: &mut Tail, count: usize| -> Result<Vec<u64>, Failure> {
        let mut rows = Vec::new();
        while rows.len() < count {
            let event = tail.next_event()?;
            assert_eq!(event.name, "", "{event:?}");
            rows.extend((!event.data.is_null()).then(|| number(&event.data)));
        }
        Ok(rows)
    };
    let wanted: Vec<u64> = [1].into_iter().chain(10..20).chain(100..110).collect();
    assert_eq!(take(&mut since, wanted.len())?, wanted);
    assert_eq!(
        take(&mut newest, 13)?,
        [17, 18, 19].into_iter().chain(100..110).collect::<Vec<_>>()
    );
    drop((since, newest));
    for (query, parameter) in [
        ("?until=1h", "until"),
        ("?offset=1", "offset"),
        ("?limit=0", "limit"),
        ("?cursor=x", "cursor"),
        ("?colour=red", "colour"),
    ] {
        let refused = mixer.api.get(&format!("{path}{query}"))?;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text);
        assert_eq!(refused.json["errors"][0]["parameter"], parameter, "{}", refused.text);
    }
    // An orderly end does not wait for who follows, and who comes back goes on.
    let mut tail = eventually("a place", SOON, || Tail::open(&mixer.api, "?limit=1", None).ok())?;
    let last = tail.next_event()?.id;
    assert!(mixer.process()?.terminate(SOON)?.success());
    while tail.next_event().is_ok() {}
    mixer.restart()?;
    post(&mixer.api, "after", 200..203, "")?;
    let mut tail = Tail::open(&mixer.api, "", last.as_deref())?;
    assert_eq!(
        take(&mut tail, 4)?,
        [109, 200, 201, 202],
        "the backlog was not given yet"
    );
    Ok(())
}

#[test]
fn the_command_follows_messages_as_racks_send_them() -> Result<(), Failure> {
    const COUNT: usize = 40;
    let (mixer, _scenario) = mixer_with(&format!(
        "
meta: {{ name: followed, version: '1' }}
racks: [ {{ name: rack-a }}, {{ name: rack-b }} ]
gears:
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 200, count: {COUNT} }} }}
  - {{ name: pass, type: filter, deploy: rack-b, config: {{ where: 'true' }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}
wires:
  - {{ from: numbers.out, to: pass.in }}
  - {{ from: pass.out, to: sink.in }}
"
    ))?;
    let url = [("PLATFORM_API_URL".to_owned(), mixer.api.base.clone())];
    let follow = |more: &[&str]| {
        let args = [&["messages", "--follow", "--from", "numbers"], more].concat();
        let log = mixer.path().join(format!("{}.log", more.len()));
        Process::start_with(&binary("platform")?, &args, mixer.path(), &log, &url)
    };
    let (mut rows, mut lines) = (follow(&["-o", "ndjson", "--raw", "json"])?, follow(&[])?);
    let mut events = Tail::at(&mixer.api, "/api/v1/messages/tail?src_gear_id=numbers", None)?;
    eventually("three followers", SOON, || {
        (mixer.api.metric("platform_tail_followers")? > 2.0).then_some(())
    })?;
    let mut racks = Vec::new();
    for name in ["rack-a", "rack-b"] {
        let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
        rack.start()?;
        racks.push(rack);
    }
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..COUNT {
        let row: Value = serde_json::from_str(&rows.line("", SOON)?)?;
        assert_eq!(
            (&row["src_gear_id"], &row["raw_msg"]["hops"]),
            (&json!("numbers"), &json!(1)),
            "{row}"
        );
        ids.insert(row["flux_id"].as_str().ok_or("no flux_id")?.to_owned());
        let line = lines.line("", SOON)?;
        assert!(line.contains(" rack-a/numbers → "), "{line}");
    }
    assert_eq!(ids.len(), COUNT);
    let mut told = std::collections::BTreeSet::new();
    while told.len() < COUNT {
        let event = events.next_event()?;
        if event.name.is_empty() && !event.data.is_null() {
            told.insert(event.data["flux_id"].as_str().ok_or("no flux_id")?.to_owned());
        }
    }
    assert_eq!(told, ids);
    for process in [&mut rows, &mut lines] {
        kill(process.pid(), Signal::SIGINT)?;
        assert_eq!(process.wait(SOON)?.code(), Some(0), "{}", process.log_tail());
    }
    Ok(())
}

#[test]
fn the_command_asks_less_and_less_often_for_a_stream_that_gets_no_further() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = [(
        "PLATFORM_API_URL".to_owned(),
        format!("http://{}", listener.local_addr()?),
    )];
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("tail.log");
    let process = Process::start_with(&binary("platform")?, &["tail"], folder.path(), &log, &url)?;
    let mut asked = Vec::new();
    // The Mixer of this test ends the tail each time where it began.
    for _ in 0..5 {
        let (mut stream, _) = listener.accept()?;
        asked.push(Instant::now());
        let head = BufReader::new(stream.try_clone()?);
        head.lines().map_while(Result::ok).find(String::is_empty);
        let events = "id: 1-2-3-4-5-6\n: following\n\nevent: error\ndata: {\"detail\": \"no memory\"}\n\n";
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}"
        )?;
    }
    let took = asked[4] - asked[0];
    assert!(took > Duration::from_secs(3), "{took:?}\n{}", process.log_tail());
    Ok(())
}

#[test]
fn the_command_follows_over_a_kill_prints_no_controls_and_ends_well_by_an_interrupt() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    post(&mixer.api, "old", 0..3, "")?;
    let url = ("PLATFORM_API_URL".to_owned(), mixer.api.base.clone());
    for command in [
        &["tail", "-n", "2", "-o", "ndjson"][..],
        &["logs", "--follow", "--limit", "2", "-o", "csv"],
    ] {
        let log = mixer.path().join(format!("{}.stderr", command[0]));
        let mut process = Process::start_with(
            &binary("platform")?,
            command,
            mixer.path(),
            &log,
            std::slice::from_ref(&url),
        )?;
        let row = |process: &mut Process, number: u64| {
            let text = format!("row {number} ");
            loop {
                let line = process.line("", SOON)?;
                assert!(!line.contains('\u{1b}'), "{line:?}");
                if line.contains("row ") {
                    return Ok::<bool, Failure>(line.contains(&text));
                }
            }
        };
        let first = if command[0] == "tail" { 1 } else { 102 };
        assert!(
            row(&mut process, first)? && row(&mut process, first + 1)?,
            "{}",
            process.log_tail()
        );
        let from = if command[0] == "tail" { 100 } else { 200 };
        post(&mixer.api, &format!("{}-a", command[0]), from..from + 2, "\u{1b}[2J")?;
        assert!(
            row(&mut process, from)? && row(&mut process, from + 1)?,
            "{}",
            process.log_tail()
        );
        mixer.kill9()?;
        mixer.restart()?;
        post(&mixer.api, &format!("{}-b", command[0]), from + 2..from + 4, "")?;
        assert!(
            row(&mut process, from + 2)? && row(&mut process, from + 3)?,
            "{}",
            process.log_tail()
        );
        kill(process.pid(), Signal::SIGINT)?;
        assert_eq!(process.wait(SOON)?.code(), Some(0), "{}", process.log_tail());
        let said = process.log_tail();
        assert!(
            said.contains("reconnecting") && said.contains("following again") && !said.contains("missing"),
            "{said}"
        );
    }
    Ok(())
}
