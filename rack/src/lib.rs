//! The Rack agent: enrolment, heartbeat, the telemetry way with its spool, and the gears it runs.
//!
//! ```text
//! mixer_session ── hello, enrol, heartbeat ──▶ Mixer ── scenario, state, floor ──▶ command_listener
//!     │ identity, state                                                               │
//!     ▼                                                                               ▼
//! telemetry (recorder ─ batcher ─ spool ─ spool_publisher)  ◀── rows ── gears ◀── controller (one owner of what runs)
//! ```
//!
//! # Invariants
//!
//! - A Rack runs on without its Mixer: gears go on, telemetry waits in the spool.
//! - It stops within two seconds of being asked, in every state.
//!
//! # Not here
//!
//! Arguments, log files and the runtime of the process (the `platform` binary), storage, SQL.

mod agent;
mod applied_state;
mod command_listener;
pub mod config;
mod controller;
mod deadline;
mod enroll;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod gears;
mod host;
mod identity;
mod inbox;
pub mod message_limits;
mod mixer_session;
mod outbox;
mod policy;
mod rack_plan;
mod replay;
pub mod runtime;
pub mod sandbox;
pub mod scenario_test;
mod seal_error;
mod signed_rpc;
mod spool;
mod state_file;
mod tap;
pub mod telemetry;
mod wire_consumer;

pub use agent::{AdmissionStatus, AgentParts, AgentStatus, KeptInvite, RackAgent, admission_status, bus_options, join};
pub use error::Error;
pub use identity::RackIdentity;
pub use mixer_session::enrollment_options;
pub use seal_error::SealError;
pub use spool::SpoolError;

use std::io::Write as _;

use chassis::service_notifier::ServiceNotifier;
use model::control::RackState;
use tokio_util::sync::CancellationToken;

/// Runs a Rack until `stop` is cancelled. To the service manager it is ready when its gears may run: it needs no Mixer for that. Prints one line on standard output when its identity is known: `ready name=… id=…`
/// once it is active, before that `pending id=… key=SHA256:…` while it waits for approval.
///
/// # Errors
/// [`Error`] if it cannot start; its [`exit`](Error::exit) is the process's.
pub async fn run(parts: AgentParts, stop: CancellationToken) -> Result<(), Error> {
    let notifier = parts.notifier.clone();
    let agent = RackAgent::start(parts).await?;
    notifier.ready("waits for the Mixer to know it");
    let alive = agent.liveness_probe();
    let announced = async {
        announce(&agent, &notifier).await;
        std::future::pending().await
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = announced => {}
        never = notifier.beat(alive) => match never {},
    }
    notifier.stopping();
    agent.close().await;
    Ok(())
}

async fn announce(agent: &RackAgent, notifier: &ServiceNotifier) {
    let is_active = |status: &AgentStatus| status.identity.is_some() && status.state == Some(RackState::Active);
    let status = agent
        .wait_for(|status| is_active(status) || status.pending.is_some())
        .await;
    if let Some(id) = status.pending {
        print_line(&format!("pending id={id} key={}", agent.key_fingerprint()));
        notifier.status(&format!("waits for approval with the key {}", agent.key_fingerprint()));
    }
    if let Some((name, id)) = agent.wait_for(is_active).await.identity {
        print_line(&format!("ready name={name} id={id}"));
        notifier.status(&format!("active as {name}"));
    }
}

/// A line for whoever started us; nobody may be reading any more.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
