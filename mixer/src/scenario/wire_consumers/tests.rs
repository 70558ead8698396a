//! The consumers of wires, on a real bus server.
#![allow(clippy::unwrap_used, reason = "tests")]

use async_nats::jetstream::consumer::{PullConsumer, pull};
use futures::TryStreamExt as _;
use model::Timestamp;

use super::super::assignment;
use super::super::reconcile::{AT_ONCE, config};
use super::*;
use crate::bus_server::BusServer;
use crate::registry::{ActiveScenario, RegistryError, RegistryTransaction};
use crate::tasks::failure_channel;
use crate::testing::{bus_settings, managed};

/// The wire from rack-a to this Rack.
fn flow(to: &str) -> GuaranteedWire {
    let yaml = format!(
        "meta: {{ name: plant, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: {to} }} ]\ngears:\n  \
         - {{ name: gen, type: generator, deploy: rack-a }}\n  - {{ name: sink, type: log_sink, deploy: {to} }}\nwires:\n  \
         - {{ from: gen.out, to: sink.in }}\n"
    );
    let scenario = model::scenario::parse(&yaml, gear_spec::manifests()).unwrap();
    assignment::flows(&scenario, std::iter::empty()).remove(0)
}

/// A bus server and a registry.
async fn ground() -> (BusServer, Arc<ClusterRegistry>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = BusServer::start(bus_settings(managed(folder.path())), &failure_channel().0)
        .await
        .unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    (server, Arc::new(registry), folder)
}

async fn publish(bus: &MixerBus, count: usize) {
    for _ in 0..count {
        let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
        sent.unwrap().await.unwrap();
    }
}

async fn names(stream: &Stream) -> Vec<String> {
    corrected_infos(stream).await.unwrap().into_keys().collect()
}

/// As a push does, of a scenario with these wires.
async fn ensure(consumers: &WireConsumerManager, bus: &MixerBus, flows: &[GuaranteedWire]) {
    let active = ActiveScenario {
        reference: "plant:1".to_owned(),
        hash: "h".to_owned(),
        activated: model::Timestamp::from_micros(1),
    };
    let activate = move |change: &RegistryTransaction<'_>| change.activate(&active);
    consumers.registry.commit(activate).await.unwrap();
    consumers.ensure(bus, "h", flows, true).await.unwrap();
}

async fn look(consumers: &WireConsumerManager, bus: &MixerBus, wires: &EffectiveWires) {
    let rows = consumers.registry.wires().unwrap().into_iter();
    let left = rows.filter_map(|(name, row)| Some((name, row.left?))).collect();
    let mut made = consumers.made.lock().await;
    consumers.reconcile(bus, &mut made, wires).await.unwrap();
    assert!(consumers.renew(bus, left).await.unwrap());
}

fn only(active: &[GuaranteedWire]) -> EffectiveWires {
    EffectiveWires {
        active: Some(active.to_vec()),
        ..EffectiveWires::default()
    }
}

async fn pending(stream: &Stream, flow: &GuaranteedWire) -> u64 {
    let consumer: PullConsumer = stream.get_consumer(&flow.name).await.unwrap();
    consumer.cached_info().num_pending
}

#[tokio::test]
async fn a_reactivated_scenario_recreates_all_of_its_consumers() {
    let (server, registry, _folder) = ground().await;
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), Arc::clone(&registry));
    consumers.follow("h");
    ensure(&consumers, server.bus(), &[flow("active")]).await;
    consumers.follow("h");
    assert!(consumers.are_complete("h"));
    consumers.follow("between");
    consumers.follow("h");
    assert!(!consumers.are_complete("h"), "its wires take over again");
    server.close().await;
}

#[tokio::test]
async fn a_lost_consumer_is_recreated_only_for_a_wire_in_force() {
    let (server, registry, _folder) = ground().await;
    let bus = server.bus();
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), Arc::clone(&registry));
    let all = ["active", "refused", "gone"].map(flow);
    ensure(&consumers, bus, &all).await;
    let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
    for flow in &all {
        stream.delete_consumer(&flow.name).await.unwrap();
        publish(bus, 1).await;
    }
    let [active, refused, gone] = all;
    let wires = EffectiveWires {
        active: Some(vec![active.clone()]),
        refused: vec![refused.clone()],
        ..EffectiveWires::default()
    };
    look(&consumers, bus, &wires).await;
    let mut made = [active.name.clone(), refused.name.clone()];
    made.sort();
    assert_eq!(names(&stream).await, made);
    let is_paused = |flow: &GuaranteedWire| registry.wire(&flow.name).unwrap().unwrap().is_paused;
    assert_eq!([&active, &refused, &gone].map(is_paused), [false, false, true]);
    assert_eq!(pending(&stream, &refused).await, 3, "from where it began");
    server.close().await;
}

#[tokio::test]
async fn wires_of_racks_that_run_what_cannot_be_read_or_have_not_answered_stay() {
    let (server, registry, _folder) = ground().await;
    let bus = server.bus();
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), Arc::clone(&registry));
    let all = ["unreadable", "unsettled", "gone"].map(flow);
    ensure(&consumers, bus, &all).await;
    let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
    let mut wires = EffectiveWires {
        active: Some(Vec::new()),
        unreadable: ["unreadable".parse().unwrap()].into(),
        unsettled: [all[1].name.clone()].into(),
        ..EffectiveWires::default()
    };
    // A lost one that stays is made anew as well.
    stream.delete_consumer(&all[1].name).await.unwrap();
    look(&consumers, bus, &wires).await;
    let mut stay = [all[0].name.clone(), all[1].name.clone()];
    stay.sort();
    assert_eq!(names(&stream).await, stay);
    wires.active = None;
    wires.unsettled.clear();
    look(&consumers, bus, &wires).await;
    assert_eq!(names(&stream).await, stay, "the active scenario cannot be read");
    server.close().await;
}

#[tokio::test]
async fn a_moved_wire_takes_over_and_one_that_was_paused_goes_on_where_it_was() {
    let (server, registry, _folder) = ground().await;
    let bus = server.bus();
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), Arc::clone(&registry));
    let (before, moved) = (flow("before"), flow("moved"));
    ensure(&consumers, bus, std::slice::from_ref(&before)).await;
    let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
    publish(bus, 3).await;
    let consumer: PullConsumer = stream.get_consumer(&before.name).await.unwrap();
    // Not `fetch`, which does not wait for what the consumer has not seen yet.
    let batch = consumer.batch().max_messages(1).expires(Duration::from_secs(20));
    let mut taken = batch.messages().await.unwrap();
    taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
    let said = consumers
        .rehearse(bus, std::slice::from_ref(&moved), true)
        .await
        .unwrap();
    let said: Vec<_> = said
        .iter()
        .map(|change| serde_json::to_value(change).unwrap())
        .collect();
    let wire = |to: &str| format!("flux.msg.rack-a.gen.out -> {to}.sink.in");
    let takes_over =
        serde_json::json!({ "wire": wire("moved"), "change": "takes_over", "from": wire("before"), "waiting": 2 });
    assert_eq!(said, [takes_over]);
    for (flow, waiting) in [(&moved, 2), (&before, 2)] {
        look(&consumers, bus, &only(std::slice::from_ref(flow))).await;
        let rows = || registry.wires().unwrap().into_keys().collect::<BTreeSet<_>>();
        assert_eq!(rows().len(), 2, "the other one is known until its consumer is gone");
        assert_eq!(names(&stream).await, std::slice::from_ref(&flow.name));
        assert_eq!(pending(&stream, flow).await, waiting);
        look(&consumers, bus, &only(std::slice::from_ref(flow))).await;
        assert_eq!(rows(), [flow.name.clone()].into());
    }
    look(&consumers, bus, &only(&[])).await;
    assert!(names(&stream).await.is_empty());
    publish(bus, 2).await;
    ensure(&consumers, bus, std::slice::from_ref(&before)).await;
    assert_eq!(pending(&stream, &before).await, 4);
    server.close().await;
}

#[tokio::test]
async fn consumers_for_a_name_that_a_rack_has_left_are_made_anew_where_they_stand() {
    let (server, registry, _folder) = ground().await;
    let bus = server.bus();
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), Arc::clone(&registry));
    let (left, other) = (flow("left"), flow("other"));
    let all = only(&[left.clone(), other.clone()]);
    ensure(&consumers, bus, &[left.clone(), other.clone()]).await;
    let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
    publish(bus, 3).await;
    let taken = async |messages: usize| {
        let consumer: PullConsumer = stream.get_consumer(&left.name).await.unwrap();
        let batch = consumer.batch().max_messages(messages).expires(Duration::from_secs(20));
        let taken: Vec<_> = batch.messages().await.unwrap().try_collect().await.unwrap();
        taken
    };
    // One is acknowledged, and one is on its way to who had the name.
    taken(2).await[0].double_ack().await.unwrap();
    let created = async || {
        let infos = corrected_infos(&stream).await.unwrap();
        [&left, &other].map(|flow| infos[&flow.name].created)
    };
    let before = created().await;
    let leave = |at: i64| {
        let (rack, at) = (left.rack.clone(), Timestamp::from_micros(at));
        registry
            .change::<_, RegistryError>(move |change| change.leave_wires(&rack, at))
            .unwrap()
    };
    assert!(leave(1));
    look(&consumers, bus, &all).await;
    let after = created().await;
    assert_eq!((before[0] == after[0], before[1] == after[1]), (false, true));
    let sequences: Vec<_> = taken(2)
        .await
        .iter()
        .map(|message| message.info().unwrap().stream_sequence)
        .collect();
    assert_eq!(sequences, [2, 3], "what was not acknowledged comes again");
    let row = registry.wire(&left.name).unwrap().unwrap();
    assert_eq!((row.left, row.is_paused, row.sequence), (None, false, 2));
    look(&consumers, bus, &all).await;
    assert_eq!(created().await, after, "once");

    // Left again while the first time is worked on: that is still owed, also where another look writes the wire down.
    assert!(leave(3));
    registry
        .change(|change| change.consumer_renewed(&left.name, Timestamp::from_micros(2)))
        .unwrap();
    ensure(&consumers, bus, &[left.clone(), other.clone()]).await;
    assert_eq!(
        registry.wire(&left.name).unwrap().unwrap().left,
        Some(Timestamp::from_micros(3))
    );
    server.close().await;
}

#[tokio::test]
async fn a_consumer_with_other_limits_is_updated_and_keeps_its_ack_floor() {
    let (server, registry, _folder) = ground().await;
    let bus = server.bus();
    let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
    let flow = flow("rack-b");
    let row = WireRow {
        sequence: 1,
        filter: flow.filter.clone(),
        ..WireRow::default()
    };
    let before = pull::Config {
        max_ack_pending: 512,
        ..config(&flow.name, &row)
    };
    let mut before = stream.create_consumer(before).await.unwrap();
    for _ in 0..2 {
        let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
        sent.unwrap().await.unwrap();
    }
    let mut taken = before.fetch().max_messages(1).messages().await.unwrap();
    taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
    let consumers = WireConsumerManager::new("flux-msg".to_owned(), registry);
    ensure(&consumers, bus, &[flow]).await;
    let after = before.info().await.unwrap();
    assert_eq!(
        (after.config.max_ack_pending, after.ack_floor.stream_sequence),
        (AT_ONCE, 1)
    );
    assert_eq!(after.num_pending, 1);
    server.close().await;
}
