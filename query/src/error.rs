//! The errors of a query, each with the thing, the value and the fix.

use std::sync::Arc;

use arrow_schema::ArrowError;
use datafusion::error::DataFusionError;
use model::{ByteSize, HumanDuration};
use parquet::errors::ParquetError;

use crate::limits::QueryLimits;
use crate::session_pool::is_contention;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter cannot be used.
    #[error("{parameter}: {reason}")]
    Parameter {
        /// Its name in the query string.
        parameter: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The thing that was asked for by id is not in the store.
    #[error("no {what} {id:?} {place}")]
    NotFound {
        /// The kind of thing: `trace`, `metric`.
        what: &'static str,
        /// What was asked for.
        id: String,
        /// Where was looked, and what to try.
        place: String,
    },
    /// The scope of who asks does not have a table.
    #[error("this token may not read {table}: {reason}")]
    Forbidden {
        /// The table, as it was named.
        table: String,
        /// Why, and what would help.
        reason: &'static str,
    },
    /// The rows of a table are not stored here.
    #[error("{table} are not stored here: observability.tier is \"otlp\", they are sent to {place}; ask there")]
    StoredElsewhere {
        /// The table, as it was named.
        table: String,
        /// Where they are sent.
        place: Arc<str>,
    },
    /// As many queries run as may.
    #[error("{running} queries are running, as many as query.max_concurrent allows: try again in a moment")]
    Busy {
        /// How many.
        running: usize,
    },
    /// As many SQL statements run as may.
    #[error(
        "{running} SQL statements are running, as many as query.max_concurrent allows beside other queries: try again in a moment"
    )]
    BusyWithStatements {
        /// How many.
        running: usize,
    },
    /// As many queries of one caller run as may.
    #[error(
        "{running} queries of this caller are running, as many as its quota allows: wait until one ends, or raise quotas.queries, or the \
         quota `queries` of the token"
    )]
    CallerBusy {
        /// How many.
        running: usize,
    },
    /// The query ran too long.
    #[error("the query ran longer than query.timeout ({0}): ask for a shorter time range")]
    Timeout(HumanDuration),
    /// The query needs more memory than it may have.
    #[error(
        "the query needs more memory than query.memory_limit_mb allows ({0}): ask for fewer rows or a shorter time range"
    )]
    Memory(ByteSize),
    /// The query would have the memory that it needs if others, or rows that snapshots retain, did not have it.
    #[error(
        "other queries, or rows that went to files since running ones began, have the memory that this one needs, of \
         query.memory_limit_mb ({0}): try again in a moment"
    )]
    Crowded(ByteSize),
    /// The query would read more than it may.
    #[error(
        "the query would read more of data files than query.max_scan_mb allows ({0}): ask for a shorter time range"
    )]
    Bytes(ByteSize),
    /// Rows that its snapshot has went from memory to files while it ran, and the copies that running queries keep are too many.
    #[error(
        "the snapshot of the query is too old: rows that were in memory when it began are in files by now, and queries may keep {0} of \
         such rows. Ask again, for less at once, or while rows come in more slowly, or raise query.memory_limit_mb"
    )]
    SnapshotTooOld(ByteSize),
    /// The answer would have too many buckets or groups.
    #[error("the answer would have more than {0} groups: ask for a wider interval or a shorter time range")]
    TooManyGroups(usize),
    /// As many follow as may.
    #[error("{0} tails are running, as many as tail.max_followers allows: end one, or try again later")]
    TooManyFollowers(usize),
    /// As many tails of one caller run as may.
    #[error(
        "{0} tails of this caller are running, half of what tail.max_followers allows: end one, or try again later"
    )]
    CallerFollows(usize),
    /// There is nothing to follow.
    #[error("this Mixer ingests no rows, it reads what another one stores: follow that one")]
    NothingToFollow,
    /// A statement cannot be carried out.
    #[error("{}{reason}", place(*at))]
    Statement {
        /// What is wrong and what would be right.
        reason: String,
        /// The line and the column, from 1, where that is known.
        at: Option<(u64, u64)>,
    },
    /// A statement would change something.
    #[error("{what} is refused: statements only read; they begin with SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE")]
    ReadOnly {
        /// How the statement begins.
        what: String,
    },
    /// The querier is closed.
    #[error("queries are stopped: the process is shutting down")]
    Closed,
    /// Planning or reading failed.
    #[error("the query could not be answered: {0}")]
    Execution(#[from] Box<DataFusionError>),
    /// A query's task ended without an answer.
    #[error("the query ended without an answer: {0}")]
    Aborted(String),
    /// The threads or folders of queries could not be set up.
    #[error("queries could not be set up: {0}")]
    Setup(#[from] std::io::Error),
}

/// The few kinds a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryErrorKind {
    /// The request is at fault.
    Parameter,
    /// The statement is at fault.
    Statement,
    /// It would change something, or needs what changes, where there is only reading.
    ReadOnly,
    /// Who asks may not read it.
    Forbidden,
    /// It is stored elsewhere.
    StoredElsewhere,
    /// What was asked for by id is not there.
    NotFound,
    /// The request is fine but asks for too much.
    TooMuch,
    /// Not now.
    Busy,
    /// Not now: others have what there is of it.
    TooMany,
    /// Not now: the caller has what it may have of it.
    QuotaExceeded,
    /// It took too long.
    Timeout,
    /// Shutting down.
    Closed,
    /// We or the disk are at fault.
    Internal,
}

/// An error, and what is behind it.
pub(crate) fn error_chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Whether an error of a type is what is behind one.
pub(crate) fn is_caused_by<T: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static)) -> bool {
    error_chain(error).any(|error| error.is::<T>())
}

impl Error {
    /// The kind that decides an answer.
    #[must_use]
    pub const fn kind(&self) -> QueryErrorKind {
        match self {
            Self::Parameter { .. } => QueryErrorKind::Parameter,
            Self::Statement { .. } => QueryErrorKind::Statement,
            Self::ReadOnly { .. } | Self::NothingToFollow => QueryErrorKind::ReadOnly,
            Self::Forbidden { .. } => QueryErrorKind::Forbidden,
            Self::StoredElsewhere { .. } => QueryErrorKind::StoredElsewhere,
            Self::NotFound { .. } => QueryErrorKind::NotFound,
            Self::Memory(_) | Self::Bytes(_) | Self::TooManyGroups(_) => QueryErrorKind::TooMuch,
            Self::Busy { .. } | Self::BusyWithStatements { .. } | Self::Crowded(_) | Self::SnapshotTooOld(_) => {
                QueryErrorKind::Busy
            }
            Self::CallerBusy { .. } => QueryErrorKind::QuotaExceeded,
            Self::TooManyFollowers(_) | Self::CallerFollows(_) => QueryErrorKind::TooMany,
            Self::Timeout(_) => QueryErrorKind::Timeout,
            Self::Closed => QueryErrorKind::Closed,
            Self::Execution(_) | Self::Aborted(_) | Self::Setup(_) => QueryErrorKind::Internal,
        }
    }

    /// Whether there was not the memory for it: less may be answered.
    #[must_use]
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Crowded(_) => true,
            Self::Execution(inner) => memory_refusal(inner).is_some(),
            _ => false,
        }
    }

    /// Whether a data file was not what had been written.
    pub(crate) fn is_caused_by_damage(&self) -> bool {
        error_chain(self).any(|error| matches!(error.downcast_ref(), Some(engine::Error::Damaged { .. })))
    }

    /// Tells a query that met its limits from one that failed.
    pub(crate) fn classify_limits(self, limits: &QueryLimits) -> Self {
        let memory = limits.running();
        match self {
            Self::Execution(inner) if ByteLimitError::is_cause_of(inner.as_ref()) => Self::Bytes(limits.max_scan),
            Self::Execution(inner) => match memory_refusal(&inner).map(is_contention) {
                Some(crowded) => {
                    tracing::debug!(error = %inner, "a query reached its memory limit");
                    if crowded {
                        Self::Crowded(memory)
                    } else {
                        Self::Memory(memory)
                    }
                }
                None => Self::Execution(inner),
            },
            other => other,
        }
    }

    /// A table that a scope does not have.
    pub(crate) fn outside_scope(table: &str) -> Self {
        Self::Forbidden {
            table: table.to_owned(),
            reason: "it is outside the token's scope: use a token whose scope has it",
        }
    }

    pub(crate) fn statement(reason: impl Into<String>) -> Self {
        Self::Statement {
            reason: reason.into(),
            at: None,
        }
    }

    pub(crate) fn parameter(parameter: &'static str, reason: impl Into<String>) -> Self {
        Self::Parameter {
            parameter,
            reason: reason.into(),
        }
    }
}

const SPILL_LIMIT: &str = "The used disk space during the spilling process has exceeded";

/// What the memory of queries said that refused a query.
fn memory_refusal(error: &DataFusionError) -> Option<&str> {
    let refusal = error_chain(error).find_map(|error| match error.downcast_ref() {
        Some(DataFusionError::ResourcesExhausted(refusal)) => Some(refusal.as_str()),
        _ => None,
    });
    // What may be put on disk instead is used up: an error of writing, by its text alone.
    refusal.or_else(|| error_chain(error).any(is_spill_limit).then_some(SPILL_LIMIT))
}

/// Whether the memory of queries refused a query, and not its place on the disk.
pub(crate) fn is_memory_refusal(error: &DataFusionError) -> bool {
    memory_refusal(error).is_some_and(|refusal| refusal != SPILL_LIMIT)
}

/// Whether an error is that of writing more to disk than may be.
fn is_spill_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    let written: Option<&std::io::Error> = error.downcast_ref();
    written.is_some_and(|written| written.to_string().starts_with(SPILL_LIMIT))
}

fn place(at: Option<(u64, u64)>) -> String {
    at.map_or_else(String::new, |(line, column)| format!("line {line}, column {column}: "))
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::Execution(Box::new(error))
    }
}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        DataFusionError::External(Box::new(error)).into()
    }
}

/// A query has read as many bytes as one may.
#[derive(Debug, thiserror::Error)]
#[error("{0} bytes were read, and {SAYS}")]
pub(crate) struct ByteLimitError(pub(crate) u64);

/// How its text ends: readers of Parquet make texts of errors.
const SAYS: &str = "the query may not read as many as it would";

impl ByteLimitError {
    /// Whether it is what ended a query.
    pub(crate) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        error_chain(error).any(|error| {
            // What is within an error of I/O is not its source.
            let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            let text = match error.downcast_ref() {
                Some(ArrowError::ParquetError(text)) => text.as_str(),
                _ => "",
            };
            error.is::<Self>() || inner.is_some_and(|inner| inner.is::<Self>()) || text.ends_with(SAYS)
        })
    }
}

impl From<ByteLimitError> for ParquetError {
    fn from(error: ByteLimitError) -> Self {
        Self::External(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use arrow_schema::ArrowError;

    use super::*;

    #[test]
    fn what_may_be_put_on_disk_is_a_limit_and_a_disk_that_is_full_is_not() {
        let failed = |text: &str| Error::from(ArrowError::IoError(text.to_owned(), io::Error::other(text.to_owned())));
        let limit = failed(&format!("{SPILL_LIMIT} the allowable limit of 8.0 GB"));
        assert!(limit.lacks_memory(), "{limit:?}");
        let limited = limit.classify_limits(&QueryLimits::default());
        assert_eq!(limited.kind(), QueryErrorKind::TooMuch);
        let full = failed("No space left on device").classify_limits(&QueryLimits::default());
        assert_eq!(full.kind(), QueryErrorKind::Internal);
        let plain = Error::from(DataFusionError::IoError(io::Error::other(format!(
            "{SPILL_LIMIT} the limit"
        ))));
        assert!(plain.lacks_memory(), "{plain:?}");
        let of_user = Error::from(DataFusionError::Execution(format!(
            "Cannot cast '{SPILL_LIMIT}' to Int64"
        )));
        assert!(!of_user.lacks_memory(), "{of_user:?}");
    }
}
