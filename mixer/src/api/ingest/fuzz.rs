//! Fuzz targets of requests: their headers and parameters, and bodies that are packed.
//!
//! # Not here
//!
//! What is in a body: rows, which `engine::fuzz` reads. Requests as a whole: `make schema-check`.

use std::io::Write as _;

use engine::InboundMemory;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use model::Table;
use model::filter::{HistogramFilter, LogFilter, MessageFilter, MetricFilter, TraceFilter};
use model::fuzz::FuzzTarget;
use tokio::runtime::{Builder, Runtime};

use super::body::{self, IngestReservation, RequestCompression};
use super::grpc;
use super::headers::{encoding, publisher};
use super::idempotency_key::IdempotencyHeader;
use crate::api::authorization::bearer;
use crate::api::content_negotiation::accepted;
use crate::api::query_params::QueryParams;

/// The memory for bodies, of which the largest does not wait for room.
const ROOM: u64 = 256 << 20;

/// The targets.
pub(crate) fn fuzz_targets() -> Vec<FuzzTarget> {
    let text = b"{\"ts\":\"2026-11-21T12:30:00Z\",\"message\":\"a\"}\n".repeat(20);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let gzip = gzip.write_all(&text).and_then(|()| gzip.finish()).unwrap_or_default();
    let zstd = zstd::encode_all(&text[..], 1).unwrap_or_default();
    vec![
        packed("framing.gzip", RequestCompression::Gzip, gzip),
        packed("framing.zstd", RequestCompression::Zstd, zstd),
        frame(),
        headers(),
        parameters(),
    ]
}

fn packed(name: &'static str, packing: RequestCompression, sample: Vec<u8>) -> FuzzTarget {
    let runtime = Builder::new_current_thread().enable_time().build();
    FuzzTarget::new(name, vec![sample.repeat(2), sample], move |bytes| {
        let unpack = |runtime: &Runtime| {
            let mut room = IngestReservation::new(&InboundMemory::new(ROOM));
            runtime
                .block_on(body::unpack(packing, bytes.to_vec().into(), &mut room))
                .is_ok()
        };
        runtime.as_ref().is_ok_and(unpack)
    })
}

/// The frame of a message of gRPC: it is as long as it says, and packed only where it says how.
fn frame() -> FuzzTarget {
    let samples = vec![vec![0, 0, 0, 0, 0], vec![0, 0, 0, 0, 2, 7, 8], vec![1, 0, 0, 0, 1, 7]];
    FuzzTarget::new("framing.grpc", samples, |bytes| {
        let plain = grpc::message(RequestCompression::None, bytes.to_vec().into());
        assert!(plain.is_err() || bytes.first() == Some(&0), "it is packed in no way");
        let read = grpc::message(RequestCompression::Gzip, bytes.to_vec().into());
        read.is_ok_and(|(packing, message)| {
            assert_eq!(packing == RequestCompression::Gzip, bytes.first() == Some(&1));
            assert_eq!(bytes.get(5..), Some(&message[..]));
            true
        })
    })
}

/// A line is a header.
fn headers() -> FuzzTarget {
    let samples = [
        "flux-entity-name: press-1\nflux-entity-id: 0198a8b0-2d5e-7c3a-8f6b-0123456789ab\ncontent-type: application/x-ndjson\n\
         idempotency-key: order 7\ncontent-encoding: zstd\naccept: text/csv;q=0.5, application/json, */*;q=0\nauthorization: Bearer plt_0",
        "content-type: application/json\naccept: */*",
    ];
    FuzzTarget::of_text("http.headers", &samples, |text| {
        let mut headers = HeaderMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes())) {
                headers.append(name, value);
            }
        }
        let token = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| bearer(value.to_str().ok()?));
        assert!(token.is_none_or(|token| token.trim() == token));
        grpc::is_grpc(&headers);
        grpc::packing(&headers).ok();
        let is_accepted = accepted(&headers).is_ok() && body::packing(&headers).is_ok() && encoding(&headers).is_ok();
        publisher(&headers).is_ok_and(|publisher| {
            let key = IdempotencyHeader::of(&headers, Table::Logs, (&publisher, &std::collections::BTreeSet::new()));
            is_accepted && key.is_ok()
        })
    })
}

fn parameters() -> FuzzTarget {
    let samples = [
        "q=a%20b%2Bc+d&limit=7&level=warn&gear_id=%C3%A9&since=2026-11-21T10:00:00+02:00&until=1h",
        "attr.http.status=500&labels.a=b&interval=1m&fill=true&order=asc&offset=0",
        "",
    ];
    FuzzTarget::of_text("http.parameters", &samples, |query| {
        let Ok(mut params) = QueryParams::parse(query) else {
            return false;
        };
        params.take_format().ok();
        params.clone().filter::<LogFilter>().ok();
        params.clone().filter::<TraceFilter>().ok();
        params.clone().filter::<MetricFilter>().ok();
        params.clone().filter::<MessageFilter>().ok();
        params.filters::<LogFilter, HistogramFilter>().ok();
        true
    })
}
