//! Gears: the parts that run on a Rack. The contract every type keeps, and the table of types.
//!
//! An *active* gear has work of its own: it runs until it is asked to stop, finishes what it began and returns. A *passive*
//! gear is called once for each message that arrives, and to flush when no more is waiting.
//!
//! ```text
//! build(config) ─▶ init ─▶ run ······ stop asked ─▶ finishes, returns            (active)
//!                     └──▶ process* flush process* … stop asked ─▶ drain, flush  (passive)
//! ```
//!
//! # Invariants
//!
//! - `init` takes what the gear needs from outside (a socket, a pattern); when it fails, the scenario is not applied.
//! - An error or a panic ends only this gear: it is reported, built anew and started again after a growing pause.
//! - Adding a type is one file here, one row in [`TYPES`], and one manifest in `model::gear`.
//!
//! # Not here
//!
//! Starting and stopping ([`crate::runtime`]), queues between gears ([`crate::wires`]), restarts ([`supervisor`]).

mod context;
mod file_tail;
mod generator;
mod host_metrics;
mod http_in;
mod log_sink;
mod meter;
pub(crate) mod supervisor;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod traceparent;

pub(crate) use context::{Context, ContextParts, Refused};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::{Map, Value};

use crate::telemetry::NotRecorded;
use crate::wires::Delivery;

/// What a gear does, to be awaited.
pub(crate) type Work<'a> = BoxFuture<'a, Result<(), Fault>>;

/// A gear's configuration as the scenario gives it.
pub(crate) type Config = Map<String, Value>;

/// A gear with work of its own.
pub(crate) trait Active: Send {
    /// Takes what the gear needs from outside.
    fn init<'a>(&'a mut self, _cx: &'a Arc<Context>) -> Work<'a> {
        ready(Ok(())).boxed()
    }

    /// Works until [`Context::stopping`] or until nothing is left to do.
    fn run<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a>;
}

/// A gear that works on what arrives.
pub(crate) trait Passive: Send {
    /// Takes what the gear needs from outside.
    fn init<'a>(&'a mut self, _cx: &'a Arc<Context>) -> Work<'a> {
        ready(Ok(())).boxed()
    }

    /// Handles one message; `message.span_id` is already this gear's span.
    fn process<'a>(&'a mut self, cx: &'a Arc<Context>, delivery: Delivery) -> Work<'a>;

    /// Finishes what it holds back: called whenever no message is waiting, and last of all.
    fn flush<'a>(&'a mut self, _cx: &'a Arc<Context>) -> Work<'a> {
        ready(Ok(())).boxed()
    }
}

/// A gear that was built.
pub(crate) enum Gear {
    Active(Box<dyn Active>),
    Passive(Box<dyn Passive>),
}

impl Gear {
    pub(crate) fn init<'a>(&'a mut self, cx: &'a Arc<Context>) -> Work<'a> {
        match self {
            Self::Active(gear) => gear.init(cx),
            Self::Passive(gear) => gear.init(cx),
        }
    }
}

/// Why a gear cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The configuration does not fit.
    #[error("{0}")]
    Config(String),
    /// The address is not to be had.
    #[error("cannot listen on {address}: {reason}{hint}", hint = listen_hint(reason))]
    Listen { address: SocketAddr, reason: io::Error },
    /// The rows could not be made durable.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    /// A thread of work ended without a result.
    #[error("the work was cut off: {0}")]
    CutOff(#[from] tokio::task::JoinError),
    /// What failed, in a test.
    #[cfg(test)]
    #[error("{0}")]
    Test(&'static str),
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
pub(crate) struct GearType {
    pub(crate) name: &'static str,
    build: fn(&Config) -> Result<Gear, String>,
}

impl PartialEq for GearType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Every type this program can run.
static TYPES: &[GearType] = &[
    GearType {
        name: "file_tail",
        build: file_tail::build,
    },
    GearType {
        name: "host_metrics",
        build: host_metrics::build,
    },
    GearType {
        name: "generator",
        build: generator::build,
    },
    GearType {
        name: "http_in",
        build: http_in::build,
    },
    GearType {
        name: "log_sink",
        build: log_sink::build,
    },
];

/// The type of a name.
pub(crate) fn find(name: &str) -> Option<&'static GearType> {
    let mut types = TYPES.iter();
    #[cfg(test)]
    let mut types = types.by_ref().chain(testing::TYPES);
    types.find(|kind| kind.name == name)
}

impl GearType {
    /// A gear of this type.
    pub(crate) fn build(&self, config: &Config) -> Result<Gear, Fault> {
        (self.build)(config).map_err(Fault::Config)
    }

    /// Checks a configuration against the manifest.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        model::gear::manifest(self.name).map_or(Ok(()), |manifest| manifest.check(config))
    }

    /// Ports that take messages.
    pub(crate) fn inputs(&self) -> &'static [&'static str] {
        self.ports().0
    }

    /// Ports that give messages.
    pub(crate) fn outputs(&self) -> &'static [&'static str] {
        self.ports().1
    }

    fn ports(&self) -> (&'static [&'static str], &'static [&'static str]) {
        let manifest = model::gear::manifest(self.name).map(|manifest| (manifest.inputs, manifest.outputs));
        #[cfg(test)]
        let manifest = manifest.or_else(|| testing::ports(self.name));
        manifest.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_scenarios_may_name_can_be_run_here_and_no_other() {
        let mut ours: Vec<_> = TYPES.iter().map(|kind| kind.name).collect();
        let mut named = model::gear::type_names();
        ours.sort_unstable();
        named.sort_unstable();
        assert_eq!(ours, named);
    }
}
