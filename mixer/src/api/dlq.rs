//! The dead-letter queue: listed, shown, replayed, dropped.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::{get, post};
use http::StatusCode;
use model::filter::LetterFilter;
use model::{HumanDuration, LetterId};
use query::QueryEngine;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use super::authorization::CallerQuerier;
use super::extractors::{BodyResult, RequestActor, ServiceHandle, body};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::{InPath, NoParams, QueryParams, in_path};
use crate::dlq::{DeadLetterQueue, DlqError, LetterDetail, LetterUpdate, LetterUpdateReport, LetterView};
use crate::registry::AuditActor;

/// How long a replay waits for gears, where it does not say.
const WAIT: Duration = Duration::from_secs(5);
/// The longest that it may.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn routes(dlq: Arc<DeadLetterQueue>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/dlq", get(list))
        .route("/api/v1/dlq/replay", post(replay_many))
        .route("/api/v1/dlq/drop", post(drop_many))
        .route("/api/v1/dlq/{letter_id}", get(show))
        .route("/api/v1/dlq/{letter_id}/replay", post(replay))
        .route("/api/v1/dlq/{letter_id}/drop", post(drop_one))
        .with_state(ServiceHandle::new(dlq, changes))
}

/// What a replay of one letter may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReplayBody {
    again: bool,
    by: String,
    wait: Option<HumanDuration>,
}

/// What dropping one letter may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DropBody {
    by: String,
}

/// Which letters, and what is to become of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BulkUpdateBody {
    ids: Vec<LetterId>,
    #[serde(deserialize_with = "of_names")]
    filter: Option<LetterFilter>,
    all: bool,
    again: bool,
    dry_run: bool,
    by: String,
    wait: Option<HumanDuration>,
}

/// A filter by its keys: a list of values in their order is none.
fn of_names<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LetterFilter>, D::Error> {
    let keys = Option::<Map<String, Value>>::deserialize(from)?;
    let filter = |keys| serde_json::from_value(Value::Object(keys)).map_err(D::Error::custom);
    keys.map(filter).transpose()
}

type DlqHandle = State<ServiceHandle<DeadLetterQueue>>;

impl FromRef<ServiceHandle<DeadLetterQueue>> for Arc<QueryEngine> {
    fn from_ref(service: &ServiceHandle<DeadLetterQueue>) -> Self {
        Self::clone(service.room.querier())
    }
}

async fn list(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    params: QueryParams,
) -> Result<ListResponse<LetterView>, ApiProblem> {
    let found = service.room.list(&querier, &params.filter::<LetterFilter>()?).await?;
    let partial = found.stats.partial.clone();
    let stats = match serde_json::to_value(found.stats) {
        Ok(Value::Object(stats)) => stats,
        _ => Map::new(),
    };
    Ok(ListResponse {
        data: found.letters,
        next_cursor: found.next_cursor,
        stats,
        partial,
    })
}

async fn show(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    id: InPath,
    _: NoParams,
) -> Result<ItemResponse<LetterDetail>, ApiProblem> {
    let data = service.room.show(&querier, named(id)?).await?;
    Ok(ItemResponse { data })
}

async fn replay(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    RequestActor(actor): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<LetterDetail>, ApiProblem> {
    let id = named(id)?;
    let ReplayBody { again, by, wait } = body(sent)?;
    let wish = LetterUpdate {
        ids: vec![id],
        again,
        by,
        actor,
        wait: within(wait),
        ..LetterUpdate::default()
    };
    let report = back(&service, &querier, wish).await?;
    after(&service, &querier, report, id).await
}

async fn drop_one(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    RequestActor(actor): RequestActor,
    id: InPath,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<LetterDetail>, ApiProblem> {
    let id = named(id)?;
    let DropBody { by } = body(sent)?;
    let wish = LetterUpdate {
        ids: vec![id],
        by,
        actor,
        ..LetterUpdate::default()
    };
    let report = service
        .run_to_completion(Arc::clone(&service.room).drop_letters(Arc::clone(&querier), wish))
        .await?;
    after(&service, &querier, report, id).await
}

async fn replay_many(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    RequestActor(actor): RequestActor,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<LetterUpdateReport>, ApiProblem> {
    let wish = body::<BulkUpdateBody>(sent)?.wish(actor)?;
    let data = back(&service, &querier, wish).await?;
    Ok(ItemResponse { data })
}

async fn drop_many(
    State(service): DlqHandle,
    CallerQuerier(querier): CallerQuerier,
    RequestActor(actor): RequestActor,
    _: NoParams,
    sent: BodyResult,
) -> Result<ItemResponse<LetterUpdateReport>, ApiProblem> {
    let asking: BulkUpdateBody = body(sent)?;
    if asking.again || asking.wait.is_some() {
        return Err(bad("again and wait are for a replay"));
    }
    let data = service
        .run_to_completion(Arc::clone(&service.room).drop_letters(querier, asking.wish(actor)?))
        .await?;
    Ok(ItemResponse { data })
}

/// Replays. That letters go back is carried to its end; the wait for their gears ends with the request.
async fn back(
    service: &ServiceHandle<DeadLetterQueue>,
    querier: &Arc<QueryEngine>,
    wish: LetterUpdate,
) -> Result<LetterUpdateReport, ApiProblem> {
    let begun = service
        .run_to_completion(Arc::clone(&service.room).replay(Arc::clone(querier), wish))
        .await?;
    Ok(service.room.wait_for_gears(begun).await?)
}

/// The letter as it is after a change that was for it alone.
async fn after(
    service: &ServiceHandle<DeadLetterQueue>,
    querier: &QueryEngine,
    report: LetterUpdateReport,
    id: LetterId,
) -> Result<ItemResponse<LetterDetail>, ApiProblem> {
    report.or_refused()?;
    let data = service.room.show(querier, id).await?;
    Ok(ItemResponse { data })
}

impl BulkUpdateBody {
    fn wish(self, actor: AuditActor) -> Result<LetterUpdate, ApiProblem> {
        let filter = match (self.ids.is_empty(), self.filter) {
            (false, None) if !self.all => None,
            (true, filter) => Some(filter.unwrap_or_default()),
            _ => return Err(bad("ids, filter and all: give ids, or a filter, or all")),
        };
        if let Some(filter) = &filter {
            if !filter.is_narrow() && !self.all {
                return Err(bad(
                    "select letters: give ids, a filter with rack, gear, subject, reason, since or until, or \"all\": \
                     true",
                ));
            }
            if filter.limit.is_some() || filter.cursor.is_some() {
                return Err(bad("filter: limit and cursor are only for lists"));
            }
        }
        Ok(LetterUpdate {
            ids: self.ids,
            filter,
            again: self.again,
            dry_run: self.dry_run,
            by: self.by,
            actor,
            wait: within(self.wait),
        })
    }
}

fn bad(detail: &str) -> ApiProblem {
    ApiProblem::body(StatusCode::BAD_REQUEST, format!("the body: {detail}"))
}

fn within(wait: Option<HumanDuration>) -> Duration {
    wait.map_or(WAIT, |wait| wait.get().min(LONGEST_WAIT))
}

fn named(id: InPath) -> Result<LetterId, ApiProblem> {
    let id = in_path("letter_id", id)?;
    id.parse().map_err(|error| ApiProblem::parameter("letter_id", error))
}

impl From<DlqError> for ApiProblem {
    fn from(error: DlqError) -> Self {
        match error {
            DlqError::Query(error) => error.into(),
            DlqError::Registry(error) => crate::control::ControlError::Registry(error).into(),
            DlqError::Wish { parameter, reason } => Self::parameter(parameter, reason),
            other => Self::of_letters(&other),
        }
    }
}
