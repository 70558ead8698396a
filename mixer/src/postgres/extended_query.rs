//! The extended query protocol: statements are prepared, bound to values, described and executed in parts.
//!
//! # Invariants
//!
//! - What a session keeps is bounded: [`MOST_PREPARED`] statements of [`MOST_HELD`] bytes, and portals ([`super::statement_portal`]),
//!   with names that [`PgError::check_name`] admits.
//! - An answer has the columns that were described, whatever values were bound.

use std::sync::Arc;

use arrow_schema::DataType;
use bytes::BufMut;
use query::{SqlDialect, SqlStatement};

use super::bind_parameters;
use super::copy_statement::CopyStatement;
use super::cursor_statement::{CursorDeclaration, CursorFetch};
use super::framing::{BackendWriter, MessageFields, put_count};
use super::pg_error::PgError;
use super::pg_types::{FormatCode, PgType, ScalarType};
use super::rows::{self, FetchProgress, FormatList, PgColumn, PgReplyError, StatementInterrupt};
use super::session::{PgSession, utility_columns};
use super::statement_portal::{PreparedStatement, StatementPlan, StatementPortal, declared_types};
use super::utility_statement::UtilityStatement;

const MOST_PREPARED: usize = 1_024;
const MOST_HELD: usize = 4 << 20;

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
        PgError::check_name(&name)?;
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
        let plan = match (statements.next(), statements.next()) {
            (None, _) => StatementPlan::Empty,
            (Some(_), Some(_)) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(PgError::error("42601", message).into());
            }
            (Some((begin, statement)), None) => match UtilityStatement::of(statement) {
                None => {
                    let interrupt = self.interrupt();
                    return self.prepare_query(text.clone(), (&text, 0), declared, &interrupt).await;
                }
                Some(UtilityStatement::Copy) => StatementPlan::Copy(CopyStatement::parse(statement)?),
                Some(UtilityStatement::Fetch) => StatementPlan::Fetch(CursorFetch::parse(statement)?),
                Some(UtilityStatement::Declare) => {
                    let cursor = CursorDeclaration::parse(statement)?;
                    let (whole, interrupt) = ((text.as_str(), begin + cursor.begin), self.interrupt());
                    let query = self
                        .prepare_query(cursor.query.clone(), whole, declared, &interrupt)
                        .await?;
                    return Ok(PreparedStatement {
                        parameters: query.parameters.clone(),
                        used: query.used,
                        plan: StatementPlan::Declare(cursor, Arc::new(query)),
                        text,
                    });
                }
                Some(utility) => StatementPlan::Utility(utility),
            },
        };
        Ok(PreparedStatement {
            parameters: parameters(declared, &[])?,
            text,
            plan,
            used: 0,
        })
    }

    /// Prepares a query, which begins at a byte of the whole text.
    pub(super) async fn prepare_query(
        &self,
        query: String,
        (whole, begin): (&str, usize),
        declared: &[u32],
        interrupt: &StatementInterrupt,
    ) -> Result<PreparedStatement, PgReplyError> {
        self.check_transaction()?;
        let asked = SqlStatement {
            query: query.clone(),
            dialect: SqlDialect::Postgres,
            declared: declared_types(&parameters(declared, &[])?),
            ..SqlStatement::default()
        };
        let described = interrupt.or(self.admitted()?.describe(&asked)).await?;
        let described = described.map_err(|error| PgError::of(&error, whole, begin))?;
        let columns = rows::columns(&described.columns, &described.schema)?;
        let mut parameters = parameters(declared, &described.parameters)?;
        name_lists_of_oids(&query, declared, &mut parameters);
        Ok(PreparedStatement {
            parameters,
            text: query,
            plan: StatementPlan::Rows(columns),
            used: described.parameters.len(),
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
        let (mut memory, number) = self.make_room(&portal)?;
        let mut values = Vec::with_capacity(count);
        for (index, (_, kind)) in prepared.parameters.iter().enumerate() {
            let (value, form) = (body.value()?, given.of(index));
            values.push(bind_parameters::value(
                *kind,
                form,
                value.as_ref(),
                index + 1,
                &mut memory,
            )?);
        }
        values.truncate(prepared.used);
        values.shrink_to_fit();
        let forms = forms(body)?;
        let columns = self.columns(&prepared).map_or(0, |columns| columns.len());
        if matches!(&forms, FormatList::Each(each) if each.len() != columns) {
            return Err(PgError::error(
                "08P01",
                "bind message has another number of result formats than there are columns",
            ));
        }
        let bound = StatementPortal::new(prepared, (values, memory.taken), forms, number);
        self.portals.insert(portal, bound);
        out.message(b'2', |_| ());
        Ok(())
    }

    /// The columns of the answer to a statement, if it has one.
    fn columns(&self, prepared: &PreparedStatement) -> Option<Arc<[PgColumn]>> {
        match &prepared.plan {
            StatementPlan::Rows(columns) => Some(Arc::clone(columns)),
            StatementPlan::Utility(utility) => utility_columns(utility),
            StatementPlan::Fetch(fetch) if !fetch.is_move => self.portals.get(&fetch.name)?.columns(),
            _ => None,
        }
    }

    fn describe(&mut self, body: &mut MessageFields, out: &mut BackendWriter) -> Result<(), PgError> {
        let (what, name) = (body.byte()?, body.text()?);
        let (columns, forms) = if what == b'S' {
            let prepared = self.statement(&name)?;
            out.message(b't', |out| {
                put_count(out, prepared.parameters.len());
                prepared.parameters.iter().for_each(|(oid, _)| out.put_u32(*oid));
            });
            (self.columns(prepared), FormatList::All(FormatCode::Text))
        } else {
            let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
            (self.columns(&portal.prepared), portal.forms.clone())
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
            StatementPlan::Rows(_) => {
                let interrupt = self.interrupt();
                let forms = portal.forms.clone();
                let many = (most, &interrupt);
                let progress = self.proceed(&mut portal, rows::put_row(&forms), many, out).await;
                self.put_back(name, portal, progress.is_ok());
                match progress? {
                    FetchProgress::Ended(rows) => out.complete(&format!("SELECT {rows}")),
                    FetchProgress::Paused => out.message(b's', |_| ()),
                }
                return Ok(());
            }
            StatementPlan::Copy(copy) => {
                let interrupt = self.interrupt();
                self.copy_out(copy, (&prepared.text, 0), &interrupt, out).await?;
            }
            StatementPlan::Declare(cursor, query) => {
                let values = portal.take_values();
                // The cursor may have the portal's name, which is its own from here.
                return Ok(self.declare(cursor, (Arc::clone(query), values), out)?);
            }
            StatementPlan::Fetch(fetch) => {
                let interrupt = self.interrupt();
                let forms = portal.forms.clone();
                self.fetch(fetch, Some(&forms), &interrupt, out).await?;
            }
        }
        self.portals.insert(name, portal);
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

/// The parameters of a statement: as the client declares them, else as they were found.
fn parameters(declared: &[u32], found: &[Option<DataType>]) -> Result<Vec<(u32, PgType)>, PgError> {
    let mut parameters = Vec::new();
    for place in 0..found.len().max(declared.len()) {
        let oid = declared.get(place).copied().filter(|oid| *oid != 0);
        let found = found.get(place).and_then(Option::as_ref).map(PgType::of);
        let kind = match (oid, found) {
            (Some(oid), _) => (oid, known(oid)?),
            (None, Some(kind)) => (kind.oid(), kind),
            (None, None) => (PgType::One(ScalarType::Text).oid(), PgType::One(ScalarType::Text)),
        };
        parameters.push(kind);
    }
    Ok(parameters)
}

/// Calls lists what a question about the catalogue casts them to, which the planner takes for numbers: drivers that look up a type know
/// few others.
fn name_lists_of_oids(query: &str, declared: &[u32], parameters: &mut [(u32, PgType)]) {
    const OIDS: u32 = 1_028;
    let places = query.match_indices("::oid[]").filter_map(|(at, _)| {
        let before = query.get(..at)?;
        let name = before.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let place: usize = before.get(name.len()..)?.parse().ok()?;
        name.ends_with('$').then(|| place.checked_sub(1)).flatten()
    });
    for index in places.filter(|index| declared.get(*index).is_none_or(|oid| *oid == 0)) {
        if let (Some(parameter), Some(list)) = (parameters.get_mut(index), PgType::of_oid(OIDS)) {
            *parameter = (OIDS, list);
        }
    }
}

/// What values of a type that a client names are.
fn known(oid: u32) -> Result<PgType, PgError> {
    let unknown = || {
        PgError::error(
            "0A000",
            format!("parameters of the type {oid} are not supported: give a text"),
        )
    };
    PgType::of_oid(oid).ok_or_else(unknown)
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
