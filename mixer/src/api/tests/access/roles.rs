//! Which role has which right, and who may use sensitive routes: both written out by hand, so that a role that is
//! given more is a failure here, whatever the route table says.

use std::collections::HashSet;

use super::*;
use crate::access::AccessRight as R;
use crate::access::AccessRole::{Admin, Auditor, Author, Ingester, Monitor, Operator, Reader};

const EVERYBODY: &[AccessRole] = &[Monitor, Reader, Ingester, Author, Operator, Admin, Auditor];
const FLEET_READERS: &[AccessRole] = &[Reader, Author, Operator, Admin, Auditor];
const ROW_READERS: &[AccessRole] = &[Reader, Operator, Admin];
const SCENARIO_READERS: &[AccessRole] = &[Author, Operator, Admin];
const AUDITORS: &[AccessRole] = &[Auditor, Admin];
const INGESTERS: &[AccessRole] = &[Ingester, Admin];
const AUTHORS: &[AccessRole] = &[Author, Admin];
const OPERATORS: &[AccessRole] = &[Operator, Admin];
const ADMINS: &[AccessRole] = &[Admin];

/// The roles that have a right.
const RIGHTS: [(AccessRight, &[AccessRole]); 19] = [
    (R::Anybody, EVERYBODY),
    (R::Known, EVERYBODY),
    (R::Monitor, &[Monitor, Reader, Author, Operator, Admin, Auditor]),
    (R::ReadRows, ROW_READERS),
    (R::ReadFleet, FLEET_READERS),
    (R::ReadScenarios, SCENARIO_READERS),
    (R::ReadAudit, AUDITORS),
    (R::Ingest, INGESTERS),
    (R::WriteScenarios, AUTHORS),
    (R::ActivateScenarios, OPERATORS),
    (R::AdmitRacks, OPERATORS),
    (R::InviteRacks, OPERATORS),
    (R::OperateRacks, OPERATORS),
    (R::HandleRequests, OPERATORS),
    (R::LabelRacks, OPERATORS),
    (R::RemoveRacks, ADMINS),
    (R::HandleLetters, OPERATORS),
    (R::ManageTokens, ADMINS),
    (R::BackUp, ADMINS),
];

/// A request without a body: who may send it, and what comes of it then; to all others it is forbidden.
type GuardedCall = (&'static str, &'static str, &'static [AccessRole], (u16, &'static str));

const CALLS: [GuardedCall; 49] = [
    ("POST", "/api/v1/scenarios", AUTHORS, (422, "bad_scenario")),
    (
        "GET",
        "/api/v1/scenarios/demo:1",
        SCENARIO_READERS,
        (404, "unknown_scenario"),
    ),
    (
        "GET",
        "/api/v1/scenarios/demo:1/graph",
        FLEET_READERS,
        (404, "unknown_scenario"),
    ),
    (
        "POST",
        "/api/v1/scenarios/demo:1/activate",
        OPERATORS,
        (404, "unknown_scenario"),
    ),
    (
        "POST",
        "/api/v1/scenarios/demo:1/activate?dry_run=true",
        OPERATORS,
        (404, "unknown_scenario"),
    ),
    (
        "POST",
        "/api/v1/scenarios/demo:1/delete",
        AUTHORS,
        (404, "unknown_scenario"),
    ),
    ("POST", "/api/v1/scenarios/rollback", OPERATORS, (409, "nothing_before")),
    (
        "POST",
        "/api/v1/racks/press-1/approve",
        OPERATORS,
        (404, "unknown_rack"),
    ),
    (
        "POST",
        "/api/v1/racks/press-1/suspend",
        OPERATORS,
        (404, "unknown_rack"),
    ),
    ("POST", "/api/v1/racks/press-1/resume", OPERATORS, (404, "unknown_rack")),
    ("POST", "/api/v1/racks/press-1/remove", ADMINS, (404, "unknown_rack")),
    ("POST", "/api/v1/racks/press-1/log-level", OPERATORS, (400, "bad_body")),
    ("PUT", "/api/v1/racks/press-1/labels", OPERATORS, (400, "bad_body")),
    ("PATCH", "/api/v1/racks/press-1/labels", OPERATORS, (400, "bad_body")),
    ("GET", "/api/v1/racks/press-1/tap", ROW_READERS, (400, "bad_parameter")),
    ("GET", "/api/v1/invites", OPERATORS, (200, "")),
    ("POST", "/api/v1/invites", OPERATORS, (400, "bad_body")),
    (
        "POST",
        "/api/v1/invites/press-1/revoke",
        OPERATORS,
        (404, "unknown_invite"),
    ),
    ("GET", "/api/v1/requests", OPERATORS, (200, "")),
    (
        "POST",
        "/api/v1/requests/1/withdraw",
        OPERATORS,
        (404, "unknown_request"),
    ),
    ("GET", "/api/v1/tokens", ADMINS, (200, "")),
    ("POST", "/api/v1/tokens", ADMINS, (400, "bad_body")),
    ("POST", "/api/v1/tokens/nobody/revoke", ADMINS, (404, "unknown_token")),
    ("POST", "/api/v1/backup", ADMINS, (200, "")),
    ("POST", "/api/v1/sql", ROW_READERS, (400, "bad_body")),
    ("POST", "/api/v1/ingest/logs", INGESTERS, (415, "bad_body")),
    ("POST", "/api/v1/ingest/metrics", INGESTERS, (415, "bad_body")),
    ("POST", "/api/v1/ingest/traces", INGESTERS, (415, "bad_body")),
    ("POST", "/loki/api/v1/push", INGESTERS, (400, "bad_body")),
    ("POST", "/api/v1/write", INGESTERS, (415, "bad_body")),
    ("POST", "/elasticsearch/_bulk", INGESTERS, (400, "bad_body")),
    ("PUT", "/elasticsearch/logs/_bulk", INGESTERS, (400, "bad_body")),
    ("GET", "/elasticsearch/", INGESTERS, (200, "")),
    ("PUT", "/elasticsearch/_template/logs", INGESTERS, (200, "")),
    ("POST", "/v1/logs", INGESTERS, (415, "")),
    ("POST", "/v1/metrics", INGESTERS, (415, "")),
    ("POST", "/v1/traces", INGESTERS, (415, "")),
    ("GET", "/api/v1/audit", AUDITORS, (200, "")),
    ("GET", "/api/v1/audit/checkpoints", AUDITORS, (200, "")),
    ("GET", "/api/v1/security", AUDITORS, (200, "")),
    // What rotation keeps and has removed.
    ("GET", "/api/v1/storage", FLEET_READERS, (200, "")),
    ("GET", "/api/v1/catalog", FLEET_READERS, (200, "")),
    ("GET", "/iceberg/v1/config", ROW_READERS, (200, "")),
    ("GET", "/iceberg/v1/namespaces/telemetry", ROW_READERS, (200, "")),
    ("GET", "/api/v1/dlq", ROW_READERS, (200, "")),
    ("POST", "/api/v1/dlq/replay", OPERATORS, (400, "bad_body")),
    ("POST", "/api/v1/dlq/drop", OPERATORS, (400, "bad_body")),
    ("POST", "/api/v1/dlq/x/replay", OPERATORS, (400, "bad_parameter")),
    ("POST", "/api/v1/dlq/x/drop", OPERATORS, (400, "bad_parameter")),
];

const SCENARIO: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in }
";

#[test]
fn each_role_has_the_rights_that_are_listed_and_no_other() {
    for (right, roles) in RIGHTS {
        for role in AccessRole::ALL {
            assert_eq!(role.has(right), roles.contains(&role), "{role}: {right:?}");
        }
    }
    let listed: HashSet<_> = RIGHTS.into_iter().map(|(right, _)| right).collect();
    let asked_for: HashSet<_> = every_route().into_iter().map(|(.., right)| right).collect();
    assert_eq!(asked_for, listed, "every right that a route asks for is listed");
    assert_eq!(listed.len(), RIGHTS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn sensitive_routes_are_forbidden_to_roles_that_are_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let by_role = api.token_of_each_role().await;
    for (method, path, roles, done) in CALLS {
        let method: Method = method.parse().unwrap();
        for (role, token) in &by_role {
            let (status, code) = api.bearer(&method, path, token).await;
            let wanted = if roles.contains(role) { done } else { (403, "forbidden") };
            assert_eq!((status.as_u16(), code.as_str()), wanted, "{role}: {method} {path}");
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_that_is_there_is_activated_by_nobody_but_operators_and_admins() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let by_role = api.token_of_each_role().await;
    let call = |path: &str, role: AccessRole| {
        let authorization = credential(&by_role[&role]);
        request(&Method::POST, path).header(header::AUTHORIZATION, authorization)
    };
    let active = || {
        mixer
            .control()
            .active_scenario()
            .unwrap()
            .map(|active| active.reference)
    };
    let (status, imported) = api.fetch(call("/api/v1/scenarios", Author), SCENARIO).await;
    assert_eq!(status, StatusCode::OK, "{imported}");
    let activate = "/api/v1/scenarios/demo:1/activate?wait=10ms";
    for role in [Monitor, Reader, Ingester, Author, Auditor] {
        for path in [activate, "/api/v1/scenarios/rollback"] {
            let (status, problem) = api.fetch(call(path, role), Body::empty()).await;
            assert_eq!(
                (status, &problem["code"]),
                (StatusCode::FORBIDDEN, &json!("forbidden")),
                "{role}: {path}"
            );
        }
        assert_eq!(active(), None, "{role}");
    }
    for role in [Operator, Admin] {
        let (status, report) = api.fetch(call(activate, role), Body::empty()).await;
        assert_eq!(status, StatusCode::OK, "{role}: {report}");
        assert_eq!(active().as_deref(), Some("demo:1"), "{role}");
    }
    mixer.close().await;
}
