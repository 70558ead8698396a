//! Shutdown signals: SIGTERM and SIGINT cancel a token; the second one ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Exit code of a process ended by a second signal: 128 + SIGINT, as a shell would say it.
const IMPATIENT: i32 = 130;

/// Listens for the signals that ask a process to stop.
#[derive(Debug)]
pub struct ShutdownListener {
    token: CancellationToken,
    task: JoinHandle<()>,
}

impl ShutdownListener {
    /// Starts listening. Must be called within a tokio runtime, once.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn start() -> Result<Self, Error> {
        let terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let token = CancellationToken::new();
        let task = tokio::spawn(listen(terminate, interrupt, token.clone()));
        Ok(Self { token, task })
    }

    /// Cancelled by the first signal.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Stops listening.
    pub async fn close(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn listen(mut terminate: Signal, mut interrupt: Signal, token: CancellationToken) {
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::info!(signal = name, "stopping; a second signal ends the process at once");
    token.cancel();
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::warn!(signal = name, "second signal: exiting without a clean shutdown");
    std::process::exit(IMPATIENT);
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_asks_to_stop() {
        let shutdown = ShutdownListener::start().unwrap();
        let token = shutdown.token();
        assert!(!token.is_cancelled());
        raise(Signal::SIGTERM).unwrap();
        tokio::time::timeout(Duration::from_secs(5), token.cancelled())
            .await
            .unwrap();
        shutdown.close().await;
    }
}
