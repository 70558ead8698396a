//! What foreign publishers send: good batches are stored once, whatever comes between them, however large it is, and whatever the bus
//! forgets; while the store takes nothing, no more is fetched from the bus than there is room for.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use harness::disk::Disk;
use harness::{Failure, TestMixer, eventually};
use model::{Attributes, EntityId, Level, LogRecord, TelemetryRecord, Timestamp, telemetry_codec};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

async fn send(js: &Context, kind: &str, body: Vec<u8>) -> Result<(), Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(telemetry_codec::CONTENT_TYPE, kind);
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
    Ok(telemetry_codec::encode_arrow(&[LogRecord::to_batch(&[row])?])?)
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
    let js = async_nats::jetstream::with_domain(mixer.operator()?.connect(&mixer.bus_url).await?, "flux");
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
    let client = mixer.operator()?.connect(&mixer.bus_url).await?;
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

/// Waits until the store has so many rows of the script, and the bus knows that.
async fn settled(mixer: &TestMixer, rows: usize) -> Result<Vec<String>, Failure> {
    eventually("the rows", SOON, || {
        let there = mixer.api.rows("/api/v1/telemetry/logs?entity=script").ok()?;
        (there.len() >= rows).then_some(())
    })?;
    let stream = bus_of(mixer).await?.get_stream("flux-telemetry").await?;
    let consumer: PullConsumer = stream.get_consumer("ingest").await.map_err(|error| error.to_string())?;
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let said = consumer.get_info().await?;
        if (said.num_pending, said.num_ack_pending) == (0, 0) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{said:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rows = mixer.api.rows("/api/v1/telemetry/logs?entity=script")?;
    let mut messages: Vec<_> = rows
        .iter()
        .filter_map(|row| Some(row["message"].as_str()?.to_owned()))
        .collect();
    messages.sort_unstable();
    Ok(messages)
}

/// Ends a Mixer and its bus, at once or in order, has something done, starts it again.
async fn meanwhile(
    mut mixer: TestMixer,
    at_once: bool,
    todo: impl FnOnce(&std::path::Path) -> Result<(), Failure> + Send + 'static,
) -> Result<TestMixer, Failure> {
    let again = tokio::task::spawn_blocking(move || {
        let bus = mixer.bus_pid()?;
        if at_once {
            mixer.kill9()?;
        } else {
            mixer.process()?.terminate(SOON)?;
        }
        eventually("the end of the bus", SOON, || {
            let stat = std::fs::read_to_string(format!("/proc/{bus}/stat")).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z ")).then_some(())
        })?;
        todo(mixer.path())?;
        mixer.restart()?;
        Ok::<_, Failure>(mixer)
    });
    again.await?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_lost_its_last_messages_and_gives_their_numbers_to_new_ones_costs_none_of_those()
-> Result<(), Failure> {
    let js = |folder: &std::path::Path| (folder.join("js"), folder.join("js before"));
    let mixer = tokio::task::spawn_blocking(|| TestMixer::with(&[("snake.store_dir", "\"js\"")], &[])).await??;
    let all = ["kept 1", "kept 2", "lost 1", "lost 2", "new 1", "new 2", "new 3"];
    let send_all = async |mixer: &TestMixer, from: usize, to: usize| {
        let bus = bus_of(mixer).await?;
        for message in all.get(from..to).unwrap_or_default() {
            send(&bus, "application/json", line(message)).await?;
        }
        assert_eq!(settled(mixer, to).await?, all[..to]);
        Ok::<_, Failure>(())
    };
    send_all(&mixer, 0, 2).await?;
    // In order: the bus writes what was acknowledged. What it delivers again after a loss counts as new.
    let mixer = meanwhile(mixer, false, move |folder| {
        let (now, before) = js(folder);
        std::process::Command::new("cp")
            .arg("-a")
            .args([now, before])
            .status()?;
        Ok(())
    });
    let mixer = mixer.await?;
    send_all(&mixer, 2, 4).await?;
    let mixer = meanwhile(mixer, true, move |folder| {
        let (now, before) = js(folder);
        std::fs::remove_dir_all(&now)?;
        std::fs::rename(before, now)?;
        Ok(())
    });
    let mixer = mixer.await?;
    send_all(&mixer, 4, 7).await?;
    let mixer = meanwhile(mixer, true, |_| Ok(())).await?;
    assert_eq!(settled(&mixer, 7).await?, all);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_which_some_subjects_are_archived_takes_no_room_for_the_others() -> Result<(), Failure> {
    const COUNT: usize = 1_500;
    let keys = [("snake.stream_subjects", "[\"flux.msg.>\", \"flux.gear.>\", \"shop.>\"]")];
    let mixer = tokio::task::spawn_blocking(move || TestMixer::with(&keys, &[])).await??;
    let js = bus_of(&mixer).await?;
    for _ in 0..COUNT {
        publish(&js, 10).await?;
        js.publish("shop.x", "x".into()).await?.await?;
    }
    eventually("dead letters", 2 * SOON, || {
        (counter(&mixer, "platform_ingest_dead_letters_total ").ok()? == COUNT as u64).then_some(())
    })?;
    // The next message writes all that is remembered of the stream.
    let meta = mixer.telemetry().join("../meta");
    let size = || -> u64 {
        let files = std::fs::read_dir(&meta).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let before = size();
        publish(&js, 10).await?;
        eventually("a record", SOON, || (size() != before).then_some(()))?;
        let wrote = size().saturating_sub(before);
        if wrote > 0 && wrote < 1_500 {
            return Ok(());
        }
        assert!(tokio::time::Instant::now() < deadline, "{wrote} bytes for one message");
    }
}
