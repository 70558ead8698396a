//! Statements around a query: `COPY … TO STDOUT`, and cursors of SQL.
//!
//! # Invariants
//!
//! - A copy is an ordinary query whose rows are written in another form, with all of its bounds.
//! - A cursor is a portal by its name: it holds what a portal holds, for no longer, and runs at its first `FETCH`. One `WITH HOLD`
//!   outlives its transaction if that is committed, and keeps its place among the portals. Neither outlives a savepoint before it that is
//!   rolled back to.

use std::sync::Arc;

use arrow_array::ArrayRef;
use query::{SqlDialect, SqlStatement};
use serde_json::Value;

use super::copy_out::CopyEncoder;
use super::copy_statement::CopyStatement;
use super::cursor_statement::{CursorDeclaration, CursorFetch};
use super::framing::BackendWriter;
use super::pg_error::PgError;
use super::pg_types::FormatCode;
use super::rows::{self, FetchProgress, FormatList, PgColumn, PgReplyError, PgRowSender, StatementInterrupt};
use super::session::PgSession;
use super::statement_portal::{PreparedStatement, StatementPortal};
use super::transaction_block::TransactionStatus;

impl PgSession {
    /// Copies the rows of a query; the statement begins at a byte of the whole text.
    pub(super) async fn copy_out(
        &self,
        copy: &CopyStatement,
        (whole, begin): (&str, usize),
        interrupt: &StatementInterrupt,
        out: &mut BackendWriter,
    ) -> Result<(), PgReplyError> {
        self.check_transaction()?;
        let asked = SqlStatement {
            query: copy.query.clone(),
            dialect: SqlDialect::Postgres,
            ..SqlStatement::default()
        };
        let answer = interrupt.or(self.admitted()?.sql(&asked)).await?;
        let answer = answer.map_err(|error| match copy.begin {
            Some(at) => PgError::of(&error, whole, begin + at),
            None => PgError {
                position: None,
                ..PgError::of(&error, whole, begin)
            },
        })?;
        let columns = rows::columns(answer.columns(), answer.schema())?;
        let mut encoder = CopyEncoder::begin(out, &copy.format, &columns);
        let mut running = PgRowSender::new(answer, columns);
        let put = |out: &mut BackendWriter, columns: &[PgColumn], arrays: &[ArrayRef], row: usize| {
            encoder.row(out, columns, arrays, row);
        };
        let progress = running.send(out, put, usize::MAX, interrupt).await?;
        encoder.end(out);
        if let FetchProgress::Ended(rows) = progress {
            out.complete(&format!("COPY {rows}"));
        }
        Ok(())
    }

    /// Makes a cursor of a query and the values of its parameters.
    pub(super) fn declare(
        &mut self,
        cursor: &CursorDeclaration,
        (query, values): (Arc<PreparedStatement>, (Vec<Value>, usize)),
        out: &mut BackendWriter,
    ) -> Result<(), PgError> {
        self.check_transaction()?;
        if !cursor.is_held && self.transaction == TransactionStatus::None {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(PgError::error("25P01", message));
        }
        let (mut memory, number) = self.make_room(&cursor.name)?;
        memory.take(values.1)?;
        let form = if cursor.is_binary {
            FormatCode::Binary
        } else {
            FormatCode::Text
        };
        let mut portal = StatementPortal::new(query, values, FormatList::All(form), number);
        portal.is_held = cursor.is_held;
        self.portals.insert(cursor.name.clone(), portal);
        out.complete("DECLARE CURSOR");
        Ok(())
    }

    /// Sends the next rows of a cursor, in forms that the client wants; without, they are described first.
    pub(super) async fn fetch(
        &mut self,
        fetch: &CursorFetch,
        forms: Option<&FormatList>,
        interrupt: &StatementInterrupt,
        out: &mut BackendWriter,
    ) -> Result<(), PgReplyError> {
        self.check_transaction()?;
        let Some(mut portal) = self.portals.remove(&fetch.name) else {
            let message = format!("cursor \"{}\" does not exist", fetch.name);
            return Err(PgError::error("34000", message).into());
        };
        let (own, is_described) = (portal.forms.clone(), forms.is_some());
        let (forms, many) = (forms.unwrap_or(&own), (fetch.most, interrupt));
        let progress = if fetch.is_move {
            self.proceed(&mut portal, |_, _, _, _| (), many, out).await
        } else {
            if let Some(columns) = portal.columns().filter(|_| !is_described) {
                rows::describe(out, &columns, forms);
            }
            self.proceed(&mut portal, rows::put_row(forms), many, out).await
        };
        self.put_back(fetch.name.clone(), portal, progress.is_ok());
        let rows = match progress? {
            FetchProgress::Ended(rows) => rows,
            FetchProgress::Paused => fetch.most,
        };
        let tag = if fetch.is_move { "MOVE" } else { "FETCH" };
        out.complete(&format!("{tag} {rows}"));
        Ok(())
    }

    /// Closes a cursor by its name, or all; gives what is said of it.
    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<&'static str, PgError> {
        let Some(name) = name else {
            self.portals.clear();
            return Ok("CLOSE CURSOR ALL");
        };
        if self.portals.remove(name).is_none() {
            return Err(PgError::error("34000", format!("cursor \"{name}\" does not exist")));
        }
        Ok("CLOSE CURSOR")
    }
}
