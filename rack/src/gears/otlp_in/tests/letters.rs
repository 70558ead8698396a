//! What becomes of records that are refused, on a real outbox.

use model::message::Message;
use tokio::task::JoinHandle;

use super::*;
use crate::gears::supervisor::supervise;
use crate::gears::testing::held::{fill, outbox, spec, surroundings, taken_from};
use crate::outbox::MessageOutbox;

/// A gear `it` beside an outbox: its address, what stops it, and its life.
async fn start_with(bench: &Bench, outbox: &Arc<MessageOutbox>) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let spec = spec("otlp_in", &json!({ "listen": "127.0.0.1:0" }), &[]);
    let (cx, stop) = surroundings(&spec, bench, outbox);
    let life = tokio::spawn(supervise(None, spec, cx, None));
    (bench.address("it", "http").await, stop, life)
}

/// A good span, and one of this name that has no trace.
fn request(name: &str) -> String {
    let span = |trace: &str, name: &str| {
        let start = "1700000000000000000";
        json!({ "traceId": trace, "spanId": "b7ad6b7169203331", "name": name, "startTimeUnixNano": start })
    };
    let spans = [
        span("0af7651916cd43dd8448eb211c80319c", "good"),
        span("00000000000000000000000000000000", name),
    ];
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string()
}

/// How many records of a request were refused; its answer comes whatever there is room for.
async fn refused(http: SocketAddr, name: &str) -> Value {
    let answer = post(http, "/v1/traces", &[AS_JSON], request(name));
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap();
    assert_eq!(answer.status, 200);
    let said: Value = serde_json::from_slice(&answer.body).unwrap();
    said["partialSuccess"]["rejectedSpans"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_records_are_dead_letters_once() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let (http, stop, life) = start_with(&bench, &outbox).await;
    for name in ["first", "first", "second"] {
        assert_eq!(post(http, "/v1/traces", &[AS_JSON], request(name)).await.status, 200);
    }
    assert_eq!(stored(&bench, Table::Traces).len(), 2);
    let letters = taken_from(&outbox, 2).await;
    assert_eq!(letters.len(), 2);
    for (letter, name) in letters.iter().zip(["first", "second"]) {
        let message = Message::from_cbor(letter.body()).unwrap();
        assert_eq!(message.meta.get("record"), Some(&1.into()));
        // The name of a span is its field 5.
        let field = field(5, name.as_bytes());
        assert!(
            message.raw.windows(field.len()).any(|part| part == field),
            "{message:?}"
        );
        let told = format!("{letter:?}");
        assert!(told.contains("trace_id") && told.contains("\"traces\""), "{told}");
    }
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_does_not_wait_for_an_outbox_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 8_000);
    fill(&outbox).await;
    let (http, stop, life) = start_with(&bench, &outbox).await;
    for name in ["first", "second"] {
        assert_eq!(refused(http, name).await, "1");
    }
    assert_eq!(stored(&bench, Table::Traces).len(), 2);
    bench.says("it", "not kept as dead letters").await;
    assert_eq!(taken_from(&outbox, 1).await.len(), 1);
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_senders_take_an_eighth_of_the_outbox_and_messages_have_room_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let (http, stop, life) = start_with(&bench, &outbox).await;
    for name in ["a", "b", "c"] {
        assert_eq!(refused(http, &name.repeat(50_000)).await, "1");
    }
    fill(&outbox).await;
    let taken = taken_from(&outbox, 3).await;
    let sizes: Vec<_> = taken.iter().map(|record| record.body().len()).collect();
    assert!(
        matches!(sizes[..], [first, second, 7_900] if first >= 50_000 && second >= 50_000),
        "two letters and the message: {sizes:?}"
    );
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
