//! One business signal across Racks: its id, its trace and the decision about sampling go through every gear and the bus, and it is
//! found whole under its id, in REST and by the command.

mod foreign_trace;
mod over_http;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use harness::{Api, Failure, TestMixer, TestRack, eventually, gear_files};
use serde_json::{Map, Value, json};

use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(60);
/// A caller's trace and span.
const CALLER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// The headers of a request, by their names in lower case.
type Headers = BTreeMap<String, String>;

/// A server that answers every request with 200 and tells its headers.
struct Server {
    url: String,
    seen: Receiver<Headers>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (tell, seen) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                // Who breaks off comes again.
                serve(stream, &tell).ok();
            }
        });
        Ok(Self {
            url: format!("http://{address}/"),
            seen,
            over,
            thread: Some(thread),
        })
    }
}

fn serve(stream: TcpStream, tell: &Sender<Headers>) -> Result<(), Failure> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers = Headers::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_ascii_lowercase(), value.to_owned())),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    Ok(tell.send(headers)?)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        drop(TcpStream::connect(address));
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Every passive type of gear on two Racks; messages cross between them three times, and pass one wire of the guaranteed lane within one.
fn scenario(file: &Path, url: &str, line: &str) -> String {
    format!(
        "meta: {{ name: signal, version: '1' }}
racks: [ {{ name: rack-a }}, {{ name: rack-b }} ]
gears:
  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: parse, type: codec_json, deploy: rack-a, config: {{ direction: decode }} }}
  - {{ name: stamp, type: map, deploy: rack-a, config: {{ set: {{ stamped: 'true' }} }} }}
  - {{ name: pass, type: filter, deploy: rack-a, config: {{ where: data.id >= 0 }} }}
  - {{ name: slow, type: throttle, deploy: rack-b, config: {{ rate: 1000, burst: 10 }} }}
  - {{ name: pick, type: route, deploy: rack-b, config: {{ mode: first, routes: [ {{ when: data.stamped, to: a }} ] }} }}
  - {{ name: calls, type: correlate, deploy: rack-b, config: {{ request_key: data.id, reply_key: data.re, ttl: 1h }} }}
  - {{ name: pack, type: codec_cbor, deploy: rack-b, config: {{ direction: encode }} }}
  - {{ name: unpack, type: codec_cbor, deploy: rack-a, config: {{ direction: decode }} }}
  - {{ name: answer, type: map, deploy: rack-a, config: {{ data: \"[{{'re': data.id, 'answer': 'yes'}}]\" }} }}
  - {{ name: write, type: codec_csv, deploy: rack-a, config: {{ direction: encode, header: [re, answer] }} }}
  - {{ name: read, type: codec_csv, deploy: rack-a, config: {{ direction: decode, header: [re, answer], types: infer }} }}
  - {{ name: copy, type: file_out, deploy: rack-a, config: {{ path: {file:?} }} }}
  - {{ name: post, type: http_out, deploy: rack-b, config: {{ url: {url:?}, in_flight: 4 }} }}
  - {{ name: line, type: tcp_out, deploy: rack-b, config: {{ address: {line:?} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-b }}
wires:
  - {{ from: door.out, to: parse.in }}
  - {{ from: parse.out, to: stamp.in }}
  - {{ from: stamp.out, to: pass.in }}
  - {{ from: pass.out, to: slow.in }}
  - {{ from: slow.out, to: pick.in }}
  - {{ from: pick.a, to: calls.request, lane: guaranteed }}
  - {{ from: calls.out, to: pack.in }}
  - {{ from: pack.out, to: unpack.in }}
  - {{ from: unpack.out, to: answer.in }}
  - {{ from: answer.out, to: write.in }}
  - {{ from: write.out, to: read.in }}
  - {{ from: write.out, to: copy.in }}
  - {{ from: read.out, to: calls.reply }}
  - {{ from: calls.matched, to: sink.in }}
  - {{ from: calls.matched, to: post.in }}
  - {{ from: calls.matched, to: line.in }}
",
        file = file.display().to_string()
    )
}

/// The gears that handle a message of it, `calls` the request and the reply.
const GEARS: [&str; 17] = [
    "answer", "calls", "calls", "copy", "door", "line", "pack", "parse", "pass", "pick", "post", "read", "sink",
    "slow", "stamp", "unpack", "write",
];
/// Those of them whose messages go over the bus.
const SENDERS: [&str; 4] = ["pack", "pass", "pick", "read"];

type Row = Map<String, Value>;
/// Rows by their kind.
type Signal = BTreeMap<String, Vec<Row>>;

/// The rows of a signal, by their kind.
fn signal(mixer: &TestMixer, id: &str) -> Result<Signal, Failure> {
    let answer = mixer.api.get(&format!("/api/v1/flux/{id}?limit=1000&raw=json"))?;
    let mut kinds = Signal::new();
    for row in answer.json["data"].as_array().into_iter().flatten() {
        let row = row.as_object().ok_or("no row")?.clone();
        kinds.entry(word(&row, "kind").to_owned()).or_default().push(row);
    }
    Ok(kinds)
}

fn word<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn gear(row: &Row) -> &str {
    row["attributes"]["gear.id"].as_str().unwrap_or_default()
}

fn gears(rows: &[Row]) -> Vec<&str> {
    let mut gears: Vec<_> = rows.iter().map(gear).collect();
    gears.sort_unstable();
    gears
}

/// Where a gear listens.
pub(crate) fn door(mixer: &TestMixer, gear: &str) -> Result<Api, Failure> {
    let path = format!("/api/v1/telemetry/logs?gear_id={gear}&q=listening%20on");
    let said = eventually("the door", SOON, || {
        let rows = mixer.api.rows(&path).ok()?;
        Some(rows.first()?["message"].as_str()?.to_owned())
    })?;
    let (_, address) = said.split_once("listening on ").ok_or("no address")?;
    Ok(Api::new(address.trim_end_matches('/')))
}

/// Every span leads back to the first one, which a caller's may be before.
fn is_one_tree(spans: &[Row], root: &str) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| word(span, "span_id")).collect();
    assert_eq!(ids.len(), spans.len());
    for span in spans {
        let parent = word(span, "parent_span_id");
        if gear(span) == "door" {
            assert_eq!(parent, root);
        } else {
            assert!(ids.contains(parent), "{span:?} has no parent");
        }
    }
    let of = |name: &str| spans.iter().find(|span| gear(span) == name).unwrap();
    for (child, parent) in [
        ("parse", "door"),
        ("slow", "pass"),
        ("unpack", "pack"),
        ("write", "answer"),
    ] {
        assert_eq!(
            word(of(child), "parent_span_id"),
            word(of(parent), "span_id"),
            "{child}"
        );
    }
}

#[test]
fn a_signal_keeps_its_id_and_trace_through_every_gear_and_both_lanes_and_is_found_whole() -> Result<(), Failure> {
    let folder = gear_files()?;
    let server = Server::start()?;
    // Nobody takes what comes here; that it is sent is enough.
    let line = TcpListener::bind("127.0.0.1:0")?;
    let file = folder.path().join("copy.csv");
    let (mixer, _scenario) = mixer_with(&scenario(&file, &server.url, &line.local_addr()?.to_string()))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let door = door(&mixer, "door")?;
    let (trace, span) = CALLER;
    let caller = format!("00-{trace}-{span}-01");
    let mut sent = Vec::new();
    for id in 0..3 {
        let headers: &[(&str, &str)] = if id == 0 { &[("traceparent", &caller)] } else { &[] };
        let answer = door.send("/", headers, json!({ "id": id }).to_string().as_bytes())?;
        assert_eq!(answer.status, 202, "{}", answer.text);
        let text = |key: &str| answer.json[key].as_str().unwrap_or_default().to_owned();
        sent.push((text("flux_id"), text("trace_id")));
    }
    assert_eq!(sent[0].1, trace);
    let mut known = Vec::new();
    for (flux, trace) in &sent {
        let found = eventually("the whole signal", SOON, || {
            let found = signal(&mixer, flux).ok()?;
            let whole = gears(found.get("span")?) == GEARS && found.get("message")?.len() == 4;
            (whole && found.contains_key("log")).then_some(found)
        })
        .map_err(|error| format!("{error}: {:#?}; rack-b:\n{}", signal(&mixer, flux), b.log()))?;
        for row in found.values().flatten() {
            assert_eq!(word(row, "flux_id"), flux, "{row:?}");
        }
        is_one_tree(&found["span"], if trace == CALLER.0 { CALLER.1 } else { "" });
        assert!(found["span"].iter().all(|span| word(span, "trace_id") == trace));
        let mut senders: Vec<_> = found["message"].iter().map(|row| word(row, "src_gear_id")).collect();
        senders.sort_unstable();
        assert_eq!(senders, SENDERS);
        for message in &found["message"] {
            let span = found["span"]
                .iter()
                .find(|span| gear(span) == word(message, "src_gear_id"));
            assert_eq!(message["raw_msg"]["span_id"], span.unwrap()["span_id"], "{message:?}");
            assert_eq!(
                (word(message, "trace_id"), &message["raw_msg"]["sampled"]),
                (trace.as_str(), &json!(true))
            );
        }
        let record = found["log"].iter().find(|log| gear(log) == "sink").ok_or("no record")?;
        assert_eq!(record["attributes"]["trace_id"], json!(trace));
        let post = found["span"].iter().find(|span| gear(span) == "post").unwrap();
        let wanted = format!("00-{trace}-{}-01", word(post, "span_id"));
        while !known.contains(&wanted) {
            let seen = server.seen.recv_timeout(SOON);
            let seen = seen.map_err(|_| format!("{known:?} has no {wanted}"))?;
            known.push(seen["traceparent"].clone());
        }
    }
    commands(&mixer, &sent[0].0)?;
    refused(&mixer, &door)
}

/// What a gear says of a message that it cannot handle is found under the message's signal.
fn refused(mixer: &TestMixer, door: &Api) -> Result<(), Failure> {
    let answer = door.send("/", &[], b"no JSON")?;
    let flux = answer.json["flux_id"].as_str().ok_or("no id")?;
    let found = eventually("what was said", SOON, || {
        let found = signal(mixer, flux).ok()?;
        (found.contains_key("log") && found.get("span")?.len() == 2).then_some(found)
    })?;
    let (log, span) = (&found["log"][0], &found["span"][1]);
    assert!(
        word(log, "message").contains("refused") && word(log, "level") == "error",
        "{log:?}"
    );
    assert_eq!(
        (gear(log), gear(span), word(span, "status")),
        ("parse", "parse", "error")
    );
    assert_eq!(log["attributes"]["span_id"], span["span_id"]);
    Ok(())
}

fn commands(mixer: &TestMixer, flux: &str) -> Result<(), Failure> {
    let shown = mixer.platform(&["flux", flux])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let mut lines = shown.out.lines();
    let head = lines.next().ok_or("no head")?;
    assert!(
        head.starts_with(&format!("flux {flux}  4 messages, 17 spans, 1 log record  from ")),
        "{head}"
    );
    assert_eq!(lines.count(), 22, "{}", shown.out);
    for part in ["rack-a/pass → rack-b/slow", "+0.000 ms", "http_in door", "info   "] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(!shown.out.contains('\u{1b}'), "a pipe gets no colours");
    let rows = mixer.platform(&["flux", flux, "-o", "ndjson", "--limit", "5"])?;
    assert_eq!((rows.code, rows.out.lines().count()), (Some(0), 5));
    assert!(rows.err.contains("more rows"), "{}", rows.err);
    let csv = mixer.platform(&["flux", flux, "-o", "csv"])?;
    assert!(csv.out.starts_with("kind,ts,entity_name,"), "{}", csv.out);
    let none = mixer.platform(&["flux", "018f2c1e-0000-7000-8000-000000000000"])?;
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""), "{}", none.err);
    assert_eq!(mixer.platform(&["flux", "12"])?.code, Some(64));

    let args = [
        "messages",
        "--flux-id",
        flux,
        "--rack-id",
        "rack-a",
        "--direction",
        "outbound",
    ];
    let bodies = mixer.platform(&[&args[..], &["--raw", "json", "--from", "pass"]].concat())?;
    let mut lines = bodies.out.lines();
    assert!(
        lines.next().is_some_and(|head| head.ends_with("BODY")),
        "{}",
        bodies.out
    );
    assert!(
        lines.next().is_some_and(|line| line.contains("\"stamped\":true")),
        "{}",
        bodies.out
    );
    let decoded = mixer.platform(&[&args[..], &["--raw", "json", "-o", "json"]].concat())?;
    let decoded: Vec<Value> = serde_json::from_str(&decoded.out)?;
    assert_eq!(decoded.len(), 2, "pass and read are on rack-a: {decoded:?}");
    assert!(decoded.iter().all(|row| row["raw_msg"]["flux_id"] == flux));
    Ok(())
}

#[test]
fn a_trace_is_whole_or_absent_however_racks_sample_and_its_messages_are_always_archived() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(
        "
meta: { name: sampled, version: '1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 200, count: 100 } }
  - { name: pass, type: filter, deploy: rack-b, config: { where: 'true' } }
  - { name: sink, type: log_sink, deploy: rack-b }
wires:
  - { from: numbers.out, to: pass.in }
  - { from: pass.out, to: sink.in, lane: guaranteed }
",
    )?;
    // Where a trace begins is decided; what comes after would keep none.
    let mut racks = Vec::new();
    for (name, rate) in [("rack-a", "0.5"), ("rack-b", "0.0")] {
        let mut rack = TestRack::with(name, &mixer.bus_url, &[("observability.sampling_rate", rate)], &[])?;
        rack.start()?;
        racks.push(rack);
    }
    let list = |path: &str| mixer.api.rows(&format!("/api/v1/{path}limit=1000")).ok();
    let messages = eventually("every message in the archive", SOON, || {
        list("messages?raw=json&src_gear_id=numbers&").filter(|rows| rows.len() == 100)
    })?;
    let sampled = messages.iter().filter(|row| row["raw_msg"]["sampled"] == true);
    let sampled: BTreeMap<String, usize> = sampled.map(|row| (word(row, "trace_id").to_owned(), 3)).collect();
    assert!((1..100).contains(&sampled.len()), "{}", sampled.len());
    eventually("the records of all", SOON, || {
        let records = list("telemetry/logs?gear_id=sink&")?;
        (records.iter().filter(|row| row["flux_id"].is_string()).count() == 100).then_some(())
    })?;
    eventually("every message that was passed on", SOON, || {
        list("messages?src_gear_id=pass&").filter(|rows| rows.len() == 100)
    })?;
    let traces = || -> Option<BTreeMap<String, usize>> {
        let mut traces = BTreeMap::new();
        for span in list("telemetry/traces?")? {
            *traces.entry(word(&span, "trace_id").to_owned()).or_default() += 1;
        }
        Some(traces)
    };
    eventually("the spans of what is sampled", SOON, || {
        (traces()? == sampled).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}, wanted {sampled:?}", traces()))?;
    // Nothing more comes once the Racks have ended.
    for rack in &mut racks {
        assert!(rack.process()?.terminate(SOON)?.success());
    }
    assert_eq!(traces(), Some(sampled));
    Ok(())
}
