//! A receiver that takes nothing, at the Rack that sends to it: everything goes on by itself when it comes back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use harness::{Failure, TestMixer, TestRack, eventually, gear_files};

use super::{archived, mixer_log};

/// Lines of 32 KiB: more than the stream of 45 MiB and the outbox of 4 MiB have room for together.
const LINES: u64 = 2_500;

/// An HTTP server on loopback that answers 503 until it is open, then 200, and counts the lines that it was sent.
struct Target {
    url: String,
    is_open: Arc<AtomicBool>,
    seen: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl Target {
    fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let (is_open, seen) = (
            Arc::new(AtomicBool::new(false)),
            Arc::<Mutex<BTreeMap<_, _>>>::default(),
        );
        let (opened, seeing) = (Arc::clone(&is_open), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (opened, seeing) = (Arc::clone(&opened), Arc::clone(&seeing));
                std::thread::spawn(move || serve(&stream, &opened, &seeing));
            }
        });
        Ok(Self { url, is_open, seen })
    }

    /// How many different lines came, and the most that one came.
    fn counts(&self) -> (u64, u64) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.len() as u64, seen.values().max().copied().unwrap_or(0))
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, is_open: &AtomicBool, seen: &Mutex<BTreeMap<u64, u64>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let mut stream = stream;
        if is_open.load(Ordering::SeqCst) {
            let text = String::from_utf8_lossy(&body);
            let number = text
                .split_once("line ")
                .and_then(|(_, rest)| rest.get(..9)?.parse().ok())?;
            *seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(number)
                .or_default() += 1;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
        } else {
            stream
                .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
                .ok()?;
        }
    }
}

/// Sends until a port may send no more, as the Rack's own gear takes nothing.
fn filled(target: &Target) -> Result<(TestMixer, TestRack, tempfile::TempDir), Failure> {
    let folder = gear_files()?;
    let (file, path) = (folder.path().join("app.log"), folder.path().join("scenario.yaml"));
    let scenario = format!(
        "meta: {{ name: standstill, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: tail, type: file_tail, deploy: rack-a, config: {{ path: {:?}, poll_interval: 50ms }} }}\n  \
         - {{ name: post, type: http_out, deploy: rack-a, config: {{ url: {:?}, breaker: {{ open_for: 1s }}, retry: {{ longest: 1s }} }} }}\n\
         wires:\n  - {{ from: tail.out, to: post.in, lane: guaranteed }}\n",
        file.display().to_string(),
        target.url
    );
    std::fs::write(&path, scenario)?;
    let startup = format!("{:?}", path.display().to_string());
    let keys = [
        ("mixer.startup_scenario", startup.as_str()),
        ("snake.max_store_mb", "64"),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &[("spool.max_size_mb", "4")], &[])?;
    rack.start()?;
    let mut lines = std::fs::File::create(&file)?;
    let padding = "x".repeat(32 << 10);
    for number in 0..LINES {
        writeln!(lines, "line {number:09} of the lane {padding}")?;
    }
    let mut still = (0, Instant::now());
    eventually("a source that may send no more", Duration::from_secs(120), || {
        let stored = archived(&mixer, "tail")?.0;
        if stored != still.0 {
            still = (stored, Instant::now());
        }
        (stored > 0 && still.1.elapsed() > Duration::from_secs(5)).then_some(())
    })
    .map_err(|error| format!("{error}; the Mixer:\n{}", mixer_log(&mixer)))?;
    Ok((mixer, rack, folder))
}

fn all_arrive(target: &Target, rack: &TestRack) -> Result<(), Failure> {
    let arrived = eventually("every line at the target", Duration::from_secs(60), || {
        (target.counts().0 == LINES).then_some(())
    });
    arrived.map_err(|error| format!("{error}: {:?}; rack-a:\n{}", target.counts(), rack.log()).into())
}

#[test]
fn what_waits_for_a_gear_of_its_own_rack_leaves_when_that_takes_again() -> Result<(), Failure> {
    let target = Target::start()?;
    let (_mixer, rack, _folder) = filled(&target)?;
    target.is_open.store(true, Ordering::SeqCst);
    all_arrive(&target, &rack)?;
    assert_eq!(target.counts(), (LINES, 1), "each once");
    Ok(())
}

#[test]
fn what_waits_for_a_gear_of_its_own_rack_leaves_after_a_restart_of_the_rack() -> Result<(), Failure> {
    let target = Target::start()?;
    let (_mixer, mut rack, _folder) = filled(&target)?;
    rack.process()?.terminate(Duration::from_secs(10))?;
    rack.spawn()?;
    target.is_open.store(true, Ordering::SeqCst);
    all_arrive(&target, &rack)?;
    assert_eq!(target.counts(), (LINES, 1), "each once");
    Ok(())
}
