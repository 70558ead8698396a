//! Wires of lane guaranteed: what waits for each, and who is held up.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::json::Listing;
use super::params::NoParams;
use super::problem::Problem;
use crate::control::Control;
use crate::scenario::WireBacklog;

pub(crate) fn routes(control: Arc<Control>) -> Router {
    Router::new().route("/api/v1/wires", get(wires)).with_state(control)
}

async fn wires(State(control): State<Arc<Control>>, _: NoParams) -> Result<Listing<WireBacklog>, Problem> {
    Ok(Listing::whole(control.wires()))
}
