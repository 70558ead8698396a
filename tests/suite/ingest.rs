//! What foreign publishers send: good batches are stored once, whatever comes between them.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
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
    let mut consumer: async_nats::jetstream::consumer::PullConsumer =
        stream.get_consumer("ingest").await.map_err(|error| error.to_string())?;
    let info = consumer.info().await?;
    assert_eq!((info.num_pending, info.num_ack_pending), (0, 0));
    assert_eq!(mixer.api.get("/readyz")?.status, 200);
    Ok(())
}
