//! One client's session: messages in the order in which they come, simple queries, transactions that hold nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::BufMut;
use query::{QueryEngine, SqlDialect, SqlStatement};
use tokio_util::sync::CancellationToken;

use super::extended::{Portal, Prepared};
use super::fault::Fault;
use super::rows::{self, Column, Forms, Interrupt, Progress, Running, Stop};
use super::server::Slot;
use super::settings::Settings;
use super::utility::Utility;
use super::values::{Form, PgType, Scalar};
use super::wire::{Body, Frame, Outgoing, put_count};

/// Where a session is in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transaction {
    None,
    /// A text of several statements, which is a transaction where it does not begin one itself.
    Implicit,
    Open,
    /// A statement failed: only its end is carried out.
    Failed,
}

impl Transaction {
    const fn byte(self) -> u8 {
        match self {
            Self::None | Self::Implicit => b'I',
            Self::Open => b'T',
            Self::Failed => b'E',
        }
    }
}

/// What comes after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Message,
    End,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) querier: Arc<QueryEngine>,
    slot: Arc<Slot>,
    pub(super) settings: Settings,
    pub(super) transaction: Transaction,
    pub(super) prepared: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    /// Whether messages are left out up to the next that says that what failed is over.
    skipping: bool,
}

impl Session {
    pub(super) fn new(querier: Arc<QueryEngine>, slot: Arc<Slot>, settings: Settings) -> Self {
        Self {
            querier,
            slot,
            settings,
            transaction: Transaction::None,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            skipping: false,
        }
    }

    /// Answers one message.
    pub(super) async fn answer(&mut self, frame: Frame, out: &mut Outgoing) -> Result<Next, Stop> {
        let Frame { kind, body } = frame;
        match kind {
            b'X' => return Ok(Next::End),
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
                let refused = Fault::error("0A000", "calls of functions by number are not offered");
                self.failed(Err(refused.into()), out)?;
                self.ready(out).await?;
            }
            other => return Err(Fault::protocol(format!("there is no message of kind {other}")).into()),
        }
        Ok(Next::Message)
    }

    /// Tells of a fault that the session survives; whether there was one.
    fn failed(&mut self, answered: Result<(), Stop>, out: &mut Outgoing) -> Result<bool, Stop> {
        match answered {
            Ok(()) => Ok(false),
            Err(Stop::Fault(fault)) if !fault.fatal => {
                out.fault(&fault);
                if self.transaction == Transaction::Open {
                    self.transaction = Transaction::Failed;
                }
                Ok(true)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Tells that the next statement may come. Portals end with their transaction.
    async fn ready(&mut self, out: &mut Outgoing) -> Result<(), Stop> {
        if self.transaction != Transaction::Open {
            self.portals.clear();
        }
        let status = self.transaction.byte();
        out.message(b'Z', |out| out.put_u8(status));
        Ok(out.send().await?)
    }

    /// One text with any number of statements; what fails ends them.
    async fn simple(&mut self, mut body: Body, out: &mut Outgoing) -> Result<(), Stop> {
        let answered = match body.text() {
            Ok(text) => self.statements(&text, out).await,
            Err(fault) => Err(fault.into()),
        };
        let failed = self.failed(answered, out)?;
        if self.transaction == Transaction::Implicit {
            self.end(!failed);
        }
        self.ready(out).await
    }

    /// The transaction ends, and its portals with it.
    fn end(&mut self, commits: bool) {
        self.transaction = Transaction::None;
        self.portals.clear();
        if commits {
            self.settings.commit();
        } else {
            self.settings.roll_back();
        }
    }

    async fn statements(&mut self, text: &str, out: &mut Outgoing) -> Result<(), Stop> {
        let cancelled = self.slot.begin();
        let statements = query::split_statements(text);
        if statements.is_empty() {
            out.message(b'I', |_| ());
        }
        let is_alone = statements.len() == 1;
        for (begin, statement) in statements {
            if !is_alone && self.transaction == Transaction::None {
                self.transaction = Transaction::Implicit;
                self.settings.begin();
            }
            if let Some(utility) = Utility::of(statement) {
                if let Some(column) = utility.column() {
                    rows::describe(out, &text_column(column), &Forms::All(Form::Text));
                }
                self.utility(&utility, out)?;
                continue;
            }
            self.check_transaction()?;
            let interrupt = self.interrupt_by(cancelled.clone());
            let asked = SqlStatement {
                query: statement.to_owned(),
                dialect: SqlDialect::Postgres,
                ..SqlStatement::default()
            };
            let answer = interrupt.or(self.querier.sql(&asked)).await?;
            let answer = answer.map_err(|error| Fault::of(&error, text, begin))?;
            let columns = rows::columns(answer.columns(), answer.schema())?;
            let forms = Forms::All(Form::Text);
            rows::describe(out, &columns, &forms);
            let mut running = Running::new(answer, columns);
            if let Progress::Ended(rows) = running.send(out, &forms, usize::MAX, &interrupt).await? {
                out.complete(&format!("SELECT {rows}"));
            }
        }
        Ok(())
    }

    /// What may end the statement that begins now.
    pub(super) fn interrupt(&self) -> Interrupt {
        self.interrupt_by(self.slot.begin())
    }

    /// As [`Session::interrupt`], where one request to cancel is for all statements of a text.
    fn interrupt_by(&self, cancelled: CancellationToken) -> Interrupt {
        let timeout = self.settings.statement_timeout();
        Interrupt {
            cancelled,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        }
    }

    pub(super) fn check_transaction(&self) -> Result<(), Fault> {
        if self.transaction == Transaction::Failed {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Fault::error("25P02", message));
        }
        Ok(())
    }

    /// Carries out a statement that is about the session.
    pub(super) fn utility(&mut self, utility: &Utility, out: &mut Outgoing) -> Result<(), Fault> {
        let ends = matches!(utility, Utility::Commit | Utility::Rollback | Utility::RollbackTo);
        if !ends {
            self.check_transaction()?;
        }
        let tag = match utility {
            Utility::Begin => {
                if self.transaction == Transaction::None {
                    self.settings.begin();
                }
                self.transaction = Transaction::Open;
                "BEGIN"
            }
            Utility::Commit | Utility::Rollback => {
                let commits = *utility == Utility::Commit && self.transaction != Transaction::Failed;
                self.end(commits);
                if commits { "COMMIT" } else { "ROLLBACK" }
            }
            Utility::RollbackTo => {
                if matches!(self.transaction, Transaction::None | Transaction::Implicit) {
                    let message = "ROLLBACK TO SAVEPOINT can only be used in transaction blocks";
                    return Err(Fault::error("25P01", message));
                }
                self.transaction = Transaction::Open;
                "ROLLBACK"
            }
            Utility::Set { name, value } => {
                self.settings.set(name, value.as_deref())?;
                "SET"
            }
            Utility::SetLocal { name, value } => {
                if self.transaction == Transaction::None {
                    out.warning("25P01", "SET LOCAL can only be used in transaction blocks");
                } else {
                    self.settings.set_local(name, value.as_deref())?;
                }
                "SET"
            }
            Utility::Reset(name) => {
                self.settings.reset(name);
                "RESET"
            }
            Utility::ResetAll => {
                self.settings.reset_all();
                "RESET"
            }
            Utility::Show(name) => {
                let Some(value) = self.settings.get(name) else {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(Fault::error("42704", message));
                };
                put_text_row(out, value);
                "SHOW"
            }
            Utility::SetConfig { name, value, is_local } => {
                if !is_local {
                    self.settings.set(name, Some(value))?;
                } else if self.transaction != Transaction::None {
                    self.settings.set_local(name, Some(value))?;
                }
                put_text_row(out, value);
                "SELECT 1"
            }
            Utility::Deallocate(None) => {
                self.prepared.clear();
                "DEALLOCATE ALL"
            }
            Utility::Deallocate(Some(name)) => {
                self.prepared.remove(name);
                "DEALLOCATE"
            }
            Utility::DiscardAll => {
                self.prepared.clear();
                self.portals.clear();
                self.settings.reset_all();
                "DISCARD ALL"
            }
            Utility::Nothing(tag) => tag,
        };
        out.complete(tag);
        Ok(())
    }
}

/// The one column of an answer to a utility.
pub(super) fn text_column(name: &str) -> Arc<[Column]> {
    Arc::from([Column {
        name: name.to_owned(),
        kind: PgType::One(Scalar::Text),
    }])
}

fn put_text_row(out: &mut Outgoing, value: &str) {
    out.message(b'D', |out| {
        put_count(out, 1);
        out.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        out.put_slice(value.as_bytes());
    });
}
