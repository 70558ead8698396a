//! `modbus` against a device of another maker, and against scripted ones, in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, watch};

use super::device_link::tests::{frame, resting_link};
use super::*;
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{deliver_to, outbox, spec, surroundings, taken_from};
use crate::gears::testing::{Bench, Flow, message};
use crate::inbox::GearInbox;

/// A device that runs as a program of its own.
struct Device {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Device {
    async fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut child = Command::new("python3")
            .arg(root.join("scripts/modbus-device.py"))
            .env("PYTHONPATH", root.join(".tools/pymodbus"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.next_line().await.unwrap().expect("make tools installs pymodbus");
        let port = ready.strip_prefix("ready ").unwrap().parse().unwrap();
        Self { child, said, port }
    }

    /// Waits for a request.
    async fn hears(&mut self, request: &str) {
        while let Some(line) = self.said.next_line().await.unwrap() {
            if line.trim_end() == request {
                return;
            }
        }
        panic!("the device has ended before it heard {request}");
    }

    async fn end(mut self) {
        self.child.kill().await.unwrap();
    }
}

async fn start(port: u16, config: &str) -> Flow {
    let gears = format!(
        "
  - {{ name: plc, type: modbus, deploy: rack-a, config: {{ address: '127.0.0.1:{port}', {config} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    );
    Flow::start(&gears, "{ from: plc.out, to: sink.in }").await
}

fn first_value(flow: &Flow) -> Value {
    serde_json::from_str(flow.rows("sink")[0]["message"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_every_type_are_read_and_those_side_by_side_with_one_request() {
    let mut device = Device::start().await;
    let reads = "every: 1h, timeout: 20s, reads: [
      { name: u16, kind: holding, address: 0 }, { name: i16, kind: holding, address: 1, type: i16 },
      { name: u32, kind: holding, address: 2, type: u32 }, { name: i32, kind: holding, address: 4, type: i32 },
      { name: f32, kind: holding, address: 6, type: f32 }, { name: u64, kind: holding, address: 8, type: u64 },
      { name: i64, kind: holding, address: 12, type: i64 }, { name: f64, kind: holding, address: 16, type: f64 },
      { name: little, kind: holding, address: 20, type: f32, word_order: little },
      { name: far, kind: holding, address: 299 }, { name: celsius, kind: input, address: 0, scale: 0.1, offset: -1 },
      { name: is_seven, kind: input, address: 1, type: bool },
      { name: lit, kind: coil, address: 3 }, { name: dark, kind: coil, address: 4 }, { name: shut, kind: discrete, address: 3 } ]";
    let mut flow = start(device.port, reads).await;
    flow.reach("sink", 1).await;
    device.hears("3 0 22").await;
    flow.stop().await;
    let wanted = json!({
        "u16": 65_535, "i16": -2, "u32": 4_000_000_000_u32, "i32": -2_000_000_000, "f32": 21.5,
        "u64": 9_223_372_036_854_775_809_u64, "i64": -4_611_686_018_427_387_904_i64, "f64": -0.25, "little": 1.5,
        "far": 199, "celsius": 20.5, "is_seven": true, "lit": true, "dark": false, "shut": false,
    });
    assert_eq!(first_value(&flow), wanted);
    let facts = &flow.rows("sink")[0]["attributes"];
    assert_eq!(facts["modbus.address"], format!("127.0.0.1:{}", device.port));
    assert_eq!(
        (&facts["modbus.unit"], flow.counter("plc", "gear.errors")),
        (&json!(1), 0.0)
    );
    device.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_device_refuses_to_read_is_an_error_of_the_message_beside_the_other_values() {
    let device = Device::start().await;
    let reads = "every: 1h, timeout: 20s, reads: [ { name: good, kind: holding, address: 100 }, { name: bad, kind: holding, address: 50, type: u32 },
                 { name: nan, kind: holding, address: 22, type: f32 } ]";
    let mut flow = start(device.port, reads).await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    let wanted = json!({
        "good": 0,
        "errors": {
            "bad": "holding 50 to 51: the device answers: illegal data address",
            "nan": "its registers hold NaN, which is not a number",
        },
    });
    assert_eq!(first_value(&flow), wanted);
    device.end().await;
}

const WRITES: &str = r#"[
    { "name": "first", "kind": "holding", "address": 100 }, { "name": "second", "kind": "holding", "address": 101, "type": "f32", "scale": 0.5 },
    { "name": "alone", "kind": "holding", "address": 110, "type": "i16" }, { "name": "lamp", "kind": "coil", "address": 1 },
    { "name": "horn", "kind": "coil", "address": 2 }, { "name": "nowhere", "kind": "holding", "address": 50 } ]"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_guaranteed_wire_is_taken_when_the_device_has_confirmed_it_and_rejected_when_it_refuses() {
    let mut device = Device::start().await;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let writes: Value = serde_json::from_str(WRITES).unwrap();
    let address = format!("127.0.0.1:{}", device.port);
    let config = json!({ "address": address, "timeout": "20s", "writes": writes });
    let (spec, inbox) = (spec("modbus", &config, &["out"]), GearInbox::new());
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    let write = |number, data| deliver_to(&inbox, "write", number, message(number, data, b""));
    for (number, data, requests) in [
        (1, json!({ "first": 7, "second": 1.5 }), &["16 100 3 [7, 16448, 0]"][..]),
        (2, json!({ "alone": -1 }), &["6 110 1 [65535]"]),
        (3, json!({ "lamp": true, "alone": 3 }), &["6 110 1 [3]", "5 1 1 [1]"]),
        (4, json!({ "lamp": false, "horn": true }), &["15 1 1 [0, 1]"]),
        (5, json!({}), &[]),
    ] {
        assert_eq!(write(number, data).await.unwrap(), Ok(()));
        for request in requests {
            device.hears(request).await;
        }
    }
    // Each is taken as a dead letter, with the reason.
    for (number, data, says) in [
        (
            6,
            json!({ "nowhere": 1, "lamp": true }),
            "holding 50 cannot be written: the device answers: illegal data address; 1 of its 2 requests were done",
        ),
        (
            7,
            json!({ "first": 1, "window": 1 }),
            "writes has no window; it has: first, second, alone, lamp, horn, nowhere",
        ),
        (
            8,
            json!({ "first": -1 }),
            "first: -1 is -1 in its registers, which take 0 to 65535",
        ),
        (9, json!([1]), "put codec_json before"),
    ] {
        assert_eq!(write(number, data).await.unwrap(), Ok(()));
        bench.says("it", "a message was refused").await;
        let letters = taken_from(&outbox, 1).await;
        assert!(format!("{letters:?}").contains(says), "{says}: {letters:?}");
    }
    stop.cancel();
    life.await.unwrap();
    device.end().await;
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_goes_away_and_comes_back_is_read_again_and_gets_what_was_written_meanwhile() {
    let device = Device::start().await;
    // The address stays while devices come and go.
    let (place, at) = watch::channel(Some(device.port));
    let port = relay_to(at).await;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 64 << 20);
    let writes: Value = serde_json::from_str(WRITES).unwrap();
    let config = json!({
        "address": format!("127.0.0.1:{port}"), "timeout": "20s", "every": "10ms", "writes": writes,
        "reads": [{ "name": "first", "kind": "holding", "address": 100 }],
    });
    let (spec, inbox) = (spec("modbus", &config, &["out"]), GearInbox::new());
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    let read = async |wanted: u64| {
        let mut cursor = crate::spool::SpoolCursor::default();
        loop {
            let letters = crate::gears::testing::held::taken_behind(&outbox, &mut cursor, 1).await;
            let values = letters
                .iter()
                .filter_map(|letter| Message::from_cbor(letter.body()).ok());
            if values.into_iter().any(|message| message.data["first"] == wanted) {
                return;
            }
        }
    };
    read(0).await;
    place.send_replace(None);
    device.end().await;
    bench.says("it", "it is tried again").await;
    let taken = deliver_to(&inbox, "write", 1_u64, message(1, json!({ "first": 42 }), b""));
    let device = Device::start().await;
    place.send_replace(Some(device.port));
    assert_eq!(taken.await.unwrap(), Ok(()));
    read(42).await;
    stop.cancel();
    life.await.unwrap();
    device.end().await;
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

/// A port that leads to where the device is just now.
async fn relay_to(at: watch::Receiver<Option<u16>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let place = *at.borrow();
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(("127.0.0.1", place.unwrap_or_default())).await {
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                }
            });
        }
    });
    port
}

/// The port of a device that answers requests so; it hangs up where that is none.
async fn scripted_device(answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> u16 {
    scripted_device_at("127.0.0.1:0".parse().unwrap(), answer).await
}

/// The same at an address.
async fn scripted_device_at(
    address: std::net::SocketAddr,
    mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 12];
            while stream.read_exact(&mut request).await.is_ok() {
                let Some(pdu) = answer(&request[7..]) else { break };
                let answer = frame([request[0], request[1]], 1, &pdu);
                stream.write_all(&answer).await.ok();
            }
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reading_that_failed_is_tried_again_before_the_interval_is_over() {
    let mut has_hung_up = false;
    let hang_up_first = move |_: &[u8]| std::mem::replace(&mut has_hung_up, true).then(|| vec![3, 2, 0, 7]);
    let port = scripted_device(hang_up_first).await;
    let reads = "every: 1h, timeout: 20s, reads: [ { name: seven, kind: holding, address: 0 } ]";
    let mut flow = start(port, reads).await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    assert_eq!(first_value(&flow), json!({ "seven": 7 }));
    assert!(flow.says("plc", "answers again"));
    assert_eq!(flow.counter("plc", "gear.errors"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_busy_for_writes_is_read_meanwhile_and_loses_no_message() {
    let (confirm, mut confirmed) = mpsc::unbounded_channel();
    let (mut writes, mut reads, mut hung_up) = (0, 0, 0);
    let busy = move |pdu: &[u8]| match pdu[0] {
        3 => {
            reads += usize::from(writes > 0);
            Some(vec![3, 2, 0, 7])
        }
        _ => {
            writes += 1;
            // It is too busy, then hangs up twice, though it is read meanwhile.
            if writes <= 4 || reads < 3 {
                return Some(vec![0x86, 6]);
            }
            hung_up += 1;
            if hung_up <= 2 {
                return None;
            }
            confirm.send(pdu.to_vec()).unwrap();
            Some(pdu.to_vec())
        }
    };
    let port = scripted_device(busy).await;
    let gears = format!(
        "
  - {{ name: beat, type: timer, deploy: rack-a, config: {{ every: 1h, at_start: true, payload: {{ lamp: 1 }} }} }}
  - {{ name: plc, type: modbus, deploy: rack-a, config: {{ address: '127.0.0.1:{port}', every: 5ms, timeout: 20s,
      reads: [ {{ name: seven, kind: holding, address: 0 }} ], writes: [ {{ name: lamp, kind: holding, address: 9 }} ] }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    );
    let mut flow = Flow::start(
        &gears,
        "{ from: beat.out, to: plc.write }, { from: plc.out, to: sink.in }",
    )
    .await;
    let written = tokio::time::timeout(Duration::from_secs(60), confirmed.recv()).await;
    assert_eq!(written.unwrap().unwrap(), [6, 0, 9, 0, 1]);
    flow.stop().await;
    assert!(flow.says(
        "plc",
        "holding 9 cannot be written: the device answers: server device busy; it is tried again"
    ));
    assert!(!flow.says("plc", "the gear failed"));
}

/// What a gear says that reads seven and writes the lamp of a device that answers so, once it says this.
async fn says_of_a_write(says: &str, answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
    let port = scripted_device(answer).await;
    let gears = format!(
        "
  - {{ name: beat, type: timer, deploy: rack-a, config: {{ every: 1h, at_start: true, payload: {{ lamp: 1 }} }} }}
  - {{ name: plc, type: modbus, deploy: rack-a, config: {{ address: '127.0.0.1:{port}', every: 5ms, timeout: 20s,
      reads: [ {{ name: seven, kind: holding, address: 0 }} ], writes: [ {{ name: lamp, kind: holding, address: 9 }} ] }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    );
    let wires = "{ from: beat.out, to: plc.write }, { from: plc.out, to: sink.in }";
    let mut flow = Flow::start(&gears, wires).await;
    flow.hears("plc", says).await;
    flow.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_device_ignores_or_confirms_with_another_value_is_rejected_while_it_is_read() {
    let read = |pdu: &[u8]| (pdu[0] == 3).then(|| vec![3, 2, 0, 7]);
    says_of_a_write("though the device answers other requests; 0 of its 1 requests", read).await;
    let clamp = move |pdu: &[u8]| read(pdu).or(Some(vec![6, 0, 9, 0, 0]));
    says_of_a_write("its answer is not what was asked for; 0 of its 1 requests", clamp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_device_ignores_is_rejected_where_nothing_is_read_and_where_it_goes_away_in_between() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = away.local_addr().unwrap();
    let gears = format!(
        "
  - {{ name: beat, type: timer, deploy: rack-a, config: {{ every: 1h, at_start: true, payload: {{ lamp: 1 }} }} }}
  - {{ name: plc, type: modbus, deploy: rack-a, config: {{ address: '{address}', timeout: 20s,
      writes: [ {{ name: lamp, kind: holding, address: 9 }} ] }} }}"
    );
    let mut flow = Flow::start(&gears, "{ from: beat.out, to: plc.write }").await;
    // The write ends the device for a while.
    let (mut stream, _) = away.accept().await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    drop((stream, away));
    flow.hears("plc", "cannot connect").await;
    // It refuses to be read, and that is an answer too.
    let refuses = |pdu: &[u8]| (pdu[0] == 3).then(|| vec![0x83, 2]);
    scripted_device_at(address, refuses).await;
    flow.hears("plc", "though the device answers other requests; 0 of its 1 requests")
        .await;
    flow.stop().await;
}

#[tokio::test]
async fn a_gear_that_shall_stop_does_not_wait_until_its_device_may_be_connected_to() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let config = json!({ "address": "127.0.0.1:1", "writes": [{ "name": "lamp", "kind": "coil", "address": 1 }] });
    let (cx, stop) = surroundings(&spec("modbus", &config, &["out"]), &bench, &outbox);
    let writer = DeviceWriter {
        address: String::new(),
        device: Arc::new(Mutex::new(resting_link())),
        writes: Vec::new(),
    };
    stop.cancel();
    let failure = writer.write(&cx, "coil 1", &Request::WriteSingleCoil(1, true)).await;
    assert_eq!(failure, Err(RequestFailure::Lost("the gear stops".to_owned())));
    drop(cx);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
