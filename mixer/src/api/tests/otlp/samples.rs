//! Requests of OTLP by hand: records that are good, and records that lack what they must have.

use super::*;

/// The service of all records, which names their entity.
pub(super) const SERVICE: &str = "shop";

/// Why the bad record of a signal is refused.
pub(super) const fn reason(table: Table) -> &'static str {
    match table {
        Table::Traces => "a trace id of 32 hex digits",
        Table::Metrics => "the point has no value",
        _ => "trace_id has 3 bytes, not 16",
    }
}

/// A request with records by their numbers, and whether they are good.
pub(super) fn body(table: Table, way: ExportWay, records: &[(u8, bool)]) -> Vec<u8> {
    body_of(table, way, &[(SERVICE, records)])
}

/// The same of several services.
pub(super) fn body_of(table: Table, way: ExportWay, services: &[(&str, &[(u8, bool)])]) -> Vec<u8> {
    if way == ExportWay::Json {
        return json_body(table, services).to_string().into_bytes();
    }
    let resources = services.iter().map(|(service, records)| {
        let records = records.iter().map(|(number, is_good)| {
            let record = match table {
                Table::Traces => span(*number, *is_good),
                Table::Metrics => gauge(*number, *is_good),
                _ => log_record(*number, *is_good),
            };
            nested(2, &record)
        });
        let records: Vec<u8> = records.flatten().collect();
        let attribute = [nested(1, b"service.name"), nested(2, &nested(1, service.as_bytes()))].concat();
        let resource = nested(1, &nested(1, &attribute));
        nested(1, &[resource, nested(2, &records)].concat())
    });
    resources.flatten().collect()
}

/// A message, a text or bytes as a field.
fn nested(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    field.extend_from_slice(bytes);
    field
}

fn fixed64(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()[..]].concat()
}

/// A time of now, the same in all tests of a process: a request that is made again is the same.
fn time() -> u64 {
    static TIME: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *TIME.get_or_init(|| u64::try_from(chassis::system_clock().now().micros()).unwrap() * 1_000)
}

pub(super) fn log_record(number: u8, is_good: bool) -> Vec<u8> {
    let record = [
        fixed64(1, time()),
        nested(5, &nested(1, format!("line {number}").as_bytes())),
    ]
    .concat();
    let bad_id = if is_good { Vec::new() } else { nested(9, &[1; 3]) };
    [record, bad_id].concat()
}

fn span(number: u8, is_good: bool) -> Vec<u8> {
    let trace_id = if is_good { nested(1, &[number; 16]) } else { Vec::new() };
    let rest = [
        nested(2, &[number; 8]),
        nested(5, b"GET /"),
        fixed64(7, time()),
        fixed64(8, time() + 1_000_000),
    ];
    [trace_id, rest.concat()].concat()
}

fn gauge(number: u8, is_good: bool) -> Vec<u8> {
    let value = if is_good {
        fixed64(4, f64::from(number).to_bits())
    } else {
        Vec::new()
    };
    let point = [fixed64(3, time()), value].concat();
    [nested(1, b"load"), nested(5, &nested(1, &point))].concat()
}

fn json_body(table: Table, services: &[(&str, &[(u8, bool)])]) -> Value {
    let (resources, scopes, records) = match table {
        Table::Traces => ("resourceSpans", "scopeSpans", "spans"),
        Table::Metrics => ("resourceMetrics", "scopeMetrics", "metrics"),
        _ => ("resourceLogs", "scopeLogs", "logRecords"),
    };
    let time = |later: u64| (time() + later).to_string();
    let record = |(number, is_good): &(u8, bool)| match table {
        Table::Traces => json!({
            "traceId": if *is_good { format!("{number:02x}").repeat(16) } else { String::new() },
            "spanId": format!("{number:02x}").repeat(8),
            "name": "GET /",
            "startTimeUnixNano": time(0),
            "endTimeUnixNano": time(1_000_000),
        }),
        Table::Metrics => {
            let mut point = json!({ "timeUnixNano": time(0) });
            if *is_good {
                point["asDouble"] = json!(f64::from(*number));
            }
            json!({ "name": "load", "gauge": { "dataPoints": [point] } })
        }
        _ => json!({
            "timeUnixNano": time(0),
            "body": { "stringValue": format!("line {number}") },
            "traceId": if *is_good { "" } else { "010101" },
        }),
    };
    let resource = |(service, sent): &(&str, &[(u8, bool)])| {
        let sent: Vec<Value> = sent.iter().map(record).collect();
        json!({
            "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] },
            scopes: [{ records: sent }],
        })
    };
    let all: Vec<Value> = services.iter().map(resource).collect();
    json!({ resources: all })
}
