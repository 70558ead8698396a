//! Racks: listed, shown, adopted, stopped, removed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post, put};
use http::StatusCode;
use model::{Level, Token};
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use super::authorization::{RequestCaller, rack_in_scope};
use super::change_requests::ChangeResponse;
use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, in_path};
use crate::control::{ControlError, ControlPlane, MOST_LABELS, RackApproval, RackView};
use crate::registry::AuditActor;

pub(crate) fn routes(control: Arc<ControlPlane>, changes: TaskTracker) -> Router {
    let suspend = plain(|control, id, by| async move { control.suspend(&id, &by).await });
    let resume = plain(|control, id, by| async move { control.resume(&id, &by).await });
    let remove = plain(|control, id, by| async move { control.remove(&id, &by).await });
    Router::new()
        .route("/api/v1/racks", get(racks))
        .route("/api/v1/racks/{id}", get(rack))
        .route("/api/v1/racks/{id}/approve", post(approve))
        .route("/api/v1/racks/{id}/suspend", suspend)
        .route("/api/v1/racks/{id}/resume", resume)
        .route("/api/v1/racks/{id}/remove", remove)
        .route("/api/v1/racks/{id}/log-level", post(log_level))
        .route("/api/v1/racks/{id}/labels", put(labels).patch(relabel))
        .route_layer(from_fn_with_state(Arc::clone(&control), rack_in_scope))
        .with_state(ServiceHandle::new(control, changes))
}

/// Characters that a label's value may have.
const LONGEST_LABEL: usize = 256;

/// What a change of the log level says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogLevelBody {
    level: Option<Level>,
}

type RackHandle = State<ServiceHandle<ControlPlane>>;

/// The Racks of the caller's scope.
async fn racks(
    State(service): RackHandle,
    RequestCaller(caller): RequestCaller,
    _: NoParams,
) -> Result<ListResponse<RackView>, ApiProblem> {
    let mut racks = service.read(ControlPlane::racks).await?;
    racks.retain(|rack| caller.scope.has_rack(&rack.labels));
    Ok(ListResponse::whole(racks))
}

async fn rack(State(service): RackHandle, id: InPath, _: NoParams) -> Result<ItemResponse<RackView>, ApiProblem> {
    let id = in_path("id", id)?;
    let data = service.read(move |control| control.rack(&id)).await?;
    Ok(ItemResponse { data })
}

async fn approve(
    State(service): RackHandle,
    RequestActor(by): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ChangeResponse<RackView>, ApiProblem> {
    let id = in_path("id", id)?;
    let approval: RackApproval = body(sent)?;
    let control = Arc::clone(&service.room);
    let change = async move { control.approve(&id, approval, &by).await };
    Ok(ChangeResponse(service.run_to_completion(change).await?))
}

/// A change that takes nothing but the Rack's id.
fn plain<C, F>(change: C) -> MethodRouter<ServiceHandle<ControlPlane>>
where
    C: FnOnce(Arc<ControlPlane>, String, AuditActor) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<RackView, ControlError>> + Send + 'static,
{
    post(
        |State(service): RackHandle, RequestActor(by): RequestActor, id: InPath, _: NoParams, sent: BodyResult| async move {
            let EmptyBody {} = body(sent)?;
            let id = in_path("id", id)?;
            let data = service
                .run_to_completion(change(Arc::clone(&service.room), id, by))
                .await?;
            Ok::<_, ApiProblem>(ItemResponse { data })
        },
    )
}

async fn log_level(
    State(service): RackHandle,
    RequestActor(by): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<RackView>, ApiProblem> {
    let id = in_path("id", id)?;
    let LogLevelBody { level: Some(level) } = body(sent)? else {
        let detail = "the body: level is missing: {\"level\": \"debug\"}";
        return Err(ApiProblem::body(StatusCode::BAD_REQUEST, detail));
    };
    let control = Arc::clone(&service.room);
    let change = async move { control.set_log_level(&id, level, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}

async fn labels(
    State(service): RackHandle,
    RequestActor(by): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<RackView>, ApiProblem> {
    let id = in_path("id", id)?;
    let labels = usable(body(sent)?).map_err(|detail| ApiProblem::body(StatusCode::BAD_REQUEST, detail))?;
    let control = Arc::clone(&service.room);
    let change = async move { control.set_labels(&id, labels, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}

/// Some labels: `{"role": "edge", "site": null}` gives one and takes one away.
async fn relabel(
    State(service): RackHandle,
    RequestActor(by): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<RackView>, ApiProblem> {
    let id = in_path("id", id)?;
    let changes = usable(body(sent)?).map_err(|detail| ApiProblem::body(StatusCode::BAD_REQUEST, detail))?;
    let control = Arc::clone(&service.room);
    let change = async move { control.change_labels(&id, changes, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}

/// What is said of a label: its value, or none.
trait LabelValue {
    fn value(&self) -> Option<&str>;
}

impl LabelValue for String {
    fn value(&self) -> Option<&str> {
        Some(self)
    }
}

impl LabelValue for Option<String> {
    fn value(&self) -> Option<&str> {
        self.as_deref()
    }
}

/// Labels that a Rack may have. No body at all would take away all of them by accident.
fn usable<V: LabelValue>(labels: Option<BTreeMap<Token, V>>) -> Result<BTreeMap<String, V>, String> {
    let Some(labels) = labels else {
        return Err("the body: the labels are missing: {\"role\": \"edge\"}, or {} for none".to_owned());
    };
    if labels.len() > MOST_LABELS {
        return Err(format!(
            "the body: it has {} labels, {MOST_LABELS} at most",
            labels.len()
        ));
    }
    for (key, value) in &labels {
        let long = value.value().map_or(0, |value| value.chars().count());
        if long > LONGEST_LABEL {
            return Err(format!(
                "the body: label {key} has {long} characters, {LONGEST_LABEL} at most"
            ));
        }
    }
    Ok(labels
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect())
}
