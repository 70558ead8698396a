//! Supervised tasks: each is joined by its owner, and one that stops unexpectedly stops the Mixer.
//!
//! # Invariants
//!
//! - A panic, or an end that nobody asked for, reaches [`FailureReceiver::first`]; nothing fails silently in the background.
//! - A dropped [`SupervisedTask`] is aborted: no task outlives its owner.

use std::future::Future;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where failures are reported.
#[derive(Debug, Clone)]
pub(crate) struct FailureReporter {
    failures: mpsc::Sender<String>,
}

/// Where failures arrive.
#[derive(Debug)]
pub(crate) struct FailureReceiver {
    failures: mpsc::Receiver<String>,
}

/// A pair of ends.
pub(crate) fn failure_channel() -> (FailureReporter, FailureReceiver) {
    let (sender, receiver) = mpsc::channel(1);
    (
        FailureReporter { failures: sender },
        FailureReceiver { failures: receiver },
    )
}

impl FailureReporter {
    /// Reports a failure; only the first one counts.
    pub(crate) fn raise(&self, what: String) {
        let _ = self.failures.try_send(what);
    }
}

impl FailureReceiver {
    /// The first failure.
    pub(crate) async fn first(&mut self) -> String {
        match self.failures.recv().await {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

/// A running task.
#[derive(Debug)]
pub(crate) struct SupervisedTask {
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

impl SupervisedTask {
    /// Runs `body` until its token is cancelled; any other end is a failure.
    pub(crate) fn spawn<F>(
        name: &'static str,
        fatal: &FailureReporter,
        body: impl FnOnce(CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::run(name, fatal, body, false)
    }

    /// Runs `body`, which may end when its work is done; only a panic is a failure.
    pub(crate) fn spawn_once<F>(
        name: &'static str,
        fatal: &FailureReporter,
        body: impl FnOnce(CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::run(name, fatal, body, true)
    }

    fn run<F>(
        name: &'static str,
        fatal: &FailureReporter,
        body: impl FnOnce(CancellationToken) -> F,
        may_end: bool,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let alarm = TaskGuard {
            name,
            fatal: fatal.clone(),
            stop: stop.clone(),
            may_end,
        };
        let body = body(stop.clone());
        let handle = tokio::spawn(async move {
            let _alarm = alarm;
            body.await;
        });
        Self { stop, handle }
    }

    /// Asks the task to end and waits for it.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        // A panic was reported by the alarm.
        let _ = (&mut self.handle).await;
    }
}

impl Drop for SupervisedTask {
    fn drop(&mut self) {
        self.stop.cancel();
        self.handle.abort();
    }
}

struct TaskGuard {
    name: &'static str,
    fatal: FailureReporter,
    stop: CancellationToken,
    may_end: bool,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fatal.raise(format!("the task {} panicked", self.name));
        } else if !self.may_end && !self.stop.is_cancelled() {
            self.fatal.raise(format!("the task {} stopped unexpectedly", self.name));
        }
    }
}
