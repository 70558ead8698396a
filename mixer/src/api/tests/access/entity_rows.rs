//! Every route that reads rows, asked by who may read those of one entity: the answer has these, and in no format anything of another's.

use std::collections::BTreeSet;

use model::batch::{self, DeadLetter, MessageRow};
use model::message::Message;
use model::{MessageDirection, MessageId, Span, SpanId, SpanStatus, telemetry_codec};

use super::live_streams::{OpenStream, TAILS};
use super::scopes::put_rack;
use super::*;

const OWN: &str = "press-2";
const OTHER: &str = "press-1";
// What rows of both have in common, so that each route finds rows of both.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const FLUX: &str = "018f2c1e-0000-7000-8000-000000000000";
const METRIC: &str = "pressure";
const LABEL: &str = "batch";
/// Both are called by it.
const SERVICE: &str = "line";
/// The formats of rows; what has one format alone is answered in that.
const FORMATS: [&str; 4] = [
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
];
/// Rows that belong to no entity, and what passes a Rack that is another entity.
const REFUSED: [&str; 4] = [
    "/api/v1/telemetry/dead_letters",
    "/api/v1/dlq",
    "/api/v1/dlq/{letter_id}",
    "/api/v1/racks/{id}/tap",
];

/// Stores a row in each table, which says in each of its texts whose it is.
pub(super) async fn store_rows(mixer: &Mixer, name: &str, ts: Timestamp) {
    let engine = mixer.api_parts().unwrap().engine;
    for (table, rows) in rows_of(name, ts) {
        let payload = telemetry_codec::encode_arrow(std::slice::from_ref(&rows)).unwrap();
        let batch = AppendBatch {
            table,
            origin: BatchOrigin::default(),
            payload: payload.into(),
            rows: vec![rows],
        };
        engine.append(batch).await.unwrap();
    }
}

fn rows_of(name: &str, ts: Timestamp) -> [(Table, RecordBatch); 5] {
    let (entity_id, entity_name) = (EntityId::for_name(name), name.to_owned());
    let log = LogRecord {
        ts,
        entity_id,
        entity_name: entity_name.clone(),
        flux_id: Some(FLUX.parse().unwrap()),
        level: Level::Warn,
        message: format!("line of {name}"),
        attributes: Attributes::new().with("gear.id", name).with("trace_id", TRACE),
    };
    let point = MetricPoint {
        ts,
        name: METRIC.to_owned(),
        entity_id,
        entity_name: entity_name.clone(),
        metric_type: MetricType::Gauge,
        value: 1.5,
        labels: Attributes::new()
            .with(LABEL, name)
            .with(&format!("only {name}"), "x")
            .with("otel.exemplars", json!([{ "value": 1.5, "trace_id": TRACE }])),
    };
    let named = MetricPoint {
        name: format!("only.{name}"),
        ..point.clone()
    };
    let span = Span {
        ts,
        trace_id: TRACE.parse().unwrap(),
        span_id: SpanId::from_entropy(entity_id.as_bytes()[..8].try_into().unwrap()),
        parent_span_id: None,
        flux_id: Some(FLUX.parse().unwrap()),
        entity_id,
        entity_name,
        span_name: format!("span of {name}"),
        duration_ms: 1.5,
        status: SpanStatus::Ok,
        attributes: Attributes::new().with("gear.id", name),
    };
    let caller = Span {
        span_id: SpanId::from_entropy(entity_id.as_bytes()[8..].try_into().unwrap()),
        span_name: format!("call of {name}"),
        attributes: Attributes::new().with(Span::SERVICE_NAME, SERVICE),
        ..span.clone()
    };
    let span = Span {
        parent_span_id: Some(caller.span_id),
        ..span
    };
    let letter = DeadLetter {
        ts,
        subject: format!("flux.gear.{name}.gate"),
        reason: format!("refused at {name}"),
        content_type: None,
        headers: Attributes::new(),
        payload: name.as_bytes().to_vec(),
    };
    let message = message_of(name, &span);
    [
        (Table::Logs, LogRecord::to_batch(&[log]).unwrap()),
        (Table::Metrics, MetricPoint::to_batch(&[point, named]).unwrap()),
        (Table::Traces, Span::to_batch(&[span, caller]).unwrap()),
        (Table::Messages, batch::messages(&[message]).unwrap()),
        (Table::DeadLetters, batch::dead_letters(&[letter]).unwrap()),
    ]
}

/// A message that a span's gear sent.
fn message_of(name: &str, span: &Span) -> MessageRow {
    let message = Message {
        id: MessageId::at(span.ts, [2; 10]),
        ts: span.ts,
        raw: Vec::new(),
        data: json!({ "of": name }),
        hops: 1,
        meta: Attributes::new().with("of", name),
        parent: None,
        flux_id: FLUX.parse().unwrap(),
        sampled: true,
        span_id: span.span_id,
        trace_id: span.trace_id,
        trace_state: None,
    };
    MessageRow {
        ts: span.ts,
        trace_id: span.trace_id,
        flux_id: message.flux_id,
        entity_id: span.entity_id,
        entity_name: name.to_owned(),
        src_gear_id: format!("gear-of-{name}"),
        dst_gear_id: None,
        msg_type: format!("type-of-{name}"),
        direction: MessageDirection::Outbound,
        status: SpanStatus::Ok,
        raw_msg: message.to_cbor().unwrap(),
        promoted: Attributes::new().with("of", name),
    }
}

/// A path of the table with what finds rows of both entities.
fn found_by(path: &str, letter: &str) -> String {
    let values = [
        ("{trace_id}", TRACE),
        ("{flux_id}", FLUX),
        ("{metric_name}", METRIC),
        ("{label_key}", LABEL),
        ("{letter_id}", letter),
        ("{service}", SERVICE),
        ("{id}", OTHER),
    ];
    let path = values
        .iter()
        .fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
    assert!(!path.contains('{'), "{path} has a parameter without a value");
    let query = match path.rsplit('/').next() {
        Some("operations" | "traces") if path.starts_with("/jaeger/") && !path.contains(SERVICE) => "?service=line",
        Some("top") if path.contains("/traces/") => "?field=span_name",
        Some("top") => "?field=message",
        Some("histogram") => "?by=entity_name",
        Some("tail") => "?limit=10",
        Some("tap") => "?port=numbers.out",
        _ => "",
    };
    path + query
}

/// The status of an answer, and its headers and body as a text.
async fn answer_to(api: &GuardedApi, asked: Builder, body: impl Into<Body>) -> (StatusCode, String) {
    let (parts, body) = api.respond(asked, body).await.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let text = format!("{:?} {}", parts.headers, String::from_utf8_lossy(&body));
    (parts.status, text)
}

/// The same of a GET; of a tail what comes up to the row that was stored last.
async fn read(api: &GuardedApi, token: &ApiToken, path: &str, format: &str) -> (StatusCode, String) {
    if TAILS.iter().any(|tail| path.starts_with(tail)) {
        let mut tail = OpenStream::open(api, path, token).await;
        tail.read_until(OWN).await;
        return (StatusCode::OK, tail.text);
    }
    let asked = request(&Method::GET, path)
        .header(header::AUTHORIZATION, credential(token))
        .header(header::ACCEPT, format);
    answer_to(api, asked, Body::empty()).await
}

/// That nothing in a text is of the other entity: neither its name, as it is or in the bytes of a message, nor its id.
fn assert_nothing_of_other(text: &str, what: &str) {
    let id = EntityId::for_name(OTHER).to_string();
    let bytes = model::hex::encode(OTHER.as_bytes());
    for mark in [OTHER, id.as_str(), bytes.as_str()] {
        assert!(!text.contains(mark), "{what}: {mark} is in {text}");
    }
}

/// Stores rows of both entities, those of the other one first.
async fn store_rows_of_both(mixer: &Mixer) {
    let now = chassis::system_clock().now();
    store_rows(mixer, OTHER, now.minus(Duration::from_secs(2))).await;
    store_rows(mixer, OWN, now.minus(Duration::from_secs(1))).await;
}

/// A token for all rows, and one for those of one entity.
async fn readers(api: &GuardedApi) -> (ApiToken, ApiToken) {
    let free = api.token("free", &[AccessRole::Reader], AccessScope::default()).await;
    let scope = json!({ "entities": [OWN] });
    (free, api.scoped("scoped", &[AccessRole::Reader], scope).await)
}

/// The id of the dead letter of the other entity.
async fn letter_of_other(api: &GuardedApi, token: &ApiToken) -> String {
    let asked = request(&Method::GET, &format!("/api/v1/dlq?rack={OTHER}"));
    let asked = asked.header(header::AUTHORIZATION, credential(token));
    let (_, letters) = api.fetch(asked, Body::empty()).await;
    letters["data"][0]["id"].as_str().unwrap().to_owned()
}

/// Asks every route that reads rows for those of both entities, and gives those that are refused to who may read one.
async fn refused_routes(api: &GuardedApi, (free, scoped): (&ApiToken, &ApiToken)) -> BTreeSet<&'static str> {
    let letter = letter_of_other(api, free).await;
    let routes = every_route().into_iter();
    let reads = routes.filter(|(method, _, right)| *method == Method::GET && *right == AccessRight::ReadRows);
    // Those of files have no rows, and are refused to who may read one entity: `scopes`.
    let reads = reads.filter(|(_, path, _)| !path.starts_with("/iceberg/"));
    let mut refused = BTreeSet::new();
    for (_, route, _) in reads {
        let path = found_by(route, &letter);
        // They have names of fields, and no values of them.
        let has_values = !route.ends_with("/fields");
        for format in FORMATS {
            let what = format!("{path} as {format}");
            let (status, text) = read(api, scoped, &path, format).await;
            assert_nothing_of_other(&text, &what);
            if status == StatusCode::FORBIDDEN {
                assert!(text.contains("\"forbidden\""), "{what}: {text}");
                refused.insert(route);
            } else {
                assert_eq!(status, StatusCode::OK, "{what}: {text}");
                assert!(text.contains(OWN) || !has_values, "{what}: {text}");
            }
            // No Rack is there that would show anything.
            if !route.ends_with("/tap") {
                let (status, text) = read(api, free, &path, format).await;
                assert_eq!(status, StatusCode::OK, "{what}: {text}");
                assert!(text.contains(OTHER) || !has_values, "{what}: {text}");
            }
        }
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_answers_a_reader_of_one_entity_with_rows_of_another_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    put_rack(&mixer, OTHER, "lyon").await;
    store_rows_of_both(&mixer).await;
    let (free, scoped) = readers(&api).await;
    let refused = refused_routes(&api, (&free, &scoped)).await;
    assert_eq!(refused, BTreeSet::from(REFUSED), "of rows in memory");
    mixer.api_parts().unwrap().engine.flush().await.unwrap();
    let refused = refused_routes(&api, (&free, &scoped)).await;
    assert_eq!(refused, BTreeSet::from(REFUSED), "of rows in files");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_a_reader_of_one_entity_finds_rows_of_another_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    store_rows_of_both(&mixer).await;
    let (free, scoped) = readers(&api).await;
    let select = async |token: &ApiToken, table: &str, format: &str| {
        let asked = request(&Method::POST, "/api/v1/sql")
            .header(header::AUTHORIZATION, credential(token))
            .header(header::CONTENT_TYPE, "application/sql")
            .header(header::ACCEPT, format);
        let (status, text) = answer_to(&api, asked, format!("SELECT * FROM {table}")).await;
        assert_eq!(status, StatusCode::OK, "{table} as {format}: {text}");
        text
    };
    for place in ["memory", "files"] {
        if place == "files" {
            mixer.api_parts().unwrap().engine.flush().await.unwrap();
        }
        for table in ["logs", "metrics", "traces", "messages"] {
            for format in FORMATS {
                let what = format!("{table} in {place} as {format}");
                let text = select(&scoped, table, format).await;
                assert_nothing_of_other(&text, &what);
                assert!(text.contains(OWN), "{what}: {text}");
                let text = select(&free, table, format).await;
                assert!(text.contains(OTHER), "{what}: {text}");
            }
        }
    }
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_tail_of_a_reader_of_one_entity_shows_no_row_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let (free, scoped) = readers(&api).await;
    let mut tails = Vec::new();
    for path in TAILS {
        let of_all = OpenStream::open(&api, path, &free).await;
        tails.push((path, of_all, OpenStream::open(&api, path, &scoped).await));
    }
    let now = chassis::system_clock().now();
    store_rows(&mixer, OTHER, now).await;
    store_rows(&mixer, OWN, now).await;
    for (path, of_all, of_own) in &mut tails {
        of_all.read_until(OWN).await;
        assert!(of_all.text.contains(OTHER), "{path}: {}", of_all.text);
        of_own.read_until(OWN).await;
        assert_nothing_of_other(&of_own.text, path);
    }
    drop(tails);
    mixer.close().await;
}
