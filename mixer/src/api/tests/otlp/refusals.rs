//! What is refused: the status of each row of the table of answers, said as the protocol says it.

use super::samples::body_of;
use super::*;

/// The code and the message of a refusal's body.
fn said(way: ExportWay, answer: &ExportAnswer) -> (u8, String) {
    match way {
        ExportWay::Grpc => {
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            assert!(answer.body.is_empty() && answer.trailers.is_empty(), "{answer:?}");
            (answer.code(), answer.header("grpc-message").to_owned())
        }
        // Who is not let in at all is told as everywhere.
        _ if answer.header("content-type") == "application/problem+json" => {
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            let code = match answer.status {
                StatusCode::UNAUTHORIZED => 16,
                StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => 7,
                other => panic!("{other} is told as OTLP does"),
            };
            (code, problem["detail"].as_str().unwrap().to_owned())
        }
        ExportWay::Json => {
            assert_eq!(answer.header("content-type"), "application/json");
            let status: Value = serde_json::from_slice(&answer.body).unwrap();
            let code = status["code"].as_u64().unwrap();
            (
                u8::try_from(code).unwrap(),
                status["message"].as_str().unwrap().to_owned(),
            )
        }
        ExportWay::Protobuf => {
            assert_eq!(answer.header("content-type"), "application/x-protobuf");
            let [0x08, code, 0x12, length, rest @ ..] = &answer.body[..] else {
                panic!("{answer:?}");
            };
            // The length has one byte, or two.
            let text = if *length < 0x80 { rest } else { &rest[1..] };
            (*code, String::from_utf8(text.to_vec()).unwrap())
        }
    }
}

/// That an answer refuses with a status over HTTP, or with a code of gRPC, for a reason.
fn assert_refused(way: ExportWay, answer: &ExportAnswer, (status, code): (u16, u8), reason: &str) {
    if way != ExportWay::Grpc {
        assert_eq!(answer.status.as_u16(), status, "{way:?} {answer:?}");
    }
    let (said_code, message) = said(way, answer);
    assert_eq!(said_code, code, "{way:?} {message}");
    assert!(message.contains(reason), "{way:?} {message:?}, not {reason:?}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_malformed_too_large_or_packed_in_an_unknown_way_is_refused_for_good() {
    let api = OtlpApi::new().await;
    let bomb = gzip(&vec![0; 65 << 20]);
    assert!(bomb.len() < 1 << 20);
    for way in ExportWay::ALL {
        let good = body(Table::Logs, way, &[(1, true)]);
        let packed = gzip(&good);
        let cut = &packed[..packed.len() / 2];
        for (encoding, is_packed, message, refused, reason) in [
            (
                "identity",
                false,
                &b"\xff\xff"[..],
                (400, 3),
                "the body is no OTLP request",
            ),
            (
                "identity",
                false,
                &good[..good.len() - 1],
                (400, 3),
                "the body is no OTLP request",
            ),
            ("gzip", true, &bomb[..], (413, 3), "larger than 67108864 bytes"),
            ("gzip", true, cut, (400, 3), ""),
            ("gzip", true, &good[..], (400, 3), ""),
            ("br", true, &packed[..], (415, 3), "is not supported: send gzip, zstd"),
        ] {
            let request = api.request(way, Table::Logs).header(way.encoding_header(), encoding);
            let answer = api.ask(way, request, way.framed(is_packed, message)).await;
            assert_refused(way, &answer, refused, reason);
        }
        let request = api.request(way, Table::Logs).header(way.encoding_header(), "gzip");
        let answer = api.ask(way, request, way.framed(true, &packed)).await;
        answer.message(way);
    }
    assert_eq!(
        api.count(Table::Logs).await,
        2,
        "as protobuf and as JSON; gRPC's is the first one again"
    );
    assert_eq!(api.count(Table::DeadLetters).await, 0);
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_the_content_type_says_how_and_another_one_is_415() {
    let api = OtlpApi::new().await;
    let good = body(Table::Logs, ExportWay::Protobuf, &[(1, true)]);
    let ask = |kind: Option<&str>| {
        let way = ExportWay::Protobuf;
        let request = Request::post("/v1/logs").header(header::HOST, api.address(way).to_string());
        let request = kind
            .into_iter()
            .fold(request, |request, kind| request.header(header::CONTENT_TYPE, kind));
        let request = with_token(request, &api.sender);
        let (address, good) = (api.address(way), good.clone());
        async move { ask_at(address, way, request, good.into()).await }
    };
    for kind in [
        None,
        Some("text/plain"),
        Some("application/cbor"),
        Some("application/x-ndjson"),
    ] {
        let answer = ask(kind).await;
        // What has no encoding of OTLP is answered as JSON.
        assert_refused(ExportWay::Json, &answer, (415, 3), "is none of OTLP's");
    }
    let answer = ask(Some("application/json")).await;
    assert_refused(ExportWay::Json, &answer, (400, 3), "as JSON");
    assert_eq!(api.count(Table::Logs).await, 0);
    // The control: the same bytes are good.
    for kind in ["application/x-protobuf", "Application/Protobuf;v=1"] {
        assert_eq!(ask(Some(kind)).await.status, StatusCode::OK, "{kind}");
    }
    assert_eq!(api.count(Table::Logs).await, 1);
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_refusal_is_whole_for_who_takes_packed_answers() {
    let api = OtlpApi::new().await;
    let long = "x".repeat(2_000);
    for way in ExportWay::ALL {
        let request = api.request(way, Table::Logs).header(way.encoding_header(), &long);
        let request = request.header(header::ACCEPT_ENCODING, "gzip, zstd");
        let answer = api.ask(way, request, way.framed(false, b"")).await;
        assert!(!answer.headers.contains_key(header::CONTENT_ENCODING), "{way:?}");
        assert_refused(way, &answer, (415, 3), &long);
    }
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_comes() {
    let api = OtlpApi::new().await;
    let address = api.address(ExportWay::Json);
    let token = api.sender.expose();
    let request = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 67108865\r\n\r\n"
    );
    let answer = send(address, &request).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert!(answer.has_header("connection", "close"), "{}", answer.head);
    assert_eq!(answer.json()["code"], 3, "{}", answer.body);
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_grpc_that_are_wrong_are_refused() {
    let api = OtlpApi::new().await;
    let way = ExportWay::Grpc;
    let good = body(Table::Logs, way, &[(1, true)]);
    let mut longer = way.framed(false, &good).to_vec();
    longer.push(0);
    let mut flagged = way.framed(false, &good).to_vec();
    flagged[0] = 2;
    for (frame, reason) in [
        (Bytes::new(), "ends before its message"),
        (Bytes::from_static(&[0, 0, 0]), "ends before its message"),
        (
            Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]),
            "not one message of the length",
        ),
        (Bytes::from(longer), "not one message of the length"),
        (Bytes::from(flagged), "is 0 or 1"),
        (way.framed(true, &good), "grpc-encoding does not say how"),
    ] {
        let answer = api.ask(way, api.request(way, Table::Logs), frame).await;
        assert_refused(way, &answer, (200, 3), reason);
    }
    for path in [
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Import",
        "/grpc.health.v1.Health/Check",
    ] {
        let request = with_token(api.bare_request(way, path), &api.sender);
        let answer = api.ask(way, request, way.framed(false, b"")).await;
        assert_refused(way, &answer, (200, 12), "");
    }
    assert_eq!(api.count(Table::Logs).await, 0);
    api.export(way, Table::Logs, &good).await.message(way);
    assert_eq!(api.count(Table::Logs).await, 1);
    api.close().await;
}

/// What `/metrics` says.
async fn metrics(api: &OtlpApi) -> String {
    let admin = api
        .api
        .token("admin", &[AccessRole::Admin], AccessScope::default())
        .await;
    let main = api.server.addr();
    let request = with_token(Request::get("/metrics"), &admin).header(header::HOST, main.to_string());
    let metrics = ask_at(main, ExportWay::Json, request, Bytes::new()).await;
    String::from_utf8(metrics.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_over_grpc_are_counted_with_the_status_that_they_have_over_http() {
    let api = OtlpApi::new().await;
    let way = ExportWay::Grpc;
    let good = body(Table::Logs, way, &[(1, true)]);
    api.export(way, Table::Logs, &good).await.message(way);
    api.export(way, Table::Logs, b"\xff\xff").await;
    let (_, _, service) = SIGNALS[0];
    api.ask(way, api.bare_request(way, service), Bytes::new()).await;
    let text = metrics(&api).await;
    for status in [200, 400, 401] {
        let line = format!(
            "platform_http_server_request_duration_seconds_count{{http_request_method=\"POST\",http_route=\"/v1/logs\",\
             http_response_status_code=\"{status}\"}} 1\n"
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_or_no_right_is_refused_and_nothing_is_stored() {
    let api = OtlpApi::new().await;
    for (table, path, service) in SIGNALS {
        for way in ExportWay::ALL {
            let path = if way == ExportWay::Grpc { service } else { path };
            let sent = way.framed(false, &body(table, way, &[(1, true)]));
            let answer = api.ask(way, api.bare_request(way, path), sent.clone()).await;
            assert_refused(way, &answer, (401, 16), "");
            let bad = api
                .bare_request(way, path)
                .header(header::AUTHORIZATION, "Bearer plt_1");
            let answer = api.ask(way, bad, sent.clone()).await;
            assert_refused(way, &answer, (401, 16), "");
            let reader = with_token(api.bare_request(way, path), &api.reader);
            let answer = api.ask(way, reader, sent).await;
            assert_refused(way, &answer, (403, 7), "the role reader does not allow it");
        }
        assert_eq!(api.count(table).await, 0);
    }
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_entities_that_a_token_may_not_write_are_refused_and_are_no_letters() {
    let api = OtlpApi::new().await;
    let scope = serde_json::from_value(json!({ "entities": ["press-1"] })).unwrap();
    let writer = api.api.token("writer", &[AccessRole::Ingester], scope).await;
    for (table, path, service) in SIGNALS {
        for (number, way) in (1..).zip(ExportWay::ALL) {
            let path = if way == ExportWay::Grpc { service } else { path };
            let own: &[(u8, bool)] = &[(10 * number, true)];
            let other: &[(u8, bool)] = &[(10 * number + 1, true)];
            let sent = body_of(table, way, &[("press-2", other), ("press-1", own)]);
            for _ in 0..2 {
                let request = with_token(api.bare_request(way, path), &writer);
                let answer = api.ask(way, request, way.framed(false, &sent)).await;
                let (rejected, reason) = partial(way, table, answer.message(way)).unwrap();
                assert_eq!(rejected, 1, "{reason}");
                let why = "record 0: the token may not store rows of the entity \"press-2\"";
                assert!(reason.starts_with(why), "{reason}");
            }
        }
        let stored = format!("SELECT entity_name, count(*) AS n FROM {table} GROUP BY entity_name");
        assert_eq!(api.select(&stored).await, json!([{ "entity_name": "press-1", "n": 3 }]));
        // Who may write both has the same body stored whole: it is another request.
        let way = ExportWay::Protobuf;
        let own: &[(u8, bool)] = &[(10, true)];
        let other: &[(u8, bool)] = &[(11, true)];
        let sent = body_of(table, way, &[("press-2", other), ("press-1", own)]);
        api.export(way, table, &sent).await.message(way);
        assert_eq!(api.count(table).await, 5);
    }
    assert_eq!(api.count(Table::DeadLetters).await, 0);
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_503_with_the_time_to_wait_and_never_429() {
    let quotas = CallerQuotas { requests: 2, ..QUOTAS };
    let api = OtlpApi::with(quotas, ("api.port", "0")).await;
    for (number, way) in (1..).zip(ExportWay::ALL) {
        let sent = body(Table::Logs, way, &[(number, true)]);
        let mut wait = None;
        for _ in 0..100 {
            let answer = api.export(way, Table::Logs, &sent).await;
            if answer.status == StatusCode::OK && !answer.headers.contains_key("grpc-status") {
                answer.message(way);
                continue;
            }
            wait = Some(answer.retry_seconds(way));
            assert!(said(way, &answer).1.contains("quotas.requests"), "{answer:?}");
            break;
        }
        let wait = wait.unwrap();
        assert!(wait > 0, "{way:?}");
        api.api.clock.forward(Duration::from_secs(wait));
        api.export(way, Table::Logs, &sent).await.message(way);
        api.api.clock.forward(Duration::from_secs(60));
    }
    // That a caller wants too much is no fault of the Mixer.
    let text = metrics(&api).await;
    let refused = "http_route=\"/v1/logs\",http_response_status_code=\"429\"} 3\n";
    assert!(text.contains(refused), "{text}");
    assert!(!text.contains("http_response_status_code=\"5"), "{text}");
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_beyond_a_quota_are_refused_with_the_time_to_wait() {
    let quotas = CallerQuotas {
        ingest: model::ByteSize::bytes(2_000),
        ..QUOTAS
    };
    let api = OtlpApi::with(quotas, ("api.port", "0")).await;
    let many: Vec<(u8, bool)> = (0..200).map(|number| (number, true)).collect();
    for way in ExportWay::ALL {
        for _ in 0..10 {
            // The first ones use up what may be sent at once.
            let answer = api.export(way, Table::Metrics, &body(Table::Metrics, way, &many)).await;
            if answer.status != StatusCode::OK || answer.headers.contains_key("grpc-status") {
                break;
            }
        }
        let answer = api
            .export(way, Table::Logs, &body(Table::Logs, way, &[(1, true)]))
            .await;
        let wait = answer.retry_seconds(way);
        assert!(said(way, &answer).1.contains("quotas.ingest_mb"), "{answer:?}");
        assert!(wait > 0, "{way:?}");
        api.api.clock.forward(Duration::from_secs(wait));
        let answer = api
            .export(way, Table::Logs, &body(Table::Logs, way, &[(1, true)]))
            .await;
        answer.message(way);
    }
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_room_is_503_and_unavailable() {
    let api = OtlpApi::with(QUOTAS, ("store.min_free_mb", "1073741824")).await;
    for way in ExportWay::ALL {
        let answer = api
            .export(way, Table::Logs, &body(Table::Logs, way, &[(1, true)]))
            .await;
        assert!(answer.retry_seconds(way) > 0, "{way:?}");
        assert!(said(way, &answer).1.contains("disk is almost full"), "{answer:?}");
    }
    api.close().await;
}
