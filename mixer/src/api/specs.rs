//! The specs of business messages, as they are in force.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::specs::{SpecListView, SpecRegistry};

pub(crate) fn routes(book: Arc<SpecRegistry>) -> Router {
    Router::new().route("/api/v1/specs", get(specs)).with_state(book)
}

async fn specs(State(book): State<Arc<SpecRegistry>>, _: NoParams) -> Result<ItemResponse<SpecListView>, ApiProblem> {
    Ok(ItemResponse { data: book.view() })
}
