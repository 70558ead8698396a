//! What statements give to the own scan: conditions that it can evaluate, and what becomes of its errors.
//!
//! # Invariants
//!
//! - What the scan declines, has no memory for, or fails at, a plan answers, and says what is wrong. A statement that was ended ends.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::utils::split_conjunction_owned;

use crate::scan::ScanExecutor;
use crate::time_bounds::{is_time_range, narrow_range};
use crate::time_range::TimeRange;
use crate::{Error, QueryErrorKind};

/// Conditions of more terms are left to the plan: the scan shares its threads with lists of the API.
const MAX_TERMS: usize = 64;
/// Statements whose batches have fewer rows make much of each: the scan looks at thousands at once.
const FEWEST_ROWS: usize = 8_192;

/// What all rows of a scan must meet.
#[derive(Debug)]
pub(super) struct RowConditions {
    pub(super) window: TimeRange,
    /// Those beside the window, each once, of columns without a table.
    pub(super) others: Vec<Expr>,
}

impl RowConditions {
    /// `None` if a plan must evaluate them.
    pub(super) fn of(window: TimeRange, conditions: Vec<Expr>) -> Result<Option<Self>> {
        let conditions = conditions.into_iter().flat_map(split_conjunction_owned);
        let (windows, conditions): (Vec<_>, Vec<_>) = conditions.partition(is_time_range);
        // The filters of a scan are said once more by the filter above it.
        let mut others = unnormalize_cols(conditions);
        let mut said = HashSet::new();
        others.retain(|condition| said.insert(condition.clone()));
        let mut terms = 0;
        for condition in &others {
            condition.apply(|_| {
                terms += 1;
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if terms > MAX_TERMS || others.iter().any(sees_more_than_a_row) {
            return Ok(None);
        }
        Ok(Some(Self {
            window: narrow_range(window, &windows),
            others,
        }))
    }
}

/// Whether a condition may say something else of a row when it is asked again, or asks for more than its columns.
fn sees_more_than_a_row(condition: &Expr) -> bool {
    let asks_for_more = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
        ))
    };
    condition.is_volatile() || condition.exists(asks_for_more).unwrap_or(true)
}

/// The scan of a session, and its state, if it is made for its statement.
pub(super) fn scan_executor(session: &dyn Session) -> Option<(&SessionState, Arc<ScanExecutor>)> {
    let state = session.as_any().downcast_ref::<SessionState>()?;
    let is_made_for = state.config().batch_size() >= FEWEST_ROWS;
    let scanner = state.config().get_extension().filter(|_| is_made_for)?;
    Some((state, scanner))
}

/// What the scan found; `None` if a plan must answer.
pub(super) fn or_fall_back<T>(found: Result<Option<T>, Error>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(found),
        Err(error) if matches!(error.kind(), QueryErrorKind::Closed | QueryErrorKind::Timeout) => {
            Err(DataFusionError::External(Box::new(error)))
        }
        Err(error) => {
            tracing::debug!(%error, "a plan finds what the scan did not");
            Ok(None)
        }
    }
}
