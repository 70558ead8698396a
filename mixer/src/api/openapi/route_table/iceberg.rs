//! Routes of Iceberg's REST catalogue.

use super::super::parameters as p;
use super::super::{ApiRoute, ResponseBody};
use super::get;
use crate::access::AccessRight;

/// What any of them may fail with.
const CATALOG: &[u16] = &[400, 406];
/// The same where something is asked for by its name.
const NAMED: &[u16] = &[400, 404, 406];
/// The same where metadata is read.
const READ: &[u16] = &[400, 404, 406, 503];

pub(super) const ROUTES: &[ApiRoute] = &[
    iceberg(
        "/iceberg/v1/config",
        "iceberg_config",
        "What clients of the Iceberg catalogue need to know",
    )
    .gives(ResponseBody::Iceberg("IcebergConfig"))
    .fails(CATALOG),
    iceberg(
        "/iceberg/v1/namespaces",
        "iceberg_namespaces",
        "The namespaces of the Iceberg catalogue: `telemetry`",
    )
    .gives(ResponseBody::Iceberg("IcebergNamespaces"))
    .fails(NAMED),
    iceberg(
        "/iceberg/v1/namespaces/{namespace}",
        "iceberg_namespace",
        "One namespace",
    )
    .takes(&[p::NAMESPACE_PATH])
    .gives(ResponseBody::Iceberg("IcebergNamespace"))
    .fails(NAMED),
    iceberg(
        "/iceberg/v1/namespaces/{namespace}/tables",
        "iceberg_tables",
        "The tables of a namespace",
    )
    .takes(&[p::NAMESPACE_PATH])
    .gives(ResponseBody::Iceberg("IcebergTables"))
    .fails(READ),
    iceberg(
        "/iceberg/v1/namespaces/{namespace}/tables/{table}",
        "iceberg_table",
        "One table: its metadata, with all snapshots",
    )
    .takes(&[p::NAMESPACE_PATH, p::TABLE_PATH, p::KNOWN])
    .gives(ResponseBody::Iceberg("IcebergTable"))
    .fails(READ),
];

const fn iceberg(path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    get(AccessRight::ReadRows, path, id, summary).details(
        "For tokens of all entities. The parameters that clients send to any catalogue (`warehouse`, `pageToken`, `snapshots` and others) \
         change nothing, `parent` apart.",
    )
}
