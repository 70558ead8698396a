//! One statement and what it is asked of: one view at one moment.

use std::sync::Arc;

use engine::ReadView;
use model::Timestamp;

use super::postgres::Postgres;
use super::{Dialect, Statement};
use crate::Querier;
use crate::exec::meter;
use crate::memory::Session;
use crate::reader::Meter;
use crate::specs::SpecTables;

impl Querier {
    pub(super) fn asking(&self, statement: &Statement) -> Asking {
        let specs = self.specs();
        let postgres = match statement.dialect {
            Dialect::Plain => None,
            Dialect::Postgres => self.postgres(&specs),
        };
        let sessions = postgres.as_ref().map_or(&self.sql, |postgres| &postgres.sessions);
        Asking {
            base: sessions.one(),
            postgres,
            specs,
            view: self.engine.view(),
            now: self.clock.now(),
            statement: statement.clone(),
            meter: meter(self.sql.like()),
            ids_in_memory: None,
        }
    }

    /// What clients of PostgreSQL expect, made when the first of them asks after the specs changed.
    fn postgres(&self, specs: &SpecTables) -> Option<Arc<Postgres>> {
        let mut made = self.postgres.lock();
        if let Some((_, postgres)) = made.as_ref().filter(|(of, _)| Arc::ptr_eq(of, specs)) {
            return postgres.clone();
        }
        let postgres = match Postgres::new(&self.sql, specs) {
            Ok(postgres) => Some(Arc::new(postgres)),
            Err(error) => {
                tracing::error!(%error, "pg_catalog cannot be made: clients of PostgreSQL see the tables alone");
                None
            }
        };
        *made = Some((Arc::clone(specs), postgres.clone()));
        postgres
    }
}

impl Asking {
    /// Why rows are missing, if a part of the store cannot be read and the statement, which is planned, asks for rows of the store.
    pub(super) fn partial(&self) -> Option<String> {
        let partial = self.view.partial().filter(|_| self.meter.has_planned());
        partial.map(str::to_owned)
    }
}

/// One statement and what it is asked of.
pub(super) struct Asking {
    pub(super) base: Arc<Session>,
    pub(super) postgres: Option<Arc<Postgres>>,
    pub(super) view: ReadView,
    pub(super) specs: SpecTables,
    pub(super) now: Timestamp,
    pub(super) statement: Statement,
    pub(super) meter: Arc<Meter>,
    /// So many bytes of distinct ids may be counted in memory, see [`super::distinct`]; without, they spill.
    pub(super) ids_in_memory: Option<usize>,
}
