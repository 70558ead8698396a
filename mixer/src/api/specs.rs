//! The specs of business messages, as they are in force.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};

use super::params::Params;
use super::problem::Problem;
use super::racks::One;
use crate::specs::{SpecBook, SpecsView};

pub(crate) fn routes(book: Arc<SpecBook>) -> Router {
    Router::new().route("/api/v1/specs", get(specs)).with_state(book)
}

async fn specs(State(book): State<Arc<SpecBook>>, params: Params) -> Result<Json<One<SpecsView>>, Problem> {
    params.none()?;
    Ok(Json(One { data: book.view() }))
}
