//! Fuzz targets of ingest: telemetry as the bus delivers it, with its subject and headers.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. Rows of other encodings (`engine::fuzz`), and how
//! inputs are made (`model::fuzz`).

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use engine::BusPosition;
use model::Timestamp;
use model::fuzz::FuzzTarget;

use crate::decode::{InboundMessage, decode};

/// The largest body.
const MAX_PAYLOAD: usize = 4 << 10;
/// Where the head of an input ends.
const BLANK_LINE: &[u8] = b"\n\n";

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let head = "flux.telemetry.logs.press-1\nContent-Type: application/json\nFlux-Entity-Id: 0198a8b0-2d5e-7c3a-8f6b-0123456789ab\n\
        Flux-Boot-Epoch: 7\nFlux-Seq: 18446744073709551615\nFlux-Settled: 5\nFlux-Entity-Name: press-1";
    let body =
        r#"[{"ts":"2026-11-21T10:00:00Z","level":"info","message":"hello","attributes":{"a":{"b":[1,2.5,null]}}}]"#;
    vec![FuzzTarget::of_text(
        "wire.telemetry",
        &[&format!("{head}\n\n{body}")],
        |text| telemetry(text.as_bytes()),
    )]
}

/// Whether a message becomes rows: its subject, lines of headers, a blank line, its body. Anything else becomes a dead letter.
fn telemetry(bytes: &[u8]) -> bool {
    let end = bytes.windows(BLANK_LINE.len()).position(|window| window == BLANK_LINE);
    let (head, body) = bytes.split_at(end.unwrap_or(bytes.len()));
    let head = String::from_utf8_lossy(head);
    let (subject, lines) = head.split_once('\n').unwrap_or((&head, ""));
    let mut headers = HeaderMap::new();
    for (name, value) in lines.lines().filter_map(|line| line.split_once(": ")) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.append(name, value);
        }
    }
    let payload = Bytes::copy_from_slice(body.strip_prefix(BLANK_LINE).unwrap_or(body));
    let incoming = InboundMessage {
        subject,
        headers: &headers,
        payload: &payload,
        position: Some(BusPosition {
            stream: "flux-telemetry".into(),
            incarnation: 1,
            seq: 7,
            identity: 1,
        }),
    };
    let decoded = decode(&incoming, Timestamp::from_micros(1), MAX_PAYLOAD);
    assert!(decoded.is_ok(), "what cannot be decoded is a dead letter: {decoded:?}");
    decoded.is_ok_and(|decoded| decoded.dead.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_of_the_bus_ends_ingest() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
