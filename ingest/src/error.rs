//! The errors of ingest.

/// Why the pipeline cannot go on by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bus does not let us read a stream.
    #[error("cannot {action} on the bus: {reason}")]
    Bus {
        /// What was tried.
        action: String,
        /// What the bus said.
        reason: String,
    },
    /// The engine takes no more rows.
    #[error("the storage engine refused a batch")]
    Engine(#[from] engine::Error),
    /// A task of the pipeline ended by panic.
    #[error("the ingest task failed: {0}")]
    TaskDied(#[from] tokio::task::JoinError),
}

/// An error of the bus while `action` was done to `name`.
pub(crate) fn bus_error<E: std::fmt::Display>(action: &'static str, name: &str) -> impl FnOnce(E) -> Error {
    let action = format!("{action} {name}");
    move |error| Error::Bus {
        action,
        reason: error.to_string(),
    }
}
