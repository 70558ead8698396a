//! Wires of lane guaranteed: their backlogs, and whose senders are held.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::json_response::ListResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::control::ControlPlane;
use crate::scenario::WireBacklog;

pub(crate) fn routes(control: Arc<ControlPlane>) -> Router {
    Router::new().route("/api/v1/wires", get(wires)).with_state(control)
}

async fn wires(State(control): State<Arc<ControlPlane>>, _: NoParams) -> Result<ListResponse<WireBacklog>, ApiProblem> {
    Ok(ListResponse::whole(control.wires()))
}
