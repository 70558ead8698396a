//! The specs of business messages, as they are in force.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::json::One;
use super::params::NoParams;
use super::problem::Problem;
use crate::specs::{SpecBook, SpecsView};

pub(crate) fn routes(book: Arc<SpecBook>) -> Router {
    Router::new().route("/api/v1/specs", get(specs)).with_state(book)
}

async fn specs(State(book): State<Arc<SpecBook>>, _: NoParams) -> Result<One<SpecsView>, Problem> {
    Ok(One { data: book.view() })
}
