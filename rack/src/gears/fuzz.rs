//! Fuzz targets of gears: frames, lines, codecs and headers.
//!
//! # Invariants
//!
//! - A stream is cut into the same pieces, however its bytes arrive.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`.

use axum::http::{HeaderMap, HeaderValue};
use futures::FutureExt;
use gear_spec::codec_csv::CodecCsvConfig;
use gear_spec::framing::StreamFraming;
use gear_spec::http_headers::FLUX_ID;
use model::fuzz::FuzzTarget;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::flux_headers::FluxHeaders;
use super::framing::{FrameFormat, FrameReader};
use super::http_request_line::StreamBeginning;
use super::{codec_cbor, codec_csv, file_tail, http_in, mqtt, syslog_in, window};

/// The longest frame.
const MAX_FRAME: usize = 1_000;

/// The targets of gears.
pub(crate) fn targets() -> Vec<FuzzTarget> {
    let mut all = mqtt::fuzz_targets();
    all.extend(http_in::fuzz_targets());
    all.extend(syslog_in::fuzz_targets());
    all.extend([file_tail::fuzz_position(), window::fuzz_page()]);
    all.extend([
        frames(
            "framing.line",
            json!({ "delimiter": "\\n" }),
            &[b"one\ntwo\n\n", b"GET /tag 1\n"],
        ),
        frames(
            "framing.delimiter",
            json!({ "delimiter": "aab\\xff" }),
            &[b"oneaab\xffaaab\xff"],
        ),
        frames(
            "framing.length_1",
            json!({ "length": { "bytes": 1 } }),
            &[b"\x03one\x00\x01x", b"\x05five."],
        ),
        frames(
            "framing.length_2",
            json!({ "length": { "bytes": 2, "order": "little" } }),
            &[b"\x03\x00one\x00\x00"],
        ),
        frames(
            "framing.length_4",
            json!({ "length": { "bytes": 4 } }),
            &[b"\x00\x00\x00\x03one\x00\x00\x00\x01x"],
        ),
        csv("framing.csv", json!({ "direction": "decode" })),
        csv(
            "framing.csv_text",
            json!({ "direction": "decode", "header": ["a", "b", "c"], "types": "text", "delimiter": ";" }),
        ),
        cbor(),
        FuzzTarget::of_text(
            "framing.json",
            &["{\"a\": [1, 2.5, null], \"b\": \"\\u00e4\"}"],
            |text| serde_json::from_slice::<serde_json::Value>(text.as_bytes()).is_ok(),
        ),
        FuzzTarget::of_text("names.flux_header", &["0193c3f2-7d1a-7000-8000-0123456789ab"], |text| {
            let value = HeaderValue::from_str(text);
            let headers: HeaderMap = value
                .into_iter()
                .filter_map(|value| Some((FLUX_ID.parse().ok()?, value)))
                .collect();
            FluxHeaders::read(&headers, true).is_ok_and(|read| read.is_some())
        }),
    ]);
    all
}

/// Frames of a stream, and whether it ended after one.
fn cut(format: &FrameFormat, (one, two): (&[u8], &[u8])) -> (Vec<Vec<u8>>, bool) {
    let mut stream = AsyncReadExt::chain(one, two);
    let mut reader = FrameReader::new(format.clone(), MAX_FRAME);
    let mut frames = Vec::new();
    loop {
        match reader.read(&mut stream).now_or_never() {
            Some(Ok(Some(frame))) => frames.push(frame),
            Some(Ok(None)) => return (frames, true),
            Some(Err(_)) | None => return (frames, false),
        }
    }
}

fn frames(name: &'static str, framing: serde_json::Value, samples: &[&[u8]]) -> FuzzTarget {
    let format = serde_json::from_value::<StreamFraming>(framing).map_err(|error| error.to_string());
    let format = format.and_then(|framing| FrameFormat::of(&framing));
    let samples = samples.iter().map(|sample| sample.to_vec()).collect();
    FuzzTarget::new(name, samples, move |bytes| {
        let Ok(format) = &format else { return false };
        StreamBeginning::of(bytes);
        let whole = cut(format, (bytes, &[]));
        assert_eq!(
            cut(format, bytes.split_at(bytes.len() / 2)),
            whole,
            "its pieces make a difference"
        );
        for frame in &whole.0 {
            // A body with a piece of the delimiter at its end is refused, and told so.
            if let Ok(written) = format.encode(frame) {
                assert_eq!(cut(format, (&written, &[])), (vec![frame.clone()], true));
            }
        }
        whole.1
    })
}

fn csv(name: &'static str, config: serde_json::Value) -> FuzzTarget {
    let config = serde_json::from_value::<CodecCsvConfig>(config);
    let samples = vec![
        b"a;b;c\r\n1;\"x \"\"y\"\"\n z\";\n".to_vec(),
        "d;e;f\n\n007;\u{e4};true\n".into(),
    ];
    FuzzTarget::new(name, samples, move |body| {
        let Ok(config) = &config else { return false };
        codec_csv::fuzz_body(config, body).is_ok()
    })
}

fn cbor() -> FuzzTarget {
    let value = json!({ "a": [1, -2.5, null, { "b": "\u{e4}" }] });
    let sample = model::message::value_to_cbor(&value).unwrap_or_default();
    let tagged = b"\xa2\x01\xc0\x4bbytes bytes\x61t\x9f\xf9\x7e\x00\xff".to_vec();
    FuzzTarget::new("framing.cbor", vec![sample, tagged], |bytes| {
        codec_cbor::read(bytes).is_ok()
    })
}
