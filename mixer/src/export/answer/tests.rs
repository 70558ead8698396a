//! What statuses, codes and bodies of answers mean.
#![allow(clippy::unwrap_used, reason = "tests")]
use http::HeaderName;
use protocols::otlp::{OtlpEncoding, export_response, retry_status};

use super::*;
use protocols::grpc::frame;

fn response(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> CollectorResponse {
    let headers = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
    CollectorResponse {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers.collect(),
        trailers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body),
        is_cut: false,
    }
}

fn kind(answer: &ExportAnswer) -> &'static str {
    match answer {
        ExportAnswer::Accepted { .. } => "accepted",
        ExportAnswer::Later { .. } => "later",
        ExportAnswer::Unanswered { .. } => "unanswered",
        ExportAnswer::Denied { .. } => "denied",
        ExportAnswer::TooLarge { .. } => "too large",
        ExportAnswer::Invalid { .. } => "invalid",
        ExportAnswer::Refused { .. } => "refused",
    }
}

#[test]
fn statuses_of_http_mean_what_the_protocol_says() {
    for (statuses, wanted) in [
        (&[200, 202, 204][..], "accepted"),
        (&[425, 429, 503, 521, 522, 523, 525, 526, 527, 529, 530][..], "later"),
        (&[408, 502, 504, 520, 524][..], "unanswered"),
        (&[302, 401, 402, 403, 404, 405, 406, 407, 410, 411][..], "denied"),
        (&[415, 421, 426, 431, 451, 505, 511][..], "denied"),
        (&[413][..], "too large"),
        (&[400][..], "invalid"),
        (&[409, 412, 422, 500, 501, 507][..], "refused"),
    ] {
        for status in statuses {
            let body: &[u8] = if wanted == "accepted" { &[] } else { b"<html>" };
            let answer = response(*status, &[], body).judge(CollectorProtocol::Http, Timestamp::default());
            assert_eq!(kind(&answer), wanted, "{status}");
        }
    }
    for (status, wanted) in [
        (400, "later"),
        (402, "denied"),
        (413, "too large"),
        (504, "unanswered"),
        (529, "later"),
    ] {
        let answer = response(status, &[], b"<html>").judge(CollectorProtocol::Grpc, Timestamp::default());
        assert_eq!(kind(&answer), wanted, "{status} in place of gRPC");
    }
    let later = response(503, &[("retry-after", "7")], b"full\n").judge(CollectorProtocol::Http, Timestamp::default());
    let wanted = ExportAnswer::Later {
        reason: "503 Service Unavailable: full".to_owned(),
        wait: Some(Duration::from_secs(7)),
    };
    assert_eq!(later, wanted);
    let partial = export_response(OtlpEncoding::Protobuf, model::Table::Logs, 2, "too old");
    let accepted = response(200, &[], &partial).judge(CollectorProtocol::Http, Timestamp::default());
    let wanted = ExportAnswer::Accepted {
        rejected: 2,
        reason: "too old".to_owned(),
    };
    assert_eq!(accepted, wanted);
}

#[test]
fn a_success_that_is_no_answer_of_otlp_is_no_acceptance() {
    let partial = export_response(OtlpEncoding::Json, model::Table::Logs, 2, "too old");
    let html = b"<html>Log in</html>";
    let cases: [(&str, &[u8], &str); 6] = [
        ("text/html; charset=utf-8", html, "denied"),
        ("application/x-protobuf", html, "denied"),
        ("application/json", html, "denied"),
        ("text/plain", &[], "accepted"),
        ("application/json;charset=utf-8", b"{}", "accepted"),
        ("Application/JSON", &partial, "accepted"),
    ];
    for (kind, body, wanted) in cases {
        let answer = response(200, &[("content-type", kind)], body);
        let answer = answer.judge(CollectorProtocol::Http, Timestamp::default());
        assert_eq!(self::kind(&answer), wanted, "{kind}");
        if body == partial {
            assert!(
                matches!(answer, ExportAnswer::Accepted { rejected: 2, .. }),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn a_400_is_about_the_request_whatever_it_says() {
    let status = protocols::otlp::status(OtlpEncoding::Protobuf, 3, "bad timestamp");
    for (kind, body) in [
        (Some("application/x-protobuf"), &status[..]),
        (Some("text/plain"), &b"label url=\"see https://x \" is too long"[..]),
        (Some("text/html"), &b"<html>"[..]),
        (None, &b"out of order sample"[..]),
        (None, &[][..]),
    ] {
        let headers: Vec<_> = kind.map(|kind| ("content-type", kind)).into_iter().collect();
        let answer = response(400, &headers, body).judge(CollectorProtocol::Http, Timestamp::default());
        assert_eq!(
            self::kind(&answer),
            "invalid",
            "{kind:?} {}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn records_that_were_rejected_are_seen_however_the_message_is_packed() {
    let partial = export_response(OtlpEncoding::Protobuf, model::Table::Logs, 2, "too old");
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, plain).unwrap();
        encoder.finish().unwrap()
    };
    let packed = gzip(&partial);
    // Much more than is kept, in few bytes; its number stands before the text.
    let text = "x".repeat(1 << 20);
    let long = [&b"\x0a\x86\x80\x40\x08\x03\x12\x80\x80\x40"[..], text.as_bytes()].concat();
    let long = gzip(&long);
    assert!(long.len() < MAX_ANSWER);
    let (gzip, none) = (Some("gzip"), None);
    let cases = [
        (gzip, true, &packed[..], 2, "too old"),
        (gzip, false, &partial[..], 2, "too old"),
        (none, false, &[][..], 0, ""),
        (gzip, true, &long[..], 3, UNREADABLE),
        (none, true, &packed[..], UNKNOWN, UNREADABLE),
        (Some("zstd"), true, &packed[..], UNKNOWN, UNREADABLE),
        (none, false, &b"<html>"[..], UNKNOWN, UNREADABLE),
    ];
    for (packing, is_packed, message, rejected, reason) in cases {
        let headers = [("grpc-status", Some("0")), (ENCODING, packing)];
        let headers: Vec<_> = headers
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        let answer = response(200, &headers, &frame(is_packed, message));
        let wanted = ExportAnswer::Accepted {
            rejected,
            reason: reason.to_owned(),
        };
        let answer = answer.judge(CollectorProtocol::Grpc, Timestamp::default());
        assert_eq!(answer, wanted, "{packing:?} {is_packed}");
    }
    // A frame that ends before its message.
    let framed = frame(false, &partial);
    let half = response(200, &[("grpc-status", "0")], &framed[..framed.len() - 1]);
    let half = half.judge(CollectorProtocol::Grpc, Timestamp::default());
    assert!(
        matches!(half, ExportAnswer::Accepted { rejected: UNKNOWN, .. }),
        "{half:?}"
    );
}

#[test]
fn codes_of_grpc_mean_what_the_protocol_says() {
    let judge = |headers: &[(&'static str, &str)], body: &[u8]| {
        response(200, headers, body).judge(CollectorProtocol::Grpc, Timestamp::default())
    };
    for (codes, wanted) in [
        (&["1", "10", "11", "14", "15"][..], "later"),
        (&["4"][..], "unanswered"),
        (&["7", "12", "16"][..], "denied"),
        (&["3"][..], "invalid"),
        (&["2", "5", "6", "8", "9", "13"][..], "refused"),
        (&["0"][..], "accepted"),
    ] {
        for code in codes {
            assert_eq!(kind(&judge(&[("grpc-status", *code)], &[])), wanted, "{code}");
        }
    }
    assert_eq!(kind(&judge(&[], &[])), "unanswered", "a stream that was cut");
    for (code, said) in [
        ("8", "grpc: received message larger than max (5 vs. 4)"),
        ("8", "gRPC message exceeds maximum size 4: 5"),
        (
            "11",
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
        ),
    ] {
        let answer = judge(&[("grpc-status", code), ("grpc-message", said)], &[]);
        assert_eq!(kind(&answer), "too large", "{said}");
    }
    let details = STANDARD_NO_PAD.encode(retry_status(OtlpEncoding::Protobuf, 8, "full", 9));
    let full = judge(
        &[
            ("grpc-status", "8"),
            ("grpc-message", "full%20up%"),
            ("grpc-status-details-bin", details.as_str()),
        ],
        &[],
    );
    let wanted = ExportAnswer::Later {
        reason: "gRPC status 8: full up%".to_owned(),
        wait: Some(Duration::from_secs(9)),
    };
    assert_eq!(full, wanted);
    let partial = export_response(OtlpEncoding::Protobuf, model::Table::Logs, 1, "no");
    let accepted = judge(&[("grpc-status", "0")], &frame(false, &partial));
    assert!(
        matches!(accepted, ExportAnswer::Accepted { rejected: 1, .. }),
        "{accepted:?}"
    );
    let proxy = response(503, &[], &[]).judge(CollectorProtocol::Grpc, Timestamp::default());
    assert_eq!(kind(&proxy), "later");
}

#[test]
fn an_answer_that_is_too_long_is_judged_by_its_status_and_its_beginning() {
    // Two are rejected, and the text goes on behind what was kept.
    let start = [
        &[0x0a, 0xff, 0xff, 0x07, 0x08, 2, 0x12, 0xff, 0xff, 0x07][..],
        &[b'x'; 99][..],
    ]
    .concat();
    let cut = |status, headers: &[(&'static str, &str)], body: &[u8]| CollectorResponse {
        is_cut: true,
        ..response(status, headers, body)
    };
    let (http, grpc) = (CollectorProtocol::Http, CollectorProtocol::Grpc);
    let accepted = |rejected| ExportAnswer::Accepted {
        rejected,
        reason: UNREADABLE.to_owned(),
    };
    let now = Timestamp::default();
    for kind in ["application/x-protobuf", "Application/X-Protobuf"] {
        let answer = cut(200, &[("content-type", kind)], &start);
        assert_eq!(answer.judge(http, now), accepted(2));
    }
    assert_eq!(cut(200, &[], &start).judge(http, now), accepted(2));
    let json = cut(200, &[("content-type", "application/json")], b"{\"partialSuccess\":");
    assert_eq!(json.judge(http, now), accepted(UNKNOWN), "how many is not known");
    let framed = [&[0, 0, 1, 0xff, 0xff][..], &start[..]].concat();
    assert_eq!(cut(200, &[("grpc-status", "0")], &framed).judge(grpc, now), accepted(2));
    for (status, headers, wanted) in [
        (200, ("content-type", "text/html"), "denied"),
        (200, ("content-type", "application/x-protobuf"), "denied"),
        (503, ("content-type", "text/html"), "later"),
        (500, ("content-type", "text/html"), "refused"),
    ] {
        let answer = cut(status, &[headers], b"<html>").judge(http, now);
        assert_eq!(kind(&answer), wanted, "{status} {headers:?}");
    }
}
