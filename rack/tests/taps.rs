//! Taps at a real Rack on a real bus: when they begin, and when they end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use futures::StreamExt as _;
use model::control::{RackState, ScenarioPush};
use model::subject::{self, RackCommand};
use model::tap::{TapAnswer, TapBatch, TapLease, TapRequest};
use model::{Timestamp, Token};
use peer::{BusServer, Desk, Peer, agent, close, entity, until};
use rack::AgentStatus;

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

/// A generator and a sink.
fn numbers() -> ScenarioPush {
    let gears = serde_json::json!([
        { "name": "numbers", "type": "generator", "deploy": "rack-a", "config": { "rate": 200 } },
        { "name": "sink", "type": "log_sink", "deploy": "rack-a" },
    ]);
    let wires = serde_json::json!([{ "from": "numbers.out", "to": "sink.in", "lane": "hot" }]);
    ScenarioPush {
        entity_id: entity(),
        issued: Timestamp::from_micros(1),
        reference: "demo:1".to_owned(),
        hash: "h".to_owned(),
        gears: serde_json::from_value(gears).unwrap(),
        wires: serde_json::from_value(wires).unwrap(),
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

fn lease(session: &str, issued: i64, request: TapRequest) -> TapLease {
    TapLease {
        entity_id: entity(),
        issued: Timestamp::from_micros(issued),
        session: session.parse().unwrap(),
        gear: "numbers".parse().unwrap(),
        port: "out".parse().unwrap(),
        request,
    }
}

async fn answer(peer: &Peer, lease: &TapLease) -> TapAnswer {
    let bytes = peer.command(RackCommand::Tap, lease).await;
    model::signed::decode_strict(&bytes).unwrap()
}

#[tokio::test]
async fn a_lease_that_was_heard_before_begins_no_tap_and_taps_that_nobody_renews_make_room() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let desk = Desk {
        adopt: true,
        ..Desk::default()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    peer.command(RackCommand::Scenario, &numbers()).await;

    let session: Token = "one".parse().unwrap();
    let mut samples = peer.client.subscribe(subject::tap(&entity(), &session)).await.unwrap();
    peer.client.flush().await.unwrap();
    let first = lease("one", 10, TapRequest::Begin);
    until("the gear runs", async || {
        (answer(&peer, &first).await == TapAnswer::Done).then_some(())
    })
    .await;
    let mut last = 0;
    while last < 50 {
        let batch = samples.next().await.unwrap();
        let batch: TapBatch = model::signed::decode_strict(&batch.payload).unwrap();
        for sample in batch.samples {
            assert!(sample.number > last, "{sample:?}");
            last = sample.number;
        }
        assert!(batch.passed >= last);
    }
    assert_eq!(answer(&peer, &first).await, TapAnswer::Late, "heard before");
    assert_eq!(
        answer(&peer, &lease("one", 11, TapRequest::Renew)).await,
        TapAnswer::Done,
        "renewed"
    );
    assert_eq!(answer(&peer, &lease("one", 12, TapRequest::End)).await, TapAnswer::Done);
    assert_eq!(
        answer(&peer, &first).await,
        TapAnswer::Late,
        "of a session that has ended"
    );
    assert_eq!(
        answer(&peer, &lease("two", 12, TapRequest::Begin)).await,
        TapAnswer::Late
    );
    let renewed = lease("one", 13, TapRequest::Renew);
    assert_eq!(answer(&peer, &renewed).await, TapAnswer::Ended, "nothing is begun anew");

    for number in 0..8 {
        let next = lease(&format!("many-{number}"), 20 + number, TapRequest::Begin);
        assert_eq!(answer(&peer, &next).await, TapAnswer::Done);
    }
    let mut issued = 30;
    let one_more = lease("more", issued, TapRequest::Begin);
    assert_eq!(answer(&peer, &one_more).await, TapAnswer::TooMany(8));
    until("leases run out", async || {
        issued += 1;
        (answer(&peer, &lease("more", issued, TapRequest::Begin)).await == TapAnswer::Done).then_some(())
    })
    .await;
    close(agent).await;
}

#[tokio::test]
async fn a_tap_is_not_renewed_when_its_gear_was_away_or_its_rack_has_restarted() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let desk = Desk {
        adopt: true,
        ..Desk::default()
    };
    let peer = Peer::start(&bus, 1, desk).await;
    let running = agent(dir.path(), &bus.url(), &[]).await;
    running.wait_for(is_active).await;
    peer.command(RackCommand::Scenario, &numbers()).await;
    let begun = async |session: &str, issued: i64| {
        let first = lease(session, issued, TapRequest::Begin);
        until("the gear runs", async || {
            (answer(&peer, &first).await == TapAnswer::Done).then_some(())
        })
        .await;
    };
    begun("one", 10).await;
    let nothing = ScenarioPush {
        issued: Timestamp::from_micros(2),
        hash: "other".to_owned(),
        gears: Vec::new(),
        wires: Vec::new(),
        ..numbers()
    };
    peer.command(RackCommand::Scenario, &nothing).await;
    let again = ScenarioPush {
        issued: Timestamp::from_micros(3),
        ..numbers()
    };
    peer.command(RackCommand::Scenario, &again).await;
    let renewed = lease("one", 11, TapRequest::Renew);
    assert_eq!(answer(&peer, &renewed).await, TapAnswer::Ended, "the gear was away");

    begun("two", 20).await;
    close(running).await;
    let running = agent(dir.path(), &bus.url(), &[]).await;
    running.wait_for(is_active).await;
    let renewed = lease("two", 21, TapRequest::Renew);
    assert_eq!(answer(&peer, &renewed).await, TapAnswer::Ended, "the Rack restarted");
    close(running).await;
}
