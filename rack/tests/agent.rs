//! A whole Rack against a real bus server and a minimal other side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use std::time::Duration;

use durable_fs::LockError;
use model::control::{RackState, ScenarioPush, ScenarioPushAnswer, StateChange};
use model::subject::RackCommand;
use model::{Attributes, Level, Timestamp, TraceId};
use peer::{BusServer, Desk, Peer, agent, close, entity, parts, until};
use rack::telemetry::{LogRow, SourceCheckpoint};
use rack::{AgentStatus, Error, RackAgent};

/// Its own bounds add up to two seconds; a busy machine gets more. Whoever waits for a bus or a Mixer waits longer.
const SOON: Duration = Duration::from_secs(10);

fn adopting() -> Desk {
    Desk {
        adopt: true,
        ..Desk::default()
    }
}

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

fn line(text: &str) -> LogRow {
    LogRow {
        ts: Timestamp::from_micros(1_700_000_000_000_000),
        level: Level::Info,
        message: text.to_owned(),
        attributes: Attributes::new(),
        flux_id: None,
    }
}

/// Records lines, each as a batch of its own.
async fn record(agent: &RackAgent, lines: &[&str]) {
    for text in lines {
        agent.recorder().log_durably(vec![line(text)], None).await.unwrap();
    }
}

fn push(issued: i64, hash: &str) -> ScenarioPush {
    let gears = serde_json::json!([
        { "name": "numbers", "type": "generator", "deploy": "rack-a", "config": { "rate": 50.0 } },
        { "name": "sink", "type": "log_sink", "deploy": "rack-a" },
    ]);
    let wires = serde_json::json!([{ "from": "numbers.out", "to": "sink.in" }]);
    ScenarioPush {
        entity_id: entity(),
        issued: Timestamp::from_micros(issued),
        reference: "demo:1".to_owned(),
        hash: hash.to_owned(),
        gears: serde_json::from_value(gears).unwrap(),
        wires: serde_json::from_value(wires).unwrap(),
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

fn applied(answer: &[u8]) -> ScenarioPushAnswer {
    model::signed::decode_strict(answer).unwrap()
}

#[tokio::test]
async fn a_new_rack_enrols_and_its_telemetry_arrives_under_sequences_without_gaps() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    let status = agent.wait_for(is_active).await;
    assert_eq!(status.identity, Some(("rack-a".parse().unwrap(), entity())));
    record(&agent, &["one", "two", "three"]).await;
    agent
        .recorder()
        .metric("test.value", model::MetricType::Gauge, 1.5, "1", Attributes::new());
    let all = until("a metric is published as well", async || {
        let all = peer.wait_for_lines(&["one", "two", "three"]).await;
        all.iter()
            .any(|batch| batch.subject == "flux.telemetry.metrics.rack-a")
            .then_some(all)
    })
    .await;
    let seqs: Vec<u64> = all.iter().map(|batch| batch.seq).collect();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(
        all.iter()
            .all(|batch| batch.entity == entity() && batch.epoch == all[0].epoch && batch.name == "rack-a")
    );
    assert!(close(agent).await < SOON);
}

#[tokio::test]
async fn the_floor_and_not_the_buss_acknowledgement_empties_the_spool() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    record(&agent, &["one", "two"]).await;
    let all = peer.wait_for_lines(&["one", "two"]).await;
    let last = all.iter().map(|batch| batch.seq).max().unwrap();
    let beats = peer.desk.lock().heartbeats.len();
    let waiting = until("a heartbeat after the acknowledgements", async || {
        let desk = peer.desk.lock();
        (desk.heartbeats.len() > beats + 2).then(|| desk.heartbeats.last().unwrap().waiting.clone())
    })
    .await;
    assert!(waiting[0].seq >= last, "acknowledged, not durable: {waiting:?}");
    // By command, and by heartbeat for what comes later.
    peer.send_floor(waiting[0].boot_epoch, last).await;
    peer.desk
        .lock()
        .floors
        .insert((entity(), waiting[0].boot_epoch), u64::MAX);
    until("nothing waits any more", async || {
        let desk = peer.desk.lock();
        let last = desk.heartbeats.last().unwrap();
        (last.waiting.is_empty() && last.spool_bytes == 0).then_some(())
    })
    .await;
    close(agent).await;
}

#[tokio::test]
async fn a_pending_rack_is_adopted_as_soon_as_it_is_told_of_its_approval() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, Desk::default()).await;
    let agent = agent(
        dir.path(),
        &bus.url(),
        &[("rack.heartbeat_interval", "1h"), ("base.name", "")],
    )
    .await;
    assert_eq!(
        agent.wait_for(|status| status.pending.is_some()).await.pending,
        Some(entity())
    );
    peer.desk.lock().adopt = true;
    let approval = StateChange {
        entity_id: entity(),
        issued: Timestamp::from_micros(1),
        state: RackState::Active,
    };
    peer.command(RackCommand::State, &approval).await;
    let status = agent.wait_for(is_active).await;
    assert_eq!(status.identity.unwrap().0.as_str(), "node-1");
    close(agent).await;
}

#[tokio::test]
async fn a_restarted_rack_works_on_without_bus_and_mixer_and_sends_the_earlier_run_first() {
    let (mut bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    assert_eq!(
        applied(&peer.command(RackCommand::Scenario, &push(1, "h1")).await)
            .running
            .as_deref(),
        Some("h1")
    );
    let error = applied(&peer.command(RackCommand::Scenario, &push(1, "h0")).await)
        .error
        .unwrap();
    assert!(error.contains("not after the last one"), "{error}");
    bus.kill();
    record(&first, &["before"]).await;
    assert!(close(first).await < SOON, "with the bus gone");
    let second = agent(dir.path(), &bus.url(), &[]).await;
    let status = second.wait_for(is_active).await;
    assert_eq!(status.scenario.as_deref(), Some("h1"));
    record(&second, &["after"]).await;
    bus.restart().await;
    let all = peer.wait_for_lines(&["before", "after"]).await;
    let place = |text: &str| {
        all.iter()
            .position(|batch| batch.messages.iter().any(|line| line == text))
            .unwrap()
    };
    assert!(place("before") < place("after"));
    assert!(all[place("before")].epoch < all[place("after")].epoch);
    let run = all[place("after")].epoch;
    until("the gears of the remembered scenario record too", async || {
        let all = peer.published().await;
        let of_run = all.iter().filter(|batch| batch.epoch == run && batch.rows > 0);
        (of_run.count() > 1).then_some(())
    })
    .await;
    assert!(close(second).await < SOON);
}

#[tokio::test]
async fn what_the_bus_acknowledged_and_lost_is_sent_again_under_the_same_sequences() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let mut parts = parts(dir.path(), &bus.url(), &[]);
    parts.floor_stall = Duration::from_millis(800);
    let agent = RackAgent::start(parts).await.unwrap();
    agent.wait_for(is_active).await;
    record(&agent, &["one", "two", "three"]).await;
    let before = peer.wait_for_lines(&["one", "two", "three"]).await;
    peer.lose_stream().await;
    let after = peer.wait_for_lines(&["one", "two", "three"]).await;
    for text in ["one", "two", "three"] {
        let key = |all: &[peer::Published]| {
            let batch = all.iter().find(|batch| batch.messages.iter().any(|line| line == text));
            batch.map(|batch| (batch.epoch, batch.seq)).unwrap()
        };
        assert_eq!(key(&before), key(&after));
    }
    close(agent).await;
}

#[tokio::test]
async fn what_is_on_the_mixers_disk_is_not_sent_again_while_its_floor_waits_for_the_object_store() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let mut desk = adopting();
    desk.on_disk = u64::MAX;
    let peer = Peer::start(&bus, 1, desk).await;
    let mut parts = parts(dir.path(), &bus.url(), &[]);
    parts.floor_stall = Duration::from_millis(300);
    let agent = RackAgent::start(parts).await.unwrap();
    agent.wait_for(is_active).await;
    record(&agent, &["one", "two"]).await;
    peer.wait_for_lines(&["one", "two"]).await;
    let beats = peer.desk.lock().heartbeats.len();
    let later = async |count: usize| {
        until("heartbeats", async || {
            (peer.desk.lock().heartbeats.len() > beats + count).then_some(())
        })
        .await;
    };
    // By then the sender has heard that they are stored.
    later(10).await;
    peer.lose_stream().await;
    later(20).await;
    let again = peer.published().await;
    let is_ours = |text: &String| text == "one" || text == "two";
    assert!(!again.iter().any(|batch| batch.messages.iter().any(is_ours)));
    let waiting = peer.desk.lock().heartbeats.last().unwrap().waiting.clone();
    assert!(!waiting.is_empty(), "nothing is trimmed");
    // An empty machine takes its place.
    peer.desk.lock().on_disk = 0;
    peer.wait_for_lines(&["one", "two"]).await;
    close(agent).await;
}

#[tokio::test]
async fn a_bus_killed_under_load_loses_and_doubles_nothing() {
    let (mut bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    let recorder = agent.recorder();
    let load = tokio::spawn(async move {
        for n in 0..300 {
            recorder
                .log_durably(vec![line(&format!("line {n}"))], None)
                .await
                .unwrap();
        }
    });
    for _ in 0..3 {
        peer.wait_for_lines(&["line 0"]).await;
        bus.restart().await;
    }
    load.await.unwrap();
    let lines: Vec<String> = (0..300).map(|n| format!("line {n}")).collect();
    let wanted: Vec<&str> = lines.iter().map(String::as_str).collect();
    let all = peer.wait_for_lines(&wanted).await;
    // What the bus has twice the Mixer stores once, by its sequence.
    let once: std::collections::BTreeMap<_, _> = all
        .iter()
        .map(|batch| ((batch.epoch, batch.seq), &batch.messages))
        .collect();
    assert!(
        all.iter()
            .all(|batch| once[&(batch.epoch, batch.seq)] == &batch.messages)
    );
    let mut stored: Vec<&String> = once
        .values()
        .copied()
        .flatten()
        .filter(|line| lines.contains(line))
        .collect();
    stored.sort();
    stored.dedup();
    assert_eq!(stored.len(), 300);
    assert_eq!(
        once.values()
            .copied()
            .flatten()
            .filter(|line| lines.contains(line))
            .count(),
        300
    );
    close(agent).await;
}

#[tokio::test]
async fn it_stops_within_two_seconds_in_every_state() {
    let dir = tempfile::tempdir().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let connecting = agent(dir.path(), &format!("nats://{closed}"), &[]).await;
    assert!(close(connecting).await < SOON, "connecting");

    let bus = BusServer::start().await;
    let lonely = agent(dir.path(), &bus.url(), &[]).await;
    assert!(close(lonely).await < SOON, "no Mixer");

    let desk = Desk {
        silent: true,
        ..Desk::default()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let enrolling = agent(dir.path(), &bus.url(), &[("rack.enrollment_timeout", "1m")]).await;
    let mut hellos = peer.client.subscribe(model::subject::HELLO).await.unwrap();
    futures::StreamExt::next(&mut hellos).await.unwrap();
    assert!(close(enrolling).await < SOON, "enrolling");

    peer.desk.lock().silent = false;
    let pending = agent(dir.path(), &bus.url(), &[]).await;
    pending.wait_for(|status| status.pending.is_some()).await;
    let recorder = pending.recorder();
    let waiting = tokio::spawn(async move { recorder.log_durably(vec![line("x")], None).await });
    assert!(close(pending).await < SOON, "pending");
    assert!(
        waiting.await.unwrap().is_err(),
        "nothing is durable without an identity"
    );

    peer.desk.lock().adopt = true;
    let running = agent(dir.path(), &bus.url(), &[]).await;
    running.wait_for(is_active).await;
    assert_eq!(
        applied(&peer.command(RackCommand::Scenario, &push(1, "h1")).await).error,
        None
    );
    assert!(close(running).await < SOON, "running");
}

#[tokio::test]
async fn rows_recorded_just_before_the_stop_are_sent_by_the_next_run() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    first.recorder().log_data(line("last words"));
    let checkpoint = SourceCheckpoint {
        key: "tail".to_owned(),
        value: b"17".to_vec(),
    };
    first
        .recorder()
        .log_durably(vec![line("durable")], Some(checkpoint))
        .await
        .unwrap();
    close(first).await;
    let second = agent(dir.path(), &bus.url(), &[]).await;
    assert_eq!(second.recorder().checkpoint("tail"), Some(b"17".to_vec()));
    peer.wait_for_lines(&["last words", "durable"]).await;
    close(second).await;
}

#[tokio::test]
async fn a_rack_of_one_cluster_does_not_follow_the_mixer_of_another() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let ours = Peer::start(&bus, 1, adopting()).await;
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    close(first).await;
    drop(ours);
    let state = std::fs::read(dir.path().join("rack.flux")).unwrap();
    let other = Peer::start(&bus, 2, adopting()).await;
    let second = agent(dir.path(), &bus.url(), &[]).await;
    let mut hellos = other.client.subscribe(model::subject::HELLO).await.unwrap();
    futures::StreamExt::next(&mut hellos).await.unwrap();
    let forged = push(9, "forged");
    let body = model::SignedPayload::new(&forged, model::SigningContext::Command, &other.key)
        .unwrap()
        .to_bytes()
        .unwrap();
    let subject = model::subject::rack(&entity(), RackCommand::Scenario);
    let request = async_nats::Request::new()
        .payload(body.into())
        .timeout(Some(Duration::from_millis(300)));
    assert!(
        other.client.send_request(subject, request).await.is_err(),
        "a forged scenario is not answered"
    );
    assert!(
        other.desk.lock().transcripts.is_empty(),
        "nothing is signed for another cluster"
    );
    assert_eq!(second.status().scenario, None);
    close(second).await;
    assert_eq!(std::fs::read(dir.path().join("rack.flux")).unwrap(), state);
}

#[tokio::test]
async fn with_telemetry_off_no_row_is_recorded_or_sent_no_trace_is_sampled_and_sources_remember_where_they_are() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[("observability.enabled", "false")]).await;
    agent.wait_for(is_active).await;
    let checkpoint = SourceCheckpoint {
        key: "tail".to_owned(),
        value: b"1".to_vec(),
    };
    agent
        .recorder()
        .log_durably(vec![line("x")], Some(checkpoint))
        .await
        .unwrap();
    assert_eq!(agent.recorder().checkpoint("tail"), Some(b"1".to_vec()));
    assert!(!agent.recorder().sample(&TraceId::from_entropy([7; 16])));
    close(agent).await;
    assert!(peer.published().await.is_empty());
}

#[tokio::test]
async fn a_second_rack_on_the_same_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = agent(dir.path(), "nats://127.0.0.1:1", &[]).await;
    let error = RackAgent::start(parts(dir.path(), "nats://127.0.0.1:1", &[]))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lock(LockError::Held { .. })), "{error}");
    close(first).await;
}

#[tokio::test]
async fn a_gear_that_talks_too_much_is_throttled_and_its_data_is_not() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    let gear = agent.recorder().for_gear(&"chatty".parse().unwrap(), "generator");
    for _ in 0..1_000 {
        gear.log(Level::Info, "chatter", Attributes::new(), None);
    }
    for _ in 0..1_000 {
        gear.log_data(line("data"));
    }
    gear.log_data(line("last"));
    let all = peer.wait_for_lines(&["last"]).await;
    let count = |text: &str| {
        all.iter()
            .flat_map(|batch| &batch.messages)
            .filter(|line| *line == text)
            .count()
    };
    assert!((50..500).contains(&count("chatter")), "{}", count("chatter"));
    assert_eq!(count("data"), 1_000);
    close(agent).await;
}

#[tokio::test]
async fn a_batch_larger_than_the_bus_takes_is_replaced_by_a_record_that_says_so() {
    let (bus, dir) = (
        BusServer::with("max_payload: 65536").await,
        tempfile::tempdir().unwrap(),
    );
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    record(&agent, &["small", &"x".repeat(100_000), "next"]).await;
    let all = peer.wait_for_lines(&["small", "next"]).await;
    let mut seqs: Vec<u64> = all.iter().map(|batch| batch.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(
        all.iter()
            .flat_map(|batch| &batch.messages)
            .any(|line| line.contains("dropped a batch"))
    );
    close(agent).await;
}
