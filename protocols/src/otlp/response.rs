//! OTLP's answers, written and read: what was rejected of a request, and why a request was refused.
//!
//! Source: `ExportLogsServiceResponse` and its siblings, whose fields have the same numbers; `google.rpc.Status`.

use std::time::Duration;

use super::OtlpEncoding;
use crate::MalformedProtobuf;
use crate::protobuf::{FieldReader, MessageField};

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

/// What an answer to a request says as protobuf: how many of its records were rejected, and why.
///
/// # Errors
/// If it is no such message.
pub fn rejected_of(answer: &[u8]) -> Result<(u64, String), MalformedProtobuf> {
    let (mut rejected, mut reason) = (0, String::new());
    let mut reader = FieldReader::new(answer, 0..answer.len());
    while let Some(field) = reader.next()? {
        if field.number != 1 {
            continue;
        }
        let mut partial = FieldReader::new(answer, field.range()?);
        while let Some(field) = partial.next()? {
            match field.number {
                1 => rejected = rejected_count(&field)?,
                2 => reason = String::from_utf8_lossy(field.bytes(answer)?).into_owned(),
                _ => {}
            }
        }
    }
    Ok((rejected, reason))
}

/// It is a signed number on the wire: one below zero rejects nothing.
fn rejected_count(field: &MessageField) -> Result<u64, MalformedProtobuf> {
    let count = field.varint()?;
    Ok(if i64::try_from(count).is_ok() { count } else { 0 })
}

/// How many records were rejected, as the beginning of a long answer says as protobuf: the number stands before the text. `None` if it
/// is not the beginning of such a message.
#[must_use]
pub fn rejected_of_start(start: &[u8]) -> Option<u64> {
    let mut partial = start.strip_prefix(&[1_u8 << 3 | 2])?;
    prost::encoding::decode_varint(&mut partial).ok()?;
    match FieldReader::new(partial, 0..partial.len()).next() {
        Ok(Some(field)) if field.number == 1 => rejected_count(&field).ok(),
        // The text, which goes on behind the beginning.
        _ => Some(0),
    }
}

/// What an answer to a request says as JSON: how many of its records were rejected, and why.
///
/// # Errors
/// If it is no such message.
pub fn rejected_of_json(answer: &[u8]) -> Result<(u64, String), serde_json::Error> {
    const COUNTS: [&str; 3] = ["rejectedLogRecords", "rejectedSpans", "rejectedDataPoints"];
    let answer: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(answer)?;
    let Some(partial) = answer.get("partialSuccess") else {
        return Ok((0, String::new()));
    };
    let rejected = COUNTS.iter().find_map(|name| {
        let count = partial.get(*name)?;
        // Numbers of 64 bits are texts, of some they are numbers.
        let text = count.as_str().and_then(|count| count.parse::<i64>().ok());
        u64::try_from(text.or_else(|| count.as_i64())?).ok()
    });
    let reason = partial.get("errorMessage").and_then(serde_json::Value::as_str);
    Ok((rejected.unwrap_or(0), reason.unwrap_or_default().to_owned()))
}

/// What a `google.rpc.Status` says: its message, and how long to wait before trying again.
///
/// # Errors
/// If it is no such message.
pub fn status_of(status: &[u8]) -> Result<(String, Option<Duration>), MalformedProtobuf> {
    let (mut message, mut wait) = (String::new(), None);
    let mut reader = FieldReader::new(status, 0..status.len());
    while let Some(field) = reader.next()? {
        match field.number {
            2 => message = String::from_utf8_lossy(field.bytes(status)?).into_owned(),
            3 => wait = retry_delay(status, field.range()?)?.or(wait),
            _ => {}
        }
    }
    Ok((message, wait))
}

/// The delay of a detail that is a `google.rpc.RetryInfo`.
fn retry_delay(status: &[u8], detail: std::ops::Range<usize>) -> Result<Option<Duration>, MalformedProtobuf> {
    let (mut kind, mut value) = (&[][..], 0..0);
    let mut reader = FieldReader::new(status, detail);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => kind = field.bytes(status)?,
            2 => value = field.range()?,
            _ => {}
        }
    }
    if !kind.ends_with(b"google.rpc.RetryInfo") {
        return Ok(None);
    }
    let mut delay = Duration::ZERO;
    let mut reader = FieldReader::new(status, value);
    while let Some(field) = reader.next()? {
        if field.number != 1 {
            continue;
        }
        let mut reader = FieldReader::new(status, field.range()?);
        while let Some(field) = reader.next()? {
            match field.number {
                1 => delay += Duration::from_secs(field.varint()?.min(u64::from(u32::MAX))),
                2 => delay += Duration::from_nanos(field.varint()?.min(999_999_999)),
                _ => {}
            }
        }
    }
    Ok(Some(delay))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_answered_is_read_again() {
        let partial = export_response(OtlpEncoding::Protobuf, model::Table::Logs, 3, "no name");
        assert_eq!(rejected_of(&partial).unwrap(), (3, "no name".to_owned()));
        assert_eq!(rejected_of(&[]).unwrap(), (0, String::new()));
        let later = retry_status(OtlpEncoding::Protobuf, 14, "full", 7);
        let wait = Some(Duration::from_secs(7));
        assert_eq!(status_of(&later).unwrap(), ("full".to_owned(), wait));
        let plain = status(OtlpEncoding::Protobuf, 3, "bad");
        assert_eq!(status_of(&plain).unwrap(), ("bad".to_owned(), None));
        for cut in 1..later.len() {
            // Never a panic; what is cut within a field is no message.
            let _ = (status_of(&later[..cut]), rejected_of(&later[..cut]));
        }
        assert!(status_of(b"<html>").is_err());
        // -1 as a signed number.
        let below = bytes_field(1, &number_field(1, u64::MAX));
        assert_eq!(rejected_of(&below).unwrap(), (0, String::new()));
    }

    #[test]
    fn the_beginning_of_a_long_answer_says_how_many_records_were_rejected() {
        let text = bytes_field(2, "no name; ".repeat(10_000).as_bytes());
        for (partial, wanted) in [
            ([number_field(1, 3), text.clone()].concat(), Some(3)),
            ([number_field(1, u64::MAX), text.clone()].concat(), Some(0)),
            (text, Some(0)),
        ] {
            let answer = bytes_field(1, &partial);
            assert!(rejected_of(&answer[..64 << 10]).is_err());
            assert_eq!(rejected_of_start(&answer[..64 << 10]), wanted);
        }
        assert_eq!(rejected_of_start(b"<html>"), None);
        assert_eq!(rejected_of_start(&[]), None);
    }

    #[test]
    fn what_is_answered_as_json_is_read_again() {
        for signal in [model::Table::Logs, model::Table::Traces, model::Table::Metrics] {
            let partial = export_response(OtlpEncoding::Json, signal, 3, "no name");
            assert_eq!(rejected_of_json(&partial).unwrap(), (3, "no name".to_owned()));
        }
        for nothing in [
            &b"{}"[..],
            br#"{"partialSuccess":{}}"#,
            br#"{"partialSuccess":{"rejectedSpans":-1}}"#,
        ] {
            assert_eq!(rejected_of_json(nothing).unwrap(), (0, String::new()));
        }
        assert!(rejected_of_json(b"<html>").is_err() && rejected_of_json(b"[]").is_err());
    }
}
