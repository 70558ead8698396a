//! What memory a puller reserves for a message.

use super::*;
use crate::settings::ArchiveSource;

fn of_kind(content_type: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(telemetry_codec::CONTENT_TYPE, content_type);
    headers
}

#[test]
fn memory_is_reserved_for_the_values_of_messages_and_for_the_rows_of_telemetry() {
    let messages = IngestSource::Messages(ArchiveSource {
        stream: "flux".to_owned(),
        subjects: Vec::new(),
        keeps_messages: true,
    });
    // With the content type that Racks send, and without one, as others send them.
    let cbor = of_kind(BatchEncoding::Cbor.content_type());
    let objects = [&[0x99, 0x27, 0x10][..], &[0xa0; 10_000]].concat();
    for headers in [Some(&cbor), None] {
        let weight = estimate_memory(&messages, headers, &objects);
        assert!(
            weight >= 3 * 10_003 + telemetry_codec::value_bytes(&objects),
            "{weight}"
        );
    }
    let usual = [&[0x79, 0x03, 0xe8][..], &[b'x'; 1_000]].concat();
    let few = estimate_memory(&messages, Some(&cbor), &usual);
    assert!(few < 4 * usual.len() as u64, "{few}");

    let as_telemetry = |encoding: BatchEncoding| {
        estimate_memory(
            &IngestSource::Telemetry,
            Some(&of_kind(encoding.content_type())),
            &usual,
        )
    };
    let length = usual.len() as u64;
    assert_eq!(
        as_telemetry(BatchEncoding::Arrow),
        3 * length,
        "nothing in it is compressed"
    );
    let rows = telemetry_codec::decoded_bytes(BatchEncoding::Cbor, &usual);
    assert_eq!(as_telemetry(BatchEncoding::Cbor), length + 2 * rows);
}
