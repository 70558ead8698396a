//! Sends the rows of a running statement to a client.
//!
//! # Invariants
//!
//! - An answer that is partial says so before its first row, so that who takes only some rows knows it too; one that was cut ends
//!   with an error.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Schema;
use bytes::BufMut;
use query::{SqlAnswer, SqlColumn};
use tokio_util::sync::CancellationToken;

use super::framing::{BackendWriter, put_count, put_text};
use super::pg_error::PgError;
use super::pg_types::{self, FormatCode, PgType};

/// The most columns of an answer.
const MOST_COLUMNS: usize = 1_664;

/// Why a message has no proper end.
#[derive(Debug)]
pub(super) enum PgReplyError {
    /// What the client is told.
    Fault(PgError),
    /// Nothing can be told any more.
    Gone,
}

impl From<PgError> for PgReplyError {
    fn from(fault: PgError) -> Self {
        Self::Fault(fault)
    }
}

impl From<std::io::Error> for PgReplyError {
    fn from(error: std::io::Error) -> Self {
        tracing::debug!(%error, "a PostgreSQL client reads no more");
        Self::Gone
    }
}

/// What ends a statement before its time.
#[derive(Debug, Clone)]
pub(super) struct StatementInterrupt {
    /// A request to cancel.
    pub(super) cancelled: CancellationToken,
    /// The client's own limit.
    pub(super) deadline: Option<Instant>,
}

impl StatementInterrupt {
    /// What comes of work, unless it is interrupted.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, PgError> {
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => Err(PgError::cancelled()),
            done = work => Ok(done),
            () = late => Err(PgError::error("57014", "canceling statement due to statement timeout")),
        }
    }
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PgColumn {
    pub(super) name: String,
    pub(super) kind: PgType,
}

/// The columns of an answer or a description.
pub(super) fn columns(columns: &[SqlColumn], schema: &Schema) -> Result<Arc<[PgColumn]>, PgError> {
    if columns.len() > MOST_COLUMNS {
        let message = format!("the answer has {} columns, more than {MOST_COLUMNS}", columns.len());
        return Err(PgError::error("54011", message));
    }
    let pairs = columns.iter().zip(schema.fields());
    let column = |(column, field): (&SqlColumn, &Arc<arrow_schema::Field>)| PgColumn {
        name: column.name.clone(),
        kind: PgType::of(field.data_type()),
    };
    Ok(pairs.map(column).collect())
}

/// The forms in which the columns of an answer are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FormatList {
    All(FormatCode),
    Each(Vec<FormatCode>),
}

impl FormatList {
    pub(super) fn of(&self, index: usize) -> FormatCode {
        match self {
            Self::All(form) => *form,
            Self::Each(forms) => forms.get(index).copied().unwrap_or(FormatCode::Text),
        }
    }
}

/// Tells a client which columns come.
pub(super) fn describe(out: &mut BackendWriter, columns: &[PgColumn], forms: &FormatList) {
    out.message(b'T', |out| {
        put_count(out, columns.len());
        for (index, column) in columns.iter().enumerate() {
            put_text(out, &column.name);
            // Of no table that could be looked up.
            out.put_u32(0);
            out.put_u16(0);
            out.put_u32(column.kind.oid());
            out.put_i16(column.kind.size());
            out.put_i32(-1);
            out.put_u16((forms.of(index) == FormatCode::Binary).into());
        }
    });
}

/// Writes one row of canonical columns as a row of an answer.
pub(super) fn put_row(forms: &FormatList) -> impl FnMut(&mut BackendWriter, &[PgColumn], &[ArrayRef], usize) {
    move |out, columns, arrays, row| {
        out.message(b'D', |out| {
            put_count(out, columns.len());
            for (index, (array, column)) in arrays.iter().zip(columns).enumerate() {
                pg_types::put(out, column.kind, forms.of(index), array.as_ref(), row);
            }
        });
    }
}

/// How far an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchProgress {
    /// All of it was sent, the last time so many rows.
    Ended(usize),
    /// As many rows as were asked for were sent.
    Paused,
}

/// An answer that is being sent. Dropping it ends the statement.
#[derive(Debug)]
pub(super) struct PgRowSender {
    answer: SqlAnswer,
    /// Why rows are missing, until the client was told.
    partial: Option<String>,
    columns: Arc<[PgColumn]>,
    /// Rows that came and were not sent, from a place on.
    rest: Option<(Vec<ArrayRef>, usize, usize)>,
}

impl PgRowSender {
    pub(super) fn new(answer: SqlAnswer, columns: Arc<[PgColumn]>) -> Self {
        Self {
            partial: answer.partial().map(str::to_owned),
            answer,
            columns,
            rest: None,
        }
    }

    /// See [`SqlAnswer::deadline`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answer.deadline()
    }

    /// Sends the next rows, `most` at most, each as `put` writes it.
    pub(super) async fn send(
        &mut self,
        out: &mut BackendWriter,
        mut put: impl FnMut(&mut BackendWriter, &[PgColumn], &[ArrayRef], usize),
        most: usize,
        interrupt: &StatementInterrupt,
    ) -> Result<FetchProgress, PgReplyError> {
        if let Some(reason) = self.partial.take() {
            out.warning("01000", &format!("the answer is partial: {reason}"));
        }
        let mut sent = 0;
        loop {
            let Some((columns, from, rows)) = self.rest.take() else {
                match interrupt.or(self.answer.next()).await?.map_err(|error| fault(&error))? {
                    Some(batch) => self.rest = Some((self.canonical(&batch)?, 0, batch.num_rows())),
                    None => {
                        return match self.answer.cut_at() {
                            Some(most) => Err(PgError::too_many_rows(most).into()),
                            None => Ok(FetchProgress::Ended(sent)),
                        };
                    }
                }
                continue;
            };
            let to = rows.min(from.saturating_add(most - sent));
            for row in from..to {
                put(out, &self.columns, &columns, row);
                interrupt.or(out.send_some()).await??;
            }
            sent += to - from;
            if to < rows {
                self.rest = Some((columns, to, rows));
            }
            if sent == most {
                return Ok(FetchProgress::Paused);
            }
        }
    }

    fn canonical(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, PgError> {
        if batch.num_columns() != self.columns.len() {
            return Err(PgError::error(
                "0A000",
                "the columns are other ones than were described",
            ));
        }
        let pairs = batch.columns().iter().zip(self.columns.iter());
        let canonical = pairs.map(|(array, column)| column.kind.canonical(array));
        let canonical: Result<Vec<ArrayRef>, _> = canonical.collect();
        canonical.map_err(|error| PgError::error("22000", error.to_string()))
    }
}

/// What went wrong with rows; their statement's text has no place for it.
fn fault(error: &query::Error) -> PgError {
    PgError {
        position: None,
        ..PgError::of(error, "", 0)
    }
}
