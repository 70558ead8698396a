//! What the runtime and a gear say to each other about the gear's end.
//!
//! ```text
//! stop ─▶ the gear's own work ends ─▶ quiet            (what it feeds is stopped only then)
//!      └▶ its inbox is drained, as soon as it is the last that comes: at once,
//!         or where the gear answers requests, once it is quiet and `unfed`
//! ```
//!
//! # Invariants
//!
//! - A gear that answers requests has no successor for its inbox: the requests that replies name end with its life.

use tokio_util::sync::CancellationToken;

/// See the module. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct GearShutdown {
    /// The gear shall stop.
    pub(crate) stop: CancellationToken,
    /// Cancelled before `stop` where another gear takes over the inbox.
    pub(crate) successor: CancellationToken,
    /// Cancelled where what sends to a gear that answers has stopped, or goes on without it.
    pub(crate) unfed: CancellationToken,
    /// Cancelled by the gear: it sends nothing of its own any more.
    pub(crate) quiet: CancellationToken,
}

impl GearShutdown {
    /// Stops all of the gear.
    pub(crate) fn stop_all(&self) {
        self.stop.cancel();
        self.unfed.cancel();
    }
}
