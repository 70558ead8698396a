//! For tests: gear types that misbehave, pushes from a few lines of YAML, and a Rack's telemetry way on a real spool.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

pub(crate) mod certificates;
mod flow;
pub(crate) mod held;
pub(crate) mod http_server;

pub(crate) use flow::Flow;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chassis::config::LogThrottleConfig;
use chassis::log_rate_limiter::LogRateLimiter;
use futures::FutureExt;
use model::control::ScenarioPush;
use model::gear_manifest::GearManifest;
use model::message::Message;
use model::scenario::{Gear as GearEntry, Wire};
use model::{Attributes, Clock, EntityId, Entropy, FluxId, MessageId, Table, Timestamp};
use serde_json::{Map, Value};
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{ActiveGear, Gear, GearContext, GearDefinition, GearError, GearFuture, PassiveGear, ProgramAllowList};
use crate::RackIdentity;
use crate::inbox::InputMessage;
use crate::message_limits::MessageLimits;
use crate::policy::RackPolicy;
use crate::runtime::{GearRuntime, RuntimeParts};
use crate::spool::{self, SpoolCursor, SpoolFullPolicy, SpoolHandle, SpoolItem, SpoolLimits, SpoolThread};
use crate::tap::TapRegistry;
use crate::telemetry::{RecorderParts, RowBatcher, TelemetryCounters, TelemetryRecorder};

/// A port that nobody can connect to, and nobody else gets, until its socket listens.
pub(crate) fn held_port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = socket.local_addr().unwrap();
    (socket, at)
}

/// Types that only tests can name.
pub(super) static TYPES: &[GearDefinition] = &[
    GearDefinition {
        manifest: &manifest("test_panics", &["in"], &[]),
        build: |_| Ok(Gear::Passive(Box::new(Panics))),
    },
    GearDefinition {
        manifest: &manifest("test_refuses", &[], &[]),
        build: |_| Ok(Gear::Active(Box::new(Refuses))),
    },
    GearDefinition {
        manifest: &manifest("test_deaf", &[], &[]),
        build: |_| Ok(Gear::Active(Box::new(Deaf))),
    },
    GearDefinition {
        manifest: &manifest("test_hangs", &["in"], &[]),
        build: |_| Ok(Gear::Passive(Box::new(Hangs))),
    },
    GearDefinition {
        manifest: &manifest("test_feed", &[], &["out"]),
        build: flow::feed,
    },
    GearDefinition {
        manifest: &manifest("test_loop", &["in"], &["out"]),
        build: |_| Ok(Gear::Passive(Box::new(PassesOn))),
    },
    GearDefinition {
        manifest: &manifest("test_duplex", &["in"], &["out"]),
        build: |_| {
            let (said, heard) = mpsc::unbounded_channel();
            Ok(Gear::Duplex(Box::new(Speaks(heard)), Box::new(Hears(said))))
        },
    },
];

const fn manifest(
    kind: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
) -> GearManifest {
    GearManifest {
        kind,
        summary: "",
        inputs,
        outputs,
        doc: "",
        example: "",
        schema: || Value::Null,
        check: |_| Ok(()),
        passes_on: model::gear_manifest::never,
    }
}

/// Panics at every message whose body begins with a letter from a to m.
struct Panics;

impl PassiveGear for Panics {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let data = delivery.message.raw;
            assert!(
                !data.first().is_some_and(|first| (b'a'..=b'm').contains(first)),
                "a message it cannot bear"
            );
            cx.log(
                model::Level::Info,
                format!("survived {}", String::from_utf8_lossy(&data)),
            );
            Ok(())
        }
        .boxed()
    }
}

/// Cannot be started.
struct Refuses;

impl ActiveGear for Refuses {
    fn init<'a>(&'a mut self, _: &'a Arc<GearContext>) -> GearFuture<'a> {
        async { Err(GearError::Test("it has no fuel")) }.boxed()
    }

    fn run<'a>(&'a mut self, _: &'a Arc<GearContext>) -> GearFuture<'a> {
        async { Ok(()) }.boxed()
    }
}

/// Does not hear that it shall stop.
struct Deaf;

impl ActiveGear for Deaf {
    fn run<'a>(&'a mut self, _: &'a Arc<GearContext>) -> GearFuture<'a> {
        futures::future::pending().boxed()
    }
}

/// Never comes back from the message `hang`.
struct Hangs;

impl PassiveGear for Hangs {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let body = String::from_utf8_lossy(&delivery.message.raw).into_owned();
            if body == "hang" {
                futures::future::pending::<()>().await;
            }
            cx.log(model::Level::Info, format!("did {body}"));
            Ok(())
        }
        .boxed()
    }
}

/// Sends on what it gets.
struct PassesOn;

impl PassiveGear for PassesOn {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            cx.send("out", delivery.message).await.ok();
            Ok(())
        }
        .boxed()
    }
}

/// The half that says how much its other half has heard in all lives, and fails at the word `fail`.
struct Speaks(mpsc::UnboundedReceiver<Vec<u8>>);

impl ActiveGear for Speaks {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let all = cx.restart_state::<std::sync::atomic::AtomicUsize>();
            loop {
                let word = tokio::select! {
                    word = self.0.recv() => word.unwrap(),
                    () = cx.stopping() => return Ok(()),
                };
                let count = all.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                cx.log(model::Level::Info, format!("heard {count}"));
                if word == b"fail" {
                    return Err(GearError::Test("its active half has heard enough"));
                }
            }
        }
        .boxed()
    }
}

/// The half that hears.
struct Hears(mpsc::UnboundedSender<Vec<u8>>);

impl PassiveGear for Hears {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            cx.log(
                model::Level::Info,
                format!("took {}", String::from_utf8_lossy(&delivery.message.raw)),
            );
            self.0.send(delivery.message.raw).ok();
            Ok(())
        }
        .boxed()
    }
}

/// A message of a known time, whose ids are made of a number.
pub(crate) fn message(number: u8, data: Value, raw: &[u8]) -> Message {
    let ts = Timestamp::from_micros(1_763_728_200_000_000);
    Message {
        id: MessageId::at(ts, [number; 10]),
        ts,
        raw: raw.to_vec(),
        data,
        hops: 3,
        meta: Attributes::new(),
        parent: None,
        flux_id: FluxId::at(ts, [number; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse().unwrap(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        trace_state: None,
    }
}

/// A push of gears and wires in the scenario file's form.
pub(crate) fn push(hash: &str, gears: &str, wires: &str) -> ScenarioPush {
    #[derive(serde::Deserialize)]
    struct Part {
        gears: Vec<GearEntry>,
        wires: Vec<Wire>,
    }
    let part: Part = serde_saphyr::from_str(&format!("gears: {gears}\nwires: [ {wires} ]\n")).unwrap();
    ScenarioPush {
        entity_id: EntityId::for_name("rack-a"),
        issued: Timestamp::from_micros(1),
        reference: format!("test:{hash}"),
        hash: hash.to_owned(),
        gears: part.gears,
        wires: part.wires,
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

/// How long gears may drain here: longer than in a Rack, so that on a busy machine nobody is cut off who would stop by itself, and
/// shorter than any time that a gear grants a peer.
pub(crate) const STOP_BOUND: Duration = Duration::from_secs(6);

/// A Rack's telemetry way without a bus: recorder, batcher, and a spool in a folder.
pub(crate) struct Bench {
    pub(crate) recorder: TelemetryRecorder,
    spool: SpoolHandle,
    thread: SpoolThread,
    batcher: JoinHandle<()>,
    cancel: CancellationToken,
    _identity: watch::Sender<Option<RackIdentity>>,
    /// How long gears of its runtimes may drain.
    pub(crate) drain: Duration,
    /// What gears of its runtimes may run.
    pub(crate) programs: ProgramAllowList,
    /// What they may ask of the Rack.
    pub(crate) policy: RackPolicy,
    /// The ports of its runtimes' gears.
    pub(crate) taps: TapRegistry,
}

impl Bench {
    pub(crate) fn open(folder: &Path) -> Self {
        Self::open_with(folder, true)
    }

    /// The same, where telemetry may be switched off.
    pub(crate) fn open_with(folder: &Path, enabled: bool) -> Self {
        let clock = Clock::new(|| chrono::Utc::now().into());
        let limits = SpoolLimits::new(1 << 30, SpoolFullPolicy::Block);
        let (spool, thread, _) = spool::open(
            &folder.join("spool"),
            limits,
            clock.clone(),
            spool::SpoolKind::Telemetry,
        )
        .unwrap();
        let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
        let identity = watch::Sender::new(Some(RackIdentity {
            entity_id: EntityId::for_name("rack-a"),
            name: "rack-a".parse().unwrap(),
            cluster_key: key.verifying_key(),
            former_cluster_keys: Vec::new(),
        }));
        let counters = Arc::new(TelemetryCounters::default());
        let (recorder, receiver) = TelemetryRecorder::new(RecorderParts {
            enabled,
            sampling_rate: 1.0,
            clock,
            throttle: Arc::new(LogRateLimiter::new(LogThrottleConfig {
                enabled: false,
                rate: 1.0,
                burst: 1,
            })),
            spool: spool.clone(),
            identity: identity.subscribe(),
            counters: Arc::clone(&counters),
        });
        let cancel = CancellationToken::new();
        let batcher = RowBatcher {
            receiver,
            spool: spool.clone(),
            identity: identity.subscribe(),
            counters,
            cancel: cancel.clone(),
        };
        Self {
            recorder,
            spool,
            thread,
            batcher: tokio::spawn(batcher.run()),
            cancel,
            _identity: identity,
            drain: STOP_BOUND,
            programs: ProgramAllowList::default(),
            policy: RackPolicy::for_tests(),
            taps: TapRegistry::default(),
        }
    }

    pub(crate) fn runtime(&self) -> GearRuntime {
        self.runtime_with(MessageLimits::new(64, 2 << 20))
    }

    pub(crate) fn runtime_with(&self, limits: MessageLimits) -> GearRuntime {
        GearRuntime::start(RuntimeParts {
            recorder: self.recorder.clone(),
            entropy: Entropy::new(|buffer| getrandom::fill(buffer).unwrap()),
            limits,
            programs: self.programs.clone(),
            policy: self.policy.clone(),
            lane: None,
            taps: self.taps.clone(),
            patience: crate::runtime::PATIENCE,
            drain: self.drain,
        })
    }

    /// Every row of a table that is durable, in order.
    pub(crate) fn rows(&self, table: Table) -> Vec<Map<String, Value>> {
        let (reader, mut cursor) = (self.spool.reader(), SpoolCursor::default());
        let mut rows = Vec::new();
        loop {
            let batches = reader.read(&mut cursor, 1 << 20).unwrap();
            if batches.is_empty() {
                return rows;
            }
            for outgoing in batches {
                let SpoolItem::Batch(kept) = outgoing else {
                    panic!("a batch is lost")
                };
                if kept.table == table {
                    for batch in model::telemetry_codec::decode_arrow(table, &kept.payload).unwrap() {
                        rows.extend((0..batch.num_rows()).map(|row| model::batch::row_json(&batch, row)));
                    }
                }
            }
        }
    }

    /// The texts of a gear's log records.
    pub(crate) fn logs(&self, gear: &str) -> Vec<String> {
        let rows = self.rows(Table::Logs);
        let of_gear = rows.iter().filter(|row| row["attributes"]["gear.id"] == gear);
        of_gear.map(|row| row["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until `found` finds something in what is durable.
    pub(crate) async fn wait<T>(&self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let mut changed = self.spool.changed();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            changed.mark_unchanged();
            if let Some(found) = found(self) {
                return found;
            }
            let changed = tokio::time::timeout_at(deadline, changed.changed()).await;
            assert!(
                changed.is_ok(),
                "{what} did not happen; logs: {:#?}",
                self.rows(Table::Logs)
            );
        }
    }

    /// Waits for a log record of a gear that contains a text, and gives it back.
    pub(crate) async fn says(&self, gear: &str, text: &str) -> String {
        let what = format!("{gear} saying {text:?}");
        self.wait(&what, |bench| {
            bench.logs(gear).into_iter().find(|log| log.contains(text))
        })
        .await
    }

    /// Waits until a gear listens, and gives its address.
    pub(crate) async fn address(&self, gear: &str, scheme: &str) -> SocketAddr {
        let text = self.says(gear, &format!("listening on {scheme}://")).await;
        let (_, rest) = text.split_once("://").unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// The log records that a gear wrote of messages: its facts and its text.
    pub(crate) async fn records(&self, gear: &str, count: usize) -> Vec<Map<String, Value>> {
        self.wait(&format!("{count} records of {gear}"), |bench| {
            let rows = bench.rows(Table::Logs).into_iter();
            let of_messages = |row: &Map<String, Value>| {
                row["attributes"]["gear.id"] == gear && row["attributes"]["span_id"].is_string()
            };
            let rows: Vec<_> = rows.filter(of_messages).collect();
            (rows.len() >= count).then_some(rows)
        })
        .await
    }

    pub(crate) async fn close(self) {
        self.cancel.cancel();
        self.batcher.await.unwrap();
        assert!(self.thread.close(Duration::from_secs(10)).await);
    }
}
