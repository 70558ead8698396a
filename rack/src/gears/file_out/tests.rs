//! `file_out` in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;
use crate::gears::ContextParts;
use crate::gears::output_transaction::collect_output;
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{deliver, outbox, spec, surroundings};
use crate::gears::testing::{Bench, push};
use crate::gears::{OutputWires, WiredGear};
use crate::inbox::GearInbox;
use crate::message_limits::MessageLimits;
use crate::runtime::GearRuntime;

/// Frames that go to `door` become lines of the files, and records of `queued` once every file has them in its inbox.
async fn start(bench: &Bench, files: &[(&Path, &str)]) -> (GearRuntime, TcpStream) {
    let mut runtime = bench.runtime();
    let mut gears = "
  - { name: queued, type: log_sink, deploy: rack-a }
  - { name: door, type: tcp_in, deploy: rack-a, config: { listen: '127.0.0.1:0', framing: { length: { bytes: 1 } } } }"
        .to_owned();
    let mut wires = "{ from: door.out, to: queued.in }".to_owned();
    for (number, (path, more)) in files.iter().enumerate() {
        let path = path.display();
        gears.push_str(&format!(
            "\n  - {{ name: out{number}, type: file_out, deploy: rack-a, config: {{ path: '{path}'{more} }} }}"
        ));
        wires.push_str(&format!(", {{ from: door.out, to: out{number}.in }}"));
    }
    assert_eq!(runtime.apply(&push("h", &gears, &wires)).await.error, None);
    let door = bench.address("door", "tcp").await;
    (runtime, TcpStream::connect(door).await.unwrap())
}

async fn send(door: &mut TcpStream, frame: &[u8]) {
    let size = u8::try_from(frame.len()).unwrap();
    door.write_all(&[&[size], frame].concat()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_one_line_whatever_is_in_it_and_a_message_is_one_json_object() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (text, json) = (folder.path().join("out.txt"), folder.path().join("out.ndjson"));
    let (runtime, mut door) = start(&bench, &[(&text, ""), (&json, ", format: json, fsync: true")]).await;
    for frame in [&b"plain\r\n"[..], b"two\nlines", b"../../etc/x", b"odd \xff"] {
        send(&mut door, frame).await;
    }
    bench.records("queued", 4).await;
    runtime.close().await;
    assert_eq!(fs::read(&text).unwrap(), b"plain\ntwo\\nlines\n../../etc/x\nodd \xff\n");
    let lines: Vec<Value> = fs::read_to_string(&json)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (lines.len(), &lines[1]["raw"], &lines[3]["raw_base64"]),
        (4, &"two\nlines".into(), &"b2RkIP8=".into())
    );
    assert!(lines[0]["meta"]["network.peer.address"].is_string() && lines[0]["flux_id"].is_string());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_full_disk_nothing_is_lost_and_nothing_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (path, real) = (folder.path().join("out.log"), folder.path().join("real"));
    symlink("/dev/full", &path).unwrap();
    let (runtime, mut door) = start(&bench, &[(&path, "")]).await;
    send(&mut door, b"0").await;
    bench.says("out0", "No space left on device").await;
    for number in 1..2000 {
        send(&mut door, number.to_string().as_bytes()).await;
    }
    bench.says("out0", "it starts again in 400 ms").await;
    // There is room again.
    fs::remove_file(&path).unwrap();
    symlink(&real, &path).unwrap();
    bench.records("queued", 2000).await;
    runtime.close().await;
    let wanted: String = (0..2000).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(&real).unwrap(), wanted);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_is_in_the_file_after_a_stop_and_a_missing_folder_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    let path = folder.path().join("numbers");
    let gears = |path: &Path| {
        format!(
            "
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 100000, count: 5000, size: 10 }} }}
  - {{ name: out, type: file_out, deploy: rack-a, config: {{ path: '{}', rotate: {{ size: 20000, keep: 3 }} }} }}",
            path.display()
        )
    };
    let wires = "{ from: numbers.out, to: out.in }";
    let applied = runtime
        .apply(&push("h", &gears(&folder.path().join("none/x")), wires))
        .await;
    assert!(applied.error.unwrap().contains("No such file or directory"));
    assert_eq!(runtime.apply(&push("h2", &gears(&path), wires)).await.error, None);
    bench.says("numbers", "the gear has finished").await;
    runtime.close().await;
    let mut sizes: Vec<u64> = ["", ".1", ".2", ".3", ".4"]
        .iter()
        .filter_map(|end| fs::metadata(format!("{}{end}", path.display())).ok())
        .map(|facts| facts.len())
        .collect();
    assert!(
        sizes.iter().sum::<u64>() <= 55_000 && sizes.iter().all(|size| size % 11 == 0),
        "{sizes:?}"
    );
    assert!(sizes.len() <= 4 && sizes.pop().is_some());
    bench.close().await;
}

#[tokio::test]
async fn a_message_that_is_given_again_after_its_line_was_written_has_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (path, real) = (folder.path().join("out.log"), folder.path().join("real"));
    symlink("/dev/full", &path).unwrap();
    let config = json!({ "path": path.display().to_string() });
    let spec = WiredGear {
        name: "out".parse().unwrap(),
        kind: crate::gears::find("file_out").unwrap(),
        config: config.as_object().unwrap().clone(),
        targets: Vec::new(),
        published: Default::default(),
    };
    let parts = ContextParts {
        recorder: bench.recorder.clone(),
        entropy: model::Entropy::new(|buffer| getrandom::fill(buffer).unwrap()),
        limits: MessageLimits::new(64, 1 << 20),
        programs: bench.programs.clone(),
        policy: bench.policy.clone(),
        outlets: OutputWires::default(),
        outbox: None,
        shutdown: Default::default(),
        tap: Default::default(),
    };
    let cx = Arc::new(GearContext::new(&spec, parts));
    let of = |text: &[u8]| InputMessage {
        port: "in",
        message: cx.make(None, model::Attributes::new(), text.to_vec()),
    };
    let (first, second) = (of(b"first"), of(b"second"));
    let life = || match build(&spec.config).unwrap() {
        Gear::Passive(gear) => gear,
        _ => panic!("file_out is passive"),
    };
    let mut one = life();
    one.init(&cx).await.unwrap();
    again(one.process(&cx, first.clone())).await.unwrap();
    assert!(matches!(one.flush(&cx).await, Err(GearError::Outside { .. })));
    // The next life takes nothing while the disk is full.
    assert!(matches!(life().init(&cx).await, Err(GearError::Outside { .. })));
    fs::remove_file(&path).unwrap();
    symlink(&real, &path).unwrap();
    let mut two = life();
    two.init(&cx).await.unwrap();
    assert_eq!(fs::read_to_string(&real).unwrap(), "first\n");
    for delivery in [first, second] {
        again(two.process(&cx, delivery)).await.unwrap();
    }
    two.flush(&cx).await.unwrap();
    assert_eq!(fs::read_to_string(&real).unwrap(), "first\nsecond\n");
    bench.close().await;
}

/// Handles a message that comes again if the gear fails.
async fn again(work: GearFuture<'_>) -> Result<(), GearError> {
    collect_output(DeliveryGuarantee::Again, work).await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_were_written_before_the_disk_was_full_are_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let path = folder.path().join("out.log");
    // More than two writes, all of it held at once; the file is exchanged for a full disk between them.
    let bodies: Vec<String> = (0..60).map(|number| format!("{number:010000}")).collect();
    let (inbox, config) = (GearInbox::new(), json!({ "path": path.display().to_string() }));
    let deliver = |range: std::ops::Range<u8>| -> Vec<_> {
        let of = |number: u8| deliver(&inbox, number, bodies[usize::from(number)].as_bytes());
        range.map(of).collect()
    };
    let spec = spec("file_out", &config, &[]);
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = || match build(&spec.config).unwrap() {
        Gear::Passive(gear) => gear,
        _ => panic!("file_out is passive"),
    };
    // A life that has written the first of them and cannot write the next ones.
    let mut one = life();
    one.init(&cx).await.unwrap();
    for number in 0..30 {
        let message = crate::gears::testing::message(number, Value::Null, bodies[usize::from(number)].as_bytes());
        let delivery = InputMessage { port: "in", message };
        again(one.process(&cx, delivery)).await.unwrap();
    }
    let written = fs::metadata(&path).unwrap().len();
    assert!(written > 250_000 && written < 300_000, "{written}");
    let whole = folder.path().join("whole");
    fs::rename(&path, &whole).unwrap();
    symlink("/dev/full", &path).unwrap();
    one = life();
    assert!(matches!(one.init(&cx).await, Err(GearError::Outside { .. })));
    fs::remove_file(&path).unwrap();
    fs::rename(&whole, &path).unwrap();
    // The next one is given all of them again, and more.
    let taken = deliver(0..60);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox.clone())));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().collect::<Vec<_>>(), bodies);
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
