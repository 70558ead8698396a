//! Prepared statements and portals: what a session keeps between messages.
//!
//! # Invariants
//!
//! - A session has [`MOST_PORTALS`] portals, with [`MOST_BOUND`] bytes of values, and rows left in [`MOST_RUNNING`] of them.
//! - A portal that was not read to its end holds a place of a query for `query.timeout` at most, and rows, unless they are few, while
//!   its client asks for nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use query::{QueryErrorKind, SqlDialect, SqlParameters, SqlStatement};
use serde_json::Value;

use super::bind_parameters::{BoundMemory, MOST_BOUND};
use super::copy_statement::CopyStatement;
use super::cursor_statement::{CursorDeclaration, CursorFetch};
use super::framing::BackendWriter;
use super::pg_error::PgError;
use super::pg_types::PgType;
use super::rows::{FetchProgress, FormatList, PgColumn, PgReplyError, PgRowSender, StatementInterrupt};
use super::session::PgSession;
use super::utility_statement::UtilityStatement;

const MOST_PORTALS: usize = 16;
const MOST_RUNNING: usize = 2;

/// A statement that was prepared.
#[derive(Debug)]
pub(super) struct PreparedStatement {
    pub(super) text: String,
    pub(super) plan: StatementPlan,
    /// The id and the kind of each parameter.
    pub(super) parameters: Vec<(u32, PgType)>,
    /// How many of them the text has.
    pub(super) used: usize,
}

/// What a prepared statement does.
#[derive(Debug)]
pub(super) enum StatementPlan {
    Empty,
    Utility(UtilityStatement),
    Rows(Arc<[PgColumn]>),
    Copy(CopyStatement),
    /// With the query of the cursor.
    Declare(CursorDeclaration, Arc<PreparedStatement>),
    Fetch(CursorFetch),
}

impl PreparedStatement {
    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let plan = match &self.plan {
            StatementPlan::Rows(columns) => columns.iter().map(|column| column.name.len() + 64).sum(),
            StatementPlan::Copy(copy) => copy.query.len(),
            StatementPlan::Declare(cursor, query) => cursor.query.len() + query.size(),
            _ => 0,
        };
        self.text.len() + self.parameters.len() * 8 + plan + 256
    }
}

/// The types of parameters that are more than texts, by their places from 1.
pub(super) fn declared_types(parameters: &[(u32, PgType)]) -> BTreeMap<usize, DataType> {
    let places = (1..).zip(parameters);
    let declared = places.filter_map(|(place, (_, kind))| Some((place, kind.declared()?)));
    declared.collect()
}

/// A prepared statement with its values.
#[derive(Debug)]
pub(super) struct StatementPortal {
    pub(super) prepared: Arc<PreparedStatement>,
    pub(super) values: Vec<Value>,
    /// How many bytes the values take.
    pub(super) bound: usize,
    pub(super) forms: FormatList,
    state: PortalState,
    /// Whether it outlives its transaction, as cursors `WITH HOLD` do.
    pub(super) is_held: bool,
    /// How many portals the session had made with it: what is rolled back to before goes without it, held or not.
    pub(super) number: u64,
}

impl StatementPortal {
    pub(super) fn new(
        prepared: Arc<PreparedStatement>,
        (values, bound): (Vec<Value>, usize),
        forms: FormatList,
        number: u64,
    ) -> Self {
        Self {
            prepared,
            values,
            bound,
            forms,
            state: PortalState::Bound,
            is_held: false,
            number,
        }
    }

    /// Its values and their bytes, which it has no longer.
    pub(super) fn take_values(&mut self) -> (Vec<Value>, usize) {
        (std::mem::take(&mut self.values), std::mem::take(&mut self.bound))
    }

    /// The columns of its rows, if it is of a query.
    pub(super) fn columns(&self) -> Option<Arc<[PgColumn]>> {
        match &self.prepared.plan {
            StatementPlan::Rows(columns) => Some(Arc::clone(columns)),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum PortalState {
    Bound,
    Running(Box<PgRowSender>),
    /// Its rows were given up.
    Late,
    Ended,
}

impl PgSession {
    /// Sees to it that there may be a portal of a name; what its values may take, and its number.
    pub(super) fn make_room(&mut self, portal: &str) -> Result<(BoundMemory, u64), PgError> {
        PgError::check_name(portal)?;
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err(PgError::error("42P03", format!("cursor \"{portal}\" already exists")));
        }
        self.portals.remove(portal);
        if self.portals.len() >= MOST_PORTALS {
            let message = "the session has too many portals: close some of them";
            return Err(PgError::error("54000", message));
        }
        let bound: usize = self.portals.values().map(|portal| portal.bound).sum();
        self.portals_made += 1;
        Ok((BoundMemory::up_to(MOST_BOUND.saturating_sub(bound)), self.portals_made))
    }

    /// Sends the next rows of a portal of a query.
    pub(super) async fn proceed(
        &self,
        portal: &mut StatementPortal,
        put: impl FnMut(&mut BackendWriter, &[PgColumn], &[ArrayRef], usize),
        (most, interrupt): (usize, &StatementInterrupt),
        out: &mut BackendWriter,
    ) -> Result<FetchProgress, PgReplyError> {
        self.check_transaction()?;
        let mut running = match std::mem::replace(&mut portal.state, PortalState::Ended) {
            PortalState::Running(running) => running,
            PortalState::Late => {
                let message = "the rows of the portal were discarded when query.timeout was over: read it to its end \
                               sooner, or without a fetch size";
                return Err(PgError::error("57014", message).into());
            }
            PortalState::Ended => return Ok(FetchProgress::Ended(0)),
            PortalState::Bound => Box::new(self.run_query(portal, interrupt).await?),
        };
        let progress = running.send(out, put, most, interrupt).await?;
        if progress == FetchProgress::Paused {
            portal.state = PortalState::Running(running);
        }
        Ok(progress)
    }

    /// Asks the query of a portal. One that has no place now stays as it was.
    async fn run_query(
        &self,
        portal: &mut StatementPortal,
        interrupt: &StatementInterrupt,
    ) -> Result<PgRowSender, PgReplyError> {
        let admitted = self.check_running().and_then(|()| self.admitted());
        let querier = admitted.inspect_err(|_| portal.state = PortalState::Bound)?;
        let (prepared, columns) = (Arc::clone(&portal.prepared), portal.columns().unwrap_or_default());
        let (values, bound) = portal.take_values();
        let asked = SqlStatement {
            query: prepared.text.clone(),
            parameters: SqlParameters::Listed(values),
            limit: None,
            dialect: SqlDialect::Postgres,
            declared: declared_types(&prepared.parameters),
        };
        let error = match interrupt.or(querier.sql(&asked)).await? {
            Ok(answer) => return Ok(PgRowSender::new(answer, columns)),
            Err(error) => error,
        };
        let is_for_now = matches!(
            error.kind(),
            QueryErrorKind::Busy | QueryErrorKind::TooMany | QueryErrorKind::QuotaExceeded
        );
        if is_for_now && let SqlParameters::Listed(values) = asked.parameters {
            (portal.values, portal.bound, portal.state) = (values, bound, PortalState::Bound);
        }
        Err(PgError::of(&error, &prepared.text, 0).into())
    }

    /// Keeps a portal that was asked for rows, unless it ended with a fault.
    pub(super) fn put_back(&mut self, name: String, portal: StatementPortal, is_well: bool) {
        if is_well || !matches!(portal.state, PortalState::Ended) {
            self.portals.insert(name, portal);
        }
    }

    /// Waits until the time of a portal with rows left is over, and gives up its rows.
    pub(super) async fn give_up_late_portals(&mut self) {
        let running = self.portals.values_mut().filter_map(|portal| match &portal.state {
            PortalState::Running(running) => Some((running.deadline()?, &mut portal.state)),
            _ => None,
        });
        let Some((deadline, state)) = running.min_by_key(|(deadline, _)| *deadline) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(deadline.into()).await;
        // Its statement may have ended meanwhile.
        if matches!(&*state, PortalState::Running(running) if running.deadline().is_some()) {
            *state = PortalState::Late;
        }
    }

    /// Whether one more portal may run.
    fn check_running(&self) -> Result<(), PgError> {
        let running = self.portals.values();
        let running = running.filter(|portal| matches!(portal.state, PortalState::Running(_)));
        if running.count() >= MOST_RUNNING {
            let message = format!(
                "{MOST_RUNNING} portals of the session have rows left: read one to its end, or close it, before the next"
            );
            return Err(PgError::error("54000", message));
        }
        Ok(())
    }
}
