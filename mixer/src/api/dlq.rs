//! The dead-letter queue: listed, shown, replayed, dropped.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use http::StatusCode;
use model::filter::LetterFilter;
use model::{HumanDuration, LetterId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use super::change::{Body, By, Desk, body};
use super::json::{Listing, One};
use super::params::{InPath, NoParams, Params, in_path};
use super::problem::Problem;
use crate::dlq::{Dlq, DlqError, LetterView, Report, WholeLetter, Wish};
use crate::registry::Actor;

/// How long a replay waits for gears, where it does not say.
const WAIT: Duration = Duration::from_secs(5);
/// The longest that it may.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn routes(dlq: Arc<Dlq>, changes: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/dlq", get(list))
        .route("/api/v1/dlq/replay", post(replay_many))
        .route("/api/v1/dlq/drop", post(drop_many))
        .route("/api/v1/dlq/{letter_id}", get(show))
        .route("/api/v1/dlq/{letter_id}/replay", post(replay))
        .route("/api/v1/dlq/{letter_id}/drop", post(drop_one))
        .with_state(Desk::new(dlq, changes))
}

/// What a replay of one letter may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Replaying {
    again: bool,
    by: String,
    wait: Option<HumanDuration>,
}

/// What dropping one letter may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Dropping {
    by: String,
}

/// Which letters, and what is to become of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Asking {
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

type Asked = State<Desk<Dlq>>;

async fn list(State(desk): Asked, params: Params) -> Result<Listing<LetterView>, Problem> {
    let found = desk.room.list(&params.filter::<LetterFilter>()?).await?;
    let partial = found.stats.partial.clone();
    let stats = match serde_json::to_value(found.stats) {
        Ok(Value::Object(stats)) => stats,
        _ => Map::new(),
    };
    Ok(Listing {
        data: found.letters,
        next_cursor: found.next_cursor,
        stats,
        partial,
    })
}

async fn show(State(desk): Asked, id: InPath, _: NoParams) -> Result<One<WholeLetter>, Problem> {
    let data = desk.room.show(named(id)?).await?;
    Ok(One { data })
}

async fn replay(
    State(desk): Asked,
    By(actor): By,
    id: InPath,
    _: NoParams,
    sent: Body,
) -> Result<One<WholeLetter>, Problem> {
    let id = named(id)?;
    let Replaying { again, by, wait } = body(sent)?;
    let wish = Wish {
        ids: vec![id],
        again,
        by,
        actor,
        wait: within(wait),
        ..Wish::default()
    };
    let report = back(&desk, wish).await?;
    after(&desk, report, id).await
}

async fn drop_one(
    State(desk): Asked,
    By(actor): By,
    id: InPath,
    _: NoParams,
    sent: Body,
) -> Result<One<WholeLetter>, Problem> {
    let id = named(id)?;
    let Dropping { by } = body(sent)?;
    let wish = Wish {
        ids: vec![id],
        by,
        actor,
        ..Wish::default()
    };
    let report = desk.carry(Arc::clone(&desk.room).drop_letters(wish)).await?;
    after(&desk, report, id).await
}

async fn replay_many(State(desk): Asked, By(actor): By, _: NoParams, sent: Body) -> Result<One<Report>, Problem> {
    let wish = body::<Asking>(sent)?.wish(actor)?;
    let data = back(&desk, wish).await?;
    Ok(One { data })
}

async fn drop_many(State(desk): Asked, By(actor): By, _: NoParams, sent: Body) -> Result<One<Report>, Problem> {
    let asking: Asking = body(sent)?;
    if asking.again || asking.wait.is_some() {
        return Err(bad("again and wait are for a replay"));
    }
    let data = desk
        .carry(Arc::clone(&desk.room).drop_letters(asking.wish(actor)?))
        .await?;
    Ok(One { data })
}

/// Replays. That letters go back is carried to its end; the wait for their gears ends with the request.
async fn back(desk: &Desk<Dlq>, wish: Wish) -> Result<Report, Problem> {
    let begun = desk.carry(Arc::clone(&desk.room).replay(wish)).await?;
    Ok(desk.room.taken(begun).await?)
}

/// The letter as it is after a change that was for it alone.
async fn after(desk: &Desk<Dlq>, report: Report, id: LetterId) -> Result<One<WholeLetter>, Problem> {
    report.or_refused()?;
    let data = desk.room.show(id).await?;
    Ok(One { data })
}

impl Asking {
    fn wish(self, actor: Actor) -> Result<Wish, Problem> {
        let filter = match (self.ids.is_empty(), self.filter) {
            (false, None) if !self.all => None,
            (true, filter) => Some(filter.unwrap_or_default()),
            _ => return Err(bad("ids, filter and all: give ids, or a filter, or all")),
        };
        if let Some(filter) = &filter {
            if !filter.is_narrow() && !self.all {
                return Err(bad(
                    "which letters? give ids, or a filter with rack, gear, subject, reason, since or until, or \"all\": true",
                ));
            }
            if filter.limit.is_some() || filter.cursor.is_some() {
                return Err(bad(
                    "filter: limit and cursor are for lists; all that it lets through are meant",
                ));
            }
        }
        Ok(Wish {
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

fn bad(detail: &str) -> Problem {
    Problem::body(StatusCode::BAD_REQUEST, format!("the body: {detail}"))
}

fn within(wait: Option<HumanDuration>) -> Duration {
    wait.map_or(WAIT, |wait| wait.get().min(LONGEST_WAIT))
}

fn named(id: InPath) -> Result<LetterId, Problem> {
    let id = in_path("letter_id", id)?;
    id.parse().map_err(|error| Problem::parameter("letter_id", error))
}

impl From<DlqError> for Problem {
    fn from(error: DlqError) -> Self {
        match error {
            DlqError::Query(error) => error.into(),
            DlqError::Registry(error) => crate::control::ControlError::Registry(error).into(),
            DlqError::Wish { parameter, reason } => Self::parameter(parameter, reason),
            other => Self::of_letters(&other),
        }
    }
}
