//! Requests as they are stored.

#![allow(clippy::unwrap_used, reason = "tests")]
use std::sync::mpsc;

use axum::extract::Request;
use engine::InboundMemory;
use futures::FutureExt;
use model::telemetry_codec::{self, BatchEncoding, BodyRecordReader, PublisherIdentity};
use model::{Clock, EntityId, Entropy, Timestamp};

use super::super::headers::NAMELESS;
use super::super::{IngestParams, SenderAnswers, records_plan};
use super::*;
use crate::quotas::QuotaOverrides;

async fn door(store: &std::path::Path) -> IngestHandler {
    let clock = Clock::new(|| Timestamp::from_micros(1_800_000_000_000_000));
    let opened = Engine::open(engine::Settings::new(store), clock, Entropy::new(|bytes| bytes.fill(7)));
    IngestHandler {
        engine: opened.await.unwrap(),
        open: true,
        storing: TaskTracker::new(),
        in_use: InFlightKeys::default(),
        decoders: DecoderPool::new().unwrap(),
        counters: HttpIngestCounters::default(),
    }
}

fn reader(lines: std::ops::Range<u32>, size: usize) -> BodyReader {
    let line = |n| format!("{{\"ts\":\"2027-01-15T08:00:00Z\",\"level\":\"info\",\"message\":\"line {n}\"}}\n");
    let body: String = lines
        .map(|n| if n % 10 == 3 { "bad\n".to_owned() } else { line(n) })
        .collect();
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name(NAMELESS),
        entity_name: NAMELESS.to_owned(),
    };
    let (all, other) = (InboundMemory::new(0), InboundMemory::new(0));
    BodyReader {
        records: BodyRecordReader::new_keeping_refused(Table::Logs, BatchEncoding::Ndjson, body.into(), publisher)
            .unwrap(),
        size,
        unpacked: 0,
        decoding: IngestReservation::new(&all),
        _body: IngestReservation::new(&other),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_body_that_a_crash_cut_short_is_completed_whatever_the_size_of_a_part_was_and_is() {
    for (before, now) in [(1 << 10, 64 << 10), (64 << 10, 1 << 10)] {
        let dir = tempfile::tempdir().unwrap();
        let request = RequestPart {
            id: uuid::Uuid::from_u128(1),
            sender: 2,
            digest: 3,
            from: 0,
            to: 0,
        };
        let first = door(dir.path()).await;
        let stored = first
            .store((Table::Logs, None), reader(0..700, before), Some(request), (0, &mut 0))
            .await;
        assert_eq!(stored.unwrap().rows.stored, 630);
        drop(first);
        for round in 0..2 {
            let next = door(dir.path()).await;
            let known = next.engine.request(2, request.id).unwrap();
            let through = if round == 0 { 700 } else { 2_000 };
            assert_eq!((known.digest, known.through), (3, through));
            let body = reader(0..2_000, now);
            let stored = next
                .store((Table::Logs, None), body, Some(request), (through, &mut 0))
                .await
                .unwrap()
                .rows;
            assert_eq!((stored.stored, stored.rejected_total), (1_800, 200), "{before} {now}");
            assert_eq!(stored.duplicate, round == 1);
            let appended = if round == 0 { 1_170 } else { 0 };
            assert_eq!(next.engine.stats().appended_rows, appended, "{before} {now}");
            next.engine.close().await.unwrap();
        }
    }
}

fn origin() -> BodyOrigin {
    BodyOrigin {
        subject: "http/logs".to_owned(),
        content_type: "application/json".to_owned(),
        at: Timestamp::from_micros(1_800_000_000_000_000),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_records_of_a_keyed_body_are_kept_once_whatever_the_size_of_a_part_was_and_is() {
    let request = RequestPart {
        id: uuid::Uuid::from_u128(1),
        sender: 2,
        digest: 3,
        from: 0,
        to: 0,
    };
    for (before, now) in [(1 << 10, 64 << 10), (64 << 10, 1 << 10)] {
        let dir = tempfile::tempdir().unwrap();
        let door = door(dir.path()).await;
        let (mut through, mut appended) = (0, 0);
        for (lines, size, stored, kept) in [
            (700, before, 630, 70),
            (2_000, now, 1_800, 200),
            (2_000, before, 1_800, 200),
        ] {
            let kind = (Table::Logs, Some(origin()));
            let body = reader(0..lines, size);
            let progress = (through, &mut appended);
            let rows = door.store(kind, body, Some(request), progress).await.unwrap().rows;
            assert_eq!((rows.stored, rows.kept), (stored, kept), "{before} {now}");
            assert_eq!(door.engine.stats().appended_rows, stored + kept, "{before} {now}");
            through = u64::from(lines);
        }
        door.engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_which_only_refused_records_are_kept_counts_for_the_quota() {
    for (origin, kept) in [(None, 0), (Some(origin()), 1)] {
        let dir = tempfile::tempdir().unwrap();
        let door = door(dir.path()).await;
        let usage = crate::testing::no_quotas().of_token("sender", &QuotaOverrides::default());
        let begun = IngestRequest {
            table: Table::Logs,
            body: reader(3..4, 256),
            origin,
            counted: (Some(Arc::clone(&usage)), 4),
            held: None,
            through: 0,
            for_bucket: false,
        };
        let far = Instant::now() + Duration::from_secs(600);
        let rows = door.finish(begun, far).await.unwrap().rows;
        assert_eq!((rows.stored, rows.rejected_total, rows.kept), (0, 1, kept));
        let counted = usage.stored_today().bytes;
        assert!(counted >= 4 * kept && (counted == 0) == (kept == 0), "{counted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_counts_for_the_quota_by_its_bytes_or_those_of_its_rows_whichever_are_more() {
    let mut records = reader(0..3, 256).records;
    let mut rows = 0;
    while let Some(part) = records.next_part(256).unwrap() {
        rows += model::batch::slice_bytes(&part.batch) as u64;
    }
    for (sent, counted) in [(4, rows), (1 << 20, 1 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        let door = door(dir.path()).await;
        let usage = crate::testing::no_quotas().of_token("sender", &QuotaOverrides::default());
        let begun = IngestRequest {
            table: Table::Logs,
            body: reader(0..3, 256),
            origin: None,
            counted: (Some(Arc::clone(&usage)), sent),
            held: None,
            through: 0,
            for_bucket: false,
        };
        let far = Instant::now() + Duration::from_secs(600);
        assert_eq!(door.finish(begun, far).await.unwrap().rows.stored, 3);
        assert!(rows > 100 && usage.stored_today().bytes == counted, "{rows} {sent}");
    }
}

/// Keeps all threads that decode busy until it is dropped.
async fn busy(decoders: &DecoderPool) -> Vec<mpsc::Sender<()>> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut held = Vec::new();
    for _ in 0..threads {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (hold, held_by) = mpsc::channel::<()>();
        let decoders = decoders.clone();
        tokio::spawn(async move {
            let work = move || {
                begun.send(()).unwrap();
                held_by.recv().ok();
            };
            decoders.run(work).await
        });
        has_begun.await.unwrap();
        held.push(hold);
    }
    held
}

async fn begin(door: &IngestHandler, caller: &ApiCaller, request: Request) -> Result<IngestRequest, ApiProblem> {
    let (head, body) = request.into_parts();
    let answers = SenderAnswers {
        clock: Clock::new(Timestamp::default),
        otlp_entity: [].into(),
        loki_entity: [].into(),
        elasticsearch_entity: [].into(),
        prometheus_entity: [].into(),
    };
    let plan = records_plan((Table::Logs, caller), IngestParams::default(), &head.headers, &answers)?;
    door.begin(caller, plan, (&head, body)).await
}

fn lines(rows: usize) -> Request {
    let line = "{\"ts\":\"2027-01-15T08:00:00Z\",\"level\":\"info\",\"message\":\"a line\"}\n";
    let request = Request::post("/").header(telemetry_codec::CONTENT_TYPE, BatchEncoding::Ndjson.content_type());
    request.body(Body::from(line.repeat(rows))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_held_as_long_as_the_memory_is_also_when_the_client_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(dir.path()).await;
    let busy = busy(&door.decoders).await;
    let everything = ApiCaller::everybody();
    let mut request = Box::pin(begin(&door, &everything, lines(1_000)));
    assert!((&mut request).now_or_never().is_none(), "it waits for a decoder");
    let inbound = door.engine.inbound();
    let held = (inbound.bodies.held(), inbound.decoding.held());
    assert!(held.0 > 0 && held.1 > 0);
    drop(request);
    assert_eq!(
        (inbound.bodies.held(), inbound.decoding.held()),
        held,
        "the decoder has the body"
    );
    drop(busy);
    let given_back = async {
        while inbound.bodies.held() + inbound.decoding.held() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_timeout_says_whether_rows_may_be_stored() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(dir.path()).await;
    let begun = begin(&door, &ApiCaller::everybody(), lines(1_000)).await.unwrap();
    let busy = busy(&door.decoders).await;
    let late = door.finish(begun, Instant::now()).await.map(|_| ()).unwrap_err();
    let late = format!("{late:?}");
    assert!(late.contains("503") && late.contains("not known yet"), "{late}");
    drop(busy);
    door.storing.close();
    door.storing.wait().await;
    assert_eq!(door.engine.stats().appended_rows, 1_000, "it goes on");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(dir.path()).await;
    tokio::time::pause();
    // At the least rate, so it is not sent away for that.
    let chunks = futures::stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, std::convert::Infallible>(vec![b'\n'; 64 << 10]), ()))
    });
    let request = Request::post("/").header(telemetry_codec::CONTENT_TYPE, BatchEncoding::Ndjson.content_type());
    let request = request.body(Body::from_stream(chunks)).unwrap();
    let began = Instant::now();
    let slow = begin(&door, &ApiCaller::everybody(), request).await.map(|_| ());
    let slow = format!("{:?}", slow.unwrap_err());
    assert!(
        slow.contains("408") && slow.contains("nothing of it is stored"),
        "{slow}"
    );
    assert!(began.elapsed() < crate::api::MAX_TIME);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_body_that_was_cut_off_what_is_stored_counts_for_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(dir.path()).await;
    let usage = crate::testing::no_quotas().of_token("sender", &QuotaOverrides::default());
    let bytes = 100 << 20;
    let begun = IngestRequest {
        table: Table::Logs,
        body: reader(0..200_000, 256),
        origin: None,
        counted: (Some(Arc::clone(&usage)), bytes),
        held: None,
        through: 0,
        for_bucket: false,
    };
    let far = Instant::now() + Duration::from_secs(600);
    let (storing, engine) = (door.clone(), Arc::clone(&door.engine));
    let storing = tokio::spawn(async move { storing.finish(begun, far).await.map(|_| ()) });
    while engine.stats().appended_rows == 0 {
        tokio::task::yield_now().await;
    }
    engine.close().await.unwrap();
    let cut_off = format!("{:?}", storing.await.unwrap().unwrap_err());
    assert!(cut_off.contains("rows before are stored"), "{cut_off}");
    let counted = usage.stored_today().bytes;
    assert!(counted > 0 && counted < bytes, "{counted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decoded_of_a_body_takes_no_more_than_was_counted_before() {
    let dir = tempfile::tempdir().unwrap();
    let door = door(dir.path()).await;
    let nested = |length: usize, leaves: usize| {
        let values: serde_json::Map<_, _> = (0..leaves).map(|n| (n.to_string(), 0.into())).collect();
        let attributes = serde_json::json!({ "k".repeat(length): values });
        format!("{{\"ts\":\"2027-01-15T08:00:00Z\",\"level\":\"info\",\"message\":\"\",\"attributes\":{attributes}}}\n")
    };
    let usual = nested(8, 3);
    for (body, rows) in [
        (usual.repeat(2_000), 2_000),
        (nested(600, 90).repeat(300), 300),
        (nested(11_000, 1_400) + &usual, 1),
        // Of half a MiB just below 4 MiB when it is flat, and one above.
        (nested(60, 58_000), 1),
        (nested(130, 50_000) + &usual, 1),
    ] {
        let name = "n".repeat(telemetry_codec::MAX_ENTITY_NAME);
        let request = Request::post("/").header(telemetry_codec::CONTENT_TYPE, BatchEncoding::Ndjson.content_type());
        let request = request
            .header(telemetry_codec::ENTITY_NAME, name)
            .body(Body::from(body))
            .unwrap();
        let mut begun = begin(&door, &ApiCaller::everybody(), request).await.unwrap();
        let (inbound, mut read) = (door.engine.inbound(), 0);
        while let (_, Some(next)) = begun.body.next(Table::Logs, 0).unwrap() {
            let taken = next.batch.payload.len() + next.batch.rows.iter().map(model::batch::slice_bytes).sum::<usize>();
            assert!(
                taken as u64 <= inbound.decoding.held(),
                "{taken} in {}",
                inbound.decoding.held()
            );
            read += next.positions.len();
        }
        assert_eq!(read, rows);
    }
}
