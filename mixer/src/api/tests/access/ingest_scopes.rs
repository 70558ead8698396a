//! What a token stores that names the entities whose rows it may write: theirs, however a row says whose it is.

use std::collections::BTreeSet;

use model::telemetry_codec::{self, BatchEncoding};

use super::*;

const OWN: &str = "press-1";
const OTHER: &str = "press-2";
/// What the Mixer is called where its configuration says nothing.
const MIXER: &str = "mixer-01";

/// Headers of a request, or fields of a row.
type NamedTexts = Vec<(&'static str, String)>;

/// What says whose a row is: what that comes to, the publisher by headers, the row's own fields, and whether the row is stored.
type WriterCase = (&'static str, NamedTexts, NamedTexts, bool);

fn id(name: &str) -> String {
    EntityId::for_name(name).to_string()
}

fn named(name: &str) -> (&'static str, String) {
    (telemetry_codec::ENTITY_NAME, name.to_owned())
}

fn with_id(of: &str) -> (&'static str, String) {
    (telemetry_codec::ENTITY_ID, id(of))
}

fn row_named(name: &str) -> (&'static str, String) {
    ("entity_name", name.to_owned())
}

fn row_with_id(of: &str) -> (&'static str, String) {
    ("entity_id", id(of))
}

fn cases() -> Vec<WriterCase> {
    vec![
        ("own by header", vec![named(OWN)], vec![], true),
        ("own by header with id", vec![named(OWN), with_id(OWN)], vec![], true),
        ("own by row", vec![], vec![row_named(OWN), row_with_id(OWN)], true),
        (
            "own by row behind the header of another",
            vec![named(OTHER)],
            vec![row_named(OWN), row_with_id(OWN)],
            true,
        ),
        ("nobody", vec![], vec![], false),
        ("other by header", vec![named(OTHER)], vec![], false),
        (
            "other by header with id",
            vec![named(OTHER), with_id(OTHER)],
            vec![],
            false,
        ),
        (
            "own name with the id of another",
            vec![named(OWN), with_id(OTHER)],
            vec![],
            false,
        ),
        (
            "own id with the name of another",
            vec![named(OTHER), with_id(OWN)],
            vec![],
            false,
        ),
        ("own name in capitals", vec![named("PRESS-1")], vec![], false),
        (
            "own name and more",
            vec![named("press-1 ")],
            vec![row_named("press-1 ")],
            false,
        ),
        ("the Mixer by header", vec![named(MIXER)], vec![], false),
        ("other name by row", vec![named(OWN)], vec![row_named(OTHER)], false),
        ("other id by row", vec![named(OWN)], vec![row_with_id(OTHER)], false),
        (
            "other by row",
            vec![named(OWN)],
            vec![row_named(OTHER), row_with_id(OTHER)],
            false,
        ),
        (
            "the Mixer by row",
            vec![named(OWN)],
            vec![row_named(MIXER), row_with_id(MIXER)],
            false,
        ),
        ("own name by row without an id", vec![], vec![row_named(OWN)], false),
    ]
}

impl GuardedApi {
    /// Stores a body as publishers do who say by headers who they are.
    async fn store_body(
        &self,
        token: &ApiToken,
        (table, encoding): (Table, BatchEncoding),
        publisher: &[(&'static str, String)],
        body: impl Into<Body>,
    ) -> (StatusCode, Value) {
        let asked = request(&Method::POST, &format!("/api/v1/ingest/{table}"))
            .header(header::AUTHORIZATION, credential(token))
            .header(header::CONTENT_TYPE, encoding.content_type());
        let asked = publisher
            .iter()
            .fold(asked, |asked, (name, value)| asked.header(*name, value));
        self.fetch(asked, body).await
    }

    /// The rows of a statement.
    async fn selected(&self, token: &ApiToken, statement: String) -> Value {
        let asked = request(&Method::POST, "/api/v1/sql")
            .header(header::AUTHORIZATION, credential(token))
            .header(header::CONTENT_TYPE, "application/sql");
        let (status, mut answer) = self.fetch(asked, statement).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["data"].take()
    }

    /// An ingester that may write rows of its own entity alone.
    async fn writer(&self) -> ApiToken {
        let scope = json!({ "entities": [OWN] });
        self.scoped("writer", &[AccessRole::Ingester], scope).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_names_the_entities_it_writes_stores_their_rows_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let writer = api.writer().await;
    let free = api.token("free", &[AccessRole::Ingester], AccessScope::default()).await;
    let mut stored = BTreeSet::new();
    for (what, publisher, fields, is_stored) in cases() {
        let line = |message: &str| {
            let ts = chassis::system_clock().now().to_string();
            let mut row = json!({ "ts": ts, "level": "info", "message": message });
            for (name, value) in &fields {
                row[*name] = value.as_str().into();
            }
            row.to_string()
        };
        let format = (Table::Logs, BatchEncoding::Ndjson);
        let message = format!("probe: {what}");
        let (status, answer) = api.store_body(&writer, format, &publisher, line(&message)).await;
        if is_stored {
            assert_eq!(
                (status, &answer["data"]["stored"]),
                (StatusCode::OK, &json!(1)),
                "{what}: {answer}"
            );
            stored.insert(message);
            continue;
        }
        let wanted = (StatusCode::BAD_REQUEST, Some("nothing_stored"));
        assert_eq!((status, answer["code"].as_str()), wanted, "{what}: {answer}");
        let reason = answer["errors"][0]["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("the token may not store rows of the entity"),
            "{reason}"
        );
        // The row is good but for whose it is.
        let (status, answer) = api.store_body(&free, format, &publisher, line("by who may")).await;
        assert_eq!(status, StatusCode::OK, "{what}: {answer}");
    }
    let reader = api.token("reader", &[AccessRole::Reader], AccessScope::default()).await;
    let asked = request(&Method::GET, "/api/v1/telemetry/logs?q=probe&limit=1000");
    let asked = asked.header(header::AUTHORIZATION, credential(&reader));
    let (status, answer) = api.fetch(asked, Body::empty()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let mut read = BTreeSet::new();
    for row in answer["data"].as_array().unwrap() {
        assert_eq!(
            (&row["entity_name"], &row["entity_id"]),
            (&json!(OWN), &json!(id(OWN))),
            "{row}"
        );
        read.insert(row["message"].as_str().unwrap().to_owned());
    }
    assert_eq!(read, stored);
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_body_with_rows_of_others_only_the_writers_own_are_stored_in_every_table() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let writer = api.writer().await;
    let reader = api.token("reader", &[AccessRole::Reader], AccessScope::default()).await;
    let stranger = json!({ "entities": [OTHER] });
    let stranger = api.scoped("stranger", &[AccessRole::Reader], stranger).await;
    let ts = chassis::system_clock().now();
    let logs = [OWN, OTHER].map(|name| LogRecord {
        ts,
        entity_id: EntityId::for_name(name),
        entity_name: name.to_owned(),
        ..log(1)
    });
    let logs = telemetry_codec::encode_arrow(&[LogRecord::to_batch(&logs).unwrap()]).unwrap();
    let array = |row: Value| {
        let of = |name: &str| {
            let mut row = row.clone();
            row["ts"] = ts.to_string().into();
            row["entity_name"] = name.into();
            row["entity_id"] = id(name).into();
            row
        };
        json!([of(OWN), of(OTHER)]).to_string().into_bytes()
    };
    let metrics = array(json!({ "name": "probe", "type": "gauge", "value": 1.5 }));
    let traces = array(json!({
        "trace_id": "0123456789abcdef0123456789abcdef", "span_id": "0123456789abcdef", "span_name": "probe",
        "duration_ms": 1.5, "status": "ok",
    }));
    for (table, encoding, body) in [
        (Table::Logs, BatchEncoding::Arrow, logs),
        (Table::Metrics, BatchEncoding::Json, metrics),
        (Table::Traces, BatchEncoding::Json, traces),
    ] {
        let (status, answer) = api.store_body(&writer, (table, encoding), &[named(OWN)], body).await;
        let told = (&answer["stored"], &answer["rejected_total"]);
        assert_eq!(
            (status, told),
            (StatusCode::MULTI_STATUS, (&json!(1), &json!(1))),
            "{table}: {answer}"
        );
        let entities = format!("SELECT entity_name, count(*) AS n FROM {table} GROUP BY entity_name");
        let rows = api.selected(&reader, entities.clone()).await;
        assert_eq!(rows, json!([{ "entity_name": OWN, "n": 1 }]), "{table}");
        let rows = api.selected(&stranger, entities).await;
        assert_eq!(rows, json!([]), "{table}: a reader of another entity has none of them");
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_others_are_not_kept_where_a_writer_keeps_what_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let writer = api.writer().await;
    let reader = api.token("reader", &[AccessRole::Reader], AccessScope::default()).await;
    let ts = chassis::system_clock().now().to_string();
    let row = |name: &str, level: &str| {
        let row = json!({ "ts": ts, "level": level, "message": "probe", "entity_name": name, "entity_id": id(name) });
        format!("{row}\n")
    };
    let body = row(OWN, "info") + &row(OTHER, "info") + &row(OWN, "loud");
    let asked = request(&Method::POST, "/api/v1/ingest/logs?rejected=keep")
        .header(header::AUTHORIZATION, credential(&writer))
        .header(header::CONTENT_TYPE, BatchEncoding::Ndjson.content_type());
    let (status, answer) = api.fetch(asked, body).await;
    let told = (&answer["stored"], &answer["rejected_total"], &answer["kept"]);
    let wanted = (&json!(1), &json!(2), &json!(1));
    assert_eq!((status, told), (StatusCode::MULTI_STATUS, wanted), "{answer}");
    let letters =
        "SELECT subject, content_type, reason LIKE 'level: \"loud\"%' AS is_loud FROM dead_letters".to_owned();
    let letter = json!({ "subject": "http/logs", "content_type": "application/json", "is_loud": true });
    assert_eq!(api.selected(&reader, letters).await, json!([letter]));
    mixer.close().await;
}
