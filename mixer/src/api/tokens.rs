//! API tokens: listed, made, revoked; and who the caller is.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use model::{HumanDuration, Token};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::authorization::RequestCaller;
use super::extractors::{BodyResult, EmptyBody, RequestActor, ServiceHandle, body};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, in_path};
use crate::access::{AccessRole, AccessScope};
use crate::authentication::{NewToken, TokenStore, TokenView};
use crate::quotas::QuotaOverrides;

pub(crate) fn routes(tokens: Arc<TokenStore>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/tokens", get(list).post(create))
        .route("/api/v1/tokens/{token}/revoke", post(revoke))
        .route("/api/v1/whoami", get(whoami))
        .with_state(ServiceHandle::new(tokens, changes))
}

/// A token that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRequest {
    /// What it is called, and the user name of PostgreSQL clients.
    name: Token,
    /// What it is for.
    #[schemars(length(min = 1))]
    roles: Vec<AccessRole>,
    /// What it is limited to.
    #[serde(default)]
    scope: AccessScope,
    /// How long it opens anything; for ever if it is left out.
    #[serde(default)]
    #[schemars(schema_with = "lifetime_schema")]
    expires_in: Option<HumanDuration>,
    /// What it has in the place of the Mixer's quotas.
    #[serde(default)]
    quotas: QuotaOverrides,
}

/// A duration of one number; longer ones may be more than there is.
pub(super) fn lifetime_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": "^[1-9][0-9]{0,5}(ms|s|m|h|d)$", "examples": ["90d"] })
}

/// A token that was made, with its secret: the only answer that has it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CreatedToken {
    /// The secret.
    token: String,
    #[serde(flatten)]
    view: TokenView,
}

/// Who the caller is.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallerView {
    /// A user of the Mixer's machine, or a token, by name.
    caller: String,
    roles: Vec<AccessRole>,
    scope: AccessScope,
}

type TokenHandle = State<ServiceHandle<TokenStore>>;

async fn list(State(service): TokenHandle, _: NoParams) -> Result<ListResponse<TokenView>, ApiProblem> {
    Ok(ListResponse::whole(service.room.list()))
}

async fn create(
    State(service): TokenHandle,
    RequestActor(by): RequestActor,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<CreatedToken>, ApiProblem> {
    let asked: Option<TokenRequest> = body(sent)?;
    let bad = |detail: &str| ApiProblem::body(StatusCode::BAD_REQUEST, detail);
    let asked = asked.ok_or_else(|| bad("the body is missing: {\"name\": \"grafana\", \"roles\": [\"reader\"]}"))?;
    let tokens = Arc::clone(&service.room);
    let change = async move {
        let new = NewToken {
            name: asked.name,
            roles: asked.roles,
            scope: asked.scope,
            lifetime: asked.expires_in.map(HumanDuration::get),
            quotas: asked.quotas,
        };
        tokens.create(new, &by).await
    };
    let (token, view) = service.run_to_completion(change).await?;
    let token = token.expose().to_owned();
    Ok(ItemResponse {
        data: CreatedToken { token, view },
    })
}

async fn revoke(
    State(service): TokenHandle,
    RequestActor(by): RequestActor,
    name: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<TokenView>, ApiProblem> {
    let EmptyBody {} = body(sent)?;
    let name = in_path("token", name)?;
    let tokens = Arc::clone(&service.room);
    let change = async move { tokens.revoke(&name, &by).await };
    let data = service.run_to_completion(change).await?;
    Ok(ItemResponse { data })
}

async fn whoami(RequestCaller(caller): RequestCaller, _: NoParams) -> Json<serde_json::Value> {
    let data = CallerView {
        caller: caller.identity.to_string(),
        roles: caller.roles.clone(),
        scope: caller.scope.clone(),
    };
    Json(serde_json::json!({ "data": data }))
}
