//! A bus that takes less than the Rack allows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use async_nats::jetstream::{consumer, stream};
use futures::StreamExt as _;
use model::Timestamp;
use model::control::{RackState, ScenarioPush};
use model::subject::RackCommand;
use model::telemetry_codec;
use peer::{BusServer, Desk, Peer, agent, close, entity, until};

const LETTERS: &str = "flux-msg";

fn push() -> ScenarioPush {
    let gears = serde_json::json!([{ "name": "door", "type": "http_in", "deploy": "rack-a", "config": { "listen": "127.0.0.1:0" } }]);
    let wires = serde_json::json!([{ "from": "door.out", "to": "rack-b.sink.in", "lane": "guaranteed" }]);
    ScenarioPush {
        entity_id: entity(),
        issued: Timestamp::from_micros(5),
        reference: "demo:1".to_owned(),
        hash: "h".to_owned(),
        gears: serde_json::from_value(gears).unwrap(),
        wires: serde_json::from_value(wires).unwrap(),
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

/// The status and the rest of the answer to a body of so many bytes.
async fn post(to: SocketAddr, bytes: usize) -> String {
    let exchange = move || {
        let mut stream = TcpStream::connect(to).unwrap();
        let head =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; bytes]).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_bus_does_not_take_is_refused_and_what_was_taken_before_is_a_dead_letter_with_its_head() {
    let (mut bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let desk = Desk {
        adopt: true,
        ..Desk::default()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let config = stream::Config {
        name: LETTERS.to_owned(),
        subjects: vec!["flux.msg.>".to_owned(), "flux.gear.>".to_owned()],
        allow_batch_publish: true,
        ..stream::Config::default()
    };
    peer.js.create_stream(config).await.unwrap();
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(|status| status.state == Some(RackState::Active)).await;
    peer.command(RackCommand::Scenario, &push()).await;
    let door = until("http_in listens", async || {
        let all = peer.published().await;
        let mut lines = all.iter().flat_map(|batch| &batch.messages);
        let line = lines.find_map(|line| line.strip_prefix("listening on http://"))?;
        line.split('/').next()?.parse().ok()
    })
    .await;
    assert!(post(door, 10).await.starts_with("HTTP/1.1 202"));
    bus.kill();
    assert!(
        post(door, 300_000).await.starts_with("HTTP/1.1 202"),
        "it is kept until the bus is back"
    );
    bus.restart_with("max_payload: 65536").await;
    let letter = until("the letter comes", async || {
        let stream = peer.js.get_stream(LETTERS).await.ok()?;
        let config = consumer::pull::OrderedConfig {
            filter_subject: "flux.gear.>".to_owned(),
            ..Default::default()
        };
        let mut letters = stream.create_consumer(config).await.ok()?.messages().await.ok()?;
        let next = tokio::time::timeout(std::time::Duration::from_millis(500), letters.next()).await;
        next.ok()??.ok()
    })
    .await;
    assert_eq!(letter.subject.as_str(), "flux.gear.rack-a.door");
    assert!(
        (60_000..65_536).contains(&letter.payload.len()),
        "{}",
        letter.payload.len()
    );
    let reason = letter
        .headers
        .as_ref()
        .unwrap()
        .get(telemetry_codec::DEAD_REASON)
        .unwrap()
        .as_str();
    assert!(reason.starts_with("it is too large for the bus; it has 3"), "{reason}");
    let refusal = until("the limit of the bus holds", async || {
        let answer = post(door, 100_000).await;
        (!answer.starts_with("HTTP/1.1 202")).then_some(answer)
    })
    .await;
    assert!(
        refusal.starts_with("HTTP/1.1 413") && refusal.contains("the bus"),
        "{refusal}"
    );
    close(agent).await;
}
