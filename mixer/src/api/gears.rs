//! Gear types that a scenario may name, from the manifests.

use axum::Router;
use axum::routing::get;
use model::gear_manifest::{self, GearManifest};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, in_path};

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/api/v1/gears", get(list))
        .route("/api/v1/gears/{type}", get(show))
}

/// A manifest.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GearType {
    r#type: &'static str,
    summary: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    doc: &'static str,
    example: &'static str,
    #[schemars(with = "Map<String, Value>")]
    schema: Value,
}

impl From<&'static GearManifest> for GearType {
    fn from(manifest: &'static GearManifest) -> Self {
        Self {
            r#type: manifest.kind,
            summary: manifest.summary,
            inputs: manifest.inputs,
            outputs: manifest.outputs,
            doc: manifest.doc,
            example: manifest.example,
            schema: (manifest.schema)(),
        }
    }
}

async fn list(_: NoParams) -> Result<ListResponse<GearType>, ApiProblem> {
    let types = gear_spec::manifests().iter().copied().map(GearType::from);
    Ok(ListResponse::whole(types.collect()))
}

async fn show(kind: InPath, _: NoParams) -> Result<ItemResponse<GearType>, ApiProblem> {
    let kind = in_path("type", kind)?;
    match gear_manifest::manifest(gear_spec::manifests(), &kind) {
        Some(manifest) => Ok(ItemResponse { data: manifest.into() }),
        None => Err(ApiProblem::unknown_gear(
            &kind,
            &gear_manifest::names(gear_spec::manifests()),
        )),
    }
}
