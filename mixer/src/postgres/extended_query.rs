//! The extended query protocol: statements are prepared, bound to values, described and executed in parts.
//!
//! # Invariants
//!
//! - What a session keeps is bounded: [`MOST_PREPARED`] statements of [`MOST_HELD`] bytes, [`MOST_PORTALS`] portals.
//! - An answer has the columns that were described, whatever values were bound.
//! - A portal that was not read to its end holds a place of a query for `query.timeout` at most, and rows, unless they are few, while
//!   its client asks for nothing; a session has [`MOST_RUNNING`] of them.

use std::sync::Arc;

use bytes::BufMut;
use query::{SqlDialect, SqlParameters, SqlStatement};
use serde_json::Value;

use super::bind_parameters;
use super::framing::{BackendWriter, MessageFields, put_count};
use super::pg_error::PgError;
use super::pg_types::{FormatCode, PgType, ScalarType};
use super::rows::{self, FetchProgress, FormatList, PgColumn, PgReplyError, PgRowSender};
use super::session::{PgSession, text_column};
use super::utility_statement::UtilityStatement;

const MOST_PREPARED: usize = 1_024;
const MOST_HELD: usize = 4 << 20;
const MOST_PORTALS: usize = 16;
const MOST_RUNNING: usize = 2;

/// A statement that was prepared.
#[derive(Debug)]
pub(super) struct PreparedStatement {
    text: String,
    plan: StatementPlan,
    /// The id and the kind of each parameter.
    parameters: Vec<(u32, ScalarType)>,
    /// How many of them the text has.
    used: usize,
}

#[derive(Debug)]
enum StatementPlan {
    Empty,
    Utility(UtilityStatement),
    Rows(Arc<[PgColumn]>),
}

impl PreparedStatement {
    /// About how much memory it takes.
    fn size(&self) -> usize {
        let columns = match &self.plan {
            StatementPlan::Rows(columns) => columns.iter().map(|column| column.name.len() + 64).sum(),
            _ => 0,
        };
        self.text.len() + self.parameters.len() * 8 + columns + 256
    }

    fn columns(&self) -> Option<Arc<[PgColumn]>> {
        match &self.plan {
            StatementPlan::Rows(columns) => Some(Arc::clone(columns)),
            StatementPlan::Utility(utility) => utility.column().map(text_column),
            StatementPlan::Empty => None,
        }
    }
}

/// A prepared statement with its values.
#[derive(Debug)]
pub(super) struct StatementPortal {
    prepared: Arc<PreparedStatement>,
    values: Vec<Value>,
    forms: FormatList,
    state: PortalState,
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
    /// Answers one message of this part of the protocol.
    pub(super) async fn extended(
        &mut self,
        kind: u8,
        mut body: MessageFields,
        out: &mut BackendWriter,
    ) -> Result<(), PgReplyError> {
        match kind {
            b'P' => self.parse(&mut body, out).await?,
            b'B' => self.bind(&mut body, out)?,
            b'D' => self.describe(&mut body, out)?,
            b'E' => self.execute(&mut body, out).await?,
            b'C' => self.close(&mut body, out)?,
            _ => out.send().await?,
        }
        Ok(out.send_some().await?)
    }

    async fn parse(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgReplyError> {
        let (name, text) = (body.text()?, body.text()?);
        let mut declared = Vec::new();
        for _ in 0..body.count()? {
            declared.push(u32::try_from(body.int()?).unwrap_or_default());
        }
        if !name.is_empty() && self.prepared.contains_key(&name) {
            return Err(PgError::error("42P05", format!("prepared statement \"{name}\" already exists")).into());
        }
        let prepared = self.prepare(text, &declared).await?;
        self.prepared.remove(&name);
        let held: usize = self.prepared.values().map(|prepared| prepared.size()).sum();
        if self.prepared.len() >= MOST_PREPARED || held + prepared.size() > MOST_HELD {
            let message = "the session keeps too many prepared statements: close some of them";
            return Err(PgError::error("54000", message).into());
        }
        self.prepared.insert(name, Arc::new(prepared));
        out.message(b'1', |_| ());
        Ok(())
    }

    async fn prepare(&self, text: String, declared: &[u32]) -> Result<PreparedStatement, PgReplyError> {
        let mut statements = query::split_statements(&text).into_iter();
        let plain = |plan| (plan, Vec::new());
        let (plan, found) = match (statements.next(), statements.next()) {
            (None, _) => plain(StatementPlan::Empty),
            (Some(_), Some(_)) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(PgError::error("42601", message).into());
            }
            (Some((_, statement)), None) => match UtilityStatement::of(statement) {
                Some(utility) => plain(StatementPlan::Utility(utility)),
                None => {
                    self.check_transaction()?;
                    let asked = SqlStatement {
                        query: text.clone(),
                        dialect: SqlDialect::Postgres,
                        ..SqlStatement::default()
                    };
                    let described = self.interrupt().or(self.admitted()?.describe(&asked)).await?;
                    let described = described.map_err(|error| PgError::of(&error, &text, 0))?;
                    let columns = rows::columns(&described.columns, &described.schema)?;
                    (StatementPlan::Rows(columns), described.parameters)
                }
            },
        };
        let mut parameters = Vec::new();
        for place in 0..found.len().max(declared.len()) {
            let oid = declared.get(place).copied().filter(|oid| *oid != 0);
            let kind = match (oid, found.get(place).cloned().flatten().map(|kind| PgType::of(&kind))) {
                (Some(oid), _) => (oid, known(oid)?),
                (None, Some(PgType::One(scalar))) => (PgType::One(scalar).oid(), scalar),
                (None, _) => (PgType::One(ScalarType::Text).oid(), ScalarType::Text),
            };
            parameters.push(kind);
        }
        Ok(PreparedStatement {
            text,
            plan,
            parameters,
            used: found.len(),
        })
    }

    fn bind(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgError> {
        let (portal, name) = (body.text()?, body.text()?);
        let prepared = Arc::clone(self.statement(&name)?);
        let given = forms(body)?;
        let count = usize::from(body.count()?);
        if count != prepared.parameters.len() {
            let wanted = prepared.parameters.len();
            let message = format!("bind message supplies {count} parameters, but prepared statement requires {wanted}");
            return Err(PgError::error("08P01", message));
        }
        let mut values = Vec::with_capacity(count);
        for (index, (_, kind)) in prepared.parameters.iter().enumerate() {
            let value = body.value()?;
            values.push(bind_parameters::value(
                *kind,
                given.of(index),
                value.as_ref(),
                index + 1,
            )?);
        }
        values.truncate(prepared.used);
        values.shrink_to_fit();
        let forms = forms(body)?;
        let columns = prepared.columns().map_or(0, |columns| columns.len());
        if matches!(&forms, FormatList::Each(each) if each.len() != columns) {
            return Err(PgError::error(
                "08P01",
                "bind message has another number of result formats than there are columns",
            ));
        }
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(PgError::error("42P03", format!("cursor \"{portal}\" already exists")));
        }
        self.portals.remove(&portal);
        if self.portals.len() >= MOST_PORTALS {
            return Err(PgError::error(
                "54000",
                "the session has too many portals: close some of them",
            ));
        }
        let bound = StatementPortal {
            prepared,
            values,
            forms,
            state: PortalState::Bound,
        };
        self.portals.insert(portal, bound);
        out.message(b'2', |_| ());
        Ok(())
    }

    fn describe(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgError> {
        let (what, name) = (body.byte()?, body.text()?);
        let (columns, forms) = if what == b'S' {
            let prepared = self.statement(&name)?;
            out.message(b't', |out| {
                put_count(out, prepared.parameters.len());
                prepared.parameters.iter().for_each(|(oid, _)| out.put_u32(*oid));
            });
            (prepared.columns(), FormatList::All(FormatCode::Text))
        } else {
            let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
            (portal.prepared.columns(), portal.forms.clone())
        };
        match columns {
            Some(columns) => rows::describe(out, &columns, &forms),
            None => out.message(b'n', |_| ()),
        }
        Ok(())
    }

    async fn execute(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgReplyError> {
        let (name, most) = (body.text()?, body.int()?);
        let most = usize::try_from(most)
            .ok()
            .filter(|most| *most > 0)
            .unwrap_or(usize::MAX);
        let Some(mut portal) = self.portals.remove(&name) else {
            return Err(no_portal(&name).into());
        };
        let prepared = Arc::clone(&portal.prepared);
        match &prepared.plan {
            StatementPlan::Empty => out.message(b'I', |_| ()),
            StatementPlan::Utility(utility) => self.utility(utility, out)?,
            StatementPlan::Rows(columns) => {
                self.check_transaction()?;
                portal.state = self.proceed(&mut portal, columns, most, out).await?;
            }
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Sends the next rows of a portal.
    async fn proceed(
        &self,
        portal: &mut StatementPortal,
        columns: &Arc<[PgColumn]>,
        most: usize,
        out: &mut BackendWriter,
    ) -> Result<PortalState, PgReplyError> {
        let interrupt = self.interrupt();
        let mut running = match std::mem::replace(&mut portal.state, PortalState::Ended) {
            PortalState::Running(running) => running,
            PortalState::Late => {
                let message = "the rows of the portal were discarded when query.timeout was over: read it to its end \
                               sooner, or without a fetch size";
                return Err(PgError::error("57014", message).into());
            }
            PortalState::Ended => {
                out.complete("SELECT 0");
                return Ok(PortalState::Ended);
            }
            PortalState::Bound => {
                self.check_running()?;
                let text = &portal.prepared.text;
                let asked = SqlStatement {
                    query: text.clone(),
                    parameters: SqlParameters::Listed(std::mem::take(&mut portal.values)),
                    limit: None,
                    dialect: SqlDialect::Postgres,
                };
                let answer = interrupt.or(self.admitted()?.sql(&asked)).await?;
                let answer = answer.map_err(|error| PgError::of(&error, text, 0))?;
                Box::new(PgRowSender::new(answer, Arc::clone(columns)))
            }
        };
        match running.send(out, &portal.forms, most, &interrupt).await? {
            FetchProgress::Ended(rows) => {
                out.complete(&format!("SELECT {rows}"));
                Ok(PortalState::Ended)
            }
            FetchProgress::Paused => {
                out.message(b's', |_| ());
                Ok(PortalState::Running(running))
            }
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

    fn close(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgError> {
        let (what, name) = (body.byte()?, body.text()?);
        if what == b'S' {
            self.prepared.remove(&name);
        } else {
            self.portals.remove(&name);
        }
        out.message(b'3', |_| ());
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<&Arc<PreparedStatement>, PgError> {
        let missing = || PgError::error("26000", format!("prepared statement \"{name}\" does not exist"));
        self.prepared.get(name).ok_or_else(missing)
    }
}

fn no_portal(name: &str) -> PgError {
    PgError::error("34000", format!("portal \"{name}\" does not exist"))
}

/// What values of a type that a client names are.
fn known(oid: u32) -> Result<ScalarType, PgError> {
    let unknown = || {
        PgError::error(
            "0A000",
            format!("parameters of the type {oid} are not supported: give a text"),
        )
    };
    ScalarType::of_oid(oid).ok_or_else(unknown)
}

/// The forms of values: none named is text, one is that of all.
pub(super) fn forms(body: &mut MessageFields) -> Result<FormatList, PgError> {
    let mut forms = Vec::new();
    for _ in 0..body.count()? {
        forms.push(match body.short()? {
            0 => FormatCode::Text,
            1 => FormatCode::Binary,
            other => return Err(PgError::error("22023", format!("there is no format {other}"))),
        });
    }
    Ok(match forms.as_slice() {
        [] => FormatList::All(FormatCode::Text),
        [one] => FormatList::All(*one),
        _ => FormatList::Each(forms),
    })
}
