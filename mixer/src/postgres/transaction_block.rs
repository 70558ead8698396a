//! Transactions and savepoints of a session, which hold nothing but settings and cursors.
//!
//! # Invariants
//!
//! - `ROLLBACK` takes back the settings and cursors since `BEGIN`, and `ROLLBACK TO SAVEPOINT` those since the savepoint, `WITH HOLD` or
//!   not. What a cursor of before has given is not taken back.
//! - Other portals end with their transaction.

use super::pg_error::PgError;
use super::savepoint_stack::SavepointState;
use super::session::PgSession;
use super::utility_statement::UtilityStatement;

/// Where a session is in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionStatus {
    None,
    /// A text of several statements, which is a transaction where it does not begin one itself.
    Implicit,
    Open,
    /// A statement failed: only its end is carried out.
    Failed,
}

impl TransactionStatus {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::None | Self::Implicit => b'I',
            Self::Open => b'T',
            Self::Failed => b'E',
        }
    }
}

impl PgSession {
    pub(super) fn check_transaction(&self) -> Result<(), PgError> {
        if self.transaction == TransactionStatus::Failed {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(PgError::error("25P02", message));
        }
        Ok(())
    }

    /// A transaction begins, unless one runs.
    pub(super) fn begin(&mut self, status: TransactionStatus) {
        if self.transaction == TransactionStatus::None {
            self.settings.begin();
        }
        self.transaction = status;
    }

    /// The transaction ends, and its portals with it.
    pub(super) fn end(&mut self, commits: bool) {
        let takes_back = !commits && self.transaction != TransactionStatus::None;
        let before = self.portals_before;
        self.portals
            .retain(|_, portal| portal.is_held && !(takes_back && portal.number > before));
        self.transaction = TransactionStatus::None;
        self.portals_before = self.portals_made;
        self.savepoints.clear();
        if commits {
            self.settings.commit();
        } else {
            self.settings.roll_back();
        }
    }

    /// Carries out a statement about the transaction; what is said of it, and `None` for any other statement.
    pub(super) fn transaction_statement(
        &mut self,
        utility: &UtilityStatement,
    ) -> Option<Result<&'static str, PgError>> {
        Some(match utility {
            UtilityStatement::Begin => self.check_transaction().map(|()| {
                self.begin(TransactionStatus::Open);
                "BEGIN"
            }),
            UtilityStatement::Commit | UtilityStatement::Rollback => {
                let commits = *utility == UtilityStatement::Commit && self.transaction != TransactionStatus::Failed;
                self.end(commits);
                Ok(if commits { "COMMIT" } else { "ROLLBACK" })
            }
            UtilityStatement::Savepoint(name) => self.savepoint(name),
            UtilityStatement::Release(name) => self.release(name),
            UtilityStatement::RollbackTo(name) => self.roll_back_to(name),
            _ => return None,
        })
    }

    fn savepoint(&mut self, name: &str) -> Result<&'static str, PgError> {
        self.check_transaction()?;
        self.check_block("SAVEPOINT")?;
        let state = SavepointState {
            settings: self.settings.snapshot(),
            portals: self.portals_made,
        };
        self.savepoints.push(name, state)?;
        Ok("SAVEPOINT")
    }

    fn release(&mut self, name: &str) -> Result<&'static str, PgError> {
        self.check_transaction()?;
        self.check_block("RELEASE SAVEPOINT")?;
        self.savepoints.release(name)?;
        Ok("RELEASE")
    }

    fn roll_back_to(&mut self, name: &str) -> Result<&'static str, PgError> {
        self.check_block("ROLLBACK TO SAVEPOINT")?;
        let then = self.savepoints.roll_back_to(name)?;
        self.settings.restore(then.settings);
        self.portals.retain(|_, portal| portal.number <= then.portals);
        self.transaction = TransactionStatus::Open;
        Ok("ROLLBACK")
    }

    fn check_block(&self, statement: &str) -> Result<(), PgError> {
        if matches!(self.transaction, TransactionStatus::None | TransactionStatus::Implicit) {
            let message = format!("{statement} can only be used in transaction blocks");
            return Err(PgError::error("25P01", message));
        }
        Ok(())
    }
}
