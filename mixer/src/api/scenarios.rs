//! Scenarios: stored, shown, activated, taken back.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use model::HumanDuration;
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use super::audit::By;
use super::params::{Listing, Params};
use super::problem::Problem;
use super::racks::{Body, Desk, InPath, Nothing, One, body};
use super::telemetry::in_path;
use crate::control::{Control, Imported, ScenarioReport, ScenarioView};
use crate::scenario::MAX_FILE;

/// The longest that a request waits for Racks: less than it may take in all.
const LONGEST_WAIT: Duration = Duration::from_secs(100);

pub(crate) fn routes(control: Arc<Control>, changes: TaskTracker) -> Router {
    let most = usize::try_from(MAX_FILE).unwrap_or(usize::MAX);
    Router::new()
        .route(
            "/api/v1/scenarios",
            get(list).post(import).layer(DefaultBodyLimit::max(most)),
        )
        .route("/api/v1/scenarios/status", get(status))
        .route("/api/v1/scenarios/rollback", post(rollback))
        .route("/api/v1/scenarios/{reference}", get(show))
        .route("/api/v1/scenarios/{reference}/activate", post(activate))
        .with_state(Desk::new(control, changes))
}

/// What an import may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Importing {
    replace: bool,
}

/// What an activation may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Activating {
    dry_run: bool,
    wait: Option<HumanDuration>,
}

/// What a rollback may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RollingBack {
    wait: Option<HumanDuration>,
}

type Asked = State<Desk>;

async fn list(State(desk): Asked, params: Params) -> Result<Json<Listing<Vec<ScenarioView>>>, Problem> {
    params.none()?;
    Ok(Json(Listing::whole(desk.control.scenarios()?)))
}

async fn show(State(desk): Asked, reference: InPath, params: Params) -> Result<Json<One<ScenarioView>>, Problem> {
    params.none()?;
    let data = desk.control.scenario(&in_path("reference", reference)?)?;
    Ok(Json(One { data }))
}

async fn import(
    State(desk): Asked,
    By(by): By,
    params: Params,
    sent: Result<Bytes, BytesRejection>,
) -> Result<Json<One<Imported>>, Problem> {
    let Importing { replace } = params.filter()?;
    let bytes = sent.map_err(|error| Problem::body(error.status(), error.body_text()))?;
    let text = String::from_utf8(bytes.into());
    let text = text.map_err(|_| Problem::body(StatusCode::BAD_REQUEST, "the body is not UTF-8: a scenario is YAML"))?;
    let control = Arc::clone(&desk.control);
    let data = desk
        .carry(async move { control.import(text, replace, &by).await })
        .await?;
    Ok(Json(One { data }))
}

async fn status(State(desk): Asked, params: Params) -> Result<Json<One<ScenarioReport>>, Problem> {
    params.none()?;
    let data = desk.control.scenario_report().await?;
    Ok(Json(One { data }))
}

async fn activate(
    State(desk): Asked,
    By(by): By,
    reference: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<ScenarioReport>>, Problem> {
    let Activating { dry_run, wait } = params.filter()?;
    let Nothing {} = body(sent)?;
    let reference = in_path("reference", reference)?;
    if dry_run {
        let data = desk.control.rehearse(&reference).await?;
        return Ok(Json(One { data }));
    }
    let control = Arc::clone(&desk.control);
    let active = desk
        .carry(async move { control.activate(&reference, &by).await })
        .await?;
    let data = desk.control.await_scenario(active, bounded(wait)).await?;
    Ok(Json(One { data }))
}

async fn rollback(
    State(desk): Asked,
    By(by): By,
    params: Params,
    sent: Body,
) -> Result<Json<One<ScenarioReport>>, Problem> {
    let RollingBack { wait } = params.filter()?;
    let Nothing {} = body(sent)?;
    let control = Arc::clone(&desk.control);
    let active = desk.carry(async move { control.roll_back(&by).await }).await?;
    let data = desk.control.await_scenario(active, bounded(wait)).await?;
    Ok(Json(One { data }))
}

fn bounded(wait: Option<HumanDuration>) -> Option<Duration> {
    wait.map(|wait| wait.get().min(LONGEST_WAIT))
}
