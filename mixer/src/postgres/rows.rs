//! The rows of a statement that runs, on their way to a client.
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

use super::fault::Fault;
use super::values::{self, Form, PgType};
use super::wire::{Outgoing, put_count, put_text};

/// The most columns of an answer.
const MOST_COLUMNS: usize = 1_664;

/// Why a message has no proper end.
#[derive(Debug)]
pub(super) enum Stop {
    /// What the client is told.
    Fault(Fault),
    /// Nothing can be told any more.
    Gone,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        tracing::debug!(%error, "a PostgreSQL client takes no more");
        Self::Gone
    }
}

/// What ends a statement before its time.
#[derive(Debug, Clone)]
pub(super) struct Interrupt {
    /// A request to cancel.
    pub(super) cancelled: CancellationToken,
    /// The client's own limit.
    pub(super) deadline: Option<Instant>,
}

impl Interrupt {
    /// What comes of work, unless it is interrupted.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, Fault> {
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => Err(Fault::cancelled()),
            done = work => Ok(done),
            () = late => Err(Fault::error("57014", "canceling statement due to statement timeout")),
        }
    }
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: PgType,
}

/// The columns of an answer or a description.
pub(super) fn columns(columns: &[SqlColumn], schema: &Schema) -> Result<Arc<[Column]>, Fault> {
    if columns.len() > MOST_COLUMNS {
        let message = format!("the answer has {} columns, more than {MOST_COLUMNS}", columns.len());
        return Err(Fault::error("54011", message));
    }
    let pairs = columns.iter().zip(schema.fields());
    let column = |(column, field): (&SqlColumn, &Arc<arrow_schema::Field>)| Column {
        name: column.name.clone(),
        kind: PgType::of(field.data_type()),
    };
    Ok(pairs.map(column).collect())
}

/// The forms in which the columns of an answer are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Forms {
    All(Form),
    Each(Vec<Form>),
}

impl Forms {
    pub(super) fn of(&self, index: usize) -> Form {
        match self {
            Self::All(form) => *form,
            Self::Each(forms) => forms.get(index).copied().unwrap_or(Form::Text),
        }
    }
}

/// Tells a client which columns come.
pub(super) fn describe(out: &mut Outgoing, columns: &[Column], forms: &Forms) {
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
            out.put_u16((forms.of(index) == Form::Binary).into());
        }
    });
}

/// How far an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of it was sent, the last time so many rows.
    Ended(usize),
    /// As many rows as were asked for were sent.
    Paused,
}

/// An answer that is being sent. Dropping it ends the statement.
#[derive(Debug)]
pub(super) struct Running {
    answer: SqlAnswer,
    /// Why rows are missing, until the client was told.
    partial: Option<String>,
    columns: Arc<[Column]>,
    /// Rows that came and were not sent, from a place on.
    rest: Option<(Vec<ArrayRef>, usize, usize)>,
}

impl Running {
    pub(super) fn new(answer: SqlAnswer, columns: Arc<[Column]>) -> Self {
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

    /// Sends the next rows, `most` at most.
    pub(super) async fn send(
        &mut self,
        out: &mut Outgoing,
        forms: &Forms,
        most: usize,
        interrupt: &Interrupt,
    ) -> Result<Progress, Stop> {
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
                            Some(most) => Err(Fault::too_many_rows(most).into()),
                            None => Ok(Progress::Ended(sent)),
                        };
                    }
                }
                continue;
            };
            let to = rows.min(from.saturating_add(most - sent));
            for row in from..to {
                out.message(b'D', |out| {
                    put_count(out, columns.len());
                    for (index, (array, column)) in columns.iter().zip(self.columns.iter()).enumerate() {
                        values::put(out, column.kind, forms.of(index), array.as_ref(), row);
                    }
                });
                interrupt.or(out.send_some()).await??;
            }
            sent += to - from;
            if to < rows {
                self.rest = Some((columns, to, rows));
            }
            if sent == most {
                return Ok(Progress::Paused);
            }
        }
    }

    fn canonical(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, Fault> {
        if batch.num_columns() != self.columns.len() {
            return Err(Fault::error("0A000", "the columns are other ones than were described"));
        }
        let pairs = batch.columns().iter().zip(self.columns.iter());
        let canonical = pairs.map(|(array, column)| column.kind.canonical(array));
        let canonical: Result<Vec<ArrayRef>, _> = canonical.collect();
        canonical.map_err(|error| Fault::error("22000", error.to_string()))
    }
}

/// What went wrong with rows; their statement's text has no place for it.
fn fault(error: &query::Error) -> Fault {
    Fault {
        position: None,
        ..Fault::of(error, "", 0)
    }
}
