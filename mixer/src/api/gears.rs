//! Gear types: what a scenario may name, from the manifests.

use axum::routing::get;
use axum::{Json, Router};
use model::gear::{self, Manifest};
use serde::Serialize;
use serde_json::Value;

use super::params::{Listing, Params};
use super::problem::Problem;
use super::racks::{InPath, One};
use super::telemetry::in_path;

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/api/v1/gears", get(list))
        .route("/api/v1/gears/{type}", get(show))
}

/// A manifest.
#[derive(Debug, Serialize)]
struct GearType {
    r#type: &'static str,
    summary: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    doc: &'static str,
    example: &'static str,
    schema: Value,
}

impl From<&'static Manifest> for GearType {
    fn from(manifest: &'static Manifest) -> Self {
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

async fn list(params: Params) -> Result<Json<Listing<Vec<GearType>>>, Problem> {
    params.none()?;
    let types = rack::manifests().iter().copied().map(GearType::from);
    Ok(Json(Listing::whole(types.collect())))
}

async fn show(kind: InPath, params: Params) -> Result<Json<One<GearType>>, Problem> {
    params.none()?;
    let kind = in_path("type", kind)?;
    match gear::manifest(rack::manifests(), &kind) {
        Some(manifest) => Ok(Json(One { data: manifest.into() })),
        None => Err(Problem::unknown_gear(&kind, &gear::names(rack::manifests()))),
    }
}
