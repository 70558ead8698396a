//! Scenarios: stored, shown, activated, rolled back.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use http::StatusCode;
use model::HumanDuration;
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use super::change_requests::ChangeResponse;
use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body, whole};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, QueryParams, in_path};
use crate::control::{ChangeOutcome, ControlPlane, ImportReport, ResumePoint, ScenarioReport, ScenarioView};
use crate::registry::ActiveScenario;
use crate::scenario::{MAX_FILE, ScenarioGraph, ScenarioRef};
use crate::self_tracing::WorkSpan;

/// The longest that a request waits for Racks: less than it may take in all.
const LONGEST_WAIT: Duration = Duration::from_secs(100);

pub(crate) fn routes(control: Arc<ControlPlane>, changes: TaskTracker) -> Router {
    let most = usize::try_from(MAX_FILE).unwrap_or(usize::MAX);
    Router::new()
        .route(
            "/api/v1/scenarios",
            get(list).post(import).layer(DefaultBodyLimit::max(most)),
        )
        .route("/api/v1/scenarios/status", get(status))
        .route("/api/v1/scenarios/rollback", post(rollback))
        .route("/api/v1/scenarios/{reference}", get(show))
        .route("/api/v1/scenarios/{reference}/graph", get(graph))
        .route("/api/v1/scenarios/{reference}/activate", post(activate))
        .route("/api/v1/scenarios/{reference}/delete", post(delete))
        .with_state(ServiceHandle::new(control, changes))
}

/// What an import may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ImportParams {
    replace: bool,
}

/// What an activation may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ActivationParams {
    dry_run: bool,
    wait: Option<HumanDuration>,
    resume_from: ResumePoint,
}

/// What a rollback may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RollbackParams {
    to: Option<String>,
    dry_run: bool,
    wait: Option<HumanDuration>,
    resume_from: ResumePoint,
}

type ScenarioHandle = State<ServiceHandle<ControlPlane>>;

async fn list(State(service): ScenarioHandle, _: NoParams) -> Result<ListResponse<ScenarioView>, ApiProblem> {
    Ok(ListResponse::whole(service.read(ControlPlane::scenarios).await?))
}

async fn show(
    State(service): ScenarioHandle,
    reference: InPath,
    _: NoParams,
) -> Result<ItemResponse<ScenarioView>, ApiProblem> {
    let reference = in_path("reference", reference)?;
    let data = service.read(move |control| control.scenario(&reference)).await?;
    Ok(ItemResponse { data })
}

async fn graph(
    State(service): ScenarioHandle,
    reference: InPath,
    _: NoParams,
) -> Result<ItemResponse<ScenarioGraph>, ApiProblem> {
    let reference = in_path("reference", reference)?;
    let data = service.read(move |control| control.scenario_graph(&reference)).await?;
    Ok(ItemResponse { data })
}

async fn import(
    State(service): ScenarioHandle,
    RequestActor(by): RequestActor,
    params: QueryParams,
    sent: BodyResult,
) -> Result<ItemResponse<ImportReport>, ApiProblem> {
    let ImportParams { replace } = params.filter()?;
    let text = String::from_utf8(whole(sent)?.into());
    let text =
        text.map_err(|_| ApiProblem::body(StatusCode::BAD_REQUEST, "the body is not UTF-8: a scenario is YAML"))?;
    let control = Arc::clone(&service.room);
    let data = service
        .run_to_completion(async move { control.import(text, replace, &by).await })
        .await?;
    Ok(ItemResponse { data })
}

async fn status(State(service): ScenarioHandle, _: NoParams) -> Result<ItemResponse<ScenarioReport>, ApiProblem> {
    let data = service.room.scenario_report().await?;
    Ok(ItemResponse { data })
}

async fn activate(
    State(service): ScenarioHandle,
    RequestActor(by): RequestActor,
    reference: InPath,
    params: QueryParams,
    sent: BodyResult,
) -> Result<ChangeResponse<ScenarioReport>, ApiProblem> {
    let ActivationParams {
        dry_run,
        wait,
        resume_from,
    } = params.filter()?;
    let EmptyBody {} = body(sent)?;
    let reference = in_path("reference", reference)?;
    if dry_run {
        let data = service.room.rehearse(&reference, resume_from).await?;
        return Ok(ChangeResponse(ChangeOutcome::Done(data)));
    }
    let control = Arc::clone(&service.room);
    let mut span = WorkSpan::child("activate scenario");
    span.set("scenario.reference", reference.as_str());
    let active = service
        .run_to_completion(async move { control.activate(&reference, resume_from, &by).await })
        .await;
    span.end_with(&active);
    awaited_report(&service.room, active?, wait).await
}

async fn delete(
    State(service): ScenarioHandle,
    RequestActor(by): RequestActor,
    reference: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<ScenarioRef>, ApiProblem> {
    let EmptyBody {} = body(sent)?;
    let reference = in_path("reference", reference)?;
    let control = Arc::clone(&service.room);
    let data = service
        .run_to_completion(async move { control.delete_scenario(&reference, &by).await })
        .await?;
    Ok(ItemResponse { data })
}

async fn rollback(
    State(service): ScenarioHandle,
    RequestActor(by): RequestActor,
    params: QueryParams,
    sent: BodyResult,
) -> Result<ChangeResponse<ScenarioReport>, ApiProblem> {
    let RollbackParams {
        to,
        dry_run,
        wait,
        resume_from,
    } = params.filter()?;
    let is_hash = |to: &String| to.len() == 64 && to.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !to.as_ref().is_none_or(is_hash) {
        return Err(ApiProblem::parameter(
            "to",
            "a scenario's hash has 64 hexadecimal digits",
        ));
    }
    let EmptyBody {} = body(sent)?;
    if dry_run {
        let data = service.room.rehearse_rollback(to, resume_from).await?;
        return Ok(ChangeResponse(ChangeOutcome::Done(data)));
    }
    let control = Arc::clone(&service.room);
    let span = WorkSpan::child("roll back scenario");
    let active = service
        .run_to_completion(async move { control.roll_back(to, resume_from, &by).await })
        .await;
    span.end_with(&active);
    awaited_report(&service.room, active?, wait).await
}

/// How Racks follow an activation, if it was made.
async fn awaited_report(
    control: &ControlPlane,
    active: ChangeOutcome<ActiveScenario>,
    wait: Option<HumanDuration>,
) -> Result<ChangeResponse<ScenarioReport>, ApiProblem> {
    let active = match active {
        ChangeOutcome::Done(active) => active,
        ChangeOutcome::Awaited(awaited) => return Ok(ChangeResponse(ChangeOutcome::Awaited(awaited))),
    };
    let within = bounded(wait, control.limits.scenario_wait);
    let mut span = WorkSpan::child("await convergence");
    span.set("scenario.reference", active.reference.as_str());
    let report = control.await_scenario(active, within).await;
    if let Ok(report) = &report {
        span.set("scenario.converged", report.converged);
    }
    span.end_with(&report);
    Ok(ChangeResponse(ChangeOutcome::Done(report?)))
}

/// How long to wait: as long as the request says, or the configuration; an answer comes in any case.
fn bounded(wait: Option<HumanDuration>, usual: Duration) -> Duration {
    wait.map_or(usual, HumanDuration::get).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MAX_TIME;

    #[test]
    fn an_activation_answers_before_its_request_is_cut_off_however_long_the_configuration_waits() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(LONGEST_WAIT < MAX_TIME);
        assert_eq!(bounded(None, minutes(10)), LONGEST_WAIT);
        assert_eq!(bounded(None, minutes(1)), minutes(1));
        assert_eq!(bounded(Some(minutes(1).into()), minutes(10)), minutes(1));
        assert_eq!(bounded(Some(minutes(10).into()), minutes(1)), LONGEST_WAIT);
    }
}
