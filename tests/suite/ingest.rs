//! What foreign publishers send: good batches are stored once, whatever comes between them, and however large it is; while the store
//! takes nothing, no more is fetched from the bus than there is room for.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use harness::disk::Disk;
use harness::{Failure, TestMixer, eventually};
use model::{Attributes, EntityId, Level, LogRecord, Record, Timestamp, wire};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

async fn send(js: &Context, kind: &str, body: Vec<u8>) -> Result<(), Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(wire::CONTENT_TYPE, kind);
    let sent = js.publish_with_headers("flux.telemetry.logs.script", headers, body.into());
    sent.await?.await?;
    Ok(())
}

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

fn line(message: &str) -> Vec<u8> {
    json!({ "ts": now().to_string(), "level": "info", "message": message })
        .to_string()
        .into_bytes()
}

/// An Arrow IPC stream of one row, as our Racks send it.
fn arrow(message: &str) -> Result<Vec<u8>, Failure> {
    let row = LogRecord {
        ts: now(),
        entity_id: EntityId::for_name("script"),
        entity_name: "script".into(),
        flux_id: None,
        level: Level::Info,
        message: message.into(),
        attributes: Attributes::new(),
    };
    Ok(wire::encode_arrow(&[LogRecord::to_batch(&[row])?])?)
}

/// The value of a counter on `/metrics`.
fn counter(mixer: &TestMixer, name: &str) -> Result<u64, Failure> {
    let text = mixer.api.get("/metrics")?.text;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.ok_or_else(|| format!("no {name} in\n{text}").into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_can_not_be_stored_becomes_a_dead_letter_and_ingest_goes_on() -> Result<(), Failure> {
    // The log takes frames of up to a MiB, the bus messages of up to two.
    let mixer = tokio::task::spawn_blocking(|| TestMixer::start("[store]\nwal_max_size_mb = 1\n")).await??;
    let js = async_nats::jetstream::with_domain(async_nats::connect(&mixer.bus_url).await?, "flux");
    let stream = "application/vnd.apache.arrow.stream";
    let good = arrow("good 2")?;
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[8..16].copy_from_slice(&[0xff; 8]);

    send(&js, "application/json", line("good 1")).await?;
    send(&js, "application/json", line(&"x".repeat(1_500_000))).await?;
    send(&js, stream, good).await?;
    send(&js, stream, flipped).await?;
    send(&js, stream, arrow("cut")?[..middle].to_vec()).await?;
    send(&js, "application/x-ndjson", line("good 3")).await?;

    let letters = eventually("three dead letters", SOON, || {
        let letters = mixer.api.rows("/api/v1/telemetry/dead_letters").ok()?;
        (letters.len() >= 3).then_some(letters)
    })?;
    let reasons: Vec<&str> = letters.iter().filter_map(|row| row["reason"].as_str()).collect();
    assert_eq!(letters.len(), 3, "{reasons:?}");
    let large = reasons.iter().find(|reason| reason.contains("send smaller batches"));
    assert!(large.is_some_and(|reason| reason.contains("65536 of")), "{reasons:?}");
    assert_eq!(
        reasons.iter().filter(|reason| reason.contains("Arrow")).count(),
        2,
        "{reasons:?}"
    );

    eventually("the good rows", SOON, || {
        (mixer.api.rows("/api/v1/telemetry/logs?entity=script").ok()?.len() >= 3).then_some(())
    })?;
    let rows = mixer.api.rows("/api/v1/telemetry/logs?entity=script")?;
    let mut messages: Vec<_> = rows.iter().filter_map(|row| row["message"].as_str()).collect();
    messages.sort_unstable();
    assert_eq!(messages, ["good 1", "good 2", "good 3"]);
    assert_eq!(counter(&mixer, "platform_ingest_dead_letters_total ")?, 3);
    assert_eq!(counter(&mixer, "platform_ingest_duplicate_batches_total ")?, 0);

    // Everything is acknowledged: nothing is sent again for ever.
    let stream = js.get_stream("flux-telemetry").await?;
    let mut consumer: PullConsumer = stream.get_consumer("ingest").await.map_err(|error| error.to_string())?;
    let info = consumer.info().await?;
    assert_eq!((info.num_pending, info.num_ack_pending), (0, 0));
    assert_eq!(mixer.api.get("/readyz")?.status, 200);
    Ok(())
}

/// A Mixer that takes messages of so many bytes and whose store lies on a full disk: it looks at that before it appends. `None` where the
/// machine can have no such disk.
async fn on_a_full_disk(most: usize) -> Result<Option<(Disk, TestMixer)>, Failure> {
    let started = tokio::task::spawn_blocking(move || {
        let disk = match Disk::tmpfs(256) {
            Ok(disk) => disk,
            Err(lacking) => {
                eprintln!("{lacking}");
                return Ok(None);
            }
        };
        let store = format!("{:?}", disk.path().join("data").display().to_string());
        let most = most.to_string();
        let keys = [
            ("store.dir", store.as_str()),
            ("store.wal_max_size_mb", "64"),
            ("snake.store_dir", "\"js\""),
            ("mixer.max_payload_size", most.as_str()),
            ("observability.embedded.storage.memory_limit_mb", "64"),
        ];
        let mixer = TestMixer::with(&keys, &[])?;
        disk.fill()?;
        Ok::<_, Failure>(Some((disk, mixer)))
    });
    started.await?
}

/// The consumer by which messages are archived.
async fn archive(js: &Context) -> Result<PullConsumer, Failure> {
    let stream = js.get_stream("flux-msg").await?;
    stream
        .get_consumer("archive")
        .await
        .map_err(|error| error.to_string().into())
}

async fn bus_of(mixer: &TestMixer) -> Result<Context, Failure> {
    let client = async_nats::connect(&mixer.bus_url).await?;
    Ok(async_nats::jetstream::with_domain(client, "flux"))
}

/// Bytes on a wire, of which the archive makes a dead letter.
async fn publish(js: &Context, bytes: usize) -> Result<(), Failure> {
    let sent = js.publish("flux.msg.rack-a.gate.out", vec![0xff; bytes].into());
    sent.await?.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_takes_nothing_the_bus_keeps_what_there_is_no_room_for() -> Result<(), Failure> {
    const COUNT: usize = 60;
    // Of the 64 MiB of memory 8 are for what is in flight: two messages, which take three times their bytes there. One waits for room.
    // Each request brings as much as the largest message has, two of these, and four of them may be open.
    const MOST: usize = 2 + 1 + 4 * 2;
    let Some((disk, mixer)) = on_a_full_disk(2 << 20).await? else {
        return Ok(());
    };
    let js = bus_of(&mixer).await?;
    let archive = archive(&js).await?;
    for _ in 0..COUNT {
        publish(&js, 1 << 20).await?;
    }
    let mut fetched = 0;
    let mut is_full = true;
    let deadline = tokio::time::Instant::now() + 4 * SOON;
    loop {
        let said = archive.get_info().await?;
        fetched = fetched.max(said.num_ack_pending);
        assert!(fetched <= MOST, "{fetched} MiB of {COUNT} were fetched");
        // Every request is answered and nothing more is asked for.
        if is_full && said.num_ack_pending > 0 && said.num_waiting == 0 {
            is_full = false;
            disk.make_room()?;
        }
        if said.num_pending == 0 && said.num_ack_pending == 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{said:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_full, "there was no room for long");
    assert_eq!(counter(&mixer, "platform_ingest_dead_letters_total ")?, COUNT as u64);
    eprintln!("at most {fetched} MiB of {COUNT} were fetched at once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_from_when_the_bus_took_larger_ones_is_stored_and_holds_up_no_other() -> Result<(), Failure> {
    const LARGE: usize = 10 << 20;
    let Some((disk, mut mixer)) = on_a_full_disk(LARGE).await? else {
        return Ok(());
    };
    let js = bus_of(&mixer).await?;
    for bytes in [1_000, LARGE, 1_000, 1_000] {
        publish(&js, bytes).await?;
    }
    mixer.kill9()?;
    disk.make_room()?;
    let file = mixer.path().join("platform-mixer.toml");
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(&file, text.replace(&LARGE.to_string(), "1048576"))?;
    let again = tokio::task::spawn_blocking(move || {
        mixer.restart()?;
        Ok::<_, Failure>(mixer)
    });
    let mixer = again.await??;
    eventually("four dead letters", 2 * SOON, || {
        let letters = mixer.api.rows("/api/v1/dlq?limit=10").ok()?;
        (letters.len() == 4).then_some(())
    })?;
    let archive = archive(&bus_of(&mixer).await?).await?;
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let said = archive.get_info().await?;
        if (said.num_pending, said.num_ack_pending) == (0, 0) {
            return Ok(());
        }
        assert!(tokio::time::Instant::now() < deadline, "{said:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
