//! `GET /api/v1/catalog`: the tables of the Iceberg catalogue, and how far behind they are.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::iceberg_catalog::{CatalogService, CatalogView};

pub(super) fn routes(catalog: Option<Arc<CatalogService>>) -> Router {
    Router::new().route("/api/v1/catalog", get(show)).with_state(catalog)
}

async fn show(
    State(catalog): State<Option<Arc<CatalogService>>>,
    _: NoParams,
) -> Result<ItemResponse<CatalogView>, ApiProblem> {
    let data = match catalog {
        Some(catalog) => catalog.view().await?,
        None => CatalogView::switched_off(),
    };
    Ok(ItemResponse { data })
}
