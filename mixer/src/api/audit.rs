//! `GET /api/v1/audit`: what happened to Racks and scenarios, and who did it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::routing::get;
use axum::{Json, Router};
use http::request::Parts;
use model::filter::{AuditFilter, DEFAULT_LIMIT, MAX_LIMIT};

use super::params::{Listing, Params};
use super::problem::Problem;
use crate::control::Control;
use crate::registry::{Actor, AuditEntry, AuditQuery};

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who asks for a change, for the audit log.
#[derive(Debug)]
pub(super) struct By(pub(super) Actor);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        Ok(Self(Actor::Api(peer.map(|Peer(ip)| ip.to_canonical()))))
    }
}

pub(crate) fn routes(control: Arc<Control>) -> Router {
    Router::new().route("/api/v1/audit", get(list)).with_state(control)
}

async fn list(State(control): State<Arc<Control>>, params: Params) -> Result<Json<Listing<Vec<AuditEntry>>>, Problem> {
    let mut query = query(params.filter()?, &control)?;
    let limit = query.limit;
    // One more shows whether there are more.
    query.limit += 1;
    let mut entries = control.audit(query).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Json(Listing {
        next_cursor: next,
        ..Listing::whole(entries)
    }))
}

fn query(filter: AuditFilter, control: &Control) -> Result<AuditQuery, Problem> {
    let now = control.now();
    let limit = filter.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::parameter(
            "limit",
            format!("{limit} is not from 1 to {MAX_LIMIT}"),
        ));
    }
    let before = filter.cursor.map(|cursor| {
        let number = cursor.parse::<u64>();
        number.map_err(|_| Problem::parameter("cursor", "it is not the next_cursor of an answer"))
    });
    let (since, until) = (
        filter.since.map(|since| since.resolve(now)),
        filter.until.map(|until| until.resolve(now)),
    );
    if since.zip(until).is_some_and(|(since, until)| until < since) {
        return Err(Problem::parameter("until", "the window ends before it begins"));
    }
    Ok(AuditQuery {
        since,
        until,
        rack: filter.rack,
        kind: filter.kind,
        before: before.transpose()?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}
