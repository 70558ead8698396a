//! Records that `otlp_in` refused: the first of a request are letters, each once and no larger than the bus takes, and none goes back.

use std::time::{SystemTime, UNIX_EPOCH};

use model::message::Message;
use model::telemetry_codec::{HEADER_ROOM, KEPT};

use super::*;
use crate::flux::door;
use crate::otlp::select;

const SCENARIO: &str = "meta: { name: otlp, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: collector, type: otlp_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }\n";
/// A body that the bus takes: `max_payload_size` and what it lets every message have beyond, without the room of the headers.
const LARGEST: usize = (2 << 20) + (64 << 10) - HEADER_ROOM;
/// Records of a request that are refused, more than are kept.
const REFUSED: usize = KEPT + 3;

/// A span whose ids are one byte again and again; zeros are none.
struct SentSpan {
    trace: u8,
    id: u8,
    name: String,
    /// In nanoseconds.
    start: u64,
}

impl SentSpan {
    fn json(&self) -> Value {
        let (trace, id) = (hex(self.trace).repeat(16), hex(self.id).repeat(8));
        json!({ "traceId": trace, "spanId": id, "name": self.name, "startTimeUnixNano": self.start.to_string() })
    }

    /// As a letter has it: OTLP's fields 1, 2, 5 and 7.
    fn protobuf(&self) -> Vec<u8> {
        let (trace, id, name) = ([self.trace; 16], [self.id; 8], self.name.as_bytes());
        let length = [0x2a, u8::try_from(name.len()).unwrap()];
        let parts: [&[u8]; 8] = [
            &[0x0a, 16],
            &trace,
            &[0x12, 8],
            &id,
            &length,
            name,
            &[0x39],
            &self.start.to_le_bytes(),
        ];
        parts.concat()
    }
}

fn hex(byte: u8) -> String {
    format!("{byte:02x}")
}

/// The places and bytes of the records whose letters are whole messages.
fn records(mixer: &TestMixer) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
    let rows = mixer.api.all_rows("/api/v1/telemetry/dead_letters?since=1h")?;
    let record = |row: &Letter| {
        let body = model::hex::decode(row["payload"].as_str()?)?;
        let message = Message::from_cbor(&body).ok()?;
        Some((message.meta.get("record")?.as_u64()?, message.raw))
    };
    let mut records: Vec<_> = rows.iter().filter_map(record).collect();
    records.sort();
    Ok(records)
}

#[test]
fn records_that_otlp_in_refuses_are_bounded_letters_once_and_do_not_go_back() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(SCENARIO)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let door = door(&mixer, "collector")?;
    let refused = |spans: &[SentSpan]| -> Result<Value, Failure> {
        let spans: Vec<_> = spans.iter().map(SentSpan::json).collect();
        let request = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] });
        let answer = door.post("/traces", &request)?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Ok(answer.json["partialSuccess"]["rejectedSpans"].clone())
    };
    let start = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let span = |trace, id, name: String| SentSpan { trace, id, name, start };
    let good = |name: &str| span(1, 2, name.to_owned());
    let bad = |number: usize| span(0, 2, format!("bad {number}"));

    assert_eq!(refused(&[good("alone")])?, Value::Null);
    let mut many = vec![good("before")];
    many.extend((1..=REFUSED).map(bad));
    many.push(good("behind"));
    // The second time it is known.
    for _ in 0..2 {
        assert_eq!(refused(&many)?, REFUSED.to_string());
    }
    assert_eq!(refused(&[span(0, 2, "x".repeat(3 << 20))])?, "1");
    let last = [span(1, 0, "last".to_owned())];
    assert_eq!(refused(&last)?, "1");

    // They leave in their order.
    let letter = letters(&mixer, "reason=span_id", 1)?.remove(0);
    letters(&mixer, "state=all&limit=10000", KEPT + 2)?;
    let place = ["kind", "rack", "gear", "port", "way"].map(|key| &letter[key]);
    assert_eq!(place, ["gear", "rack-a", "collector", "traces", "in"]);
    let mut wanted: Vec<(u64, Vec<u8>)> = vec![(0, last[0].protobuf())];
    wanted.extend((1..).zip(&many[1..=KEPT]).map(|(place, span)| (place, span.protobuf())));
    assert_eq!(records(&mixer)?, wanted, "the first of the request");

    let large = letters(&mixer, "reason=could%20be%20kept", 1)?.remove(0);
    let says = format!("of them only the first {LARGEST} could be kept");
    assert_eq!(
        (&large["bytes"], &large["replayable"]),
        (&json!(LARGEST), &json!(false))
    );
    assert!(large["reason"].as_str().unwrap().ends_with(&says), "{large:?}");

    let back = mixer
        .api
        .post(&format!("/api/v1/dlq/{}/replay", id(&letter)), &json!({}))?;
    assert_eq!(
        (back.status, &back.json["code"]),
        (409, &json!("letter_refused")),
        "{}",
        back.text
    );
    assert!(back.text.contains("which has no port traces"), "{}", back.text);

    let stored = eventually("the good ones", SOON, || {
        let rows = select(&mixer, "SELECT span_name FROM traces ORDER BY span_name").ok()?;
        (rows.len() >= 3).then_some(rows)
    })?;
    let named = |name: &str| json!({ "span_name": name });
    assert_eq!(stored, ["alone", "before", "behind"].map(named));
    Ok(())
}
