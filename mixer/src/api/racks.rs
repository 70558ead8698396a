//! Racks, and what all changes of the control plane go through.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use model::{Level, Token};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::audit::By;
use super::params::{Listing, Params};
use super::problem::Problem;
use super::telemetry::in_path;
use crate::control::{Control, ControlError, RackView};

pub(crate) fn routes(control: Arc<Control>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/racks", get(racks))
        .route("/api/v1/racks/{id}", get(rack))
        .route("/api/v1/racks/{id}/approve", post(approve))
        .route("/api/v1/racks/{id}/suspend", post(suspend))
        .route("/api/v1/racks/{id}/resume", post(resume))
        .route("/api/v1/racks/{id}/remove", post(remove))
        .route("/api/v1/racks/{id}/log-level", post(log_level))
        .route("/api/v1/racks/{id}/labels", put(labels))
        .with_state(Desk::new(control, changes))
}

/// Labels that one Rack may have.
const MOST_LABELS: usize = 64;
/// Characters that a label's value may have.
const LONGEST_LABEL: usize = 256;

/// What changes go through.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) control: Arc<Control>,
    changes: TaskTracker,
}

impl Desk {
    pub(super) const fn new(control: Arc<Control>, changes: TaskTracker) -> Self {
        Self { control, changes }
    }

    /// Carries a change to its end even if its requester leaves: what is in the registry must be told to the Rack.
    /// Closing the API waits for it.
    pub(super) async fn carry<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, Problem> {
        carry(&self.changes, change).await
    }

    async fn rack(
        &self,
        change: impl Future<Output = Result<RackView, ControlError>> + Send + 'static,
    ) -> Result<Json<One<RackView>>, Problem> {
        let data = self.carry(change).await?;
        Ok(Json(One { data }))
    }
}

/// As [`Desk::carry`], for changes of any kind.
pub(super) async fn carry<T, E>(
    changes: &TaskTracker,
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Problem>
where
    T: Send + 'static,
    E: Send + 'static,
    Problem: From<E>,
{
    let ended = changes.spawn(change).await;
    Ok(ended.map_err(|error| Problem::internal(format!("the change stopped: {error}")))??)
}

/// One thing.
#[derive(Serialize)]
pub(super) struct One<T> {
    pub(super) data: T,
}

/// What an approval may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Approval {
    name: Option<Token>,
}

/// What a change of the log level says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Leveling {
    level: Option<Level>,
}

/// A body without anything to say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Nothing {}

type Asked = State<Desk>;
pub(super) type InPath = Result<Path<String>, PathRejection>;
pub(super) type Body = Result<Bytes, BytesRejection>;

async fn racks(State(desk): Asked, params: Params) -> Result<Json<Listing<Vec<RackView>>>, Problem> {
    params.none()?;
    Ok(Json(Listing::whole(desk.control.racks()?)))
}

async fn rack(State(desk): Asked, id: InPath, params: Params) -> Result<Json<One<RackView>>, Problem> {
    params.none()?;
    Ok(Json(One {
        data: desk.control.rack(&in_path("id", id)?)?,
    }))
}

async fn approve(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    params.none()?;
    let id = in_path("id", id)?;
    let approval: Approval = body(sent)?;
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.approve(&id, approval.name, &by).await })
        .await
}

async fn suspend(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    let id = plain(id, &params, sent)?;
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.suspend(&id, &by).await }).await
}

async fn resume(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    let id = plain(id, &params, sent)?;
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.resume(&id, &by).await }).await
}

async fn remove(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    let id = plain(id, &params, sent)?;
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.remove(&id, &by).await }).await
}

async fn log_level(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    params.none()?;
    let id = in_path("id", id)?;
    let Leveling { level: Some(level) } = body(sent)? else {
        let detail = "the body: level is missing: {\"level\": \"debug\"}";
        return Err(Problem::body(StatusCode::BAD_REQUEST, detail));
    };
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.set_log_level(&id, level, &by).await })
        .await
}

async fn labels(
    State(desk): Asked,
    By(by): By,
    id: InPath,
    params: Params,
    sent: Body,
) -> Result<Json<One<RackView>>, Problem> {
    params.none()?;
    let id = in_path("id", id)?;
    let labels = usable(body(sent)?).map_err(|detail| Problem::body(StatusCode::BAD_REQUEST, detail))?;
    let control = Arc::clone(&desk.control);
    desk.rack(async move { control.set_labels(&id, labels, &by).await })
        .await
}

/// Labels that a Rack may have. No body at all would take away all of them by accident.
fn usable(labels: Option<BTreeMap<Token, String>>) -> Result<BTreeMap<String, String>, String> {
    let Some(labels) = labels else {
        return Err("the body: all labels of the Rack are missing: {\"role\": \"edge\"}, or {} for none".to_owned());
    };
    if labels.len() > MOST_LABELS {
        return Err(format!(
            "the body: it has {} labels, {MOST_LABELS} at most",
            labels.len()
        ));
    }
    for (key, value) in &labels {
        let long = value.chars().count();
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

/// The id of a change that takes nothing else.
fn plain(id: InPath, params: &Params, sent: Body) -> Result<String, Problem> {
    params.none()?;
    let Nothing {} = body(sent)?;
    in_path("id", id)
}

/// A JSON body; an empty one says nothing.
pub(super) fn body<T: Default + for<'de> Deserialize<'de>>(sent: Body) -> Result<T, Problem> {
    let bytes = sent.map_err(|error| Problem::body(error.status(), error.body_text()))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|error| Problem::body(StatusCode::BAD_REQUEST, format!("the body: {error}")))
}
