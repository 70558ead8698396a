//! Schemas of what controls and operates: Racks, scenarios, tokens, invites, the audit log, the Mixer's own state.

use model::{KeyFingerprint, Level, Table, Token, inline_schema, written_schema};
use serde_json::{Map, Value, json};

use super::schemas::{count, counts, list, object, one, or_null, reference, text};
use crate::api::gears::GearType;
use crate::api::invites::{CreatedInvite, InviteRequest};
use crate::api::tokens::{CallerView, CreatedToken, TokenRequest};
use crate::authentication::TokenView;
use crate::backup::BackupView;
use crate::control::{ChangeRequestView, ImportReport, InviteView, RackView, ScenarioReport, ScenarioView};
use crate::registry::{AuditEntry, SignedCheckpoint};
use crate::scenario::{ScenarioGraph, ScenarioRef, WireBacklog};
use crate::security_report::SecurityFinding;
use crate::specs::SpecListView;

/// A list that is always whole.
fn whole(of: Value) -> Value {
    let stats = object(json!({ "rows": count() }));
    object(json!({ "data": list(of), "next_cursor": { "type": "null" }, "stats": stats }))
}

/// Changes that wait for a second person.
pub(super) fn change_requests() -> Value {
    json!({
        "ChangeRequestFacts": written_schema::<ChangeRequestView>(),
        "ChangeRequest": one(&reference("ChangeRequestFacts")),
        "ChangeRequests": whole(reference("ChangeRequestFacts")),
    })
}

/// Racks, scenarios, tokens, invites, audit.
pub(super) fn control() -> Value {
    let mut stored = written_schema::<ScenarioView>();
    if let Some(required) = stored["required"].as_array_mut() {
        required.push("text".into());
    }
    json!({
        "Wires": whole(written_schema::<WireBacklog>()),
        "RackFacts": written_schema::<RackView>(),
        "Rack": one(&reference("RackFacts")),
        "Racks": whole(reference("RackFacts")),
        "ListedScenario": written_schema::<ScenarioView>(),
        "StoredScenario": stored,
        "Scenario": one(&reference("StoredScenario")),
        "Scenarios": whole(reference("ListedScenario")),
        "AuditEntry": written_schema::<AuditEntry>(),
        "Audit": object(json!({
            "data": list(reference("AuditEntry")), "next_cursor": or_null(text()), "stats": object(json!({ "rows": count() })),
        })),
        "AuditCheckpoint": written_schema::<SignedCheckpoint>(),
        "AuditCheckpoints": object(json!({
            "data": list(reference("AuditCheckpoint")), "next_cursor": or_null(text()), "stats": object(json!({ "rows": count() })),
            "cluster_key": inline_schema::<KeyFingerprint>(), "successions": list(text()),
        })),
        "Backup": one(&written_schema::<BackupView>()),
        "SecurityFinding": written_schema::<SecurityFinding>(),
        "SecurityFindings": whole(reference("SecurityFinding")),
        "Deleted": one(&written_schema::<ScenarioRef>()),
        "Imported": one(&written_schema::<ImportReport>()),
        "ScenarioGraph": one(&written_schema::<ScenarioGraph>()),
        "ScenarioReport": one(&written_schema::<ScenarioReport>()),
        "GearType": written_schema::<GearType>(),
        "Gear": one(&reference("GearType")),
        "Gears": whole(reference("GearType")),
        "Specs": one(&written_schema::<SpecListView>()),
        "Approval": { "type": "object", "properties": {
            "name": inline_schema::<Option<Token>>(), "key_fingerprint": inline_schema::<Option<KeyFingerprint>>(),
        }, "additionalProperties": false },
        "LogLevel": {
            "type": "object", "required": ["level"], "properties": { "level": inline_schema::<Level>() }, "additionalProperties": false,
        },
        "Labels": {
            "type": "object", "maxProperties": 64, "propertyNames": inline_schema::<Token>(),
            "additionalProperties": { "type": "string", "maxLength": 256 }, "examples": [{ "role": "edge" }],
        },
        "LabelChanges": {
            "type": "object", "maxProperties": 64, "propertyNames": inline_schema::<Token>(),
            "additionalProperties": { "type": ["string", "null"], "maxLength": 256 }, "examples": [{ "role": "edge", "site": null }],
        },
        "TokenFacts": written_schema::<TokenView>(),
        "Token": one(&reference("TokenFacts")),
        "Tokens": whole(reference("TokenFacts")),
        "TokenRequest": inline_schema::<TokenRequest>(),
        "CreatedToken": one(&written_schema::<CreatedToken>()),
        "InviteFacts": written_schema::<InviteView>(),
        "Invite": one(&reference("InviteFacts")),
        "Invites": whole(reference("InviteFacts")),
        "InviteRequest": inline_schema::<InviteRequest>(),
        "CreatedInvite": one(&written_schema::<CreatedInvite>()),
        "Caller": one(&written_schema::<CallerView>()),
        "Nothing": { "type": "object", "additionalProperties": false },
    })
}

/// What the Mixer says of itself.
pub(super) fn operation() -> Value {
    let mut table = counts(&["files", "open_files", "bytes", "rows", "hot_rows"]);
    let moment = || or_null(json!({ "type": "string" }));
    table.insert("earliest".to_owned(), moment());
    table.insert("latest".to_owned(), moment());
    let tables: Map<_, _> = Table::ALL
        .into_iter()
        .map(|known| (known.name().to_owned(), object(table.clone().into())))
        .collect();
    let mut storage = counts(&[
        "files",
        "bytes",
        "rows",
        "index_files",
        "index_bytes",
        "index_waiting",
        "hot_rows",
        "hot_bytes",
        "wal_bytes",
        "wal_max_bytes",
        "open_files",
        "appended_rows",
        "duplicate_batches",
        "misdated_rows",
        "quarantined_files",
    ]);
    storage.insert("tables".to_owned(), object(tables.into()));
    storage.insert("object_store".to_owned(), json!({ "type": ["object", "null"] }));
    storage.insert("export".to_owned(), json!({ "type": ["object", "null"] }));
    storage.insert("rotation".to_owned(), json!({ "type": "object" }));
    storage.insert("trouble".to_owned(), or_null(text()));
    storage.insert("partial".to_owned(), or_null(text()));
    let check = json!({
        "type": "object", "required": ["ok"], "properties": { "ok": { "type": "boolean" }, "reason": text() },
    });
    let mut checks = object(json!({ "engine": check, "wal": check, "bus": check, "ingest": check }));
    // Where telemetry is sent to a collector.
    checks["properties"]["export"] = check;
    json!({
        "Storage": object(json!({ "data": object(storage.into()) })),
        "Health": object(json!({ "alive": { "const": true } })),
        "Readiness": object(json!({
            "ready": { "type": "boolean" }, "checks": checks, "auth": { "enum": ["auto", "tokens", "off"] },
        })),
        "Version": object(json!({ "name": text(), "version": text(), "cluster_id": { "type": "string", "format": "uuid" } })),
        "OpenApi": object(json!({ "openapi": text(), "info": { "type": "object" }, "paths": { "type": "object" } })),
    })
}
