//! The other side of a Rack, for tests: a real bus server, and just enough of a Mixer to admit Racks, answer heartbeats
//! and read what they publish. It uses the same `model` types as the real one and stores nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer, stream};
use chassis::config::{ConfigSources, LogThrottleConfig, load};
use chassis::log_rate_limiter::LogRateLimiter;
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use model::control::*;
use model::passport::{self, Passport};
use model::signed_reply::SignedReply;
use model::subject::{self, RackCommand};
use model::telemetry_codec::{self, PublisherIdentity};
use model::{ClusterId, EntityId, Entropy, SignedPayload, SigningContext, Table, Timestamp};
use parking_lot::Mutex;
use rack::config::{RackConfig, SCHEMA};
use rack::telemetry::TelemetryLayer;
use rack::{AgentParts, RackAgent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What the peer shows to a bus that asks for a token.
pub(crate) const TOKEN: &str = "not-a-secret-in-a-test";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `check` gives something.
pub(crate) async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A real bus server on loopback, killed when dropped.
pub(crate) struct BusServer {
    dir: tempfile::TempDir,
    child: Child,
    more: &'static str,
    pub(crate) port: u16,
}

impl BusServer {
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// With more lines in its configuration.
    pub(crate) async fn with(more: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, port) = Self::spawn(dir.path(), -1, more).await;
        Self { dir, child, port, more }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on the same port and store.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        (self.child, _) = Self::spawn(self.dir.path(), i32::from(self.port), self.more).await;
    }

    /// Starts it again with other lines in its configuration.
    pub(crate) async fn restart_with(&mut self, more: &'static str) {
        self.more = more;
        self.restart().await;
    }

    async fn spawn(dir: &Path, port: i32, more: &str) -> (Child, u16) {
        let binary = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/nats-server");
        assert!(
            binary.exists(),
            "run `make tools` first: there is no {}",
            binary.display()
        );
        let conf = dir.join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\nports_file_dir: {dir:?}\njetstream {{ store_dir: {dir:?}, domain: flux }}\n{more}\n",
        );
        std::fs::write(&conf, text).unwrap();
        let child = Command::new(binary)
            .arg("-c")
            .arg(&conf)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ports = dir.join(format!("nats-server_{}.ports", child.id()));
        let port = until("the bus server listens", async || {
            let text = std::fs::read_to_string(&ports).ok()?;
            let value: serde_json::Value = serde_json::from_str(&text).ok()?;
            let url = value["nats"][0].as_str()?.to_owned();
            url.rsplit(':').next()?.parse().ok()
        });
        (child, port.await)
    }
}

impl Drop for BusServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the peer decides and has seen.
#[derive(Default)]
pub(crate) struct Desk {
    /// Adopt at once, or keep pending.
    pub(crate) adopt: bool,
    /// Answer nothing at all.
    pub(crate) silent: bool,
    /// How long an answer takes.
    pub(crate) pause: Duration,
    /// What heartbeats and adoptions say.
    pub(crate) state: Option<RackState>,
    /// Refuse heartbeats and enrolments with this.
    pub(crate) refuse: Option<RefusalCode>,
    /// Floors given in heartbeats.
    pub(crate) floors: BTreeMap<(EntityId, u64), u64>,
    /// How far every run is on the Mixer's disk, by heartbeats.
    pub(crate) on_disk: u64,
    /// Limits told in heartbeats.
    pub(crate) limits: Option<model::control::RackLimits>,
    pub(crate) passports: u64,
    pub(crate) transcripts: Vec<EnrollTranscript>,
    pub(crate) heartbeats: Vec<Heartbeat>,
}

/// The peer.
pub(crate) struct Peer {
    pub(crate) key: SigningKey,
    pub(crate) client: async_nats::Client,
    pub(crate) js: jetstream::Context,
    pub(crate) desk: Arc<Mutex<Desk>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn entity() -> EntityId {
    EntityId::at(Timestamp::from_micros(1_700_000_000_000_000), [3; 10])
}

impl Peer {
    /// Joins the bus as the Mixer of the cluster with this key.
    pub(crate) async fn start(bus: &BusServer, key: u8, desk: Desk) -> Self {
        let key = SigningKey::from_bytes(&[key; 32]);
        let options = async_nats::ConnectOptions::new().token(TOKEN.to_owned());
        let client = options.connect(bus.url()).await.unwrap();
        let js = jetstream::with_domain(client.clone(), "flux");
        let desk = Arc::new(Mutex::new(desk));
        let mut asked = client.subscribe("flux.agent.*").await.unwrap();
        client.flush().await.unwrap();
        let answers = (key.clone(), client.clone(), Arc::clone(&desk));
        let task = tokio::spawn(async move {
            let (key, client, desk) = answers;
            while let Some(message) = asked.next().await {
                if desk.lock().silent {
                    continue;
                }
                let body = answer(&key, &desk, &message);
                let pause = desk.lock().pause;
                tokio::time::sleep(pause).await;
                client.publish(message.reply.unwrap(), body.into()).await.unwrap();
            }
        });
        let peer = Self {
            key,
            client,
            js,
            desk,
            task,
        };
        peer.make_stream().await;
        peer
    }

    pub(crate) async fn make_stream(&self) {
        let config = stream::Config {
            name: subject::TELEMETRY_STREAM.to_owned(),
            subjects: vec![subject::TELEMETRY_ALL.to_owned()],
            allow_batch_publish: true,
            ..stream::Config::default()
        };
        self.js.get_or_create_stream(config).await.unwrap();
    }

    pub(crate) async fn lose_stream(&self) {
        self.js.delete_stream(subject::TELEMETRY_STREAM).await.unwrap();
        self.make_stream().await;
    }

    /// Sends a signed command and gives the answer.
    pub(crate) async fn command(&self, command: RackCommand, value: &impl Serialize) -> bytes::Bytes {
        let body = SignedPayload::new(value, SigningContext::Command, &self.key)
            .unwrap()
            .to_bytes()
            .unwrap();
        let body = bytes::Bytes::from(body);
        // The subscription may still be on its way to the server, which serves connections side by side.
        until("the Rack listens", async || {
            let subject = subject::rack(&entity(), command);
            match self.client.request(subject, body.clone()).await {
                Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => None,
                answer => Some(answer.unwrap().payload),
            }
        })
        .await
    }

    pub(crate) async fn send_floor(&self, boot_epoch: u64, seq: u64) {
        let floor = DurableFloor {
            entity_id: entity(),
            boot_epoch,
            seq,
            on_disk: 0,
        };
        let body = SignedPayload::new(&floor, SigningContext::Command, &self.key)
            .unwrap()
            .to_bytes()
            .unwrap();
        let subject = subject::rack(&entity(), RackCommand::Floor);
        self.client.publish(subject, body.into()).await.unwrap();
        self.client.flush().await.unwrap();
    }

    /// Everything in the telemetry stream, in its order.
    pub(crate) async fn published(&self) -> Vec<Published> {
        let stream = self.js.get_stream(subject::TELEMETRY_STREAM).await.unwrap();
        let messages = stream.get_info().await.unwrap().state.messages;
        let config = consumer::pull::OrderedConfig::default();
        let mut pull = stream.create_consumer(config).await.unwrap().messages().await.unwrap();
        let mut all = Vec::new();
        while (all.len() as u64) < messages {
            let message = pull.next().await.unwrap().unwrap();
            all.push(Published::read(&message));
        }
        all
    }

    /// Waits until log records with these texts are published, each once.
    pub(crate) async fn wait_for_lines(&self, lines: &[&str]) -> Vec<Published> {
        until("the lines are published", async || {
            let all = self.published().await;
            let there = |line: &&str| {
                all.iter()
                    .flat_map(|batch| &batch.messages)
                    .any(|message| message == *line)
            };
            lines.iter().all(there).then_some(all)
        })
        .await
    }
}

/// The cluster's answer to a question.
pub(crate) fn answered<T: Serialize + DeserializeOwned>(
    key: &SigningKey,
    to: &async_nats::Message,
    reply: T,
) -> Vec<u8> {
    SignedReply::sign(&to.payload, reply, (cluster_id(), key), &[]).unwrap()
}

fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> T {
    model::signed::decode_strict(bytes).unwrap()
}

fn cluster_id() -> ClusterId {
    ClusterId::at(Timestamp::from_micros(1), [1; 10])
}

fn answer(key: &SigningKey, desk: &Mutex<Desk>, message: &async_nats::Message) -> Vec<u8> {
    match message.subject.as_str() {
        subject::HELLO => {
            let hello: HelloRequest = read(&message.payload);
            let challenge = EnrollChallenge {
                nonce: vec![5; 32],
                rack_nonce: hello.nonce,
                cluster_id: cluster_id(),
                cluster_key: key.verifying_key().as_bytes().to_vec(),
            };
            answered(key, message, HelloReply::Challenge(challenge))
        }
        subject::ENROLL => answered(key, message, enroll(key, &mut desk.lock(), &read(&message.payload))),
        subject::HEARTBEAT => {
            let signed: SignedPayload = read(&message.payload);
            let heartbeat: Heartbeat = signed.peek().unwrap();
            let answer = beat(&mut desk.lock(), heartbeat);
            answered(key, message, answer)
        }
        other => panic!("{other}"),
    }
}

fn refusal(code: RefusalCode) -> RackRefusal {
    RackRefusal {
        code,
        reason: format!("refused for the test: {code:?}"),
    }
}

fn enroll(key: &SigningKey, desk: &mut Desk, signed: &SignedPayload) -> EnrollReply {
    let claimed: EnrollTranscript = signed.peek().unwrap();
    let rack = passport::public_key(&claimed.rack_key).unwrap();
    let transcript: EnrollTranscript = signed.open(SigningContext::Enroll, &rack).unwrap();
    desk.transcripts.push(transcript.clone());
    if let Some(code) = desk.refuse {
        return EnrollReply::Refused(refusal(code));
    }
    if !desk.adopt {
        return EnrollReply::Pending {
            entity_id: entity(),
            bus_credential: None,
        };
    }
    desk.passports += 1;
    let name = match &transcript.claim {
        NameClaim::Name(name) => name.clone(),
        NameClaim::Prefix(prefix) => format!("{prefix}1").parse().unwrap(),
    };
    let passport = Passport {
        version: passport::VERSION,
        cluster_id: cluster_id(),
        cluster_key: key.verifying_key().as_bytes().to_vec(),
        entity_id: entity(),
        name,
        rack_key: transcript.rack_key,
        issued: Timestamp::from_micros(1),
        counter: transcript.counter + 1,
    };
    EnrollReply::Adopted {
        passport: passport.sign(key).unwrap(),
        state: desk.state.unwrap_or(RackState::Active),
        bus_credential: None,
    }
}

fn beat(desk: &mut Desk, heartbeat: Heartbeat) -> HeartbeatReply {
    let waiting = heartbeat.waiting.clone();
    desk.heartbeats.push(heartbeat);
    if let Some(code) = desk.refuse {
        return HeartbeatReply::Refused(refusal(code));
    }
    let floor = |run: DurableFloor| DurableFloor {
        on_disk: desk.on_disk,
        seq: desk.floors.get(&(run.entity_id, run.boot_epoch)).copied().unwrap_or(0),
        ..run
    };
    HeartbeatReply::Ok {
        state: desk.state.unwrap_or(RackState::Active),
        scenario: None,
        floors: waiting.into_iter().map(floor).collect(),
        limits: desk.limits,
        credits: None,
        authority: None,
        bus_credential: None,
    }
}

/// A batch as it came over the bus.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) subject: String,
    pub(crate) entity: EntityId,
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) settled: u64,
    pub(crate) rows: usize,
    /// The texts, of a batch of logs.
    pub(crate) messages: Vec<String>,
}

impl Published {
    fn read(message: &async_nats::Message) -> Self {
        let headers = message.headers.as_ref().unwrap();
        let header = |name: &str| headers.get(name).unwrap().to_string();
        let (table, name) = subject::parse_telemetry(&message.subject).unwrap();
        let publisher = PublisherIdentity {
            entity_id: header(telemetry_codec::ENTITY_ID).parse().unwrap(),
            entity_name: header(telemetry_codec::ENTITY_NAME),
        };
        assert_eq!(publisher.entity_name, name.as_str());
        let encoding = header(telemetry_codec::CONTENT_TYPE).parse().unwrap();
        let batches = telemetry_codec::decode(table, encoding, &message.payload, &publisher).unwrap();
        let rows: Vec<_> = batches
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(|row| model::batch::row_json(batch, row)))
            .collect();
        assert!(rows.iter().all(|row| row["entity_name"] == name.as_str()), "{rows:?}");
        let text = |row: &serde_json::Map<String, serde_json::Value>| row["message"].as_str().unwrap().to_owned();
        Self {
            subject: message.subject.to_string(),
            entity: publisher.entity_id,
            name: publisher.entity_name,
            epoch: header(telemetry_codec::BOOT_EPOCH).parse().unwrap(),
            seq: header(telemetry_codec::SEQUENCE).parse().unwrap(),
            settled: header(telemetry_codec::SETTLED).parse().unwrap(),
            rows: rows.len(),
            messages: if table == Table::Logs {
                rows.iter().map(text).collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// The parts of an agent in a folder, with quick intervals.
pub(crate) fn parts(dir: &Path, url: &str, more: &[(&str, &str)]) -> AgentParts {
    let mut flags = vec![
        ("base.name", "rack-a"),
        ("base.state_dir", dir.to_str().unwrap()),
        ("store.dir", dir.to_str().unwrap()),
        ("snake.url", url),
        ("snake.reconnect_wait", "20ms"),
        ("snake.convergence_delay", "10ms"),
        ("rack.heartbeat_interval", "100ms"),
        ("rack.enrollment_timeout", "2s"),
    ];
    flags.extend(more);
    let (env, flags): (Vec<_>, Vec<_>) = flags.into_iter().partition(|(key, _)| key.starts_with("PLATFORM_"));
    let env = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let sources = ConfigSources {
        file: None,
        required: false,
        env,
        flags: flags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let config = RackConfig::of(&load(&SCHEMA, &sources).unwrap()).unwrap();
    let throttle = LogThrottleConfig {
        enabled: true,
        rate: 500.0,
        burst: 50,
    };
    let entropy = Entropy::new(|bytes| getrandom::fill(bytes).unwrap());
    let clock = chassis::system_clock();
    let throttle = Arc::new(LogRateLimiter::new(throttle));
    AgentParts::new(config, clock, entropy, throttle, TelemetryLayer::default())
}

pub(crate) async fn agent(dir: &Path, url: &str, more: &[(&str, &str)]) -> RackAgent {
    RackAgent::start(parts(dir, url, more)).await.unwrap()
}

/// Closes it and says how long that took.
pub(crate) async fn close(agent: RackAgent) -> Duration {
    let start = Instant::now();
    agent.close().await;
    start.elapsed()
}
