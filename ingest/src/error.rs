//! Errors that end the pipeline.

/// Why the pipeline cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A stream cannot be read.
    #[error("cannot {action} on the bus: {reason}")]
    Bus {
        /// What was tried.
        action: String,
        /// The bus's answer.
        reason: String,
    },
    /// The engine takes no more rows.
    #[error("the storage engine refused a batch")]
    Engine(#[from] engine::Error),
    /// A task of the pipeline panicked.
    #[error("the ingest task failed: {0}")]
    TaskDied(#[from] tokio::task::JoinError),
}

/// Makes the error of a bus request that did `action` to `name`.
pub(crate) fn bus_error<E: std::fmt::Display>(action: &'static str, name: &str) -> impl FnOnce(E) -> Error {
    let action = format!("{action} {name}");
    move |error| Error::Bus {
        action,
        reason: error.to_string(),
    }
}
