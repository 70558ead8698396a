//! Gears: the parts that run on a Rack. The contract every type keeps, and the table of types.
//!
//! An *active* gear has work of its own: it runs until it is asked to stop, finishes what it began and returns. A *passive*
//! gear is called once for each message that arrives, to flush when no more is waiting, and at the time for which it asks. A
//! *duplex* gear is both: two halves that run side by side and share what they want to share.
//!
//! ```text
//! build(config) ─▶ init ─▶ run ······ stop asked ─▶ finishes, returns            (active)
//!                     └──▶ process* flush process* … stop asked ─▶ drain, flush  (passive)
//! ```
//!
//! # Invariants
//!
//! - `init` takes what the gear needs from outside (a socket, a pattern); when it fails, the scenario is not applied.
//! - An error or a panic ends only this gear: it is reported, built anew and started again after a growing pause. A message
//!   that it rejects ends nothing: it is reported, and the next one comes.
//! - The halves of a duplex gear have one life: it ends when one of them fails, or when both have ended. The half that takes replies
//!   goes on until the other one, which has asked, has ended ([`shutdown`]).
//! - Adding a type is one file here, which has its work, one of the same name in [`gear_spec`], which has its manifest and its configuration,
//!   and that name in the list `gear_spec::gear_types!`.
//!
//! # Not here
//!
//! Starting and stopping ([`crate::runtime`]), queues in front of them ([`crate::inbox`]), restarts ([`supervisor`]).

mod codec;
mod context;
pub(crate) mod flux_headers;
mod framing;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod gear_counters;
mod http_client;
mod http_request_line;
mod level_detection;
mod mqtt;
mod output_transaction;
mod output_wires;
mod poll_schedule;
mod recent_keys;
mod request_authentication;
mod secret_file;
mod shutdown;
pub(crate) mod stall_watchdog;
pub(crate) mod supervisor;
mod tcp_connect;
mod tcp_listener;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
mod trace_context;
mod wired_gear;

pub(crate) use context::{ContextParts, GearContext, GearSendError, OpenSpan};
pub(crate) use exec::ProgramAllowList;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::targets as fuzz_targets;
pub(crate) use host_metrics::CpuTimes;
pub(crate) use output_wires::OutputWires;
pub(crate) use shutdown::GearShutdown;
pub(crate) use wired_gear::{WireTarget, WiredGear};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use gear_spec::expression::ExpressionError;
use model::MessageId;
use model::gear_manifest::GearManifest;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::inbox::InputMessage;
use crate::spool::RecordingError;

/// What a gear does, to be awaited.
pub(crate) type GearFuture<'a> = BoxFuture<'a, Result<(), GearError>>;

pub(crate) use window::forget_windows;

/// A gear's configuration as the scenario gives it.
pub(crate) type RawConfig = Map<String, Value>;

/// A gear with work of its own.
pub(crate) trait ActiveGear: Send {
    /// Takes what the gear needs from outside.
    fn init<'a>(&'a mut self, _cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        ready(Ok(())).boxed()
    }

    /// Works until [`GearContext::stopping`] or until nothing is left to do.
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a>;
}

/// A gear that works on what arrives.
pub(crate) trait PassiveGear: Send {
    /// Takes what the gear needs from outside.
    fn init<'a>(&'a mut self, _cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        ready(Ok(())).boxed()
    }

    /// Handles one message; `message.span_id` is already this gear's span.
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a>;

    /// Whether it does several messages' work together: a message of a guaranteed wire is done only after [`flush`](Self::flush)
    /// then, and comes again where the gear fails before that.
    fn holds_back(&self) -> bool {
        false
    }

    /// Finishes what it holds back: called whenever no message is waiting, about ten times a second while messages of a guaranteed
    /// wire keep coming (after each of them if it [holds nothing back](Self::holds_back)), and last of all.
    fn flush<'a>(&'a mut self, _cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        ready(Ok(())).boxed()
    }

    /// The first message that the last flush could not finish without waiting: it and those behind it are not done, and the next
    /// messages are not held up for them. It must want to be [woken](Self::wake_at) then.
    fn unfinished(&self) -> Option<MessageId> {
        None
    }

    /// As much is held as may be: the next flush must leave nothing unfinished, or nothing more would come. A gear whose
    /// messages are finished by what comes from elsewhere cannot obey.
    fn finish_all(&mut self) {}

    /// When it wants to be woken, if nothing arrives before. Asked anew after every message and every wake.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Does what is due; [`wake_at`](Self::wake_at) is later then.
    fn wake<'a>(&'a mut self, _cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        ready(Ok(())).boxed()
    }
}

/// A gear that was built.
pub(crate) enum Gear {
    Active(Box<dyn ActiveGear>),
    Passive(Box<dyn PassiveGear>),
    /// The active half is initialised first.
    Duplex(Box<dyn ActiveGear>, Box<dyn PassiveGear>),
}

impl Gear {
    pub(crate) fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        match self {
            Self::Active(gear) => gear.init(cx),
            Self::Passive(gear) => gear.init(cx),
            Self::Duplex(active, passive) => async move {
                active.init(cx).await?;
                passive.init(cx).await
            }
            .boxed(),
        }
    }
}

/// Why a gear cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GearError {
    /// The configuration does not fit.
    #[error("{0}")]
    Config(String),
    /// The address is not to be had.
    #[error("cannot listen on {address}: {reason}{hint}", hint = listen_hint(reason))]
    Listen { address: SocketAddr, reason: io::Error },
    /// This message cannot be handled, now or later. The gear goes on with the next one.
    #[error("{0}")]
    Rejected(String),
    /// Something outside refuses for now: a file, a connection. The gear begins anew, and on a guaranteed wire the message comes
    /// again.
    #[error("cannot {what}: {reason}")]
    Outside { what: String, reason: io::Error },
    /// The rows could not be made durable.
    #[error(transparent)]
    NotRecorded(#[from] RecordingError),
    /// A thread of work ended without a result.
    #[error("the work was aborted: {0}")]
    CutOff(#[from] tokio::task::JoinError),
    /// What failed, in a test.
    #[cfg(test)]
    #[error("{0}")]
    Test(&'static str),
}

impl From<ExpressionError> for GearError {
    fn from(error: ExpressionError) -> Self {
        Self::Rejected(error.into())
    }
}

fn listen_hint(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AddrInUse => "; another program or gear has this port: stop it or choose another port",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege: choose a higher port",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}

/// A row of the table of types.
#[derive(Debug)]
pub(crate) struct GearDefinition {
    manifest: &'static GearManifest,
    build: fn(&RawConfig) -> Result<Gear, String>,
}

impl PartialEq for GearDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// The table of types: the manifest of each, and what builds a gear.
macro_rules! types {
    ($($module:ident)*) => {
        $(mod $module;)*
        static TYPES: &[GearDefinition] =
            &[$(GearDefinition { manifest: &gear_spec::$module::MANIFEST, build: $module::build }),*];
    };
}

gear_spec::gear_types!(types);

/// The type of a name.
pub(crate) fn find(name: &str) -> Option<&'static GearDefinition> {
    let mut types = TYPES.iter();
    #[cfg(test)]
    let mut types = types.by_ref().chain(testing::TYPES);
    types.find(|kind| kind.name() == name)
}

impl GearDefinition {
    /// What a scenario calls it.
    pub(crate) const fn name(&self) -> &'static str {
        self.manifest.kind
    }

    /// A gear of this type.
    pub(crate) fn build(&self, config: &RawConfig) -> Result<Gear, GearError> {
        (self.build)(config).map_err(GearError::Config)
    }

    /// Checks a configuration against the manifest.
    pub(crate) fn check(&self, config: &RawConfig) -> Result<(), String> {
        (self.manifest.check)(config)
    }

    /// Ports that take messages.
    pub(crate) const fn inputs(&self) -> &'static [&'static str] {
        self.manifest.inputs
    }

    /// Whether what arrives goes back to who asked this very gear: its only input is `reply`.
    pub(crate) fn answers(&self) -> bool {
        self.inputs() == ["reply"]
    }

    /// Ports that give messages.
    pub(crate) const fn outputs(&self) -> &'static [&'static str] {
        self.manifest.outputs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_expression_that_fails_on_a_message_rejects_the_message_and_not_the_gear() {
        let number = gear_spec::expression::CelExpression::compile("where", "data.id").unwrap();
        let message = testing::message(1, serde_json::json!({"id": 7}), b"");
        let failed = number.is_true(&gear_spec::expression::MessageVariables::of(&message));
        assert!(matches!(GearError::from(failed.unwrap_err()), GearError::Rejected(_)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_example_that_makes_its_own_messages_and_keeps_them_reaches_its_sinks() {
        let outside = |kind: &str| {
            ["tcp", "http", "file", "syslog", "exec", "modbus", "mqtt"]
                .iter()
                .any(|word| kind.contains(word))
        };
        let examples = gear_spec::manifests().iter().filter(|manifest| {
            let scenario = model::scenario::parse(manifest.example, gear_spec::manifests()).unwrap();
            let mut kinds = scenario.gears.iter().map(|gear| gear.kind.as_str());
            kinds.any(|kind| kind == "log_sink") && !scenario.gears.iter().any(|gear| outside(&gear.kind))
        });
        let runs: Vec<_> = examples
            .map(|manifest| testing::Flow::reaches_every_sink(manifest.example))
            .collect();
        assert!(runs.len() >= 9, "{}", runs.len());
        futures::future::join_all(runs).await;
    }
}
