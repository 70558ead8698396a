//! What the Mixer orders a Rack to be and to run, and when the Rack does so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use model::Timestamp;
use model::control::{RackState, RefusalCode, ScenarioPush, ScenarioPushAnswer, StateChange};
use model::subject::RackCommand;
use peer::{BusServer, Desk, Peer, agent, close, entity, until};
use rack::AgentStatus;

fn adopting() -> Desk {
    Desk {
        adopt: true,
        ..Desk::default()
    }
}

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

/// A scenario of one gear that listens there.
fn door(issued: i64, hash: &str, listen: SocketAddr) -> ScenarioPush {
    let gears = serde_json::json!([
        { "name": "door", "type": "http_in", "deploy": "rack-a", "config": { "listen": listen.to_string() } },
    ]);
    ScenarioPush {
        entity_id: entity(),
        issued: Timestamp::from_micros(issued),
        reference: "demo:1".to_owned(),
        hash: hash.to_owned(),
        gears: serde_json::from_value(gears).unwrap(),
        wires: Vec::new(),
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

/// An address where nobody listens, another one each time: outside of the range from which the system gives ports to who asks for any.
fn free() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let offset = std::process::id() * 97;
    let ports = std::iter::repeat_with(|| 10_000 + (offset + ASKED.fetch_add(1, Relaxed)) % 10_000);
    let addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap())));
    let is_free = |at: &SocketAddr| TcpListener::bind(at).is_ok();
    addresses.take(10_000).find(is_free).unwrap()
}

fn is_open(at: SocketAddr) -> bool {
    TcpStream::connect(at).is_ok()
}

async fn opens(at: SocketAddr) {
    until("the gear listens", async || is_open(at).then_some(())).await;
}

async fn pushed(peer: &Peer, push: &ScenarioPush) -> (Option<String>, Option<String>) {
    let answer = peer.command(RackCommand::Scenario, push).await;
    let ScenarioPushAnswer { running, error } = model::signed::decode_strict(&answer).unwrap();
    (running, error)
}

fn state(issued: i64, state: RackState) -> StateChange {
    StateChange {
        entity_id: entity(),
        issued: Timestamp::from_micros(issued),
        state,
    }
}

#[tokio::test]
async fn a_scenario_that_comes_before_gears_may_run_is_tried_then_and_leaves_the_last_good_one_if_it_cannot() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let good = free();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    assert_eq!(
        pushed(&peer, &door(1, "good", good)).await,
        (Some("good".to_owned()), None)
    );
    close(first).await;
    assert!(!is_open(good));

    let flags = [("snake.convergence_delay", "1s")];
    let second = agent(dir.path(), &bus.url(), &flags).await;
    second.wait_for(is_active).await;
    let (running, error) = pushed(&peer, &door(2, "bad", taken.local_addr().unwrap())).await;
    assert_eq!(running.as_deref(), Some("good"));
    assert!(error.unwrap().contains("another program or gear has this port"));
    assert_eq!(second.status().scenario.as_deref(), Some("good"));
    opens(good).await;
    until("a heartbeat says why", async || {
        let desk = peer.desk.lock();
        let last = desk.heartbeats.last()?;
        (last.scenario.as_deref() == Some("good") && last.scenario_error.is_some()).then_some(())
    })
    .await;
    close(second).await;

    let third = agent(dir.path(), &bus.url(), &flags).await;
    let status = third.wait_for(is_active).await;
    assert_eq!(status.scenario.as_deref(), Some("good"), "it is what is remembered");
    // One that can run does, in place of it.
    let next = free();
    assert_eq!(
        pushed(&peer, &door(3, "next", next)).await,
        (Some("next".to_owned()), None)
    );
    opens(next).await;
    assert!(!is_open(good));
    close(third).await;
}

#[tokio::test]
async fn a_scenario_that_comes_to_a_suspended_rack_is_tried_when_it_is_resumed() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[("rack.heartbeat_interval", "1h")]).await;
    agent.wait_for(is_active).await;
    let (good, next) = (free(), free());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    pushed(&peer, &door(1, "good", good)).await;
    opens(good).await;
    peer.command(RackCommand::State, &state(1, RackState::Suspended)).await;
    assert!(!is_open(good));
    let (bad, last) = (door(2, "bad", taken.local_addr().unwrap()), door(3, "next", next));
    // The later one takes the place of the one before it, and is answered when the Rack is resumed.
    let resume = state(2, RackState::Active);
    let resumed = peer.command(RackCommand::State, &resume);
    let ((bad, error), last, _) = tokio::join!(pushed(&peer, &bad), pushed(&peer, &last), resumed);
    assert_eq!(bad.as_deref(), Some("good"));
    assert!(error.unwrap().contains("a later push"));
    assert_eq!(last, (Some("next".to_owned()), None));
    opens(next).await;
    assert!(!is_open(good));
    close(agent).await;
}

#[tokio::test]
async fn suspended_and_removed_racks_run_no_gears_and_active_ones_do_again() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    let at = free();
    pushed(&peer, &door(1, "h1", at)).await;
    opens(at).await;
    peer.desk.lock().state = Some(RackState::Suspended);
    agent
        .wait_for(|status| status.state == Some(RackState::Suspended))
        .await;
    assert!(!is_open(at), "it is suspended");
    peer.desk.lock().state = Some(RackState::Active);
    agent.wait_for(is_active).await;
    opens(at).await;
    peer.desk.lock().refuse = Some(RefusalCode::Removed);
    agent.wait_for(|status| status.state == Some(RackState::Removed)).await;
    assert!(!is_open(at), "it is removed");
    close(agent).await;
}

#[tokio::test]
async fn a_rack_that_was_removed_before_it_was_adopted_goes_on_asking_however_often_it_is_refused() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, Desk::default()).await;
    let agent = agent(dir.path(), &bus.url(), &[("rack.heartbeat_interval", "1h")]).await;
    agent.wait_for(|status| status.pending.is_some()).await;
    peer.desk.lock().refuse = Some(RefusalCode::Removed);
    // It asks again as soon as there is news.
    let asks = async |number: i64| {
        let before = peer.desk.lock().transcripts.len();
        peer.command(RackCommand::State, &state(number, RackState::Active))
            .await;
        until("it asks again", async || {
            (peer.desk.lock().transcripts.len() > before).then_some(())
        })
        .await;
    };
    for number in 1..=20 {
        asks(number).await;
    }
    {
        let mut desk = peer.desk.lock();
        desk.refuse = None;
        desk.adopt = true;
    }
    asks(21).await;
    agent.wait_for(is_active).await;
    close(agent).await;
}
