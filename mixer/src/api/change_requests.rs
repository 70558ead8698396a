//! Changes that wait for a second person: listed, withdrawn, and how a change answers that waits.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use serde::Serialize;
use tokio_util::task::TaskTracker;

use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, in_path};
use crate::control::{ChangeOutcome, ChangeRequestView, ControlPlane};

pub(crate) fn routes(control: Arc<ControlPlane>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/requests", get(list))
        .route("/api/v1/requests/{request}/withdraw", post(withdraw))
        .with_state(ServiceHandle::new(control, changes))
}

/// What a change answers that may wait for a second person: what was made, or 202 with what waits.
#[derive(Debug)]
pub(super) struct ChangeResponse<T>(pub(super) ChangeOutcome<T>);

impl<T: Serialize> IntoResponse for ChangeResponse<T> {
    fn into_response(self) -> Response {
        match self.0 {
            ChangeOutcome::Done(data) => ItemResponse { data }.into_response(),
            ChangeOutcome::Awaited(awaited) => {
                (StatusCode::ACCEPTED, ItemResponse { data: awaited.view }).into_response()
            }
        }
    }
}

type RequestHandle = State<ServiceHandle<ControlPlane>>;

async fn list(State(service): RequestHandle, _: NoParams) -> Result<ListResponse<ChangeRequestView>, ApiProblem> {
    Ok(ListResponse::whole(service.room.change_requests().await?))
}

async fn withdraw(
    State(service): RequestHandle,
    RequestActor(by): RequestActor,
    meant: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<ChangeRequestView>, ApiProblem> {
    let EmptyBody {} = body(sent)?;
    let meant = in_path("request", meant)?;
    let control = Arc::clone(&service.room);
    let change = async move { control.withdraw_request(&meant, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}
