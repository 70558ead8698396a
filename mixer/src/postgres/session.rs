//! One client's session: messages in the order in which they come, simple queries, statements about the session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::BufMut;
use query::{QueryEngine, SqlDialect, SqlStatement};
use tokio_util::sync::CancellationToken;

use super::copy_statement::CopyStatement;
use super::cursor_statement::{CursorDeclaration, CursorFetch};
use super::framing::{BackendWriter, FrontendMessage, MessageFields, put_count};
use super::pg_error::PgError;
use super::pg_types::{FormatCode, PgType, ScalarType};
use super::rows::{self, FetchProgress, FormatList, PgColumn, PgReplyError, PgRowSender, StatementInterrupt};
use super::savepoint_stack::SavepointStack;
use super::server::CancelHandle;
use super::session_settings::SessionSettings;
use super::statement_portal::{PreparedStatement, StatementPortal};
use super::transaction_block::TransactionStatus;
use super::utility_statement::UtilityStatement;
use crate::access::ApiCaller;

/// What comes after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionStep {
    Message,
    End,
}

/// See the module.
#[derive(Debug)]
pub(super) struct PgSession {
    querier: Arc<QueryEngine>,
    caller: Arc<ApiCaller>,
    slot: Arc<CancelHandle>,
    pub(super) settings: SessionSettings,
    pub(super) transaction: TransactionStatus,
    pub(super) savepoints: SavepointStack,
    pub(super) prepared: HashMap<String, Arc<PreparedStatement>>,
    pub(super) portals: HashMap<String, StatementPortal>,
    /// How many portals it made, and had made when its transaction began, or what is as one: all since the last `ReadyForQuery`.
    pub(super) portals_made: u64,
    pub(super) portals_before: u64,
    /// Whether messages are left out up to the next that says that what failed is over.
    skipping: bool,
}

impl PgSession {
    /// A session of a caller, with the queries that it may ask.
    pub(super) fn new(
        (caller, all): (Arc<ApiCaller>, &Arc<QueryEngine>),
        slot: Arc<CancelHandle>,
        settings: SessionSettings,
    ) -> Self {
        Self {
            querier: caller.queries(all),
            caller,
            slot,
            settings,
            transaction: TransactionStatus::None,
            savepoints: SavepointStack::default(),
            prepared: HashMap::new(),
            portals: HashMap::new(),
            portals_made: 0,
            portals_before: 0,
            skipping: false,
        }
    }

    /// Answers one message.
    pub(super) async fn answer(
        &mut self,
        frame: FrontendMessage,
        out: &mut BackendWriter,
    ) -> Result<SessionStep, PgReplyError> {
        let FrontendMessage { kind, body } = frame;
        match kind {
            b'X' => return Ok(SessionStep::End),
            b'S' => {
                self.skipping = false;
                self.ready(out).await?;
            }
            _ if self.skipping => {}
            b'Q' => self.simple(body, out).await?,
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' => {
                let answered = self.extended(kind, body, out).await;
                if self.failed(answered, out)? {
                    self.skipping = true;
                    out.send().await?;
                }
            }
            // What remains of a COPY that was refused.
            b'd' | b'c' | b'f' => {}
            b'F' => {
                let refused = PgError::error("0A000", "calls of functions by number are not supported");
                self.failed(Err(refused.into()), out)?;
                self.ready(out).await?;
            }
            other => return Err(PgError::protocol(format!("there is no message of kind {other}")).into()),
        }
        Ok(SessionStep::Message)
    }

    /// Tells of a fault that the session survives; whether there was one.
    fn failed(&mut self, answered: Result<(), PgReplyError>, out: &mut BackendWriter) -> Result<bool, PgReplyError> {
        match answered {
            Ok(()) => Ok(false),
            Err(PgReplyError::Fault(fault)) if !fault.fatal => {
                out.fault(&fault);
                match self.transaction {
                    TransactionStatus::Open => self.transaction = TransactionStatus::Failed,
                    // What came since the last `ReadyForQuery` is as a transaction.
                    TransactionStatus::None => {
                        let before = self.portals_before;
                        self.portals.retain(|_, portal| portal.number <= before);
                    }
                    _ => {}
                }
                Ok(true)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Tells that the next statement may come. Portals end with their transaction.
    async fn ready(&mut self, out: &mut BackendWriter) -> Result<(), PgReplyError> {
        if self.transaction == TransactionStatus::None {
            self.portals.retain(|_, portal| portal.is_held);
            self.portals_before = self.portals_made;
        }
        let status = self.transaction.byte();
        out.message(b'Z', |out| out.put_u8(status));
        Ok(out.send().await?)
    }

    /// One text with any number of statements; what fails ends them.
    async fn simple(&mut self, mut body: MessageFields, out: &mut BackendWriter) -> Result<(), PgReplyError> {
        let answered = match body.text() {
            Ok(text) => self.statements(&text, out).await,
            Err(fault) => Err(fault.into()),
        };
        let failed = self.failed(answered, out)?;
        if self.transaction == TransactionStatus::Implicit {
            self.end(!failed);
        }
        self.ready(out).await
    }

    async fn statements(&mut self, text: &str, out: &mut BackendWriter) -> Result<(), PgReplyError> {
        let cancelled = self.slot.begin();
        let statements = query::split_statements(text);
        if statements.is_empty() {
            out.message(b'I', |_| ());
        }
        let is_alone = statements.len() == 1;
        for (begin, statement) in statements {
            if !is_alone && self.transaction == TransactionStatus::None {
                self.begin(TransactionStatus::Implicit);
            }
            let interrupt = self.interrupt_by(cancelled.clone());
            self.simple_statement(text, (begin, statement), &interrupt, out).await?;
        }
        Ok(())
    }

    /// One statement of a text, with the byte at which it begins.
    async fn simple_statement(
        &mut self,
        text: &str,
        (begin, statement): (usize, &str),
        interrupt: &StatementInterrupt,
        out: &mut BackendWriter,
    ) -> Result<(), PgReplyError> {
        match UtilityStatement::of(statement) {
            Some(UtilityStatement::Copy) => {
                let copy = CopyStatement::parse(statement)?;
                return self.copy_out(&copy, (text, begin), interrupt, out).await;
            }
            Some(UtilityStatement::Declare) => {
                let cursor = CursorDeclaration::parse(statement)?;
                let whole = (text, begin + cursor.begin);
                let query = self.prepare_query(cursor.query.clone(), whole, &[], interrupt).await?;
                return Ok(self.declare(&cursor, (Arc::new(query), (Vec::new(), 0)), out)?);
            }
            Some(UtilityStatement::Fetch) => {
                let fetch = CursorFetch::parse(statement)?;
                return self.fetch(&fetch, None, interrupt, out).await;
            }
            Some(utility) => {
                if let Some(columns) = utility_columns(&utility) {
                    rows::describe(out, &columns, &FormatList::All(FormatCode::Text));
                }
                return Ok(self.utility(&utility, out)?);
            }
            None => {}
        }
        self.check_transaction()?;
        let asked = SqlStatement {
            query: statement.to_owned(),
            dialect: SqlDialect::Postgres,
            ..SqlStatement::default()
        };
        let answer = interrupt.or(self.admitted()?.sql(&asked)).await?;
        let answer = answer.map_err(|error| PgError::of(&error, text, begin))?;
        let columns = rows::columns(answer.columns(), answer.schema())?;
        let forms = FormatList::All(FormatCode::Text);
        rows::describe(out, &columns, &forms);
        let mut running = PgRowSender::new(answer, columns);
        let progress = running.send(out, rows::put_row(&forms), usize::MAX, interrupt).await?;
        if let FetchProgress::Ended(rows) = progress {
            out.complete(&format!("SELECT {rows}"));
        }
        Ok(())
    }

    /// The queries of the caller, if its quotas let another statement begin.
    pub(super) fn admitted(&self) -> Result<&QueryEngine, PgError> {
        let admitted = self.caller.admit_request().and_then(|()| self.caller.admit_query());
        admitted.map_err(|exceeded| PgError::quota(&exceeded))?;
        Ok(&self.querier)
    }

    /// What may end the statement that begins now.
    pub(super) fn interrupt(&self) -> StatementInterrupt {
        self.interrupt_by(self.slot.begin())
    }

    /// As [`PgSession::interrupt`], where one request to cancel is for all statements of a text.
    fn interrupt_by(&self, cancelled: CancellationToken) -> StatementInterrupt {
        let timeout = self.settings.statement_timeout();
        StatementInterrupt {
            cancelled,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        }
    }

    /// Carries out a statement that is about the session.
    pub(super) fn utility(&mut self, utility: &UtilityStatement, out: &mut BackendWriter) -> Result<(), PgError> {
        if let Some(done) = self.transaction_statement(utility) {
            out.complete(done?);
            return Ok(());
        }
        self.check_transaction()?;
        let tag = match utility {
            UtilityStatement::Set { name, value } => {
                self.settings.set(name, value.as_deref())?;
                "SET"
            }
            UtilityStatement::SetLocal { name, value } => {
                if self.transaction == TransactionStatus::None {
                    out.warning("25P01", "SET LOCAL can only be used in transaction blocks");
                } else {
                    self.settings.set_local(name, value.as_deref())?;
                }
                "SET"
            }
            UtilityStatement::Reset(name) => {
                self.settings.reset(name);
                "RESET"
            }
            UtilityStatement::ResetAll => {
                self.settings.reset_all();
                "RESET"
            }
            UtilityStatement::ShowAll => {
                for (name, value) in self.settings.all() {
                    put_text_row(out, &[name, value, ""]);
                }
                "SHOW"
            }
            UtilityStatement::Show(name) => {
                let Some(value) = self.settings.get(name) else {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(PgError::error("42704", message));
                };
                put_text_row(out, &[value]);
                "SHOW"
            }
            UtilityStatement::SetConfig { name, value, is_local } => {
                if !is_local {
                    self.settings.set(name, Some(value))?;
                } else if self.transaction != TransactionStatus::None {
                    self.settings.set_local(name, Some(value))?;
                }
                put_text_row(out, &[value]);
                "SELECT 1"
            }
            UtilityStatement::Deallocate(None) => {
                self.prepared.clear();
                "DEALLOCATE ALL"
            }
            UtilityStatement::Deallocate(Some(name)) => {
                self.prepared.remove(name);
                "DEALLOCATE"
            }
            UtilityStatement::DiscardAll => {
                self.prepared.clear();
                self.portals.clear();
                self.settings.reset_all();
                "DISCARD ALL"
            }
            UtilityStatement::CloseCursor(name) => self.close_cursor(name.as_deref())?,
            UtilityStatement::Nothing(tag) => tag,
            // Their callers carry them out: they have rows. Those about the transaction are over by now.
            UtilityStatement::Copy
            | UtilityStatement::Declare
            | UtilityStatement::Fetch
            | UtilityStatement::Begin
            | UtilityStatement::Commit
            | UtilityStatement::Rollback
            | UtilityStatement::Savepoint(_)
            | UtilityStatement::RollbackTo(_)
            | UtilityStatement::Release(_) => return Ok(()),
        };
        out.complete(tag);
        Ok(())
    }
}

/// The columns of an answer to a utility, if it has one.
pub(super) fn utility_columns(utility: &UtilityStatement) -> Option<Arc<[PgColumn]>> {
    let text = |name: &str| PgColumn {
        name: name.to_owned(),
        kind: PgType::One(ScalarType::Text),
    };
    let names = utility.columns();
    (!names.is_empty()).then(|| names.into_iter().map(text).collect())
}

fn put_text_row(out: &mut BackendWriter, values: &[&str]) {
    out.message(b'D', |out| {
        put_count(out, values.len());
        for value in values {
            out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
            out.put_slice(value.as_bytes());
        }
    });
}
