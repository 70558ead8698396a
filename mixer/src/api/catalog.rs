//! `GET /api/v1/catalog`: the tables of the Iceberg catalogue, and how far behind they are.
//!
//! # Invariants
//!
//! - A caller is shown the tables of its scope. One whose scope is limited to entities is shown none: figures of a table are those of all entities.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::authorization::RequestCaller;
use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::iceberg_catalog::{CatalogService, CatalogView};

pub(super) fn routes(catalog: Option<Arc<CatalogService>>) -> Router {
    Router::new().route("/api/v1/catalog", get(show)).with_state(catalog)
}

async fn show(
    State(catalog): State<Option<Arc<CatalogService>>>,
    RequestCaller(caller): RequestCaller,
    _: NoParams,
) -> Result<ItemResponse<CatalogView>, ApiProblem> {
    let data = match catalog {
        Some(catalog) => catalog.view().await?,
        None => CatalogView::switched_off(),
    };
    let scope = &caller.scope;
    Ok(ItemResponse {
        data: data.only(|table| scope.entities.is_empty() && scope.has_table(table.table)),
    })
}
