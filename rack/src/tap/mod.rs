//! Taps: samples of the messages that leave output ports, for somebody who watches, without any effect on the flow.
//!
//! ```text
//! gear ─ Context::send ─▶ TapPoint ─ try_reserve ─▶ queue (bounded) ─▶ TapLeases' task ─▶ bus ─▶ Mixer ─▶ watcher
//!            │               │ a port that nobody watches: one atomic load
//!            ▼               └ no budget, no room: counted, not shown
//!        its wires
//! ```
//!
//! | bound | of what |
//! |---|---|
//! | [`MOST_TAPS`] | taps at once |
//! | [`BYTES_A_SECOND`] | what one tap shows |
//! | one batch | what one tap has in the queue of the bus connection |
//! | [`QUEUED`] samples of `model::tap::MOST_BODY` and `MOST_FACTS` | what one tap holds |
//!
//! # Invariants
//!
//! - A gear never waits for a tap, and a message is not copied whole for it.
//! - A point belongs to a gear's name, not to its task: a tap stays while its gear is replaced. It ends when a scenario has no such gear.
//! - Taps are kept nowhere: they end with the Rack.
//! - A sample is given out in the order of its number, and a number that no sample has was counted at the port.
//! - A message is shown when its gear has sent it. One that a guaranteed wire brings again after a fault is sent, and shown, again.

mod leases;
mod registry;
mod sample;
#[cfg(test)]
mod tests;

pub(crate) use leases::TapLeases;
pub(crate) use registry::{TapPoint, TapRegistry};

/// How many taps a Rack has at most.
pub(crate) const MOST_TAPS: usize = 8;
/// What one tap shows in a second, in bytes.
const BYTES_A_SECOND: i64 = 1 << 20;
/// A batch with as much as this is not added to: with its last sample it is smaller than `model::tap::MOST_BATCH`.
const BATCH_BYTES: u64 = 32 << 10;
/// How many samples wait for the bus.
const QUEUED: usize = 128;
