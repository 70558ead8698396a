//! `syslog_in` on real sockets in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Instant;

use model::Table;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::gears::testing::{Bench, STOP_BOUND, push};
use crate::runtime::GearRuntime;

const LINES: [&str; 6] = [
    "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed",
    r#"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - [a@1 x="1" y="q\"\]\\"][b@2] text"#,
    "<34>Oct 11 22:14:15 mymachine su: 'su root' failed on /dev/pts/8",
    "<30>Feb  5 17:32:18 host sshd[42]: Accepted publickey for grüße",
    "<191>2024-02-05T17:32:18+01:00 fe80::1 kernel: x",
    "<13>just a text",
];

async fn start(bench: &Bench, config: &str) -> GearRuntime {
    let mut runtime = bench.runtime();
    let gears = format!(
        "
  - {{ name: door, type: syslog_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0'{config} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    );
    let applied = runtime
        .apply(&push("h", &gears, "{ from: door.out, to: sink.in }"))
        .await;
    assert_eq!(applied.error, None);
    runtime
}

fn data(record: &Map<String, Value>) -> Value {
    serde_json::from_str(record["message"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_and_lines_become_messages_that_say_how_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let runtime = start(&bench, "").await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = bench.address("door", "udp").await;
    socket.send_to(format!("{}\n", LINES[0]).as_bytes(), to).await.unwrap();
    bench.records("sink", 1).await;
    socket.send_to(b"\xff not syslog", to).await.unwrap();
    bench.records("sink", 2).await;
    let mut stream = TcpStream::connect(bench.address("door", "tcp").await).await.unwrap();
    let (counted, ended) = (LINES[3], LINES[2]);
    let both = format!("{} {counted}{ended}\n<13>Feb  5 17:32:18 h a: cut", counted.len());
    stream.write_all(both.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let records = bench.records("sink", 5).await;
    let facts = |at: usize| &records[at]["attributes"];
    assert_eq!(data(&records[0])["msgid"], "ID47");
    assert_eq!(
        (&facts(0)["network.transport"], &facts(0)["syslog.format"]),
        (&"udp".into(), &"rfc5424".into())
    );
    let sender = socket.local_addr().unwrap();
    assert_eq!(facts(0)["network.peer.address"], sender.ip().to_string());
    assert_eq!(facts(0)["network.peer.port"], sender.port());
    assert!(facts(0).get("syslog.malformed").is_none());
    assert_eq!(data(&records[1]), json!({ "message": "\u{fffd} not syslog" }));
    assert_eq!(facts(1)["syslog.malformed"], true);
    assert_eq!(
        (data(&records[2])["app"].clone(), &facts(2)["network.transport"]),
        ("sshd".into(), &"tcp".into())
    );
    assert_eq!(
        (data(&records[3])["host"].clone(), &facts(3)["syslog.format"]),
        ("mymachine".into(), &"rfc3164".into())
    );
    assert_eq!(
        (data(&records[4])["message"].clone(), &facts(4)["syslog.malformed"]),
        ("cut".into(), &true.into())
    );
    let _silent = TcpStream::connect(bench.address("door", "tcp").await).await.unwrap();
    let began = Instant::now();
    runtime.close().await;
    assert!(began.elapsed() < STOP_BOUND);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_too_long_and_a_silent_connection_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let runtime = start(&bench, ", udp: false, max_message: 480, idle_timeout: 300ms").await;
    let to = bench.address("door", "tcp").await;
    let mut silent = TcpStream::connect(to).await.unwrap();
    let mut long = TcpStream::connect(to).await.unwrap();
    long.write_all(&[b'x'; 481]).await.unwrap();
    for stream in [&mut long, &mut silent] {
        // A reset is an end as well.
        assert!(matches!(stream.read(&mut [0; 8]).await, Ok(0) | Err(_)));
    }
    bench.says("door", "is closed: a line has more than 480 bytes").await;
    bench.says("door", "is closed: no line came for 300ms").await;
    let records = bench.records("sink", 1).await;
    assert_eq!(records[0]["attributes"]["syslog.malformed"], true);
    assert!(!bench.logs("door").iter().any(|line| line.contains("udp")));
    runtime.close().await;
    bench.close().await;
}

/// A line with up to four bytes changed, left out, put in or doubled.
fn mutated(rng: &mut SmallRng) -> Vec<u8> {
    let mut line = LINES[rng.random_range(0..LINES.len())].as_bytes().to_vec();
    for _ in 0..rng.random_range(0..5) {
        let at = rng.random_range(0..line.len());
        match rng.random_range(0..5) {
            0 => line[at] = rng.random(),
            1 => line[at] = b"<>[]\"\\=: -1"[rng.random_range(0..11)],
            2 => line.insert(at, rng.random()),
            3 if line.len() > 2 => drop(line.remove(at)),
            _ => line.truncate(at.max(2)),
        }
    }
    line.push(b'.');
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_mutated_lines_are_ten_thousand_messages() {
    const COUNT: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let runtime = start(&bench, "").await;
    let mut stream = TcpStream::connect(bench.address("door", "tcp").await).await.unwrap();
    let mut rng = SmallRng::seed_from_u64(20_261_122);
    for _ in 0..COUNT {
        let line = mutated(&mut rng);
        stream.write_all(format!("{} ", line.len()).as_bytes()).await.unwrap();
        stream.write_all(&line).await.unwrap();
    }
    drop(stream);
    let records = bench.records("sink", COUNT).await;
    assert_eq!(records.len(), COUNT);
    let malformed = records
        .iter()
        .filter(|row| row["attributes"]["syslog.malformed"] == true)
        .count();
    // Both kinds are there; what is read has a severity, what is not keeps its text.
    assert!((COUNT / 10..COUNT * 9 / 10).contains(&malformed), "{malformed}");
    for record in &records {
        let data = data(record);
        let is_malformed = record["attributes"]["syslog.malformed"] == true;
        assert!(data["severity"].is_string() || is_malformed, "{data}");
        assert!(
            data["message"].is_string() && (!is_malformed || data["message"] != ""),
            "{data}"
        );
    }
    runtime.close().await;
    assert!(
        !bench
            .rows(Table::Logs)
            .iter()
            .any(|row| row["message"].as_str().unwrap().contains("panicked"))
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_browser_is_no_line_and_its_connection_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let runtime = start(&bench, "").await;
    let to = bench.address("door", "tcp").await;
    let mut browser = TcpStream::connect(to).await.unwrap();
    browser
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n<13>forged\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    browser.read_to_end(&mut answer).await.ok();
    bench.says("door", "it begins with a request of HTTP").await;
    let mut device = TcpStream::connect(to).await.unwrap();
    device.write_all(b"<13>real\n").await.unwrap();
    let records = bench.records("sink", 1).await;
    assert_eq!(
        (records.len(), data(&records[0])["message"].clone()),
        (1, "real".into())
    );
    runtime.close().await;
    bench.close().await;
}
