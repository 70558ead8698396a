//! Many large bodies at once: they share the memory that is for them, and each is stored.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use harness::process::memory_of;
use harness::{Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::json;

const MIB: u64 = 1 << 20;
const BODY: u64 = 12 * MIB;
/// Of a row's message.
const WIDTH: u64 = 1 << 10;
const SENDERS: u64 = 12;

#[test]
fn large_bodies_of_many_senders_stay_within_the_memory_for_them_and_are_all_stored() -> Result<(), Failure> {
    let keys = [("observability.embedded.storage.memory_limit_mb", "64")];
    let mut mixer = TestMixer::with(&keys, &[])?;
    let pid = mixer.process()?.pid();
    let (rows, filler) = (BODY / WIDTH, "x".repeat(WIDTH as usize));
    let now = Timestamp::from(std::time::SystemTime::now()).to_string();
    let line = format!("{}\n", json!({ "ts": now, "level": "info", "message": filler }));
    let body = line.repeat(rows as usize).into_bytes();
    let before = memory_of(pid, "RssAnon")?;
    let (over, most, most_inbound) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(memory_of(pid, "RssAnon")?, Ordering::Relaxed);
                let inbound = mixer.api.metric("platform_engine_inbound_bytes").unwrap_or(0.0);
                most_inbound.fetch_max(inbound as u64, Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(20));
            }
            Ok::<_, Failure>(())
        });
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                scope.spawn(|| {
                    // Who finds no room in time is told so, and comes again.
                    eventually("the body is stored", Duration::from_secs(120), || {
                        let headers = [("Content-Type", "application/x-ndjson")];
                        let answer = mixer.api.send("/api/v1/ingest/logs", &headers, &body).ok()?;
                        (answer.status == 200).then_some(answer.json["data"]["stored"] == json!(rows))
                    })
                    .map_err(|error| error.to_string())
                })
            })
            .collect();
        let stored: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        over.store(true, Ordering::Relaxed);
        watching.join().map_err(|_| "the watcher died")??;
        for stored in stored {
            assert!(stored.map_err(|_| "a sender died")??, "all of its rows");
        }
        Ok::<_, Failure>(())
    })?;
    let (grown, inbound) = ((most.into_inner() - before) / MIB, most_inbound.into_inner());
    eprintln!(
        "anonymous memory grew by {grown} MiB, {} MiB were on their way",
        inbound / MIB
    );
    // Of bodies and of what is decoded an eighth each, and one beyond it.
    assert!(inbound > 0 && inbound <= 2 * (8 * MIB + 2 * BODY), "{inbound}");
    assert!(grown <= 128, "it grew by {grown} MiB");
    Ok(())
}
