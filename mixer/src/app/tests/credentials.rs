//! Each Rack is a user of the bus: what Racks, removed ones and strangers can do there.

use async_nats::jetstream;
use async_nats::{AuthError, ConnectOptions, Event as BusEvent, StatusCode};
use nkeys::KeyPair;
use tokio::sync::mpsc;

use super::bus_modes::{BusMode, in_every_mode};
use super::*;
use crate::bus_server::MixerBus;

pub(super) const ADOPTS: (&str, &str) = ("enrollment.auto_adopt", "true");

/// A connection, and what the server said about it.
pub(super) struct Guest {
    pub(super) client: Client,
    pub(super) js: jetstream::Context,
    said: mpsc::UnboundedReceiver<BusEvent>,
}

impl Guest {
    pub(super) async fn open(bus: &MixerBus, options: ConnectOptions) -> Result<Self, async_nats::ConnectError> {
        let (tell, said) = mpsc::unbounded_channel();
        let options = bus.trusting(options).event_callback(move |event| {
            let _ = tell.send(event);
            std::future::ready(())
        });
        let client = options.connect(bus.url()).await?;
        let js = jetstream::with_domain(client.clone(), "flux");
        Ok(Self { client, js, said })
    }

    /// Somebody whom nobody knows.
    pub(super) async fn stranger(bus: &MixerBus) -> Self {
        let options = ConnectOptions::new().custom_inbox_prefix(subject::inbox(subject::ENROLL_USER));
        Self::open(bus, options).await.unwrap()
    }

    /// A Rack with its key, and what goes with it.
    async fn rack(bus: &MixerBus, key: &KeyPair, jwt: Option<&String>) -> Result<Self, async_nats::ConnectError> {
        let options = match jwt {
            None => ConnectOptions::new().nkey(key.seed().unwrap()),
            Some(jwt) => {
                let key = key.clone();
                let sign = move |nonce: Vec<u8>| std::future::ready(key.sign(&nonce).map_err(AuthError::new));
                ConnectOptions::with_jwt(jwt.clone(), sign)
            }
        };
        let options = options
            .custom_inbox_prefix(subject::inbox(&key.public_key()))
            .reconnect_delay_callback(|_| Duration::from_millis(20));
        Self::open(bus, options).await
    }

    pub(super) async fn event(&mut self) -> BusEvent {
        let event = tokio::time::timeout(Duration::from_secs(20), self.said.recv()).await;
        event.expect("no event").unwrap()
    }

    /// The server's next refusal names this subject.
    pub(super) async fn is_refused(&mut self, subject: &str) {
        self.client.flush().await.unwrap();
        loop {
            if let BusEvent::ServerError(error) = self.event().await {
                let text = error.to_string();
                assert!(text.to_lowercase().contains("permissions violation"), "{text}");
                assert!(text.contains(subject), "{subject}: {text}");
                return;
            }
        }
    }

    /// What it publishes there is refused, or reaches nobody: the account of a Rack with a JWT has what it may publish, and nothing else.
    pub(super) async fn may_not_publish(&mut self, subject: &str) {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.unwrap();
        let sent = self.client.publish_with_reply(subject.to_owned(), inbox, "x".into());
        sent.await.unwrap();
        tokio::select! {
            () = self.is_refused(subject) => {}
            answer = answers.next() => assert_eq!(answer.unwrap().status, Some(StatusCode::NO_RESPONDERS), "{subject}"),
        }
    }

    pub(super) async fn may_not_hear(&mut self, subject: &str) {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.is_refused(subject).await;
    }
}

/// A Rack that has been admitted, by its own connection.
pub(super) struct Member {
    pub(super) rack: FakeRack,
    pub(super) passport: Passport,
    pub(super) key: KeyPair,
    pub(super) guest: Guest,
}

pub(super) async fn member(mixer: &Mixer, seed: u8, name: &str) -> Member {
    let bus = &mixer.control().bus;
    let key = KeyPair::new_user();
    let mut rack = FakeRack {
        key: SigningKey::from_bytes(&[seed; 32]),
        client: Guest::stranger(bus).await.client,
        counter: 0,
        bus_key: Some(key.public_key()),
        bus_jwt: None,
        run: None,
    };
    let passport = rack.adopted(name).await;
    // The answer came when the bus knew the key.
    let guest = Guest::rack(bus, &key, rack.bus_jwt.as_ref()).await.unwrap();
    rack.client = guest.client.clone();
    Member {
        rack,
        passport,
        key,
        guest,
    }
}

in_every_mode!(
    a_rack_publishes_and_subscribes_only_as_itself_and_a_stranger_may_only_enroll,
    a_removed_rack_is_cut_off_at_once_and_no_other_connection_is_touched,
    a_restart_of_the_mixer_cuts_nobody_off_and_a_waiting_rack_is_known_before_it_is_adopted,
    bus_keys_are_unique,
    no_answer_of_the_mixer_or_the_server_goes_where_only_others_may_publish,
    a_rack_that_subscribes_while_the_bus_reads_its_users_again_does_not_end_it,
    who_takes_more_of_the_server_than_an_account_may_is_turned_away_and_the_others_are_not,
);

async fn a_rack_publishes_and_subscribes_only_as_itself_and_a_stranger_may_only_enroll(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let bus = mixer.control().bus.clone();
    let mut stranger = Guest::stranger(&bus).await;
    for subject in [
        "flux.telemetry.logs.rack-a",
        "flux.msg.rack-a.g.out",
        "flux.agent.heartbeat",
        "$JS.API.STREAM.NAMES",
        "platform.event.rack_removed",
    ] {
        stranger.may_not_publish(subject).await;
    }
    for subject in ["flux.>", "_INBOX.>", ">", "platform.event.>"] {
        stranger.may_not_hear(subject).await;
    }

    let (mut a, b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    for subject in [
        "flux.msg.rack-a.g.out",
        "flux.gear.rack-a.g",
        "flux.telemetry.logs.rack-a",
    ] {
        let acknowledged = a.guest.js.publish(subject, "x".into()).await.unwrap().await;
        acknowledged.unwrap_or_else(|error| panic!("{subject}: {error}"));
    }
    // On its own subject, in the name of another.
    let stats = mixer.parts.ingest.as_ref().unwrap().live_stats();
    eventually("what it has published before is seen", || async {
        (stats.snapshot().dead_letters >= 1).then_some(())
    })
    .await;
    let before = stats.snapshot().dead_letters;
    let engine = mixer.parts.engine.as_ref().unwrap();
    let row = serde_json::json!([{ "ts": "2026-11-21T10:00:00Z", "level": "info", "message": "m" }]);
    for (entity, is_its_own) in [(b.passport.entity_id, false), (a.passport.entity_id, true)] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(model::telemetry_codec::CONTENT_TYPE, "application/json");
        headers.insert(model::telemetry_codec::ENTITY_ID, entity.to_string());
        headers.insert(model::telemetry_codec::BOOT_EPOCH, "1");
        headers.insert(model::telemetry_codec::SEQUENCE, "1");
        let body = row.to_string().into();
        let sent = a
            .guest
            .js
            .publish_with_headers("flux.telemetry.logs.rack-a", headers, body)
            .await;
        sent.unwrap().await.unwrap();
        eventually("it is stored or a dead letter", || async {
            let now = stats.snapshot();
            let (had, has) = match is_its_own {
                true => (0, engine.floor(entity, 1)),
                false => (before, now.dead_letters),
            };
            (has > had).then_some(())
        })
        .await;
    }
    assert_eq!(
        engine.floor(b.passport.entity_id, 1),
        0,
        "no watermark of another moves"
    );
    assert_eq!(engine.floor(a.passport.entity_id, 1), 1);

    let beat = FakeRack::beat(a.passport.entity_id, None);
    let reply = a.rack.heartbeat(&beat, &a.passport.cluster_key).await;
    assert!(matches!(reply, HeartbeatReply::Ok { .. }), "{reply:?}");
    let b_inbox = format!("{}.>", subject::inbox(&b.key.public_key()));
    for subject in [
        // Its own name, but no port, gear or table.
        "flux.msg.rack-a.g",
        "flux.msg.rack-a.g.out.x",
        "flux.gear.rack-a",
        "flux.gear.rack-a.g.x",
        "flux.telemetry.x.rack-a",
        "flux.telemetry.messages.rack-a",
        "flux.msg.rack-b.g.out",
        "flux.gear.rack-b.g",
        "flux.telemetry.metrics.rack-b",
        "flux.agent.rack.x.state",
        "platform.event.rack_removed",
        "$JS.API.STREAM.DELETE.flux-msg",
        "$JS.API.CONSUMER.MSG.NEXT.flux-msg.wire-of-b",
        "$JS.API.STREAM.MSG.GET.flux-msg",
        "$JS.ACK.flux-msg.wire-of-b.1.1.1.1.0",
    ] {
        a.guest.may_not_publish(subject).await;
    }
    let commands_of_b = subject::rack_all(&b.passport.entity_id);
    for subject in [b_inbox.as_str(), &commands_of_b, "flux.msg.>", "flux.agent.hello", ">"] {
        a.guest.may_not_hear(subject).await;
    }
    mixer.close().await;
}

async fn a_removed_rack_is_cut_off_at_once_and_no_other_connection_is_touched(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let bus = mixer.control().bus.clone();
    let (mut a, mut b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    mixer.control().remove("rack-a", &AuditActor::Mixer).await.unwrap();
    let asked = std::time::Instant::now();
    while !matches!(a.guest.event().await, BusEvent::Disconnected) {}
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    let again = Guest::rack(&bus, &a.key, a.rack.bus_jwt.as_ref())
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(again.kind(), async_nats::ConnectErrorKind::AuthorizationViolation);

    let acknowledged = b
        .guest
        .js
        .publish("flux.msg.rack-b.g.out", "x".into())
        .await
        .unwrap()
        .await;
    acknowledged.unwrap();
    while let Ok(event) = b.guest.said.try_recv() {
        assert!(matches!(event, BusEvent::Connected), "{event}");
    }
    // What it asks as a stranger, it is told.
    a.rack.client = Guest::stranger(&bus).await.client;
    let EnrollReply::Refused(refusal) = a.rack.enroll("rack-a").await else {
        panic!("let in");
    };
    assert_eq!(refusal.code, RefusalCode::Removed);
    mixer.close().await;
}

async fn a_restart_of_the_mixer_cuts_nobody_off_and_a_waiting_rack_is_known_before_it_is_adopted(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let flags = [("snake.port", port.as_str())];
    let mixer = ground.start(&flags).await;
    let bus = mixer.control().bus.clone();
    let key = KeyPair::new_user();
    let mut rack = FakeRack {
        key: SigningKey::from_bytes(&[1; 32]),
        client: Guest::stranger(&bus).await.client,
        counter: 0,
        bus_key: Some(key.public_key()),
        bus_jwt: None,
        run: None,
    };
    let EnrollReply::Pending { entity_id, .. } = rack.enroll("rack-a").await else {
        panic!("not pending");
    };
    let mut guest = Guest::rack(&bus, &key, rack.bus_jwt.as_ref()).await.unwrap();
    guest.may_not_publish("flux.telemetry.logs.rack-a").await;
    let mut commands = guest.client.subscribe(subject::rack_all(&entity_id)).await.unwrap();
    guest.client.flush().await.unwrap();
    let answers = tokio::spawn({
        let client = guest.client.clone();
        async move {
            let told: async_nats::Message = commands.next().await.unwrap();
            let to = told
                .headers
                .unwrap()
                .get(model::telemetry_codec::ANSWER_TO)
                .unwrap()
                .to_string();
            client.publish(to, "".into()).await.unwrap();
            client.flush().await.unwrap();
            commands
        }
    });
    mixer
        .control()
        .approve("rack-a", RackApproval::default(), &AuditActor::Mixer)
        .await
        .unwrap();
    drop(answers.await.unwrap());
    rack.client = guest.client.clone();
    let passport = rack.adopted("rack-a").await;
    // The same connection may more now.
    let publish = || async {
        let published = guest.js.publish("flux.telemetry.logs.rack-a", "x".into()).await;
        published.ok()?.await.ok()
    };
    publish().await.expect("an adopted Rack publishes");
    mixer.close().await;

    let mixer = ground.start(&flags).await;
    eventually("it is back by itself", publish).await;
    let reply = rack
        .heartbeat(&FakeRack::beat(entity_id, None), &passport.cluster_key)
        .await;
    assert!(matches!(reply, HeartbeatReply::Ok { .. }), "{reply:?}");
    mixer.close().await;
}

async fn bus_keys_are_unique(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let bus = mixer.control().bus.clone();
    let key = KeyPair::new_user();
    let mut jwt = None;
    for (seed, name, admitted) in [(1, "rack-a", true), (2, "rack-b", false)] {
        let mut rack = FakeRack {
            key: SigningKey::from_bytes(&[seed; 32]),
            client: Guest::stranger(&bus).await.client,
            counter: 0,
            bus_key: Some(key.public_key()),
            bus_jwt: None,
            run: None,
        };
        let reply = rack.enroll(name).await;
        assert_eq!(matches!(reply, EnrollReply::Adopted { .. }), admitted, "{reply:?}");
        jwt = jwt.or(rack.bus_jwt);
    }
    Guest::rack(&bus, &key, jwt.as_ref()).await.unwrap();
    mixer.close().await;
}

async fn no_answer_of_the_mixer_or_the_server_goes_where_only_others_may_publish(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[]).await;
    let bus = mixer.control().bus.clone();
    for number in 0..7 {
        let body = number.to_string().into();
        let stored = bus.jetstream().publish("flux.msg.victim.g.out", body).await.unwrap();
        stored.await.unwrap();
    }
    let stored = || async {
        let mut stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        (state.messages, state.last_sequence)
    };
    let mut own = bus.client().subscribe("_INBOX.of.the.mixer").await.unwrap();
    bus.client().flush().await.unwrap();
    let elsewhere = [
        "$JS.API.STREAM.PURGE.flux-msg",
        "$JS.API.STREAM.DELETE.flux-telemetry",
        "flux.msg.victim.g.out",
        "_INBOX.of.the.mixer",
        "_INBOX_of_nobody.x",
    ];
    let hello = HelloRequest {
        protocol: PROTOCOL,
        rack_key: SigningKey::from_bytes(&[9; 32]).verifying_key().as_bytes().to_vec(),
        nonce: vec![1; 32],
        reply_key: None,
    };
    let hello = signed::encode(&hello).unwrap();
    let aim = |client: Client| {
        let hello = hello.clone();
        async move {
            for to in elsewhere {
                for (subject, body) in [(subject::HELLO, hello.clone()), (subject::ENROLL, b"x".to_vec())] {
                    client.publish_with_reply(subject, to, body.into()).await.unwrap();
                }
            }
        }
    };

    let key = KeyPair::new_user();
    let stranger = Guest::stranger(&bus).await;
    aim(stranger.client.clone()).await;
    let mut rack = FakeRack {
        key: SigningKey::from_bytes(&[1; 32]),
        client: stranger.client,
        counter: 0,
        bus_key: Some(key.public_key()),
        bus_jwt: None,
        run: None,
    };
    assert!(matches!(rack.enroll("rack-a").await, EnrollReply::Pending { .. }));
    assert_eq!(stored().await, (7, 7), "after a stranger");

    let mut waits = Guest::rack(&bus, &key, rack.bus_jwt.as_ref()).await.unwrap();
    aim(waits.client.clone()).await;
    for of_the_server in ["$JS.API.INFO", "$JS.flux.API.INFO", "$JS.API.STREAM.INFO.flux-msg"] {
        let asked = waits
            .client
            .publish_with_reply(of_the_server, "flux.msg.victim.g.x", "".into());
        asked.await.unwrap();
        // With a JWT it reaches nobody.
        if mode != BusMode::Operator {
            let word = of_the_server.rsplit("API").next().unwrap();
            waits.is_refused(word).await;
        }
    }
    rack.client = waits.client.clone();
    // It is answered in its own inbox, and by then what it asked for elsewhere was looked at.
    assert!(matches!(rack.enroll("rack-a").await, EnrollReply::Pending { .. }));
    assert_eq!(stored().await, (7, 7), "after a Rack that waits");
    bus.client().flush().await.unwrap();
    assert!(futures::FutureExt::now_or_never(own.next()).is_none());
    assert!(bus.jetstream().get_stream("flux-telemetry").await.is_ok());
    mixer.close().await;
}

async fn a_rack_that_subscribes_while_the_bus_reads_its_users_again_does_not_end_it(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let busy = member(&mixer, 1, "rack-a").await;
    let commands = subject::rack_all(&busy.passport.entity_id);
    let client = busy.guest.client.clone();
    let storm = tokio::spawn(async move {
        loop {
            let mut subscriptions = Vec::new();
            for _ in 0..64 {
                subscriptions.push(client.subscribe(commands.clone()).await.unwrap());
            }
            client.flush().await.ok();
        }
    });
    // Two readings each.
    for seed in 2..26 {
        member(&mixer, seed, &format!("rack-{seed}")).await;
    }
    storm.abort();
    assert_eq!(mixer.control().bus_status().restarts, 0);
    mixer.close().await;
}

async fn who_takes_more_of_the_server_than_an_account_may_is_turned_away_and_the_others_are_not(mode: BusMode) {
    let folder = tempfile::tempdir().unwrap();
    let ground = mode.ground(folder.path()).await;
    let mixer = ground.start(&[ADOPTS]).await;
    let bus = mixer.control().bus.clone();
    let (mut a, b) = (member(&mixer, 1, "rack-a").await, member(&mixer, 2, "rack-b").await);
    let mut more = Vec::new();
    let refused = loop {
        match Guest::rack(&bus, &a.key, a.rack.bus_jwt.as_ref()).await {
            Ok(guest) => more.push(guest),
            Err(refused) => break refused,
        }
    };
    assert!(more.len() < 32, "with the one that it has");
    let text = format!("{refused:?}");
    assert!(text.contains("maximum account active connections exceeded"), "{text}");
    Guest::rack(&bus, &b.key, b.rack.bus_jwt.as_ref()).await.unwrap();

    let commands = subject::rack_all(&a.passport.entity_id);
    let mut subscriptions = Vec::new();
    for _ in 0..4_200 {
        subscriptions.push(a.guest.client.subscribe(commands.clone()).await.unwrap());
    }
    let said = loop {
        if let BusEvent::ServerError(error) = a.guest.event().await {
            break error.to_string();
        }
    };
    assert!(said.contains("maximum subscriptions exceeded"), "{said}");

    let mut stranger = Guest::stranger(&bus).await;
    let large = vec![0; 65 << 10];
    // Our client does not send more than the server says that it takes; a stranger's need not ask.
    let sent = stranger.client.publish(subject::HELLO, large.into()).await;
    if sent.is_ok() {
        stranger.client.flush().await.ok();
        while !matches!(
            stranger.event().await,
            BusEvent::ServerError(_) | BusEvent::Disconnected
        ) {}
    }
    let published = b
        .guest
        .js
        .publish("flux.msg.rack-b.g.out", vec![0; 1 << 20].into())
        .await;
    published.unwrap().await.unwrap();
    mixer.close().await;
}
