//! Every route against admins whose scope is narrow: what is outside is written out by hand, by the beginnings of paths.

use super::*;
use crate::registry::RackRow;
use crate::registry::tests::row;

/// Whose rows a path reads or stores, the longer of two beginnings first.
const ROWS: [(&str, &[Table]); 28] = [
    ("/api/v1/telemetry/logs", &[Table::Logs]),
    ("/api/v1/telemetry/traces/top", &[Table::Traces]),
    ("/api/v1/telemetry/traces/fields", &[Table::Traces]),
    ("/api/v1/telemetry/traces/", &[Table::Traces, Table::Logs]),
    ("/api/v1/telemetry/traces", &[Table::Traces]),
    ("/jaeger/api/", &[Table::Traces]),
    ("/api/v1/telemetry/services", &[Table::Traces]),
    ("/api/v1/telemetry/dependencies", &[Table::Traces]),
    ("/api/v1/telemetry/metrics", &[Table::Metrics]),
    ("/api/v1/telemetry/messages", &[Table::Messages]),
    ("/api/v1/telemetry/dead_letters", &[Table::DeadLetters]),
    ("/api/v1/messages", &[Table::Messages]),
    ("/api/v1/flux/", &[Table::Messages, Table::Traces, Table::Logs]),
    ("/api/v1/logs", &[Table::Logs]),
    ("/api/v1/traces/", &[Table::Traces, Table::Logs]),
    ("/api/v1/traces", &[Table::Traces]),
    ("/api/v1/metrics", &[Table::Metrics]),
    ("/api/v1/dlq", &[Table::DeadLetters]),
    ("/api/v1/ingest/logs", &[Table::Logs]),
    ("/api/v1/ingest/metrics", &[Table::Metrics]),
    ("/api/v1/ingest/traces", &[Table::Traces]),
    ("/loki/", &[Table::Logs]),
    ("/api/v1/write", &[Table::Metrics]),
    ("/elasticsearch/_bulk", &[Table::Logs]),
    ("/elasticsearch/0123456789abcdef0123456789abcdef/_bulk", &[Table::Logs]),
    ("/v1/logs", &[Table::Logs]),
    ("/v1/metrics", &[Table::Metrics]),
    ("/v1/traces", &[Table::Traces]),
];
/// Who has a part of the rows makes no token without that limit, and no copy of everything.
const OF_EVERYTHING: [&str; 2] = ["/api/v1/tokens", "/api/v1/backup"];
/// Rows that belong to no entity, and files that have the rows of all.
const OF_NO_ENTITY: [&str; 3] = ["/api/v1/dlq", "/api/v1/telemetry/dead_letters", "/iceberg/"];
/// What concerns the whole fleet, by methods.
const OF_THE_FLEET: [(&[&str], &str); 6] = [
    (&["POST"], "/api/v1/scenarios"),
    (&["POST"], "/api/v1/dlq/"),
    (&["GET", "POST"], "/api/v1/invites"),
    (&["GET", "POST"], "/api/v1/requests"),
    (&["GET", "POST"], "/api/v1/tokens"),
    (&["POST"], "/api/v1/backup"),
];

/// A path about a Rack, with something in the place of its other parameters.
fn about(path: &str, rack: &str) -> String {
    filled(&path.replace("{id}", rack))
}

fn begins(path: &str, with: &[&str]) -> bool {
    with.iter().any(|prefix| path.starts_with(*prefix))
}

/// Has the registry know an active Rack at a site.
pub(super) async fn put_rack(mixer: &Mixer, name: &str, site: &str) -> RackRow {
    let rack = RackRow {
        labels: [("site".to_owned(), site.to_owned())].into(),
        scenario: None,
        ..row(name)
    };
    let put = rack.clone();
    let written = mixer.control().registry.commit(move |change| change.put_rack(&put));
    written.await.unwrap();
    rack
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_one_table_is_kept_from_every_route_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    for own in Table::ALL {
        let scope = json!({ "tables": [own.name()] });
        let token = api.scoped(own.name(), &[AccessRole::Admin], scope).await;
        for (method, path, _) in every_route() {
            let path = about(path, "nobody");
            let answered = api.bearer(&method, &path, &token).await;
            let rows = ROWS.iter().find(|(prefix, _)| path.starts_with(*prefix));
            let tables: &[Table] = match rows {
                Some(&(_, tables)) => tables,
                None if path == "/api/v1/racks/nobody/tap" => &[Table::Messages],
                None => &[],
            };
            let is_outside = tables.iter().any(|table| *table != own) || begins(&path, &OF_EVERYTHING);
            assert_eq!(
                is_forbidden(&answered),
                is_outside,
                "{own}: {method} {path}: {answered:?}"
            );
            assert_ne!(answered.0, StatusCode::UNAUTHORIZED, "{own}: {method} {path}");
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_reads_the_tables_of_its_tokens_scope_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let scope = json!({ "tables": ["metrics"] });
    let token = api.scoped("metrics", &[AccessRole::Reader], scope).await;
    for (table, status, code) in [
        ("metrics", StatusCode::OK, Value::Null),
        ("logs", StatusCode::FORBIDDEN, json!("outside_scope")),
        ("traces", StatusCode::FORBIDDEN, json!("outside_scope")),
        ("messages", StatusCode::FORBIDDEN, json!("outside_scope")),
    ] {
        let asked = request(&Method::POST, "/api/v1/sql")
            .header(header::AUTHORIZATION, credential(&token))
            .header(header::CONTENT_TYPE, "application/sql");
        let answered = api.fetch(asked, format!("SELECT count(*) AS n FROM {table}")).await;
        assert_eq!(
            (answered.0, &answered.1["code"]),
            (status, &code),
            "{table}: {}",
            answered.1
        );
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_one_entity_is_kept_from_dead_letters_and_from_taps_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    put_rack(&mixer, "press-1", "paris").await;
    let own = put_rack(&mixer, "press-2", "paris").await;
    let scope = json!({ "entities": ["press-2"] });
    let by_name = api.scoped("by-name", &[AccessRole::Admin], scope).await;
    let scope = json!({ "entities": [own.entity_id] });
    let by_id = api.scoped("by-id", &[AccessRole::Admin], scope).await;
    for token in [&by_name, &by_id] {
        for (method, path, _) in every_route() {
            let is_tap = path.ends_with("/tap");
            let path = about(path, if is_tap { "press-1" } else { "nobody" });
            let answered = api.bearer(&method, &path, token).await;
            let is_outside = is_tap || begins(&path, &OF_NO_ENTITY) || begins(&path, &OF_EVERYTHING);
            assert_eq!(is_forbidden(&answered), is_outside, "{method} {path}: {answered:?}");
        }
        for tapped in ["press-2".to_owned(), own.entity_id.to_string()] {
            let path = format!("/api/v1/racks/{tapped}/tap");
            let (status, code) = api.bearer(&Method::GET, &path, token).await;
            // Let in: all that it lacks is the port.
            assert_eq!((status.as_u16(), code.as_str()), (400, "bad_parameter"), "{path}");
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_the_racks_of_one_site_is_kept_from_those_of_another_and_from_the_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let paris = put_rack(&mixer, "press-1", "paris").await;
    put_rack(&mixer, "press-2", "lyon").await;
    let scope = json!({ "racks": { "site": "lyon" } });
    let token = api.scoped("lyon", &[AccessRole::Admin], scope).await;
    let id = paris.entity_id.to_string();
    let shouted = id.to_uppercase();
    for rack in ["press-1", "press%2D1", id.as_str(), shouted.as_str()] {
        for (method, path, _) in every_route() {
            let path = about(path, rack);
            let answered = api.bearer(&method, &path, &token).await;
            let concerns_fleet = OF_THE_FLEET
                .iter()
                .any(|(methods, prefix)| methods.contains(&method.as_str()) && path.starts_with(*prefix));
            let is_outside = concerns_fleet || path.starts_with("/api/v1/racks/");
            assert_eq!(is_forbidden(&answered), is_outside, "{method} {path}: {answered:?}");
            assert_ne!(answered.0, StatusCode::UNAUTHORIZED, "{method} {path}");
        }
    }
    let kept = mixer.control().registry.rack(&paris.entity_id).unwrap().unwrap();
    assert_eq!(
        (kept.state, &kept.name, &kept.labels),
        (paris.state, &paris.name, &paris.labels)
    );
    let unknown = api.bearer(&Method::GET, "/api/v1/racks/nobody", &token).await;
    assert_eq!(unknown, (StatusCode::NOT_FOUND, "unknown_rack".to_owned()));
    let listed = request(&Method::GET, "/api/v1/racks").header(header::AUTHORIZATION, credential(&token));
    let (status, listed) = api.fetch(listed, Body::empty()).await;
    let names: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rack| &rack["name"])
        .collect();
    assert_eq!((status, names), (StatusCode::OK, vec![&json!("press-2")]));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_the_racks_of_one_site_acts_on_them_one_at_a_time_and_on_their_labels_never() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let own = put_rack(&mixer, "press-2", "lyon").await;
    let scope = json!({ "racks": { "site": "lyon" } });
    let token = api.scoped("lyon", &[AccessRole::Admin], scope).await;
    let calls = [
        (Method::GET, "", 200, ""),
        (Method::POST, "/approve", 200, ""),
        (Method::POST, "/suspend", 200, ""),
        (Method::POST, "/resume", 200, ""),
        (Method::POST, "/log-level", 400, "bad_body"),
        (Method::GET, "/tap", 400, "bad_parameter"),
        // Labels say which Racks are in the scope.
        (Method::PUT, "/labels", 403, "forbidden"),
        (Method::PATCH, "/labels", 403, "forbidden"),
        (Method::POST, "/remove", 200, ""),
    ];
    let of_one = every_route().into_iter().filter(|(_, path, _)| path.contains("{id}"));
    assert_eq!(calls.len(), of_one.count(), "every route about one Rack is called");
    for (method, call, status, code) in calls {
        let path = format!("/api/v1/racks/press-2{call}");
        let answered = api.bearer(&method, &path, &token).await;
        assert_eq!(
            (answered.0.as_u16(), answered.1.as_str()),
            (status, code),
            "{method} {path}"
        );
    }
    let removed = mixer.control().registry.rack(&own.entity_id).unwrap().unwrap();
    assert_eq!(removed.state, model::control::RackState::Removed);
    assert_eq!(removed.labels, own.labels);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_a_combined_scope_narrows_what_the_others_leave() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    for (name, site) in [("press-1", "paris"), ("press-2", "lyon"), ("press-3", "lyon")] {
        put_rack(&mixer, name, site).await;
    }
    let scope = json!({ "tables": ["logs"], "racks": { "site": "lyon" } });
    let logs = api.scoped("logs", &[AccessRole::Admin], scope).await;
    let scope = json!({ "entities": ["press-1", "press-2"], "racks": { "site": "lyon" } });
    let rows = api.scoped("rows", &[AccessRole::Admin], scope).await;
    let (get, post, refused) = (Method::GET, Method::POST, (403, "forbidden"));
    for (token, method, path, wanted) in [
        (&logs, &get, "/api/v1/telemetry/logs", (200, "")),
        (&logs, &get, "/api/v1/telemetry/metrics", refused),
        (&logs, &post, "/api/v1/ingest/logs", (415, "bad_body")),
        (&logs, &post, "/api/v1/ingest/metrics", refused),
        (&logs, &post, "/v1/logs", (415, "")),
        (&logs, &post, "/v1/metrics", refused),
        (&logs, &get, "/api/v1/racks/press-2", (200, "")),
        (&logs, &get, "/api/v1/racks/press-1", refused),
        (&logs, &post, "/api/v1/racks/press-2/suspend", (200, "")),
        (&logs, &post, "/api/v1/racks/press-1/suspend", refused),
        // A tap shows messages.
        (&logs, &get, "/api/v1/racks/press-2/tap", refused),
        (&logs, &post, "/api/v1/scenarios/demo:1/activate", refused),
        (&logs, &get, "/api/v1/tokens", refused),
        (&logs, &post, "/api/v1/backup", refused),
        (&rows, &get, "/api/v1/telemetry/logs", (200, "")),
        (&rows, &get, "/api/v1/telemetry/dead_letters", refused),
        (&rows, &get, "/api/v1/racks/press-2/tap", (400, "bad_parameter")),
        // Of another site; of no entity of its own.
        (&rows, &get, "/api/v1/racks/press-1/tap", refused),
        (&rows, &get, "/api/v1/racks/press-3/tap", refused),
        // Entities limit rows, not which Racks it acts on.
        (&rows, &post, "/api/v1/racks/press-3/suspend", (200, "")),
        (&rows, &post, "/api/v1/racks/press-1/suspend", refused),
        (&rows, &post, "/api/v1/scenarios/demo:1/activate", refused),
        (&rows, &post, "/api/v1/dlq/drop", refused),
        (&rows, &get, "/api/v1/tokens", refused),
    ] {
        let (status, code) = api.bearer(method, path, token).await;
        assert_eq!((status.as_u16(), code.as_str()), wanted, "{method} {path}");
    }
    mixer.close().await;
}
