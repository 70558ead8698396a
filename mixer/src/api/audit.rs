//! `GET /api/v1/audit`: the audit log of Racks, scenarios and dead letters.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use model::filter::{AuditFilter, page_size};

use super::json_response::ListResponse;
use super::problem::ApiProblem;
use super::query_params::QueryParams;
use crate::control::ControlPlane;
use crate::registry::{AuditEntry, AuditQuery};

pub(crate) fn routes(control: Arc<ControlPlane>) -> Router {
    Router::new().route("/api/v1/audit", get(list)).with_state(control)
}

async fn list(
    State(control): State<Arc<ControlPlane>>,
    params: QueryParams,
) -> Result<ListResponse<AuditEntry>, ApiProblem> {
    let mut query = query(params.filter()?, &control)?;
    let limit = query.limit;
    // One more shows whether there are more.
    query.limit += 1;
    let mut entries = control.audit(query).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(ListResponse {
        next_cursor: next,
        ..ListResponse::whole(entries)
    })
}

fn query(filter: AuditFilter, control: &ControlPlane) -> Result<AuditQuery, ApiProblem> {
    let now = control.now();
    let limit = page_size(filter.limit).map_err(|bad| ApiProblem::parameter("limit", bad))?;
    let before = filter.cursor.map(|cursor| {
        let number = cursor.parse::<u64>();
        number.map_err(|_| ApiProblem::parameter("cursor", "it is not the next_cursor of an answer"))
    });
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
        before: before.transpose()?,
        limit,
    })
}
