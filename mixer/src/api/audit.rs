//! `GET /api/v1/audit`: the audit log of Racks, scenarios, dead letters and calls, and the checkpoints of its hash chain.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use model::filter::{AuditFilter, CheckpointFilter, page_size};
use serde::Serialize;

use super::json_response::ListResponse;
use super::problem::ApiProblem;
use super::query_params::QueryParams;
use crate::control::ControlPlane;
use crate::registry::{AuditEntry, AuditQuery, KeyHistory, SignedCheckpoint};

/// Checkpoints, and the keys that may have signed them.
#[derive(Debug, Serialize)]
struct CheckpointResponse {
    #[serde(flatten)]
    page: ListResponse<SignedCheckpoint>,
    #[serde(flatten)]
    keys: KeyHistory,
}

pub(crate) fn routes(control: Arc<ControlPlane>) -> Router {
    Router::new()
        .route("/api/v1/audit", get(list))
        .route("/api/v1/audit/checkpoints", get(checkpoints))
        .with_state(control)
}

async fn list(
    State(control): State<Arc<ControlPlane>>,
    params: QueryParams,
) -> Result<ListResponse<AuditEntry>, ApiProblem> {
    let mut query = query(params.filter()?, &control)?;
    let limit = query.limit;
    // One more shows whether there are more.
    query.limit += 1;
    Ok(paged(control.audit(query).await?, limit, |last| last.id))
}

async fn checkpoints(
    State(control): State<Arc<ControlPlane>>,
    params: QueryParams,
) -> Result<Json<CheckpointResponse>, ApiProblem> {
    let filter: CheckpointFilter = params.filter()?;
    let limit = page_size(filter.limit).map_err(|bad| ApiProblem::parameter("limit", bad))?;
    let before = number(filter.cursor)?.unwrap_or(u64::MAX);
    let found = control.audit_checkpoints(before, limit + 1).await?;
    let page = paged(found, limit, |last| last.id);
    let keys = control.key_history().await?;
    Ok(Json(CheckpointResponse { page, keys }))
}

/// The first entries, and where the next ones begin if there are more.
fn paged<T>(mut found: Vec<T>, limit: usize, id: impl Fn(&T) -> u64) -> ListResponse<T> {
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|last| id(last).to_string());
    ListResponse {
        next_cursor,
        ..ListResponse::whole(found)
    }
}

fn number(cursor: Option<String>) -> Result<Option<u64>, ApiProblem> {
    let number = cursor.map(|cursor| cursor.parse());
    let number = number.transpose();
    number.map_err(|_| ApiProblem::parameter("cursor", "it is not the next_cursor of an answer"))
}

fn query(filter: AuditFilter, control: &ControlPlane) -> Result<AuditQuery, ApiProblem> {
    let now = control.now();
    let limit = page_size(filter.limit).map_err(|bad| ApiProblem::parameter("limit", bad))?;
    let before = number(filter.cursor)?;
    let (since, until) = (
        filter.since.map(|since| since.resolve(now)),
        filter.until.map(|until| until.resolve(now)),
    );
    if since.zip(until).is_some_and(|(since, until)| until < since) {
        return Err(ApiProblem::parameter("until", "the window ends before it begins"));
    }
    Ok(AuditQuery {
        since,
        until,
        rack: filter.rack,
        kind: filter.kind,
        before,
        limit,
    })
}
