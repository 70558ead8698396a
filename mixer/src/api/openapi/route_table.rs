//! Every method of every path, one table for each room.

mod fleet;
mod iceberg;
mod operation;
mod senders;
mod telemetry;

use std::sync::LazyLock;

use model::Table;
use serde_json::Value;

use super::parameters::ApiParameter;
use super::{ApiRoute, OperationLink, RequestBody, ResponseBody, RouteMethod};
use crate::access::AccessRight;

/// All of them.
pub(super) static ROUTES: LazyLock<Vec<ApiRoute>> = LazyLock::new(|| {
    [
        telemetry::ROUTES,
        iceberg::ROUTES,
        senders::ROUTES,
        fleet::ROUTES,
        operation::ROUTES,
    ]
    .concat()
});

const LOGS_ONLY: &[Table] = &[Table::Logs];
const TRACES_ONLY: &[Table] = &[Table::Traces];
const METRICS_ONLY: &[Table] = &[Table::Metrics];
const LETTERS_ONLY: &[Table] = &[Table::DeadLetters];

/// What queries may fail with.
const QUERY: &[u16] = &[400, 422, 503, 504];
/// The same where something is asked for by its name.
const FIND: &[u16] = &[400, 404, 422, 503, 504];

const WINDOW: &str = "A window that ends before it begins is refused.";

const fn get(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    ApiRoute {
        method: RouteMethod::Get,
        right,
        tables: &[],
        path,
        id,
        summary,
        details: "",
        filters: &[],
        parameters: &[],
        sent: RequestBody::Nothing,
        answer: ResponseBody::Json("Any"),
        has_second_person: false,
        problems: &[],
        successor: None,
        links: &[],
    }
}

const fn link(to: &'static str, given: &'static [(&'static str, &'static str)]) -> OperationLink {
    OperationLink { to, given }
}

const fn post(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    ApiRoute {
        method: RouteMethod::Post,
        ..get(right, path, id, summary)
    }
}

impl ApiRoute {
    /// Of the rows of these tables.
    const fn of(self, tables: &'static [Table]) -> Self {
        Self { tables, ..self }
    }

    const fn takes(self, parameters: &'static [&'static [ApiParameter]]) -> Self {
        Self { parameters, ..self }
    }

    const fn filters_by(self, filters: &'static [fn() -> Value]) -> Self {
        Self { filters, ..self }
    }

    const fn with(self, sent: RequestBody) -> Self {
        Self { sent, ..self }
    }

    const fn gives(self, answer: ResponseBody) -> Self {
        Self { answer, ..self }
    }

    /// It may need a second person.
    const fn by_two(self) -> Self {
        Self {
            has_second_person: true,
            ..self
        }
    }

    const fn fails(self, problems: &'static [u16]) -> Self {
        Self { problems, ..self }
    }

    const fn leads_to(self, links: &'static [OperationLink]) -> Self {
        Self { links, ..self }
    }

    const fn details(self, details: &'static str) -> Self {
        Self { details, ..self }
    }

    /// The same at another path, which is as good.
    const fn also(self, path: &'static str, id: &'static str) -> Self {
        Self {
            links: &[],
            path,
            id,
            ..self
        }
    }

    /// The same at its v0.4.4 path.
    const fn formerly(self, path: &'static str, id: &'static str) -> Self {
        Self {
            successor: Some(self.path),
            links: &[],
            path,
            id,
            ..self
        }
    }
}
