//! Operations endpoints: liveness, readiness, version, storage, security.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use super::ApiParts;
use super::exposition::{ExpositionFormat, MetricsExposition};
use super::json_response::{ItemResponse, ListResponse};
use super::problem::ApiProblem;
use super::query_params::NoParams;
use crate::bus_server::BusAccessIssue;
use crate::security_report::{self, SecurityFinding};

pub(crate) fn routes(parts: ApiParts, exposition: Arc<MetricsExposition>) -> Router {
    let metrics = if parts.reports_itself {
        Router::new().route("/metrics", get(metrics)).with_state(exposition)
    } else {
        Router::new().route("/metrics", get(async || ApiProblem::not_reported()))
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/version", get(version))
        .route("/api/v1/storage", get(storage))
        .route("/api/v1/security", get(security))
        .with_state(parts)
        .merge(metrics)
}

/// What is off in the Mixer's security.
async fn security(State(parts): State<ApiParts>, _: NoParams) -> ListResponse<SecurityFinding> {
    let tokens = parts.authenticator.tokens().list();
    let of_tokens = security_report::of_tokens(&tokens, parts.control.now());
    ListResponse::whole(parts.security.iter().cloned().chain(of_tokens).collect())
}

/// The process answers.
async fn healthz() -> Json<Value> {
    Json(json!({ "alive": true }))
}

async fn version(State(parts): State<ApiParts>) -> Json<Value> {
    Json(json!({
        "name": "platform-mixer",
        "version": env!("CARGO_PKG_VERSION"),
        "cluster_id": parts.control.cluster_id(),
    }))
}

/// Telemetry sent now would be stored (where collection is on): 200, else 503; either way with each check's result.
async fn readyz(State(parts): State<ApiParts>) -> Response {
    let checks = checks(&parts);
    let ready = checks.values().all(|check| check["ok"] == true);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let auth = parts.authenticator.mode().as_str();
    (status, Json(json!({ "ready": ready, "checks": checks, "auth": auth }))).into_response()
}

/// The checks of readiness by name, each with whether it is passed and, if not, why.
pub(super) fn checks(parts: &ApiParts) -> Map<String, Value> {
    let check = |reason: Option<String>| match reason {
        None => json!({ "ok": true }),
        Some(reason) => json!({ "ok": false, "reason": reason }),
    };
    let (wal, engine) = match parts.engine.health_issue() {
        Some(trouble @ engine::HealthIssue::Publishing(_)) => (None, Some(trouble.to_string())),
        Some(trouble) => (Some(trouble.to_string()), None),
        None => (None, None),
    };
    let bus = parts.control.bus_status();
    let (mut bus_note, url) = (None, bus.url);
    let bus = match (bus.connected, bus.healthy, bus.access_issue) {
        (true, true, None) => None,
        (true, true, Some(BusAccessIssue::InPart(reason))) => {
            bus_note = Some(format!(
                "the server at {url} does not take the accounts of all Racks: {reason}"
            ));
            None
        }
        (true, true, Some(BusAccessIssue::Whole(reason))) => Some(format!(
            "the server at {url} does not follow the list of Racks: who was removed may still be there, who was admitted is not: {reason}"
        )),
        (false, ..) => Some(format!("no connection to {url}")),
        (true, false, _) => Some(format!("the server at {url} is not healthy")),
    };
    let ingest = parts.ingest.as_ref().filter(|ingest| !ingest.is_open());
    let ingest = ingest.map(|_| "the telemetry consumer is not open".to_owned());
    let all = [("engine", engine), ("wal", wal), ("bus", bus), ("ingest", ingest)];
    let mut all: Map<_, _> = all
        .map(|(name, reason)| (name.to_owned(), check(reason)))
        .into_iter()
        .collect();
    if let Some(note) = bus_note {
        all["bus"]["reason"] = note.into();
    }
    if let Some(export) = &parts.export {
        // What the collector does not take for now is stored in the log; what it never takes with these settings is somebody's turn.
        // Where it is a copy, the store does what it is for all the same.
        let trouble = export.trouble();
        let is_copy = parts.engine.settings().export == engine::ExportMode::Copy;
        let mut check = json!({ "ok": is_copy || !trouble.as_ref().is_some_and(|(_, is_denied)| *is_denied) });
        if let Some((reason, _)) = trouble {
            check["reason"] = reason.into();
        }
        all.insert("export".to_owned(), check);
    }
    all
}

/// What the store holds and how it gets there.
async fn storage(State(parts): State<ApiParts>, _: NoParams) -> ItemResponse<Value> {
    let view = parts.engine.view();
    let tables = model::Table::ALL.map(|table| {
        let (files, hot) = (view.files(table), view.hot(table));
        let facts = json!({
            "files": files.len(),
            "open_files": files.iter().filter(|file| !file.sealed).count(),
            "bytes": files.iter().map(|file| file.size).sum::<u64>(),
            "rows": files.iter().map(|file| file.rows).sum::<u64>(),
            "hot_rows": hot.iter().map(|hot| hot.batch.num_rows()).sum::<usize>(),
            "earliest": files.iter().map(|file| file.min_ts).chain(hot.iter().map(|hot| hot.min_ts)).min(),
            "latest": files.iter().map(|file| file.max_ts).chain(hot.iter().map(|hot| hot.max_ts)).max(),
        });
        (table.name().to_owned(), facts)
    });
    let stats = parts.engine.stats();
    let data = json!({
        "tables": tables.into_iter().collect::<Map<_, _>>(),
        "files": stats.files,
        "bytes": stats.file_bytes,
        "rows": stats.file_rows,
        "index_files": stats.index_files,
        "index_bytes": stats.index_bytes,
        "index_waiting": stats.index_waiting,
        "hot_rows": stats.memtable_rows,
        "hot_bytes": stats.memtable_bytes,
        "wal_bytes": stats.wal_bytes,
        "wal_max_bytes": stats.wal_max_bytes,
        "open_files": stats.open_files,
        "appended_rows": stats.appended_rows,
        "duplicate_batches": stats.duplicate_batches,
        "misdated_rows": stats.out_of_range_rows,
        "quarantined_files": stats.quarantined_files,
        "object_store": object_store(&parts, stats.remote.as_ref()),
        "export": export(&parts),
        "rotation": super::rotation::facts(&parts.engine),
        "trouble": parts.engine.health_issue().map(|trouble| trouble.to_string()),
        "partial": view.partial(),
    });
    ItemResponse { data }
}

/// What was sent to the collector and what waits for it; `null` without one.
fn export(parts: &ApiParts) -> Value {
    let Some(export) = &parts.export else {
        return Value::Null;
    };
    let signals = export.signals().iter().map(|status| {
        let trouble = status.trouble();
        let facts = json!({
            "rows": status.rows.get(),
            "requests": status.requests.get(),
            "retries": status.retries.get(),
            "rejected_records": status.rejected.get(),
            "dead_letters": status.letters.get(),
            "oldest_waiting": status.oldest(),
            "trouble": trouble.as_ref().map(|trouble| &trouble.reason),
            "trouble_since": trouble.as_ref().map(|trouble| trouble.since),
        });
        (status.signal.name().to_owned(), facts)
    });
    json!({ "collector": export.collector(), "signals": signals.collect::<Map<_, _>>() })
}

/// What is in the object store and what is not; `null` without one.
fn object_store(parts: &ApiParts, stats: Option<&engine::RemoteStats>) -> Value {
    let (Some(stats), Some(remote)) = (stats, &parts.engine.settings().remote) else {
        return Value::Null;
    };
    json!({
        "url": remote.url,
        "read_only": remote.mode == engine::RemoteMode::Read,
        "unuploaded_files": stats.unuploaded_files,
        "unuploaded_rows": stats.unuploaded_rows,
        "unuploaded_bytes": stats.unuploaded_bytes,
        "unuploaded_age_seconds": stats.unuploaded_age_seconds,
        "uploaded_lsn": stats.uploaded_lsn,
        "uploaded_files": stats.uploaded_files,
        "uploaded_bytes": stats.uploaded_bytes,
        "cached_files": stats.cached_files,
        "cached_bytes": stats.cached_bytes,
        "cache_max_bytes": remote.cache_size.get(),
        "fetched_files": stats.fetched_files,
        "fetched_bytes": stats.fetched_bytes,
        "writes": stats.writes,
        "reads": stats.reads,
        "retries": stats.retries,
        "trouble": parts.engine.object_store_issue(),
    })
}

async fn metrics(State(exposition): State<Arc<MetricsExposition>>, headers: HeaderMap) -> Result<Response, ApiProblem> {
    let format = ExpositionFormat::accepted(&headers);
    // Some figures are read from the registry.
    let text = tokio::task::spawn_blocking(move || exposition.text(format)).await;
    let text = text.map_err(|error| ApiProblem::internal(format!("the read task failed: {error}")))??;
    let headers = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
    Ok((headers, text).into_response())
}
