//! Routes of whoever operates the Mixer: audit log, dead letters, tokens, invites, gears, its own state.

use model::filter::{AuditFilter, CheckpointFilter, LetterFilter};
use model::inline_schema;

use super::super::parameters as p;
use super::super::{ApiRoute, PATH, RequestBody, ResponseBody};
use super::{FIND, LETTERS_ONLY, QUERY, WINDOW, get, link, post};
use crate::access::AccessRight;

/// What changes of letters may fail with.
const LETTERS: &[u16] = &[400, 403, 409, 413, 422, 503, 504];
const LETTER: &[u16] = &[400, 403, 404, 409, 413, 422, 503, 504];
const REPLAYED: &str = "A letter is replayed once even if it is requested twice, unless `again` is set. The answer \
                        waits for the gears as long as `wait` says, at most 60s; a letter whose Rack is offline is \
                        `waiting` and is replayed when the Rack is online.";

pub(super) const ROUTES: &[ApiRoute] = &[
    get(AccessRight::ReadAudit, "/api/v1/audit", "audit", "The audit log: changes of Racks, scenarios and dead letters and who made them, the \
                                   newest first")
        .filters_by(&[inline_schema::<AuditFilter>])
    .takes(&[p::AUDIT_PAGE])
        .gives(ResponseBody::Json("Audit"))
        .fails(&[400])
        .details("A window that ends before it begins is refused. Decisions and refused calls are kept as long as `audit.keep` says (the last 500000 at the most), and the last 50000 sightings (offline, online)."),
    get(AccessRight::ReadAudit, "/api/v1/audit/checkpoints", "audit_checkpoints", "The signed checkpoints of the audit log's hash chain, the newest first")
        .filters_by(&[inline_schema::<CheckpointFilter>])
        .takes(&[p::CHECKPOINTS_PAGE])
        .gives(ResponseBody::Json("AuditCheckpoints"))
        .fails(&[400])
        .details("One an hour, if there was an entry. `signed` has the rest in it, signed with the cluster's key of then (`signed_by`): `platform audit verify` checks it. `cluster_key` is the fingerprint of the cluster's key now; `successions` are the keys before it, the oldest first, each signing the next (hexadecimal digits)."),
    get(AccessRight::ReadRows, "/api/v1/dlq", "letters", "The letters of the dead-letter queue, the newest first")
.of(LETTERS_ONLY)
        .filters_by(&[inline_schema::<LetterFilter>])
    .takes(&[p::LETTERS_PAGE])
        .gives(ResponseBody::Json("Letters"))
        .fails(QUERY)
        .leads_to(&[
            link("letter", &[("letter_id", "$response.body#/data/0/id")]),
            link("replay_letter", &[("letter_id", "$response.body#/data/0/id")]),
            link("drop_letter", &[("letter_id", "$response.body#/data/0/id")]),
        ])
        .details(WINDOW),
    get(AccessRight::ReadRows, "/api/v1/dlq/{letter_id}", "letter", "One letter: where it came from, why it failed, its message and its bytes")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .gives(ResponseBody::Json("Letter"))
        .fails(FIND),
    post(AccessRight::HandleLetters, "/api/v1/dlq/replay", "replay_letters", "Replays letters to the gears that could not handle them")
.of(LETTERS_ONLY)
        .with(RequestBody::Required("ReplayWish"))
        .gives(ResponseBody::Json("LettersChanged"))
        .fails(LETTERS)
        .details(REPLAYED),
    post(AccessRight::HandleLetters, "/api/v1/dlq/drop", "drop_letters", "Marks letters as dropped; their rows stay until they expire")
.of(LETTERS_ONLY)
        .with(RequestBody::Required("DropWish"))
        .gives(ResponseBody::Json("LettersChanged"))
        .fails(LETTERS),
    post(AccessRight::HandleLetters, "/api/v1/dlq/{letter_id}/replay", "replay_letter", "Replays a letter to the gear that could not handle it")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .with(RequestBody::Json("ReplayOfOne"))
        .gives(ResponseBody::Json("Letter"))
        .fails(LETTER)
        .details(REPLAYED),
    post(AccessRight::HandleLetters, "/api/v1/dlq/{letter_id}/drop", "drop_letter", "Marks a letter as dropped; its row stays until it expires")
.of(LETTERS_ONLY)
        .takes(&[p::LETTER_PATH])
        .with(RequestBody::Json("DropOfOne"))
        .gives(ResponseBody::Json("Letter"))
        .fails(LETTER),
    get(AccessRight::ManageTokens, "/api/v1/tokens", "tokens", "The API tokens, without their secrets")
        .gives(ResponseBody::Json("Tokens"))
        .fails(&[400]),
    post(AccessRight::ManageTokens, "/api/v1/tokens", "create_token", "Makes an API token")
        .with(RequestBody::Required("TokenRequest"))
        .gives(ResponseBody::Json("CreatedToken"))
        .fails(&[400, 409, 413, 422])
        .leads_to(&[link("revoke_token", &[("token", "$response.body#/data/id")])])
        .details("The secret is in this answer and in no other."),
    post(AccessRight::ManageTokens, "/api/v1/tokens/{token}/revoke", "revoke_token", "Revokes an API token at once")
        .takes(&[p::TOKEN_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Token"))
        .fails(&[400, 404, 409, 413]),
    post(AccessRight::BackUp, "/api/v1/backup", "backup", "Copies the registry and the keys into a folder of the Mixer's machine")
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Backup"))
        .fails(&[400, 413, 422])
        .details("The answer says where it is; nothing of it is sent. `platform-mixer restore` brings it back."),
    get(AccessRight::ReadAudit, "/api/v1/security", "security", "What is off in the Mixer's security, and how to mend it")
        .gives(ResponseBody::Json("SecurityFindings"))
        .fails(&[400])
        .details("`platform doctor --security` shows it, with what the Rack's own file says."),
    get(AccessRight::InviteRacks, "/api/v1/invites", "invites", "The invites of Racks, without their texts")
        .gives(ResponseBody::Json("Invites"))
        .fails(&[400]),
    post(AccessRight::InviteRacks, "/api/v1/invites", "create_invite", "Makes an invite, which admits one Rack under one name")
        .with(RequestBody::Required("InviteRequest"))
        .gives(ResponseBody::Json("CreatedInvite"))
        .by_two()
        .fails(&[400, 409, 413, 422])
        .leads_to(&[link("revoke_invite", &[("invite", "$response.body#/data/id")])])
        .details("Its text is in this answer and in no other. It takes the place of an open invite for the name."),
    post(AccessRight::InviteRacks, "/api/v1/invites/{invite}/revoke", "revoke_invite", "Revokes an open invite at once")
        .takes(&[p::INVITE_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Invite"))
        .fails(&[400, 404, 413]),
    get(AccessRight::HandleRequests, "/api/v1/requests", "change_requests", "The changes that wait for a second person, the oldest first")
        .gives(ResponseBody::Json("ChangeRequests"))
        .fails(&[400])
        .leads_to(&[link("withdraw_change_request", &[("request", "$response.body#/data/0/id")])]),
    post(AccessRight::HandleRequests, "/api/v1/requests/{request}/withdraw", "withdraw_change_request", "Forgets a change that waits for a second person")
        .takes(&[p::REQUEST_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("ChangeRequest"))
        .fails(&[400, 404, 413]),
    get(AccessRight::Known, "/api/v1/whoami", "whoami", "Who the caller is, with its roles and scope")
        .gives(ResponseBody::Json("Caller"))
        .fails(&[400]),
    get(AccessRight::ReadFleet, "/api/v1/gears", "gears", "The gear types that a scenario may name")
        .gives(ResponseBody::Json("Gears"))
        .fails(&[400])
        .leads_to(&[link("gear", &[("type", "$response.body#/data/0/type")])]),
    get(AccessRight::ReadFleet, "/api/v1/gears/{type}", "gear", "One gear type: its ports, and the JSON Schema of its configuration")
        .takes(&[p::GEAR_PATH])
        .gives(ResponseBody::Json("Gear"))
        .fails(&[400, 404]),
    get(AccessRight::ReadFleet, "/api/v1/specs", "specs", "The specs of business messages: what is in force, and which files are refused")
        .gives(ResponseBody::Json("Specs"))
        .fails(&[400]),
    get(AccessRight::ReadFleet, "/api/v1/storage", "storage", "Statistics of the store and of ingest")
        .gives(ResponseBody::Json("Storage"))
        .fails(&[400]),
    get(AccessRight::ReadFleet, "/api/v1/catalog", "catalog", "The tables of the Iceberg catalogue, and how far behind they are")
        .gives(ResponseBody::Json("Catalog"))
        .fails(&[400, 503])
        .details("`reason` says why tables lack rows, or why there are none; `trouble`, why the last publication failed."),
    get(AccessRight::Monitor, PATH, "openapi", "This document")
        .gives(ResponseBody::Json("OpenApi"))
        .fails(&[400]),
    get(AccessRight::Anybody, "/healthz", "healthz", "Liveness: whether the process answers").gives(ResponseBody::Json("Health")),
    get(AccessRight::Monitor, "/readyz",
        "readyz",
        "Readiness: whether telemetry sent now would be stored, with each check's result",
    )
    .gives(ResponseBody::Ready("Readiness")),
    get(AccessRight::Monitor, "/version", "version", "The program and its version").gives(ResponseBody::Json("Version")),
    get(AccessRight::Monitor, "/metrics", "exposition", "The Mixer's own metrics, for a scraper")
        .gives(ResponseBody::Exposition)
        .fails(&[404])
        .details("The Prometheus text format 0.0.4, or OpenMetrics 1.0.0 if `Accept` prefers it."),
];
