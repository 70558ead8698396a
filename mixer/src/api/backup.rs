//! `POST /api/v1/backup`: a backup of the registry and the keys, in a folder of the Mixer's machine.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use tokio_util::task::TaskTracker;

use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body};
use super::json_response::ItemResponse;
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::backup::{BackupView, BackupWriter};
use crate::registry::RegistryError;

pub(crate) fn routes(backups: Arc<BackupWriter>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/backup", post(back_up))
        .with_state(ServiceHandle::new(backups, changes))
}

async fn back_up(
    State(service): State<ServiceHandle<BackupWriter>>,
    RequestActor(by): RequestActor,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<BackupView>, ApiProblem> {
    let EmptyBody {} = body(sent)?;
    let backups = Arc::clone(&service.room);
    let making = async move {
        let made = tokio::task::spawn_blocking(move || backups.write(&by)).await;
        made.map_err(|error| RegistryError::Interrupted(error.to_string()))?
    };
    let data = service.run_to_completion(making).await?;
    Ok(ItemResponse { data })
}
