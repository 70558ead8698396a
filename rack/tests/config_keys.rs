//! Keys of `platform.toml` that the agent obeys: changing one changes what a Rack does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt as _;
use model::control::{EnrollTranscript, NameClaim, RackState, ScenarioPush};
use model::subject::{self, RackCommand};
use model::{Attributes, Level, Timestamp, TraceId};
use peer::{BusServer, Desk, Peer, TOKEN, agent, close, entity, until};
use rack::telemetry::LogRow;
use rack::{AgentStatus, RackAgent};

fn adopting() -> Desk {
    Desk {
        adopt: true,
        ..Desk::default()
    }
}

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

/// What a Rack with these keys says of itself when it enrols.
async fn transcript(more: &[(&str, &str)]) -> EnrollTranscript {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), more).await;
    agent.wait_for(is_active).await;
    close(agent).await;
    peer.desk.lock().transcripts[0].clone()
}

#[tokio::test]
async fn base_name_rack_name_prefix_and_rack_ip_are_what_the_rack_says_of_itself() {
    let plain = transcript(&[]).await;
    assert_eq!(plain.claim, NameClaim::Name("rack-a".parse().unwrap()));
    assert!(
        plain
            .ip
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| !ip.is_unspecified()),
        "{}",
        plain.ip
    );
    let named = transcript(&[("base.name", "other"), ("rack.ip", "192.0.2.7")]).await;
    assert_eq!(named.claim, NameClaim::Name("other".parse().unwrap()));
    assert_eq!(named.ip, "192.0.2.7");
    let prefixed = transcript(&[("base.name", ""), ("rack.name_prefix", "edge-")]).await;
    assert_eq!(prefixed.claim, NameClaim::Prefix("edge-".parse().unwrap()));
}

#[tokio::test]
async fn base_state_file_and_state_dir_are_where_identity_and_spool_lie() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), "nats://127.0.0.1:1", &[("base.state_file", "me.flux")]).await;
    close(agent).await;
    assert!(dir.path().join("me.flux").is_file() && !dir.path().join("rack.flux").exists());
    assert!(dir.path().join("spool").is_dir());
}

#[tokio::test]
async fn rack_heartbeat_interval_is_how_often_a_heartbeat_comes() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let start = std::time::Instant::now();
    let agent = agent(dir.path(), &bus.url(), &[("rack.heartbeat_interval", "2s")]).await;
    until("a third heartbeat", async || {
        (peer.desk.lock().heartbeats.len() >= 3).then_some(())
    })
    .await;
    assert!(start.elapsed() > Duration::from_millis(3_900), "{:?}", start.elapsed());
    assert_eq!(peer.desk.lock().heartbeats[0].interval_ms, 2_000);
    close(agent).await;
}

#[tokio::test]
async fn rack_enrollment_timeout_ends_a_handshake_that_is_not_answered() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let desk = Desk {
        silent: true,
        ..Desk::default()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let mut hellos = peer.client.subscribe(subject::HELLO).await.unwrap();
    let patient = agent(dir.path(), &bus.url(), &[("rack.enrollment_timeout", "1h")]).await;
    hellos.next().await.unwrap();
    let again = tokio::time::timeout(Duration::from_secs(2), hellos.next()).await;
    assert!(again.is_err(), "one handshake may take an hour");
    close(patient).await;
    let quick = agent(dir.path(), &bus.url(), &[("rack.enrollment_timeout", "50ms")]).await;
    hellos.next().await.unwrap();
    tokio::time::timeout(peer::PATIENCE, hellos.next())
        .await
        .unwrap()
        .unwrap();
    close(quick).await;
}

#[tokio::test]
async fn snake_token_is_shown_to_the_bus() {
    let bus = BusServer::with("authorization { token: not-a-secret-in-a-test }").await;
    let peer = Peer::start(&bus, 1, adopting()).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path(), &bus.url(), &[("PLATFORM_SNAKE_TOKEN", TOKEN)]).await;
    agent.wait_for(is_active).await;
    close(agent).await;
    drop(peer);
}

#[tokio::test]
async fn a_bus_on_another_machine_is_believed_only_with_tls_an_invite_or_snake_allow_insecure() {
    // An address of documentation: nobody is there.
    let elsewhere = "nats://192.0.2.1:4222";
    let start = async |url: &str, more: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        match RackAgent::start(peer::parts(dir.path(), url, more)).await {
            Ok(agent) => {
                close(agent).await;
                Ok(())
            }
            Err(error) => Err((error.exit().code(), error.to_string())),
        }
    };
    for url in [elsewhere.to_owned(), format!("nats://127.0.0.1:4222,{elsewhere}")] {
        let (code, said) = start(&url, &[]).await.unwrap_err();
        assert!(
            code == 78 && said.contains("platform join") && said.contains("192.0.2.1"),
            "{said}"
        );
    }
    start(elsewhere, &[("snake.allow_insecure", "true")]).await.unwrap();
    start("tls://192.0.2.1:4222", &[]).await.unwrap();
    for here in ["nats://localhost:1", "nats://[::1]:1"] {
        start(here, &[]).await.unwrap();
    }
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn snake_domain_of_another_cluster_is_told_as_a_mismatch_and_nothing_is_sent_there() {
    // Another test of this process may have set it; then that one writes here.
    let _ = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(|| Log)
        .try_init();
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[("snake.domain", "elsewhere")]).await;
    until("the mismatch is told", async || {
        let log = String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned();
        (log.contains("domain mismatch") && log.contains("elsewhere") && log.contains("flux")).then_some(())
    })
    .await;
    assert!(peer.desk.lock().transcripts.is_empty());
    close(agent).await;
}

#[tokio::test]
async fn snake_convergence_delay_holds_gears_back() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let gears = serde_json::json!([
        { "name": "numbers", "type": "generator", "deploy": "rack-a", "config": { "rate": 100.0 } },
    ]);
    let push = ScenarioPush {
        entity_id: entity(),
        issued: Timestamp::from_micros(1),
        reference: "demo:1".to_owned(),
        hash: "h".to_owned(),
        gears: serde_json::from_value(gears).unwrap(),
        wires: Vec::new(),
        inlets: Vec::new(),
        credits: Vec::new(),
    };
    let spans = async |published: &[peer::Published]| {
        published
            .iter()
            .filter(|batch| batch.subject.starts_with("flux.telemetry.traces"))
            .count()
    };
    let held = agent(dir.path(), &bus.url(), &[("snake.convergence_delay", "1h")]).await;
    held.wait_for(is_active).await;
    let ten_beats = async {
        record(&held, "while gears wait").await.unwrap();
        let beats = peer.desk.lock().heartbeats.len();
        until("ten heartbeats later", async || {
            (peer.desk.lock().heartbeats.len() > beats + 10).then_some(())
        })
        .await;
    };
    tokio::select! {
        answer = peer.command(RackCommand::Scenario, &push) => panic!("answered, and its gears were not tried: {answer:?}"),
        () = ten_beats => {}
    }
    assert_eq!(spans(&peer.wait_for_lines(&["while gears wait"]).await).await, 0);
    close(held).await;
    let soon = agent(dir.path(), &bus.url(), &[("snake.convergence_delay", "1ms")]).await;
    peer.command(RackCommand::Scenario, &push).await;
    until("the gear's spans are published", async || {
        (spans(&peer.published().await).await > 0).then_some(())
    })
    .await;
    close(soon).await;
}

async fn record(agent: &RackAgent, text: &str) -> Result<(), rack::telemetry::RecordingError> {
    let row = LogRow {
        ts: Timestamp::from_micros(1_700_000_000_000_000),
        level: Level::Info,
        message: text.to_owned(),
        attributes: Attributes::new(),
        flux_id: None,
    };
    agent.recorder().log_durably(vec![row], None).await
}

fn size(dir: &Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn spool_max_size_mb_is_kept_and_spool_policy_says_how() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let small = [("spool.max_size_mb", "1")];
    let dropping = agent(dir.path(), &bus.url(), &small).await;
    dropping.wait_for(is_active).await;
    let line = "x".repeat(100_000);
    for _ in 0..40 {
        record(&dropping, &line).await.unwrap();
        assert!(size(&dir.path().join("spool")) < (1 << 20) + 1024);
    }
    close(dropping).await;
    let blocking = agent(dir.path(), &bus.url(), &[small[0], ("spool.policy", "block")]).await;
    let mut waited = false;
    for _ in 0..40 {
        waited |= tokio::time::timeout(Duration::from_millis(500), record(&blocking, &line))
            .await
            .is_err();
        if waited {
            break;
        }
    }
    assert!(waited && size(&dir.path().join("spool")) < (1 << 20) + 1024);
    close(blocking).await;
    drop(peer);
}

#[tokio::test]
async fn observability_sampling_rate_is_the_share_of_traces() {
    for (rate, least, most) in [("0.0", 0, 0), ("0.25", 150, 350), ("1.0", 1_000, 1_000)] {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent(
            dir.path(),
            "nats://127.0.0.1:1",
            &[("observability.sampling_rate", rate)],
        )
        .await;
        let recorder = agent.recorder();
        let mut bytes = [0; 16];
        let sampled = (0..1_000).filter(|_| {
            getrandom::fill(&mut bytes).unwrap();
            recorder.sample(&TraceId::from_entropy(bytes))
        });
        let sampled = sampled.count();
        assert!((least..=most).contains(&sampled), "{rate}: {sampled}");
        close(agent).await;
    }
}

#[tokio::test]
async fn observability_sampling_rate_of_the_mixer_narrows_that_of_the_rack() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let limits = model::control::RackLimits {
        max_hops: 64,
        max_payload_size: 2 << 20,
        sampling_rate: 0.0,
    };
    let desk = Desk {
        limits: Some(limits),
        ..adopting()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    let recorder = agent.recorder();
    let trace = TraceId::from_entropy([7; 16]);
    assert!(recorder.sample(&trace), "before the Mixer has said anything");
    until("the Mixer's word is obeyed", async || {
        (!recorder.sample(&trace)).then_some(())
    })
    .await;
    close(agent).await;
    drop(peer);
}
