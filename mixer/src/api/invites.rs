//! Invites of Racks: listed, made, revoked.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use http::StatusCode;
use model::{HumanDuration, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::change_requests::ChangeResponse;
use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, in_path};
use super::tokens::lifetime_schema;
use crate::control::{ChangeOutcome, ControlPlane, INVITE_LIFETIME, InviteView};

pub(crate) fn routes(control: Arc<ControlPlane>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/invites", get(list).post(create))
        .route("/api/v1/invites/{invite}/revoke", post(revoke))
        .with_state(ServiceHandle::new(control, changes))
}

/// An invite that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InviteRequest {
    /// The name under which the Rack is admitted.
    name: Token,
    /// How long it admits a Rack: an hour if it is left out, 30 days at most.
    #[serde(default)]
    #[schemars(schema_with = "lifetime_schema")]
    expires_in: Option<HumanDuration>,
}

/// An invite that was made, with its text: the only answer that has it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CreatedInvite {
    /// What the Rack joins with.
    invite: String,
    #[serde(flatten)]
    view: InviteView,
}

type InviteHandle = State<ServiceHandle<ControlPlane>>;

async fn list(State(service): InviteHandle, _: NoParams) -> Result<ListResponse<InviteView>, ApiProblem> {
    Ok(ListResponse::whole(service.read(ControlPlane::invites).await?))
}

async fn create(
    State(service): InviteHandle,
    RequestActor(by): RequestActor,
    _: NoParams,
    sent: BodyResult,
) -> Result<ChangeResponse<CreatedInvite>, ApiProblem> {
    let asked: Option<InviteRequest> = body(sent)?;
    let bad = |detail: &str| ApiProblem::body(StatusCode::BAD_REQUEST, detail);
    let asked = asked.ok_or_else(|| bad("the body is missing: {\"name\": \"press-1\"}"))?;
    let lifetime = asked.expires_in.map_or(INVITE_LIFETIME, HumanDuration::get);
    let control = Arc::clone(&service.room);
    let change = async move { control.invite(asked.name, lifetime, &by).await };
    Ok(ChangeResponse(match service.run_to_completion(change).await? {
        ChangeOutcome::Done((invite, view)) => ChangeOutcome::Done(CreatedInvite { invite, view }),
        ChangeOutcome::Awaited(awaited) => ChangeOutcome::Awaited(awaited),
    }))
}

async fn revoke(
    State(service): InviteHandle,
    RequestActor(by): RequestActor,
    meant: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<InviteView>, ApiProblem> {
    let EmptyBody {} = body(sent)?;
    let meant = in_path("invite", meant)?;
    let control = Arc::clone(&service.room);
    let change = async move { control.revoke_invite(&meant, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}
