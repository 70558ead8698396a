//! Twenty gears on one Rack, sockets open at five of them, and a stream of numbered lines: what a change of one gear must not touch.
//!
//! ```text
//! feed ─TCP─▶ door ─▶ keep ─▶ change ─┬─▶ lines ─▶ a file
//!                                     └─▶ push ─TCP─▶ receiver
//! hook ◀─HTTP─    note ─▶ said ◀─ syslog ◀─TCP─     echo ◀─TCP─▶
//!   ├─▶ note      numbers ─▶ slow ─▶ points ─▶ mask ─▶ sunk
//!   └─(guaranteed)─▶ seen              └─▶ other         host    tail ─▶ tailed
//! ```
//!
//! # Invariants
//!
//! - Versions of the scenario differ in `change` alone, which writes the version into each message.
//! - Every client's socket is opened once and never again.

mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Api, Failure, TestMixer, eventually, gear_files};
use receiver::Receiver;

/// How long a socket may be silent before that is a failure.
const SILENCE: Duration = Duration::from_secs(30);
/// After which time without use a socket is used.
const IDLE: Duration = Duration::from_secs(3);
/// How often the feed writes.
const TICK: Duration = Duration::from_millis(10);

/// The gears that a change leaves as they are.
pub const UNTOUCHED: [&str; 19] = [
    "door", "keep", "lines", "push", "echo", "hook", "note", "said", "seen", "syslog", "numbers", "slow", "points",
    "mask", "sunk", "other", "host", "tail", "tailed",
];

/// The files and the receiver that the scenario names.
#[derive(Debug)]
pub struct Twenty {
    folder: tempfile::TempDir,
    receiver: Receiver,
}

impl Twenty {
    /// Everything outside of the Rack.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self, Failure> {
        let folder = gear_files()?;
        std::fs::write(folder.path().join("app.log"), "")?;
        Ok(Self {
            folder,
            receiver: Receiver::start()?,
        })
    }

    /// A version of the scenario.
    #[must_use]
    pub fn scenario(&self, version: u64) -> String {
        let (file, log) = (self.file(), self.folder.path().join("app.log"));
        let (file, log) = (file.display().to_string(), log.display().to_string());
        let to = self.receiver.address;
        let free = "listen: '127.0.0.1:0'";
        format!(
            "meta: {{ name: twenty, version: '{version}' }}\nracks: [ {{ name: rack-a }} ]\ngears:
  - {{ name: door, type: tcp_in, deploy: rack-a, config: {{ {free} }} }}
  - {{ name: keep, type: filter, deploy: rack-a, config: {{ where: size(text) > 0 }} }}
  - {{ name: change, type: map, deploy: rack-a, config: {{ data: \"{{'n': int(text), 'v': {version}}}\" }} }}
  - {{ name: lines, type: file_out, deploy: rack-a, config: {{ path: {file:?} }} }}
  - {{ name: push, type: tcp_out, deploy: rack-a, config: {{ address: '{to}' }} }}
  - {{ name: echo, type: tcp_in, deploy: rack-a, config: {{ {free} }} }}
  - {{ name: hook, type: http_in, deploy: rack-a, config: {{ {free} }} }}
  - {{ name: note, type: map, deploy: rack-a, config: {{ data: \"'noted ' + text\" }} }}
  - {{ name: said, type: log_sink, deploy: rack-a }}
  - {{ name: seen, type: log_sink, deploy: rack-a }}
  - {{ name: syslog, type: syslog_in, deploy: rack-a, config: {{ {free}, udp: false }} }}
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 50 }} }}
  - {{ name: slow, type: throttle, deploy: rack-a, config: {{ rate: 20, burst: 10, when_full: drop }} }}
  - {{ name: points, type: route, deploy: rack-a, config: {{ routes: [ {{ when: \"meta['generator.number'] % 2 == 0\", to: a }} ] }} }}
  - {{ name: mask, type: wasm, deploy: rack-a, config: {{ code: '{MASK}' }} }}
  - {{ name: sunk, type: log_sink, deploy: rack-a }}
  - {{ name: other, type: log_sink, deploy: rack-a }}
  - {{ name: host, type: host_metrics, deploy: rack-a }}
  - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {log:?} }} }}
  - {{ name: tailed, type: log_sink, deploy: rack-a }}
wires:
  - {{ from: door.out, to: keep.in }}
  - {{ from: keep.out, to: change.in }}
  - {{ from: change.out, to: lines.in }}
  - {{ from: change.out, to: push.in }}
  - {{ from: echo.out, to: echo.reply }}
  - {{ from: hook.out, to: note.in }}
  - {{ from: hook.out, to: seen.in, lane: guaranteed }}
  - {{ from: note.out, to: said.in }}
  - {{ from: syslog.out, to: said.in }}
  - {{ from: numbers.out, to: slow.in }}
  - {{ from: slow.out, to: points.in }}
  - {{ from: points.a, to: mask.in }}
  - {{ from: mask.out, to: sunk.in }}
  - {{ from: points.else, to: other.in }}
  - {{ from: tail.out, to: tailed.in }}
"
        )
    }

    /// Stores a version and activates it; how long that took until the Rack ran it.
    ///
    /// # Errors
    /// If the Rack does not run it.
    pub fn activate(&self, api: &Api, version: u64) -> Result<Duration, Failure> {
        let text = self.scenario(version);
        let yaml = [("content-type", "application/yaml")];
        let stored = api.send("/api/v1/scenarios", &yaml, text.as_bytes())?;
        let began = Instant::now();
        let path = format!("/api/v1/scenarios/twenty:{version}/activate?wait=50s");
        let done = api.post(&path, &json!({}))?;
        let took = began.elapsed();
        if stored.status == 200 && done.json["data"]["converged"] == true {
            Ok(took)
        } else {
            Err(format!("version {version}: {} {}", stored.text, done.text).into())
        }
    }

    /// Opens a socket at each gear that listens.
    ///
    /// # Errors
    /// If a gear does not.
    pub fn open(&self, mixer: &TestMixer) -> Result<Sockets, Failure> {
        let open = |gear: &str| {
            let path = format!("/api/v1/telemetry/logs?gear_id={gear}&q=listening");
            let port = eventually(&format!("the port of {gear}"), SILENCE, || {
                let row = mixer.api.rows(&path).ok()?.into_iter().next()?;
                u16::try_from(row["attributes"]["server.port"].as_u64()?).ok()
            })?;
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            Ok::<_, Failure>(stream)
        };
        Ok(Sockets {
            door: open("door")?,
            echo: BufReader::new(open("echo")?),
            hook: BufReader::new(open("hook")?),
            syslog: open("syslog")?,
            last: Instant::now(),
            used: 0,
        })
    }

    /// What the file has of so many messages.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn written(&self, count: u64) -> Result<Tally, Failure> {
        let text = std::fs::read_to_string(self.file())?;
        let lines: Option<Vec<_>> = text.lines().map(numbers).collect();
        Ok(Tally::of(&lines.ok_or("a line that is none of ours")?, count))
    }

    /// What the receiver got of so many messages, over how many connections, and how long it waited at most between two of them.
    #[must_use]
    pub fn pushed(&self, count: u64) -> (Tally, usize, Duration) {
        let got = self.receiver.got.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<_> = got.iter().map(|(line, _)| *line).collect();
        let pauses = got.windows(2).map(|pair| pair[1].1.duration_since(pair[0].1));
        let pause = pauses.max().unwrap_or_default();
        (
            Tally::of(&lines, count),
            self.receiver.connections.load(Ordering::Relaxed),
            pause,
        )
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lines.txt")
    }
}

/// A module that passes bodies on.
const MASK: &str = "(module (import \"flux\" \"emit\" (func $emit (param i32 i32 i32))) (memory (export \"memory\") 1) \
    (func (export \"alloc\") (param i32) (result i32) (i32.const 1024)) \
    (func (export \"process\") (param i32 i32) (call $emit (i32.const 0) (local.get 0) (local.get 1))))";

/// The number and the version of a message.
fn numbers(line: &str) -> Option<(u64, u64)> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some((value["n"].as_u64()?, value["v"].as_u64()?))
}

/// What arrived of the numbers from 0 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// All messages.
    pub all: usize,
    /// Numbers that are not there.
    pub lost: usize,
    /// Messages whose number was there already.
    pub doubled: usize,
    /// Messages that came behind a larger number, or with an older version than the one before.
    pub disordered: usize,
    /// How many each version of `change` made.
    pub versions: BTreeMap<u64, usize>,
}

impl Tally {
    fn of(lines: &[(u64, u64)], count: u64) -> Self {
        let seen: BTreeSet<u64> = lines.iter().map(|(number, _)| *number).collect();
        let behind = |pair: &&[(u64, u64)]| pair[1].0 < pair[0].0 || pair[1].1 < pair[0].1;
        let mut versions = BTreeMap::new();
        for (_, version) in lines {
            *versions.entry(*version).or_default() += 1;
        }
        Self {
            all: lines.len(),
            lost: (0..count).filter(|number| !seen.contains(number)).count(),
            doubled: lines.len() - seen.len(),
            disordered: lines.windows(2).filter(behind).count(),
            versions,
        }
    }
}

/// The sockets at the gears.
#[derive(Debug)]
pub struct Sockets {
    door: TcpStream,
    echo: BufReader<TcpStream>,
    hook: BufReader<TcpStream>,
    syslog: TcpStream,
    last: Instant,
    /// How often the sockets were used, which is how many requests were answered.
    pub used: u64,
}

impl Sockets {
    /// Writes so many numbered lines a second, evenly, until it is over; how many there were.
    ///
    /// # Errors
    /// If there is no second handle of the socket.
    pub fn feed(&self, rate: u64, over: Arc<AtomicBool>) -> Result<JoinHandle<Result<u64, Failure>>, Failure> {
        let mut door = self.door.try_clone()?;
        Ok(std::thread::spawn(move || {
            let (began, mut next) = (Instant::now(), 0);
            while !over.load(Ordering::Relaxed) {
                let due = u64::try_from(began.elapsed().as_millis())? * rate / 1000;
                let lines: String = (next..due).map(|number| format!("{number}\n")).collect();
                door.write_all(lines.as_bytes())?;
                next = due.max(next);
                std::thread::park_timeout(TICK);
            }
            Ok(next)
        }))
    }

    /// Uses each of the other sockets: a line comes back, a request is answered, a record is taken.
    ///
    /// # Errors
    /// If one of them is not what it was.
    pub fn use_all(&mut self, text: &str) -> Result<(), Failure> {
        self.echo.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut line = String::new();
        self.echo.read_line(&mut line)?;
        if line.trim_end() != text {
            return Err(format!("the echo of {text:?} is {line:?}").into());
        }
        let size = text.len();
        let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n{text}");
        self.hook.get_mut().write_all(request.as_bytes())?;
        let mut size = 0;
        for number in 0.. {
            let mut line = String::new();
            self.hook.read_line(&mut line)?;
            if number == 0 && !line.starts_with("HTTP/1.1 202") {
                return Err(format!("the answer to {text:?} is {line:?}").into());
            }
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                size = length.trim().parse()?;
            }
            if line.trim_end().is_empty() {
                break;
            }
        }
        self.hook.read_exact(&mut vec![0; size])?;
        self.syslog
            .write_all(format!("<14>Oct 11 22:14:15 host app: {text}\n").as_bytes())?;
        self.last = Instant::now();
        self.used += 1;
        Ok(())
    }

    /// Uses them if they were not used for a while: the Rack closes an idle HTTP connection, as it may.
    ///
    /// # Errors
    /// As for [`use_all`](Self::use_all).
    pub fn keep_alive(&mut self) -> Result<(), Failure> {
        if self.last.elapsed() < IDLE {
            Ok(())
        } else {
            self.use_all("still here")
        }
    }

    /// The sockets that the Rack has closed.
    ///
    /// # Errors
    /// If a socket cannot be asked.
    pub fn closed(&self) -> Result<Vec<&'static str>, Failure> {
        let mut closed = Vec::new();
        let all = [
            ("door", &self.door),
            ("echo", self.echo.get_ref()),
            ("hook", self.hook.get_ref()),
            ("syslog", &self.syslog),
        ];
        for (name, socket) in all {
            socket.set_nonblocking(true)?;
            let peeked = socket.peek(&mut [0]);
            socket.set_nonblocking(false)?;
            let is_open = matches!(&peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
            if !is_open {
                closed.push(name);
            }
        }
        Ok(closed)
    }
}
