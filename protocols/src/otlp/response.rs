//! OTLP's answers: what was rejected of a request, and why a request was refused.
//!
//! Source: `ExportLogsServiceResponse` and its siblings, whose fields have the same numbers; `google.rpc.Status`.

use super::OtlpEncoding;

/// What is said of rejected records at most.
const PARTIAL_MESSAGE_CHARS: usize = 1_000;

/// A field of a message with its length before it.
fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn number_field(number: u8, value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    prost::encoding::encode_varint(value, &mut field);
    field
}

/// The answer to a request that was taken: how many records were rejected, and why the first of them.
#[must_use]
pub fn export_response(encoding: OtlpEncoding, signal: model::Table, rejected: u64, reason: &str) -> Vec<u8> {
    let reason: String = reason.chars().take(PARTIAL_MESSAGE_CHARS).collect();
    match encoding {
        _ if rejected == 0 && encoding == OtlpEncoding::Protobuf => Vec::new(),
        OtlpEncoding::Protobuf => {
            let partial = [number_field(1, rejected), bytes_field(2, reason.as_bytes())].concat();
            bytes_field(1, &partial)
        }
        OtlpEncoding::Json if rejected == 0 => b"{}".to_vec(),
        OtlpEncoding::Json => {
            let name = match signal {
                model::Table::Traces => "rejectedSpans",
                model::Table::Metrics => "rejectedDataPoints",
                _ => "rejectedLogRecords",
            };
            // 64-bit numbers are texts in the JSON mapping.
            let partial = serde_json::json!({ name: rejected.to_string(), "errorMessage": reason });
            serde_json::json!({ "partialSuccess": partial })
                .to_string()
                .into_bytes()
        }
    }
}

/// A `google.rpc.Status`: a code of gRPC and a message.
#[must_use]
pub fn status(encoding: OtlpEncoding, code: u8, message: &str) -> Vec<u8> {
    match encoding {
        OtlpEncoding::Protobuf => [number_field(1, code.into()), bytes_field(2, message.as_bytes())].concat(),
        OtlpEncoding::Json => serde_json::json!({ "code": code, "message": message })
            .to_string()
            .into_bytes(),
    }
}

/// The same with the seconds to wait before trying again, as `google.rpc.RetryInfo`.
#[must_use]
pub fn retry_status(encoding: OtlpEncoding, code: u8, message: &str, seconds: u32) -> Vec<u8> {
    const KIND: &str = "type.googleapis.com/google.rpc.RetryInfo";
    let mut whole = status(encoding, code, message);
    if encoding == OtlpEncoding::Protobuf {
        let delay = bytes_field(1, &number_field(1, seconds.into()));
        let detail = [bytes_field(1, KIND.as_bytes()), bytes_field(2, &delay)].concat();
        whole.extend(bytes_field(3, &detail));
    }
    whole
}
