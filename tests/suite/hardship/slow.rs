//! An HTTP target that takes its time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::*;
use crate::first_light::mixer_with;

/// A target that reads requests and, while it is slow, answers none.
#[derive(Clone, Default)]
struct Target {
    quick: Arc<AtomicBool>,
    /// Requests that were not answered.
    ignored: Arc<AtomicUsize>,
    /// Idempotency keys and bodies of those that were.
    answered: Arc<Mutex<Vec<(String, String)>>>,
}

impl Target {
    fn start(&self) -> Result<String, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let target = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let target = target.clone();
                // A peer that leaves ends its thread.
                std::thread::spawn(move || target.serve(&stream).ok());
            }
        });
        Ok(format!("http://{address}/"))
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut length, mut key, mut line) = (0, String::new(), String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let lower = line.trim().to_ascii_lowercase();
                match lower.split_once(": ") {
                    Some(("content-length", value)) => length = value.parse().unwrap_or(0),
                    Some(("idempotency-key", value)) => value.clone_into(&mut key),
                    _ if lower.is_empty() => break,
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            if self.quick.load(Ordering::SeqCst) {
                let body = String::from_utf8_lossy(&body).into_owned();
                self.answered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((key, body));
                (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
            } else {
                self.ignored.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

#[test]
fn a_slow_target_holds_up_neither_who_sends_nor_the_rack_and_gets_all_in_order_when_it_is_quick() -> Result<(), Failure>
{
    let target = Target::default();
    let url = target.start()?;
    let out = format!("url: '{url}', timeout: 2s, retry: {{ count: 1, first: 20ms }}");
    let gears = [door(), gear("out", "http_out", &out), gear("sink", "log_sink", "")];
    let wires = [
        "from: door.out, to: out.in, lane: guaranteed",
        "from: door.out, to: sink.in, lane: guaranteed",
    ];
    let (mixer, _scenario) = mixer_with(&scenario("slow", "1", &gears, &wires))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let mut door = Door::of(&rack, 1)?;
    let bodies: Vec<String> = (0..30).map(|number| format!("order {number:02}")).collect();
    for body in &bodies {
        door.accepts(body)?;
    }
    // The other receiver of the door is not held up, and the gear says what is wrong, of which message.
    door.is_sunk(&mixer, "sink")?;
    eventually("attempts that were not answered", SOON, || {
        (target.ignored.load(Ordering::SeqCst) > 2).then_some(())
    })?;
    let path = "/api/v1/telemetry/logs?gear_id=out&level=error";
    let said = eventually("the word of the gear", SOON, || {
        mixer.api.rows(path).ok()?.into_iter().next()
    })?;
    assert!(
        said["message"].as_str().is_some_and(|text| text.contains("within 2s")),
        "how long it waited: {said:?}"
    );
    assert_eq!(shown(&mixer, "rack-a").ok_or("no Rack")?["state"], "active");

    target.quick.store(true, Ordering::SeqCst);
    let answered = || target.answered.lock().unwrap_or_else(PoisonError::into_inner).clone();
    eventually("all of them at the target", SOON, || {
        (answered().len() >= bodies.len()).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}\n{}", answered(), rack.log()))?;
    // One may come again, under its key, where an answer was lost; none is missing or out of order.
    let mut got = answered();
    got.dedup();
    let (keys, texts): (BTreeSet<_>, Vec<_>) = got.into_iter().unzip();
    assert_eq!((keys.len(), &texts), (bodies.len(), &bodies));
    door.is_archived(&mixer)?;
    assert_eq!(mixer.api.metric("platform_ingest_dead_letters_total"), Some(0.0));
    Ok(())
}
