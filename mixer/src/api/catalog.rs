//! `GET /api/v1/catalog`: the tables of the Iceberg catalogue, and how far behind they are.
//!
//! # Invariants
//!
//! - A caller is shown the tables of its scope. One whose scope is limited to entities is shown none: figures of a table are those of all entities.
//! - Why something failed is for who operates: it may have paths of the machine.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::authorization::RequestCaller;
use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::access::AccessRight;
use crate::iceberg_catalog::{CatalogService, CatalogView};

/// Why a caller is shown no tables.
const OF_ENTITIES: &str = "figures and files of a table are those of all entities, and the token's scope is limited to some: ask for rows instead, by \
                           SQL or as lists";

pub(super) fn routes(catalog: Option<Arc<CatalogService>>) -> Router {
    Router::new().route("/api/v1/catalog", get(show)).with_state(catalog)
}

async fn show(
    State(catalog): State<Option<Arc<CatalogService>>>,
    RequestCaller(caller): RequestCaller,
    _: NoParams,
) -> Result<ItemResponse<CatalogView>, ApiProblem> {
    let Some(catalog) = catalog else {
        let data = CatalogView::switched_off();
        return Ok(ItemResponse { data });
    };
    let mut data = catalog.view().await?;
    if !caller.has(AccessRight::OperateRacks) {
        data = data.without_details();
    }
    if !caller.scope.entities.is_empty() {
        data = data.withheld(OF_ENTITIES);
    }
    Ok(ItemResponse {
        data: data.only(|table| caller.scope.has_table(table.table)),
    })
}
