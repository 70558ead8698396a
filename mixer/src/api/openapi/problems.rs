//! The statuses and codes of problems, and their responses.

use serde_json::{Map, Value, json};

/// Every code with the status that it comes with, and when it does.
pub(in crate::api) const CODES: &[(u16, &str, &str)] = &[
    (
        207,
        "partly_stored",
        "some rows of the body are stored, and the others, which are listed, are not",
    ),
    (400, "bad_parameter", "a parameter or header cannot be used"),
    (400, "unknown_parameter", "the path has no such parameter"),
    (400, "bad_body", "the body cannot be read"),
    (400, "nothing_stored", "no row of the body can be stored"),
    (400, "sql_error", "the statement cannot be executed"),
    (
        401,
        "unauthorized",
        "the request has no token, or one that opens nothing",
    ),
    (403, "cross_origin", "a browser asks for a page of another site"),
    (403, "not_collected", "this Mixer collects no telemetry"),
    (403, "forbidden", "the caller's roles or scope do not allow it"),
    (403, "read_only", "the statement or the store is read-only"),
    (403, "outside_scope", "the token's scope does not have the table"),
    (
        403,
        "stored_elsewhere",
        "the table's rows are sent to a collector and not stored here",
    ),
    (404, "no_route", "there is no such path"),
    (
        404,
        "other_build",
        "another build of the Mixer has this file of the page",
    ),
    (404, "telemetry_disabled", "the Mixer reports nothing about itself"),
    (404, "unknown_namespace", "the Iceberg catalogue has no such namespace"),
    (404, "unknown_table", "the Iceberg catalogue has no such table"),
    (404, "unknown_rack", "there is no such Rack"),
    (404, "unknown_invite", "there is no such open invite"),
    (404, "unknown_request", "no such change waits for a second person"),
    (404, "unknown_scenario", "there is no such scenario"),
    (404, "unknown_token", "there is no such token"),
    (404, "unknown_letter", "there is no such dead letter"),
    (404, "unknown_gear", "there is no such gear type"),
    (404, "unknown_port", "the Rack has no such gear or output"),
    (404, "trace_not_found", "no span of the trace is stored"),
    (404, "flux_not_found", "the signal has no rows in the time range"),
    (404, "metric_not_found", "the metric has no points in the time range"),
    (405, "method_not_allowed", "the path does not support this method"),
    (406, "not_acceptable", "no format in Accept is supported"),
    (406, "no_catalog", "the Mixer serves no Iceberg catalogue"),
    (408, "slow_request", "the request took too long to arrive or to answer"),
    (
        409,
        "key_in_use",
        "a request with this Idempotency-Key is being answered",
    ),
    (409, "name_taken", "another Rack has the name"),
    (409, "key_mismatch", "another key waits than the one that was approved"),
    (409, "name_is_id", "the name looks like a Rack's id"),
    (409, "wrong_state", "the Rack's state does not allow it"),
    (
        409,
        "reference_taken",
        "another content is stored under the scenario's name and version",
    ),
    (409, "scenario_active", "the scenario is active"),
    (409, "nothing_before", "no scenario was active before"),
    (
        409,
        "former_changed",
        "a rollback would go back to another scenario than `to` says",
    ),
    (409, "letter_refused", "the dead letter cannot be replayed or dropped"),
    (409, "token_provided", "the token comes from api.tokens_file"),
    (
        409,
        "too_many_marks",
        "too many letters are marked as replayed or dropped",
    ),
    (413, "bad_body", "the body is too large"),
    (415, "bad_body", "the body's type or compression is not supported"),
    (
        421,
        "unknown_host",
        "the Mixer does not answer for the host of the request",
    ),
    (
        422,
        "no_object_store",
        "durable=bucket asks for an object store, and there is none",
    ),
    (422, "key_of_another", "the Idempotency-Key was used for another body"),
    (
        422,
        "bad_scenario",
        "the scenario is invalid; `errors` has the place of each fault",
    ),
    (422, "too_many_labels", "a Rack would have more labels than it may"),
    (
        422,
        "invite_lifetime",
        "an invite would be good for no time, or for longer than it may",
    ),
    (422, "too_many_invites", "there are as many invites as there may be"),
    (422, "too_many_tokens", "there are as many tokens as there may be"),
    (
        422,
        "too_many_scenarios",
        "there are as many scenarios as may be stored: delete some",
    ),
    (422, "query_too_large", "the answer would need too many resources"),
    (
        422,
        "too_many_letters",
        "more letters are selected than one request may change",
    ),
    (
        429,
        "too_many",
        "too many live tails are open, or too many changes wait for a second person",
    ),
    (
        429,
        "quota_exceeded",
        "the caller has used up a quota, which the detail names",
    ),
    (500, "internal", "a defect"),
    (500, "query_failed", "the query failed"),
    (500, "registry", "the registry failed"),
    (503, "busy", "temporarily unavailable"),
    (503, "rack_silent", "the Rack does not answer"),
    (503, "stopping", "the Mixer is stopping"),
    (504, "query_timeout", "the query ran too long"),
    (
        505,
        "http_version",
        "over HTTP/1.0 a truncated answer could not be detected",
    ),
];

/// Problems that every route has; those of callers where it asks who calls.
pub(super) const EVERYWHERE: [u16; 4] = [403, 408, 421, 500];
pub(super) const OF_CALLERS: [u16; 2] = [401, 429];

/// Whether problems of this status and code are documented.
pub(in crate::api) fn is_known(status: u16, code: &str) -> bool {
    CODES.iter().any(|(known, name, _)| (*known, *name) == (status, code))
}

/// What a problem's response is called among the document's components.
pub(super) fn name(status: u16) -> String {
    format!("Problem{status}")
}

/// A response for each status.
pub(super) fn responses() -> Map<String, Value> {
    CODES
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|codes| Some((name(codes.first()?.0), response(codes))))
        .collect()
}

fn response(codes: &[(u16, &str, &str)]) -> Value {
    let status = codes.first().map_or(500, |(status, _, _)| *status);
    let words: Vec<_> = codes.iter().map(|(_, code, _)| *code).collect();
    let said: Vec<_> = codes
        .iter()
        .map(|(_, code, when)| format!("`{code}`: {when}"))
        .collect();
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "properties": { "status": { "const": status }, "code": { "enum": words } },
    });
    let mut response = json!({
        "description": said.join("; "),
        "content": { "application/problem+json": { "schema": schema } },
    });
    let seconds = json!({ "type": "integer", "minimum": 1 });
    match status {
        401 => {
            let scheme = json!({ "description": "`Bearer`.", "required": true, "schema": { "type": "string" } });
            response["headers"] = json!({ "WWW-Authenticate": scheme });
        }
        405 => {
            let allow = json!({ "description": "The methods that the path has.", "required": true, "schema": { "type": "string" } });
            response["headers"] = json!({ "Allow": allow });
        }
        409 => {
            let wait = "Seconds to wait, with `key_in_use`.";
            response["headers"] = json!({ "Retry-After": { "description": wait, "schema": seconds } });
        }
        429 | 503 => {
            let wait = "Seconds to wait.";
            response["headers"] =
                json!({ "Retry-After": { "description": wait, "required": true, "schema": seconds } });
        }
        _ => {}
    }
    response
}
