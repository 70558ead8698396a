//! An admitted Rack that means harm: it has the server answer on subjects where it may not publish itself.
//!
//! What the server answers (an acknowledgement, what a stream is like, a message that was pulled) goes to the subject that a request names.
//! Each case here changed a stream, a consumer or what lies under another's name where all were in one account.

use async_nats::jetstream::{consumer, stream};

use super::bus_modes::{BusMode, in_every_mode};
use super::credentials::{ADOPTS, Guest, Member, member};
use super::*;
use crate::bus_server::MixerBus;

/// Two wires between the Racks, one each way: each has a consumer.
const WIRES: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: there, type: generator, deploy: rack-a, config: { rate: 1 } }
  - { name: arrived, type: log_sink, deploy: rack-b }
  - { name: back, type: generator, deploy: rack-b, config: { rate: 1 } }
  - { name: home, type: log_sink, deploy: rack-a }
wires:
  - { from: there.out, to: arrived.in, lane: guaranteed }
  - { from: back.out, to: home.in, lane: guaranteed }
";

/// Messages stored for each of the two.
const STORED: u64 = 40;

/// What is stored, as the Mixer sees it.
struct Ground<'a> {
    bus: &'a MixerBus,
    /// The consumers of rack-a and of rack-b.
    consumers: [String; 2],
}

/// What no attack may change.
#[derive(Debug, PartialEq)]
struct State {
    streams: Vec<(stream::Config, u64)>,
    consumers: usize,
    of_b: (consumer::Config, u64, usize),
    under_bs_name: u64,
}

impl<'a> Ground<'a> {
    async fn of(mixer: &'a Mixer) -> Self {
        let bus = &mixer.control().bus;
        let consumers = [
            consumer_of(bus, "flux.msg.rack-b.").await.name,
            consumer_of(bus, "flux.msg.rack-a.").await.name,
        ];
        Self { bus, consumers }
    }

    /// Messages that each of the two may pull. Those for rack-a are orders to the server as well.
    async fn store(&self) {
        let js = self.bus.jetstream();
        let mut changed = js.get_stream("flux-msg").await.unwrap().cached_info().config.clone();
        changed.max_messages = 1;
        let order = serde_json::to_vec(&changed).unwrap();
        for _ in 0..STORED {
            for (subject, body) in [
                ("flux.msg.rack-b.back.out", order.clone()),
                ("flux.msg.rack-a.there.out", b"x".to_vec()),
                ("flux.telemetry.logs.rack-a", b"x".to_vec()),
            ] {
                js.publish(subject, body.into()).await.unwrap().await.unwrap();
            }
        }
    }

    async fn state(&self) -> State {
        let js = self.bus.jetstream();
        let mut streams = Vec::new();
        for name in ["flux-msg", "flux-telemetry", "flux-events"] {
            let stream = js.get_stream(name).await.unwrap();
            let info = stream.cached_info();
            streams.push((info.config.clone(), info.state.first_sequence));
        }
        let messages = js.get_stream("flux-msg").await.unwrap();
        let of_b = messages.consumer_info(&self.consumers[1]).await.unwrap();
        let mut under_bs_name = 0;
        for subject in ["flux.msg.rack-b.>", "flux.gear.rack-b.>"] {
            under_bs_name += count(&messages, subject).await;
        }
        let telemetry = js.get_stream("flux-telemetry").await.unwrap();
        under_bs_name += count(&telemetry, "flux.telemetry.*.rack-b").await;
        State {
            streams,
            consumers: messages.cached_info().state.consumer_count,
            of_b: (of_b.config, of_b.ack_floor.stream_sequence, of_b.num_ack_pending),
            under_bs_name,
        }
    }
}

/// The consumer of the wire whose messages have subjects that begin like this.
pub(super) async fn consumer_of(bus: &MixerBus, subject: &str) -> consumer::Info {
    eventually("the consumer of a wire", || async {
        let stream = bus.jetstream().get_stream("flux-msg").await.ok()?;
        let infos: Vec<consumer::Info> = stream
            .consumers()
            .filter_map(|info| async { info.ok() })
            .collect()
            .await;
        infos.into_iter().find(|info| {
            let config = &info.config;
            let mut filters = config.filter_subjects.iter().chain([&config.filter_subject]);
            filters.any(|filter| filter.starts_with(subject))
        })
    })
    .await
}

async fn count(stream: &stream::Stream, subject: &str) -> u64 {
    let info = stream.info_with_subjects(subject).await.unwrap();
    let counts: Vec<u64> = info.map(|found| found.unwrap().1 as u64).collect().await;
    counts.iter().sum()
}

/// Where one asks for the next messages of a consumer.
pub(super) fn pull_subject(consumer: &str) -> String {
    format!("$JS.flux.API.CONSUMER.MSG.NEXT.flux-msg.{consumer}")
}

/// Pulls messages; where they are acknowledged.
pub(super) async fn pull(guest: &Guest, key: &str, consumer: &str, batch: usize) -> Vec<String> {
    let inbox = format!("{}.pulled", subject::inbox(key));
    let mut pulled = guest.client.subscribe(inbox.clone()).await.unwrap();
    let body =
        serde_json::json!({ "batch": batch, "expires": 20_000_000_000_u64, "idle_heartbeat": 5_000_000_000_u64 });
    let asked = guest
        .client
        .publish_with_reply(pull_subject(consumer), inbox, body.to_string().into());
    asked.await.unwrap();
    let mut places = Vec::new();
    while places.len() < batch {
        let message = tokio::time::timeout(Duration::from_secs(20), pulled.next()).await;
        let message = message.expect("nothing comes").unwrap();
        places.extend(
            message
                .reply
                .filter(|reply| reply.starts_with("$JS.ACK."))
                .map(|reply| reply.to_string()),
        );
    }
    places
}

/// Every request to which the server or the Mixer answers, with a body that makes it do so.
async fn requests(a: &Member, consumer: &str) -> Vec<(String, Vec<u8>)> {
    let places = pull(&a.guest, &a.key.public_key(), consumer, 2).await;
    let hello = HelloRequest {
        protocol: PROTOCOL,
        rack_key: a.rack.key.verifying_key().as_bytes().to_vec(),
        nonce: vec![1; 32],
        reply_key: None,
    };
    let beat = FakeRack::beat(a.passport.entity_id, None);
    let beat = SignedPayload::new(&beat, SigningContext::Heartbeat, &a.rack.key).unwrap();
    let api = |call: &str| format!("$JS.flux.API.{call}");
    let text = |subject: &str, body: &str| (subject.to_owned(), body.as_bytes().to_vec());
    vec![
        text("flux.msg.rack-a.there.out", "x"),
        text("flux.gear.rack-a.there", "x"),
        text("flux.telemetry.logs.rack-a", "x"),
        text(&api("INFO"), ""),
        text("$JS.API.INFO", ""),
        text(&api("STREAM.INFO.flux-msg"), ""),
        text(&api(&format!("CONSUMER.INFO.flux-msg.{consumer}")), ""),
        // A message; a status and nothing more; what is no pull.
        text(&pull_subject(consumer), r#"{"batch":1,"expires":100000000}"#),
        text(
            &pull_subject(consumer),
            r#"{"batch":1,"expires":1000000,"idle_heartbeat":900000}"#,
        ),
        text(&pull_subject(consumer), r#"{"batch":-1"#),
        text(&places[0], "+ACK"),
        text(&places[1], "+NXT"),
        (subject::HELLO.to_owned(), signed::encode(&hello).unwrap()),
        text(subject::ENROLL, "x"),
        (subject::HEARTBEAT.to_owned(), beat.to_bytes().unwrap()),
        text(&format!("{}.1", subject::answers(&a.passport.entity_id)), "x"),
    ]
}

in_every_mode!(
    an_admitted_rack_cannot_change_streams_or_consumers_or_impersonate_another,
    racks_cannot_acknowledge_for_others_or_impersonate_the_server,
);

async fn an_admitted_rack_cannot_change_streams_or_consumers_or_impersonate_another(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), WIRES);
    let flags = [ADOPTS, ("mixer.startup_scenario", scenario.as_str())];
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&flags).await;
    let (a, b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    let stored = Ground::of(&mixer).await;
    stored.store().await;
    let [of_a, of_b] = &stored.consumers;
    let b_key = b.key.public_key();
    let (b_inbox, b_commands) = (subject::inbox(&b_key), subject::rack_all(&b.passport.entity_id));
    let mut heard = vec![b.guest.client.subscribe(format!("{b_inbox}.of_b.>")).await.unwrap()];
    heard.push(b.guest.client.subscribe(b_commands).await.unwrap());
    let answers = mixer
        .control()
        .bus
        .client()
        .subscribe(format!("{}.>", subject::answers(&b.passport.entity_id)));
    heard.push(answers.await.unwrap());
    let of_the_mixer = mixer.control().bus.client().subscribe("_INBOX.of.the.mixer");
    heard.push(of_the_mixer.await.unwrap());
    // It has one that it did not acknowledge.
    pull(&b.guest, &b_key, of_b, 1).await;
    let before = stored.state().await;
    assert_eq!(before.of_b.2, 1);
    assert_eq!(before.under_bs_name, STORED);

    let targets = [
        "$JS.API.STREAM.PURGE.flux-msg".to_owned(),
        "$JS.flux.API.STREAM.PURGE.flux-telemetry".to_owned(),
        "$JS.API.STREAM.DELETE.flux-telemetry".to_owned(),
        "$JS.API.STREAM.UPDATE.flux-msg".to_owned(),
        "$JS.API.STREAM.CREATE.flux-msg".to_owned(),
        format!("$JS.API.CONSUMER.DELETE.flux-msg.{of_b}"),
        format!("$JS.flux.API.CONSUMER.MSG.NEXT.flux-msg.{of_b}"),
        "flux.msg.rack-b.back.out".to_owned(),
        "flux.gear.rack-b.back".to_owned(),
        "flux.telemetry.logs.rack-b".to_owned(),
        "platform.event.rack_removed".to_owned(),
        format!("{b_inbox}.of_b.1"),
        "_INBOX.of.the.mixer".to_owned(),
        subject::rack(&b.passport.entity_id, subject::RackCommand::State),
        format!("{}.1", subject::answers(&b.passport.entity_id)),
    ];
    for target in targets {
        for (asked, body) in requests(&a, of_a).await {
            let sent = a.guest.client.publish_with_reply(asked, target.clone(), body.into());
            sent.await.unwrap();
        }
        // What was sent before was handled when this is.
        let own = a
            .guest
            .js
            .publish("flux.msg.rack-a.there.out", "x".into())
            .await
            .unwrap();
        own.await.unwrap();
        assert_eq!(stored.state().await, before, "{target}");
    }
    b.guest.client.flush().await.unwrap();
    mixer.control().bus.client().flush().await.unwrap();
    for mut subscription in heard {
        while let Some(message) = futures::FutureExt::now_or_never(subscription.next()) {
            let message = message.unwrap();
            assert!(is_of_the_mixer(&b, &message), "{message:?}");
        }
    }
    mixer.close().await;
}

/// Whether it is what the Mixer itself sends a Rack unasked: its part of the scenario, or the credit of its ports.
fn is_of_the_mixer(to: &Member, message: &async_nats::Message) -> bool {
    use model::SigningContext::Command;
    use model::control::{PortCredits, ScenarioPush};

    let key = model::passport::public_key(&to.passport.cluster_key).unwrap();
    let signed = model::SignedPayload::from_bytes(&message.payload);
    signed.is_ok_and(|signed| {
        let push = signed.open::<ScenarioPush>(Command, &key);
        let credits = signed.open::<PortCredits>(Command, &key);
        push.is_ok() || credits.is_ok_and(|credits| credits.entity_id == to.passport.entity_id)
    })
}

async fn racks_cannot_acknowledge_for_others_or_impersonate_the_server(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), WIRES);
    let flags = [ADOPTS, ("mixer.startup_scenario", scenario.as_str())];
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&flags).await;
    let (mut a, b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    let stored = Ground::of(&mixer).await;
    stored.store().await;
    let of_b = &stored.consumers[1];
    let place = pull(&b.guest, &b.key.public_key(), of_b, 1).await.remove(0);
    let before = stored.state().await;
    a.guest.may_not_publish(&place).await;
    for reserved in [place.as_str(), "_R_.abcdef.abcdef"] {
        let sent = a
            .guest
            .client
            .publish_with_reply("flux.msg.rack-a.there.out", reserved.to_owned(), "x".into());
        sent.await.unwrap();
        a.guest.is_refused(reserved).await;
    }
    a.guest.may_not_publish("_R_.abcdef.abcdef").await;
    a.guest.may_not_hear("_R_.>").await;
    assert_eq!(stored.state().await, before);
    // It may itself.
    b.guest.client.publish(place, "+ACK".into()).await.unwrap();
    eventually("the acknowledgement", || async {
        (stored.state().await.of_b.2 == 0).then_some(())
    })
    .await;
    mixer.close().await;
}
