//! `GET /api/v1/openapi.json`: the API as an OpenAPI 3.1 document, made of tables that tests hold against the code.
//!
//! | table | says | held against |
//! |---|---|---|
//! | [`route_table::ROUTES`] | which paths, methods, parameters, bodies, answers and problems there are | the router, in both directions |
//! | [`filter_parameters`] | the parameters that filters have, made of their types | the fields of the filters |
//! | [`parameters`], [`jaeger_parameters`] | all other parameters: what they are called and what they may be | the fields of the filters, and what these accept |
//! | [`problems::CODES`] | which statuses and codes problems have | every [`ApiProblem`](super::problem::ApiProblem) that is made while testing |
//! | [`schemas`], [`control_schemas`], [`dlq_schemas`], [`jaeger_schemas`], [`iceberg_schemas`] | what bodies and answers look like | answers of a running Mixer (`make schema-check`) |
//!
//! # Invariants
//!
//! - The document depends on the program's version only: it is made once.
//! - What it says of a parameter is as strict as the API is. Rules between parameters, which OpenAPI cannot say, are in descriptions.
//!
//! # Not here
//!
//! How the right of a route is asked for (`authorization`); the page (`page`).

mod control_schemas;
mod dlq_schemas;
mod document;
mod filter_parameters;
mod iceberg_schemas;
mod jaeger_parameters;
mod jaeger_schemas;
mod parameters;
pub(super) mod problems;
mod route_table;
mod schemas;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use model::Table;
use serde_json::Value;

use super::page;
use super::query_params::NoParams;
use crate::access::AccessRight;
use parameters::ApiParameter;

/// The document's own path.
const PATH: &str = "/api/v1/openapi.json";

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document::of(&route_table::ROUTES).to_string().into());

pub(super) fn routes() -> Router {
    Router::new().route(PATH, get(openapi))
}

async fn openapi(_: NoParams) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteAccess {
    pub(super) right: AccessRight,
    pub(super) tables: &'static [Table],
}

/// What the route of a method and a path, as the router writes it, asks of its caller.
///
/// # Errors
/// The methods that the path has, as `Allow` names them.
pub(super) fn route_access(method: &Method, path: &str) -> Result<RouteAccess, String> {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    if page::is_path(path) {
        // No part of the API: the page is for anybody, and asks with its user's token.
        let open = RouteAccess {
            right: AccessRight::Anybody,
            tables: &[],
        };
        return (asked == Method::GET)
            .then_some(open)
            .ok_or_else(|| "GET,HEAD".to_owned());
    }
    let of_path = || route_table::ROUTES.iter().filter(|route| route.path == path);
    match of_path().find(|route| route.method.as_str() == asked.as_str()) {
        Some(ApiRoute { right, tables, .. }) => Ok(RouteAccess { right: *right, tables }),
        None => {
            let methods = of_path().map(|route| match route.method {
                RouteMethod::Get => "GET,HEAD",
                other => other.as_str(),
            });
            Err(methods.collect::<Vec<_>>().join(","))
        }
    }
}

/// Every method of every path, with its right.
#[cfg(test)]
pub(super) fn every_route() -> Vec<(Method, &'static str, AccessRight)> {
    let method = |method: RouteMethod| method.as_str().parse().unwrap_or_default();
    let routes = route_table::ROUTES.iter();
    routes
        .map(|route| (method(route.method), route.path, route.right))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RouteMethod {
    Get,
    Post,
    Put,
    Patch,
}

impl RouteMethod {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }
}

/// What a request has as its body.
#[derive(Debug, Clone, Copy)]
enum RequestBody {
    Nothing,
    /// JSON of a schema; it may be left out.
    Json(&'static str),
    /// JSON of a schema.
    Required(&'static str),
    Sql,
    /// A scenario file.
    Scenario,
    /// Records of a table, in any encoding of the bus.
    Records(model::Table),
    /// A request of OTLP.
    Otlp,
    /// What another sender sends: content types, and what it is.
    Foreign(&'static [&'static str], &'static str),
}

/// What an answer has as its body; with status 200 but for nothing, which has 204.
#[derive(Debug, Clone, Copy)]
enum ResponseBody {
    /// JSON of a schema.
    Json(&'static str),
    /// JSON of a schema, the same with status 503.
    Ready(&'static str),
    /// Rows in any format; JSON of a schema.
    Rows(&'static str),
    Sql,
    /// Server-sent events of a schema.
    Events(&'static str),
    /// Metrics in any format of scrapers.
    Exposition,
    /// What OTLP answers; its refusals are not problems.
    Otlp,
    Nothing,
    /// What Elasticsearch answers; its refusals are not problems.
    Elasticsearch(&'static str),
    /// JSON of a schema of Iceberg's; its refusals are not problems.
    Iceberg(&'static str),
}

/// One method of one path.
#[derive(Debug, Clone, Copy)]
struct ApiRoute {
    method: RouteMethod,
    /// What a caller must be allowed.
    right: AccessRight,
    /// The tables whose rows it reads or stores; a statement names them itself.
    tables: &'static [Table],
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Rules that hold between parameters, and what is not to be seen from schemas.
    details: &'static str,
    /// The schemas of the filters whose fields are parameters too.
    filters: &'static [fn() -> Value],
    parameters: &'static [&'static [ApiParameter]],
    sent: RequestBody,
    answer: ResponseBody,
    /// Whether it may wait for a second person (202).
    has_second_person: bool,
    /// Statuses of problems, those apart that every route has.
    problems: &'static [u16],
    /// The current path of a v0.4.4 one.
    successor: Option<&'static str>,
    links: &'static [OperationLink],
}

/// A request that an answer has what it takes for.
#[derive(Debug, Clone, Copy)]
struct OperationLink {
    /// The id of the route.
    to: &'static str,
    /// Its parameters, and where they are to be found.
    given: &'static [(&'static str, &'static str)],
}

impl ApiRoute {
    /// Its parameters as OpenAPI says them; one in the path is no field of a filter any more.
    fn parameters(&self) -> Vec<Value> {
        let own = self.parameters.iter().copied().flatten();
        let mut all: Vec<_> = own.map(ApiParameter::document).collect();
        for field in self.filters.iter().flat_map(|schema| filter_parameters::of(&schema())) {
            if !all.iter().any(|known| known["name"] == field["name"]) {
                all.push(field);
            }
        }
        all
    }
}
