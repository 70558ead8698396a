//! Authorization of requests: who calls, and whether the route's right is among what it may do.
//!
//! ```text
//!  route of the table ─ its right ─┐
//!  Authorization, or the connection ─ caller ─┴▶ 401 │ 403 │ the handler, which finds the caller in the request
//! ```
//!
//! # Invariants
//!
//! - What is in no row of the table of routes and no part of the page is refused, whatever handler there is.
//! - A caller that has used up a quota, or has half of all connections, is refused before its right is looked at (429).
//! - A request with a header that proxies write is never a local user's: a proxy on this machine speaks for others.
//! - A token comes in the header `Authorization` alone, never in an address and never as a cookie: no page can have a browser send it.
//!   As a password it is good for ingest only, since browsers do send those by themselves.
//!
//! Not here: what callers may do ([`crate::access`]); which rows of a table they see (`query`).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRef, FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use parking_lot::Mutex;
use query::QueryEngine;
use tokio::sync::OwnedSemaphorePermit;

use super::openapi::{RouteAccess, route_access};
use super::problem::{ApiProblem, RefusalReason};
use crate::access::{AccessRight, ApiCaller};
use crate::audit_keeper::RefusalClass;
use crate::authentication::{ApiAuthenticator, AuthenticationError, ConnectionEnds};
use crate::control::ControlPlane;
use crate::quotas::{CallerUsage, QuotaPlaces};
use crate::registry::{AuditActor, CallerInterface};

/// What proxies write for who they speak for.
pub(super) const PROXY_HEADERS: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/// A connection, and who is at its other end once that was asked.
#[derive(Debug, Clone)]
pub(super) struct ClientConnection {
    pub(super) ends: ConnectionEnds,
    local_caller: Arc<OnceLock<Arc<ApiCaller>>>,
    /// Whose place it has: that of who asked last over it.
    place: Arc<Mutex<Option<ConnectionPlace>>>,
}

#[derive(Debug)]
struct ConnectionPlace {
    of: Arc<CallerUsage>,
    _permit: OwnedSemaphorePermit,
}

impl ClientConnection {
    pub(super) fn new(ends: ConnectionEnds) -> Self {
        Self {
            ends,
            local_caller: Arc::default(),
            place: Arc::default(),
        }
    }

    /// Has the connection be one of this caller's; false if it has half of all.
    fn belong_to(&self, caller: &ApiCaller) -> bool {
        let Some(usage) = &caller.usage else { return true };
        let mut place = self.place.lock();
        if place.as_ref().is_some_and(|place| Arc::ptr_eq(&place.of, usage)) {
            return true;
        }
        *place = None;
        *place = usage.place(QuotaPlaces::Connections).map(|permit| ConnectionPlace {
            of: Arc::clone(usage),
            _permit: permit,
        });
        place.is_some()
    }
}

/// Refuses what the caller has no right to.
pub(super) async fn authorize(
    State(authenticator): State<Arc<ApiAuthenticator>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>().cloned() else {
        // Nothing answers there.
        return next.run(request).await;
    };
    let route = match route_access(request.method(), path.as_str()) {
        Ok(route) => route,
        Err(allowed) => return method_problem(&request, &allowed),
    };
    if route.right == AccessRight::Anybody {
        return next.run(request).await;
    }
    let caller = match caller(&authenticator, &request, route.right) {
        Ok(caller) => caller,
        Err(error) => return ApiProblem::unauthorized(&error).into_response(),
    };
    let connection = request.extensions().get::<ClientConnection>();
    if connection.is_some_and(|connection| !connection.belong_to(&caller)) {
        let mut response = ApiProblem::too_many_connections().into_response();
        let close = header::HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response.extensions_mut().insert(caller);
        return response;
    }
    let exceeded = caller.admit_request().map_err(ApiProblem::from).err();
    let mut response = match exceeded.or_else(|| lacks(&caller, &route)) {
        Some(problem) => problem.into_response(),
        None => {
            request.extensions_mut().insert(Arc::clone(&caller));
            next.run(request).await
        }
    };
    response.extensions_mut().insert(caller);
    response
}

/// What a caller lacks for a route.
fn lacks(caller: &ApiCaller, route: &RouteAccess) -> Option<ApiProblem> {
    if !caller.has(route.right) {
        return Some(ApiProblem::without_right(caller, route.right));
    }
    if let Some(table) = route.tables.iter().find(|table| !caller.scope.has_table(**table)) {
        let detail = format!("the token's scope does not have the table {table}: use a token whose scope has it");
        return Some(ApiProblem::forbidden(detail));
    }
    let has_letters = route.tables.contains(&model::Table::DeadLetters);
    let detail = "dead letters belong to no entity, and the token's scope is limited to some";
    (has_letters && !caller.scope.entities.is_empty()).then(|| ApiProblem::forbidden(detail))
}

/// Tells the audit log of what was refused: by [`authorize`], by a handler, or because a page of another site asks.
pub(super) async fn report_refusals(
    State(authenticator): State<Arc<ApiAuthenticator>>,
    request: Request,
    next: Next,
) -> Response {
    let connection = request.extensions().get::<ClientConnection>();
    let address = connection.map(|connection| connection.ends.peer.ip());
    let path = request.extensions().get::<MatchedPath>().cloned();
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        _ => "another method of",
    };
    let response = next.run(request).await;
    if [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .contains(&response.status())
    {
        let caller = response.extensions().get::<Arc<ApiCaller>>().map(AsRef::as_ref);
        let by = AuditActor::of_caller(CallerInterface::Api, address, caller);
        let path = path.as_ref().map_or("an unknown path", MatchedPath::as_str);
        let reason = response.extensions().get::<RefusalReason>();
        let reason = reason.map_or("refused", |reason| reason.0.as_str());
        let class = match response.status() {
            StatusCode::TOO_MANY_REQUESTS => RefusalClass::Quota,
            _ => RefusalClass::of(&by),
        };
        authenticator
            .refusals()
            .report(&by, class, format!("{method} {path}: {reason}"));
    }
    response
}

fn method_problem(request: &Request, allowed: &str) -> Response {
    let mut response = ApiProblem::method(request.method()).into_response();
    if let Ok(allowed) = allowed.try_into() {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

fn caller(
    authenticator: &ApiAuthenticator,
    request: &Request,
    right: AccessRight,
) -> Result<Arc<ApiCaller>, AuthenticationError> {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        // Of two a proxy in front may mean the other one.
        let value = value.to_str().ok().filter(|_| values.next().is_none());
        let value = value.ok_or(AuthenticationError::Malformed)?;
        let foreign = || sender_token(value).filter(|_| right == AccessRight::Ingest);
        let token = bearer(value).map(str::to_owned).or_else(foreign);
        return authenticator.by_token(&token.ok_or(AuthenticationError::Malformed)?);
    }
    let connection = request.extensions().get::<ClientConnection>();
    let connection = connection.filter(|_| !is_forwarded(request.headers()));
    if let Some(known) = connection.and_then(|connection| connection.local_caller.get()) {
        return Ok(Arc::clone(known));
    }
    let caller = authenticator.by_connection(connection.map(|connection| connection.ends))?;
    if let Some(connection) = connection {
        return Ok(Arc::clone(connection.local_caller.get_or_init(|| caller)));
    }
    Ok(caller)
}

/// The token of `Bearer TOKEN`; the scheme is of either case.
pub(super) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The token as the password of `Basic` (RFC 7617), or as the key of Elasticsearch's `ApiKey`: the base64 of an id and the key, or
/// the token itself. Only for senders: they know no other schemes, and what is a browser's would be sent by any page.
pub(super) fn sender_token(value: &str) -> Option<String> {
    let (scheme, said) = value.split_once(' ')?;
    let said = said.trim();
    let behind_colon = || {
        let pair = String::from_utf8(STANDARD.decode(said).ok()?).ok()?;
        pair.split_once(':').map(|(_, secret)| secret.to_owned())
    };
    if scheme.eq_ignore_ascii_case("basic") {
        return behind_colon();
    }
    let is_key = scheme.eq_ignore_ascii_case("apikey");
    is_key.then(|| behind_colon().unwrap_or_else(|| said.to_owned()))
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// The caller of a request that [`authorize`] let through; everybody's rights end there if it did not.
#[derive(Debug)]
pub(super) struct RequestCaller(pub(super) Arc<ApiCaller>);

impl<S: Sync> FromRequestParts<S> for RequestCaller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiProblem> {
        let caller = parts.extensions.get::<Arc<ApiCaller>>();
        let caller = caller.ok_or_else(|| ApiProblem::unauthorized(&AuthenticationError::Missing))?;
        Ok(Self(Arc::clone(caller)))
    }
}

/// The queries that the caller may ask: of its scope, in its places.
#[derive(Debug)]
pub(super) struct CallerQuerier(pub(super) Arc<QueryEngine>);

impl<S: Sync> FromRequestParts<S> for CallerQuerier
where
    Arc<QueryEngine>: FromRef<S>,
{
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let RequestCaller(caller) = RequestCaller::from_request_parts(parts, state).await?;
        caller.admit_query()?;
        Ok(Self(caller.queries(&Arc::from_ref(state))))
    }
}

/// Refuses requests about a Rack, the one of the path, that is not in the caller's scope.
pub(super) async fn rack_in_scope(
    State(control): State<Arc<ControlPlane>>,
    RequestCaller(caller): RequestCaller,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let id = params
        .iter()
        .find(|(name, _)| *name == "id")
        .map(|(_, id)| id.to_owned());
    if let Some(id) = id.filter(|_| !caller.scope.racks.is_empty()) {
        let labels = tokio::task::spawn_blocking(move || control.rack(&id).map(|rack| rack.labels)).await;
        let labels: BTreeMap<String, String> = match labels {
            Ok(Ok(labels)) => labels,
            Ok(Err(error)) => return ApiProblem::from(error).into_response(),
            Err(error) => return ApiProblem::internal(format!("the read task failed: {error}")).into_response(),
        };
        if !caller.scope.has_rack(&labels) {
            return ApiProblem::forbidden("the Rack does not have the labels of the token's scope").into_response();
        }
    }
    next.run(request).await
}
