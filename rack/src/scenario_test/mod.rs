//! Unit tests of scenarios: a case is given to real gears in this process, without a bus and without a Mixer.
//!
//! ```text
//! given ─▶ inbox ─▶ gear ─▶ gear ─┬─▶ inbox of a gear that is not started ─▶ recorded
//!                                 └─▶ inbox of a port that is watched ─────▶ recorded
//! ```
//!
//! # Invariants
//!
//! - Gears that reach outside (sockets, files, programs, the machine) are not started: what they would send is given, what they would take is recorded.
//! - Who runs a case runs it on his own machine, with files of his own: no policy of a Rack bounds it.
//! - Every wire is a hot one, and every gear runs here, whatever lanes and Racks the scenario has.
//! - A case ends when as much has passed as is expected, or at its timeout. Then gears stop, senders first, so that all that was given is
//!   handled; what they send meanwhile counts.
//! - A case whose messages were not all taken, or whose gears had to be cut off, has failed, whatever came.
//! - What is recorded is bounded ([`MOST_SEEN`], [`MOST_SEEN_BYTES`]).
//!
//! # Not here
//!
//! What is expected is judged by who runs the case.

mod case_validation;
mod port_recorder;
mod temp_folder;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chassis::config::LogThrottleConfig;
use chassis::log_rate_limiter::LogRateLimiter;
use gear_spec::expression::{CelExpression, MessageVariables};
use model::control::ScenarioPush;
use model::message::Message;
use model::scenario::{Gear, Lane, Scenario, Wire};
use model::scenario_test::{MessagePattern, ScenarioTestCase, ScenarioTestPort};
use model::{Attributes, Clock, EntityId, Entropy, FluxId, Level, MessageId, SpanId, Timestamp, Token, TraceId};
use serde_json::Value;

use crate::gears::{OutputWires, ProgramAllowList, WireTarget, WiredGear};
use crate::inbox::{GearInbox, InboxMessage};
use crate::message_limits::MessageLimits;
use crate::policy::RackPolicy;
use crate::rack_plan::{self, RackPlan, ScenarioApplyError};
use crate::runtime::{GearRuntime, PATIENCE, RuntimeParts};
use crate::spool::{self, SpoolFullPolicy, SpoolLimits};
use crate::tap::TapRegistry;
use crate::telemetry::{RecorderParts, RecorderReceiver, TelemetryRecorder, TelemetryRow};
pub use case_validation::validate_case;
use port_recorder::{PortRecorder, SeenByPort};
use temp_folder::ScenarioTestFolder;

/// Types that take from and give to other gears only.
const INSIDE: &[&str] = &[
    "batch",
    "codec_cbor",
    "codec_csv",
    "codec_json",
    "correlate",
    "deadband",
    "dedupe",
    "filter",
    "generator",
    "map",
    "route",
    "throttle",
    "timer",
    "wasm",
    "window",
];
/// Types that reach outside: sockets, files, the machine, the store.
#[cfg(test)]
const OUTSIDE: &[&str] = &[
    "exec",
    "file_out",
    "file_tail",
    "host_metrics",
    "http_get",
    "http_in",
    "http_out",
    "journald_in",
    "log_sink",
    "modbus",
    "mqtt_in",
    "mqtt_out",
    "otlp_in",
    "otlp_out",
    "prometheus_scrape",
    "syslog_in",
    "tcp_in",
    "tcp_out",
];
/// How many messages of a port are recorded.
pub const MOST_SEEN: usize = 10_000;
/// How many bytes of messages of all ports are recorded.
pub const MOST_SEEN_BYTES: usize = 64 << 20;
/// How long gears may take to finish what they began.
const DRAIN: Duration = Duration::from_secs(5);
/// The Rack that all gears run on.
const RACK: &str = "test";

/// Why a case did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioTestError {
    /// The gears do not start.
    #[error("{0}")]
    NotStarted(String),
    /// The working folder.
    #[error("cannot make a working folder: {0}")]
    Folder(#[from] std::io::Error),
    /// What gears record cannot be kept.
    #[error(transparent)]
    Spool(#[from] crate::SpoolError),
    /// More than is recorded.
    #[error(
        "more than {MOST_SEEN} messages passed {0}, or {MOST_SEEN_BYTES} bytes all ports: let fewer come, a generator by its count"
    )]
    TooMany(ScenarioTestPort),
}

/// What came of a case.
#[derive(Debug, Clone, Default)]
pub struct ScenarioTestReport {
    /// The messages of the ports that something is expected of.
    pub seen: BTreeMap<ScenarioTestPort, Vec<Message>>,
    /// What kept the case from its end, a line each.
    pub failures: Vec<String>,
    /// What gears complained of, a line each.
    pub complaints: Vec<String>,
}

/// A condition on messages, in the expressions of gears.
#[derive(Debug)]
pub struct MessageCondition(CelExpression);

impl MessageCondition {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn compile(text: &str) -> Result<Self, String> {
        CelExpression::compile("where", text).map(Self)
    }

    /// Whether it is true for a message.
    ///
    /// # Errors
    /// If it has no value for this message.
    pub fn is_true(&self, message: &Message) -> Result<bool, String> {
        self.0
            .is_true(&MessageVariables::of(message))
            .map_err(|fault| fault.to_string())
    }
}

/// Whether gears of a type are started; others reach outside.
fn is_started(kind: &str) -> bool {
    INSIDE.contains(&kind)
}

/// Runs a case of a scenario that it [fits](validate_case).
///
/// # Errors
/// [`ScenarioTestError`] if it could not run.
pub async fn run(
    scenario: &Scenario,
    case: &ScenarioTestCase,
    ambient: (&Clock, &Entropy),
) -> Result<ScenarioTestReport, ScenarioTestError> {
    let stage = ScenarioTestSetup::set(scenario, case)?;
    let folder = ScenarioTestFolder::make(ambient.1)?;
    let (clock, entropy) = ambient;
    let limits = SpoolLimits::new(16 << 20, SpoolFullPolicy::Block);
    let (spool, thread, _) = spool::open(folder.path(), limits, clock.clone(), spool::SpoolKind::Telemetry)?;
    let (recorder, intake) = TelemetryRecorder::new(RecorderParts {
        enabled: true,
        sampling_rate: 0.0,
        clock: clock.clone(),
        throttle: Arc::new(LogRateLimiter::new(LogThrottleConfig {
            enabled: true,
            rate: 10.0,
            burst: 20,
        })),
        spool,
        identity: tokio::sync::watch::channel(None).1,
        counters: Arc::default(),
    });
    let parts = RuntimeParts {
        recorder,
        entropy: entropy.clone(),
        limits: MessageLimits::new(64, 2 << 20),
        lane: None,
        programs: ProgramAllowList::default(),
        policy: RackPolicy::unrestricted(),
        taps: TapRegistry::default(),
        patience: PATIENCE,
        drain: DRAIN,
    };
    let played = stage.play(case, parts, ambient).await;
    thread.close(DRAIN).await;
    let (seen, failures) = played?;
    Ok(ScenarioTestReport {
        seen,
        failures,
        complaints: complaints(&intake),
    })
}

/// What gears logged as warnings and errors.
fn complaints(receiver: &RecorderReceiver) -> Vec<String> {
    let rows = receiver.queue().take().into_iter();
    rows.filter_map(|row| match row {
        TelemetryRow::Log(log) if matches!(log.level, Level::Warn | Level::Error) => {
            let gear = log
                .attributes
                .get("gear.id")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Some(format!("{gear}: {}", log.message))
        }
        _ => None,
    })
    .collect()
}

/// The gears of a case before they are started.
struct ScenarioTestSetup {
    plan: RackPlan,
    /// All gears, also those that are not started.
    specs: BTreeMap<Token, WiredGear>,
    /// The inboxes that are recorded.
    watched: BTreeMap<Token, (GearInbox, Vec<ScenarioTestPort>)>,
}

impl ScenarioTestSetup {
    fn set(scenario: &Scenario, case: &ScenarioTestCase) -> Result<Self, ScenarioTestError> {
        let not_started = |reason: ScenarioApplyError| ScenarioTestError::NotStarted(reason.to_string());
        let mut plan = rack_plan::plan(&push(scenario), None).map_err(not_started)?;
        let specs = plan.gears.clone();
        plan.gears.retain(|_, spec| is_started(spec.kind.name()));
        let mut watched = BTreeMap::new();
        let outside = specs.iter().filter(|(name, _)| !plan.gears.contains_key(*name));
        for (name, spec) in outside.filter(|(_, spec)| spec.takes_messages()) {
            let ports = spec.kind.inputs().iter().filter_map(|port| port_of(name, port, true));
            watched.insert(name.clone(), (GearInbox::new(), ports.collect()));
        }
        let mut stage = Self { plan, specs, watched };
        let outputs: BTreeSet<&ScenarioTestPort> = case.expect.iter().map(|expected| &expected.port).collect();
        for port in outputs.into_iter().filter(|port| !port.is_input) {
            stage.watch(port)?;
        }
        Ok(stage)
    }

    /// Wires an output to an inbox that is recorded.
    fn watch(&mut self, port: &ScenarioTestPort) -> Result<(), ScenarioTestError> {
        let name = self.free_name()?;
        let spec = self.plan.gears.get_mut(&port.gear);
        let found = spec.and_then(|spec| {
            let mut outputs = spec.kind.outputs().iter().copied();
            let output = outputs.find(|output| *output == port.port.as_str())?;
            Some((spec, output))
        });
        let Some((spec, output)) = found else {
            return Err(ScenarioTestError::NotStarted(format!("there is no output {port}")));
        };
        spec.targets.push(WireTarget {
            from: output,
            gear: name.clone(),
            to: output,
        });
        self.watched.insert(name, (GearInbox::new(), vec![port.clone()]));
        Ok(())
    }

    /// A name that no gear has.
    fn free_name(&self) -> Result<Token, ScenarioTestError> {
        let names = (1_u32..).filter_map(|number| format!("watched-{number}").parse::<Token>().ok());
        let is_free = |name: &Token| !self.specs.contains_key(name) && !self.watched.contains_key(name);
        let none = || ScenarioTestError::NotStarted("there are too many gears".to_owned());
        names.into_iter().find(is_free).ok_or_else(none)
    }

    async fn play(
        self,
        case: &ScenarioTestCase,
        parts: RuntimeParts,
        (clock, entropy): (&Clock, &Entropy),
    ) -> Result<(SeenByPort, Vec<String>), ScenarioTestError> {
        let beside: BTreeMap<Token, GearInbox> = self
            .watched
            .iter()
            .map(|(name, (inbox, _))| (name.clone(), inbox.clone()))
            .collect();
        let recorder = PortRecorder::start(self.watched.into_values());
        let mut runtime = GearRuntime::start(parts);
        let applied = runtime.apply_beside(self.plan, beside.clone()).await;
        applied.map_err(|reason| ScenarioTestError::NotStarted(reason.to_string()))?;
        let inboxes = runtime.inboxes().chain(beside).collect();
        let all: usize = case.given.iter().map(|given| given.messages.len()).sum();
        let mut taken = 0;
        // A gear that takes no more than fits its inbox holds up what is given, until the end of the case.
        let playing = async {
            for given in &case.given {
                for pattern in &given.messages {
                    let message = message(pattern, clock.now(), entropy);
                    give(&given.port, message, &self.specs, &inboxes).await;
                    taken += 1;
                }
            }
            recorder.wait_for(&case.expect).await;
        };
        // A case that does not come to its end is judged by what came.
        tokio::time::timeout(case.timeout.get(), playing).await.ok();
        drop(inboxes);
        let cut_off = runtime.close().await.into_iter();
        let not_taken = (taken < all).then(|| format!("only {taken} of {all} given messages were taken"));
        let hung = cut_off.map(|gear| format!("gear {gear} did not stop within {DRAIN:?} and was aborted"));
        let failures = not_taken.into_iter().chain(hung).collect();
        Ok((recorder.finish().await?, failures))
    }
}

/// Hands a message to a gear, or to those behind one that is not started.
async fn give(
    port: &ScenarioTestPort,
    message: Message,
    specs: &BTreeMap<Token, WiredGear>,
    inboxes: &BTreeMap<Token, GearInbox>,
) {
    let Some(spec) = specs.get(&port.gear) else { return };
    if !port.is_input {
        return OutputWires::connect(spec, inboxes)
            .send(port.port.as_str(), message)
            .await;
    }
    let mut inputs = spec.kind.inputs().iter().copied();
    let input = inputs.find(|input| *input == port.port.as_str());
    if let Some((inbox, input)) = inboxes.get(&port.gear).zip(input) {
        let arrival = InboxMessage {
            port: input,
            message: Ok(message),
            receipt: None,
        };
        // The inbox lives as long as the case.
        inbox.sender().send(arrival).await.ok();
    }
}

/// All gears of a scenario on one Rack, and its wires as hot ones.
fn push(scenario: &Scenario) -> ScenarioPush {
    let rack = Token::nearest(RACK);
    let gears = scenario.gears.iter().map(|gear| Gear {
        deploy: rack.clone(),
        ..gear.clone()
    });
    let wires = scenario.wires.iter().map(|wire| {
        let mut wire = Wire {
            lane: Some(Lane::Hot),
            ..wire.clone()
        };
        (wire.from.rack, wire.to.rack) = (None, None);
        wire
    });
    ScenarioPush {
        entity_id: EntityId::for_name(RACK),
        issued: Timestamp::from_micros(0),
        reference: format!("{}:{}", scenario.meta.name, scenario.meta.version),
        hash: String::new(),
        gears: gears.collect(),
        wires: wires.collect(),
        inlets: Vec::new(),
        credits: Vec::new(),
    }
}

fn port_of(gear: &Token, port: &str, is_input: bool) -> Option<ScenarioTestPort> {
    Some(ScenarioTestPort {
        gear: gear.clone(),
        port: port.parse().ok()?,
        is_input,
    })
}

fn message(pattern: &MessagePattern, ts: Timestamp, entropy: &Entropy) -> Message {
    Message {
        id: MessageId::at(ts, entropy.bytes()),
        ts,
        raw: pattern.raw().unwrap_or_default().to_vec(),
        data: pattern.data.clone().unwrap_or_default(),
        hops: 0,
        meta: Attributes::flatten(pattern.meta.clone()),
        parent: None,
        flux_id: FluxId::at(ts, entropy.bytes()),
        sampled: false,
        span_id: SpanId::from_entropy(entropy.bytes()),
        trace_id: TraceId::from_entropy(entropy.bytes()),
        trace_state: None,
    }
}
