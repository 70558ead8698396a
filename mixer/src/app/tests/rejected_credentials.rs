//! Credentials that the bus rejects, wrong and expired ones; and what a renamed or a suspended Rack may do with its own.

use async_nats::jetstream::consumer;
use async_nats::{Auth, AuthError, ConnectErrorKind, ConnectOptions, Event as BusEvent, Message};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::Level;
use model::control::LevelChange;
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::attacks::{consumer_of, pull, pull_subject};
use super::bus_modes::{BusMode, in_every_mode};
use super::credentials::{ADOPTS, Guest, Member, member};
use super::*;
use crate::bus_server::MixerBus;

/// A wire to each of two Racks.
const WIRES: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a }, { name: rack-b }, { name: rack-c } ]
gears:
  - { name: for-b, type: generator, deploy: rack-a, config: { rate: 1 } }
  - { name: for-c, type: generator, deploy: rack-a, config: { rate: 1 } }
  - { name: at-b, type: log_sink, deploy: rack-b }
  - { name: at-c, type: log_sink, deploy: rack-c }
wires:
  - { from: for-b.out, to: at-b.in, lane: guaranteed }
  - { from: for-c.out, to: at-c.in, lane: guaranteed }
";

/// Where a wire ends.
struct WireEnd {
    rack: &'static str,
    /// From where it comes, on rack-a.
    gear: &'static str,
    consumer: consumer::Info,
}

impl WireEnd {
    async fn of(mixer: &Mixer, rack: &'static str, gear: &'static str) -> Self {
        let consumer = consumer_of(&mixer.control().bus, &source(gear)).await;
        Self { rack, gear, consumer }
    }

    /// The same once its consumer was made anew, as it is when a Rack has left the name.
    async fn made_anew(self, mixer: &Mixer) -> Self {
        eventually("another consumer of a wire", || async {
            let now = Self::of(mixer, self.rack, self.gear).await;
            (now.consumer.created != self.consumer.created).then_some(now)
        })
        .await
    }

    /// What a Rack publishes as the one of this name.
    fn subjects(&self) -> [String; 3] {
        let rack = self.rack;
        [
            format!("flux.msg.{rack}.g.out"),
            format!("flux.gear.{rack}.g"),
            format!("flux.telemetry.logs.{rack}"),
        ]
    }

    /// One more message that waits for the wire: its number in the stream.
    async fn store(&self, mixer: &Mixer) -> u64 {
        let js = mixer.control().bus.jetstream();
        let stored = js.publish(source(self.gear), "x".into()).await;
        stored.unwrap().await.unwrap().sequence
    }

    /// The number in the stream of the message that is acknowledged at this place.
    fn sequence(&self, place: &str) -> u64 {
        let (_, numbers) = place.split_once(&format!(".{}.", self.consumer.name)).unwrap();
        // How often it was delivered comes first.
        numbers.split('.').nth(1).unwrap().parse().unwrap()
    }
}

/// What a gear of rack-a publishes to.
fn source(gear: &str) -> String {
    format!("flux.msg.rack-a.{gear}.out")
}

/// What a client shows: a public key, a JWT or none, and the server's nonce signed with some key.
fn shows(jwt: Option<&String>, public_key: String, signer: &KeyPair) -> ConnectOptions {
    let (jwt, signer) = (jwt.cloned(), signer.clone());
    let inbox = subject::inbox(&public_key);
    let options = ConnectOptions::with_auth_callback(move |nonce| {
        let mut auth = Auth::new();
        (auth.jwt, auth.nkey) = (jwt.clone(), Some(public_key.clone()));
        auth.signature = signer.sign(&nonce).ok();
        std::future::ready(Ok::<_, AuthError>(auth))
    });
    options.custom_inbox_prefix(inbox)
}

/// What an admitted Rack shows of itself, signed with some key.
fn shows_as(rack: &Member, signer: &KeyPair) -> ConnectOptions {
    shows(rack.rack.bus_jwt.as_ref(), rack.key.public_key(), signer)
}

async fn is_turned_away(bus: &MixerBus, options: ConnectOptions, what: &str) {
    let refused = Guest::open(bus, options).await.map(|_| ());
    let refused = refused.expect_err(what);
    assert_eq!(refused.kind(), ConnectErrorKind::AuthorizationViolation, "{what}");
}

/// It is let in as anybody is, who may ask for admission and nothing else.
async fn is_a_stranger(bus: &MixerBus, options: ConnectOptions, victim: &Member) {
    let mut guest = Guest::open(bus, options).await.unwrap();
    let subject = "flux.telemetry.logs.rack-a";
    guest.client.publish(subject, "x".into()).await.unwrap();
    guest.is_refused(subject).await;
    let inbox = format!("{}.>", subject::inbox(&victim.key.public_key()));
    for subject in [&inbox, &subject::rack_all(&victim.passport.entity_id)] {
        guest.may_not_hear(subject).await;
    }
}

async fn is_acknowledged(guest: &Guest, subject: &str) {
    let acknowledged = guest.js.publish(subject.to_owned(), "x".into()).await.unwrap().await;
    acknowledged.unwrap_or_else(|error| panic!("{subject}: {error}"));
}

fn claims_of(jwt: &str) -> Value {
    let body = jwt.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap()
}

/// The JWT of a Rack, made out to another key, which has signed it.
fn forged(jwt: &str, key: &KeyPair) -> String {
    let mut claims = claims_of(jwt);
    claims["sub"] = key.public_key().into();
    let header = jwt.split('.').next().unwrap();
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

in_every_mode!(
    who_shows_a_wrong_credential_is_turned_away,
    a_renamed_rack_speaks_under_its_new_name_alone,
    a_pull_that_a_renamed_rack_left_open_takes_nothing_from_who_has_its_name_now,
    a_suspended_rack_keeps_telemetry_heartbeats_and_commands_and_pulls_once_it_is_resumed,
);

async fn who_shows_a_wrong_credential_is_turned_away(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let bus = mixer.control().bus.clone();
    let (a, b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    is_turned_away(&bus, shows_as(&a, &b.key), "what A shows, with the key of B").await;

    let fresh = KeyPair::new_user();
    let unknown = shows(None, fresh.public_key(), &fresh);
    if mode == BusMode::Operator {
        // Whose JWT is none, or is not genuine, is somebody without one.
        is_a_stranger(&bus, unknown, &a).await;
        let jwt = forged(a.rack.bus_jwt.as_ref().unwrap(), &fresh);
        is_a_stranger(&bus, shows(Some(&jwt), fresh.public_key(), &fresh), &a).await;

        let elsewhere = tempfile::tempdir().unwrap();
        let other_ground = mode.ground(elsewhere.path()).await;
        let other = other_ground.start(&[ADOPTS]).await;
        let foreign = member(&other, 1, "rack-a").await;
        is_turned_away(&bus, shows_as(&foreign, &foreign.key), "a JWT of another operator").await;
        other.close().await;
    } else {
        is_turned_away(&bus, unknown, "a key that nobody knows").await;
    }

    for (rack, subject) in [(&a, "flux.telemetry.logs.rack-a"), (&b, "flux.telemetry.logs.rack-b")] {
        let guest = Guest::open(&bus, shows_as(rack, &rack.key)).await.unwrap();
        is_acknowledged(&guest, subject).await;
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_an_expired_credential_is_turned_away_until_it_has_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let ground = BusMode::Operator.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS, ("snake.rack_jwt_validity", "10s")]).await;
    let bus = mixer.control().bus.clone();
    let Member {
        mut rack,
        key,
        mut guest,
        ..
    } = member(&mixer, 1, "rack-a").await;
    let jwt = rack.bus_jwt.clone().unwrap();
    is_acknowledged(&guest, "flux.telemetry.logs.rack-a").await;
    // The server ends the connection that was made with it.
    while !matches!(guest.event().await, BusEvent::Disconnected) {}
    // A JWT is good for the whole second in which it expires.
    let expired = (claims_of(&jwt)["exp"].as_i64().unwrap() + 1) * 1_000_000;
    let rest = expired - chassis::system_clock().now().micros();
    tokio::time::sleep(Duration::from_micros(u64::try_from(rest).unwrap_or(0))).await;
    is_turned_away(&bus, shows(Some(&jwt), key.public_key(), &key), "an expired JWT").await;

    rack.client = Guest::stranger(&bus).await.client;
    rack.adopted("rack-a").await;
    let renewed = shows(rack.bus_jwt.as_ref(), key.public_key(), &key);
    let guest = Guest::open(&bus, renewed).await.unwrap();
    is_acknowledged(&guest, "flux.telemetry.logs.rack-a").await;
    mixer.close().await;
}

/// It publishes and pulls by its own name, and not by the other one.
async fn speaks_alone_as(mixer: &Mixer, rack: &mut Member, (own, other): (&WireEnd, &WireEnd)) {
    for subject in own.subjects() {
        is_acknowledged(&rack.guest, &subject).await;
    }
    own.store(mixer).await;
    pull(&rack.guest, &rack.key.public_key(), &own.consumer.name, 1).await;
    let of_consumer = [
        format!("$JS.API.CONSUMER.MSG.NEXT.flux-msg.{}", other.consumer.name),
        format!("$JS.ACK.flux-msg.{}.1.1.1.1.0", other.consumer.name),
    ];
    for subject in other.subjects().iter().chain(&of_consumer) {
        rack.guest.may_not_publish(subject).await;
    }
}

async fn a_renamed_rack_speaks_under_its_new_name_alone(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), WIRES);
    let ground = mode.ground(folder.path()).await;
    let mixer = ground
        .start(&[ADOPTS, ("mixer.startup_scenario", scenario.as_str())])
        .await;
    let mut former = member(&mixer, 1, "rack-b").await;
    let b = WireEnd::of(&mixer, "rack-b", "for-b").await;
    let c = WireEnd::of(&mixer, "rack-c", "for-c").await;
    speaks_alone_as(&mixer, &mut former, (&b, &c)).await;

    let id = former.passport.entity_id;
    let renamed = former.rack.adopted("rack-c").await;
    assert_eq!((renamed.entity_id, renamed.name.as_str()), (id, "rack-c"));
    speaks_alone_as(&mixer, &mut former, (&c, &b)).await;
    let beat = FakeRack::beat(id, None);
    let reply = former.rack.heartbeat(&beat, &former.passport.cluster_key).await;
    assert!(matches!(reply, HeartbeatReply::Ok { .. }), "{reply:?}");

    let b = b.made_anew(&mixer).await;
    let mut newcomer = member(&mixer, 2, "rack-b").await;
    assert_ne!(newcomer.passport.entity_id, id);
    speaks_alone_as(&mixer, &mut newcomer, (&b, &c)).await;
    speaks_alone_as(&mixer, &mut former, (&c, &b)).await;
    let inbox = format!("{}.>", subject::inbox(&former.key.public_key()));
    for subject in [&inbox, &subject::rack_all(&id)] {
        newcomer.guest.may_not_hear(subject).await;
    }
    let EnrollReply::Refused(refusal) = newcomer.rack.enroll("rack-c").await else {
        panic!("two have one name");
    };
    assert_eq!(refusal.code, RefusalCode::NameTaken);
    mixer.close().await;
}

/// The next message of a stream; statuses are none.
async fn delivered(pulled: &mut Subscriber) -> Message {
    while let Some(message) = pulled.next().await {
        let place = message.reply.as_deref().unwrap_or_default();
        if place.starts_with("$JS.ACK.") {
            return message;
        }
    }
    // It was cut off.
    std::future::pending().await
}

async fn a_pull_that_a_renamed_rack_left_open_takes_nothing_from_who_has_its_name_now(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), WIRES);
    let ground = mode.ground(folder.path()).await;
    let mixer = ground
        .start(&[ADOPTS, ("mixer.startup_scenario", scenario.as_str())])
        .await;
    let mut former = member(&mixer, 1, "rack-b").await;
    let wire = WireEnd::of(&mixer, "rack-b", "for-b").await;
    let inbox = format!("{}.open", subject::inbox(&former.key.public_key()));
    let mut open = former.guest.client.subscribe(inbox.clone()).await.unwrap();
    let (expires, idle_heartbeat) = (120_000_000_000_u64, 5_000_000_000_u64);
    let order = json!({ "batch": 100, "expires": expires, "idle_heartbeat": idle_heartbeat });
    let asked =
        former
            .guest
            .client
            .publish_with_reply(pull_subject(&wire.consumer.name), inbox, order.to_string().into());
    asked.await.unwrap();
    let first = wire.store(&mixer).await;
    let waited = tokio::time::timeout(Duration::from_secs(20), delivered(&mut open)).await;
    let place = waited.expect("while it had the name, it was its own").reply.unwrap();
    assert_eq!(wire.sequence(&place), first);

    former.rack.adopted("rack-c").await;
    let wire = wire.made_anew(&mixer).await;
    let newcomer = member(&mixer, 2, "rack-b").await;
    let second = wire.store(&mixer).await;
    let key = newcomer.key.public_key();
    tokio::select! {
        message = delivered(&mut open) => panic!("who is rack-c now hears what is for rack-b: {message:?}"),
        places = pull(&newcomer.guest, &key, &wire.consumer.name, 2) => {
            let pulled: Vec<u64> = places.iter().map(|place| wire.sequence(place)).collect();
            assert_eq!(pulled, [first, second], "it begins with what the former one has not acknowledged");
        }
    }
    mixer.close().await;
}

async fn a_suspended_rack_keeps_telemetry_heartbeats_and_commands_and_pulls_once_it_is_resumed(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), WIRES);
    let ground = mode.ground(folder.path()).await;
    let mixer = ground
        .start(&[ADOPTS, ("mixer.startup_scenario", scenario.as_str())])
        .await;
    let (control, by) = (mixer.control(), AuditActor::Mixer);
    let mut rack = member(&mixer, 1, "rack-b").await;
    let wire = WireEnd::of(&mixer, "rack-b", "for-b").await;
    let (id, client) = (rack.passport.entity_id, rack.guest.client.clone());
    let mut commands = client.subscribe(subject::rack_all(&id)).await.unwrap();
    // Once this is acknowledged, the server has read the subscription.
    is_acknowledged(&rack.guest, "flux.telemetry.logs.rack-b").await;
    let (suspended, told) = tokio::join!(
        control.suspend("rack-b", &by),
        next::<StateChange>(&mut commands, &client, "state", &rack.passport, &())
    );
    suspended.unwrap();
    assert_eq!(told.state, RackState::Suspended);

    wire.store(&mixer).await;
    let beat = FakeRack::beat(id, None);
    let reply = rack.rack.heartbeat(&beat, &rack.passport.cluster_key).await;
    let HeartbeatReply::Ok { state, scenario, .. } = &reply else {
        panic!("{reply:?}");
    };
    assert_eq!((*state, scenario.as_ref()), (RackState::Suspended, None));
    is_acknowledged(&rack.guest, "flux.telemetry.logs.rack-b").await;
    let (levelled, told) = tokio::join!(
        control.set_log_level("rack-b", Level::Debug, &by),
        next::<LevelChange>(&mut commands, &client, "log-level", &rack.passport, &())
    );
    levelled.unwrap();
    assert_eq!(told.level, Level::Debug);
    for subject in ["flux.telemetry.logs.rack-c", "flux.msg.rack-c.g.out"] {
        rack.guest.may_not_publish(subject).await;
    }

    let (resumed, told) = tokio::join!(
        control.resume("rack-b", &by),
        next::<StateChange>(&mut commands, &client, "state", &rack.passport, &())
    );
    resumed.unwrap();
    assert_eq!(told.state, RackState::Active);
    pull(&rack.guest, &rack.key.public_key(), &wire.consumer.name, 1).await;
    mixer.close().await;
}
