//! What a collector's answer means for the request that it is to.
//!
//! | answer | over HTTP | over gRPC | then |
//! |---|---|---|---|
//! | accepted | 2xx | `OK` | settled; what it rejected of it is a dead letter |
//! | later | 425, 429, 503, 521 to 530 but for 524; nobody there | `CANCELLED`, `ABORTED`, `OUT_OF_RANGE`, `UNAVAILABLE`, `DATA_LOSS`, `RESOURCE_EXHAUSTED` with a delay; nobody there | sent again |
//! | unanswered | 408, 502, 504, 520, 524, none | `DEADLINE_EXCEEDED`, none | sent again; after a few times in halves |
//! | denied | 401 to 407, 410, 411, 415, 421, 426, 431, 451, 505, 511, 3xx; 2xx with what is no answer of OTLP | `UNAUTHENTICATED`, `PERMISSION_DENIED`; `UNIMPLEMENTED` | sent again: an operator mends it |
//! | too large | 413 | `RESOURCE_EXHAUSTED` or `OUT_OF_RANGE` that says so | sent in two halves |
//! | invalid | 400 | `INVALID_ARGUMENT` | sent in halves, a few times: a record of it may be to blame |
//! | refused | any other | any other | a dead letter |
//!
//! What is before a collector answers with the same statuses over gRPC; any other one is later there. An `OK` whose message cannot be read
//! is accepted, and who knows how many records of it were rejected.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, "Failures".

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use chassis::retry_after::{MAX_RETRY_AFTER, parse_retry_after};
use flate2::read::GzDecoder;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use model::Timestamp;
use protocols::otlp::{PROTOBUF, rejected_of, rejected_of_json, rejected_of_start, status_of};

use super::endpoint::CollectorProtocol;
use protocols::grpc::{self, ENCODING, code};

/// So much of what a collector says is shown.
const SHOWN: usize = 300;
/// What is said of an answer that cannot be read, or not to its end.
const UNREADABLE: &str = "its answer cannot be read as a whole";
/// An answer is a few numbers and a sentence.
pub(super) const MAX_ANSWER: usize = 64 << 10;
/// The number of rejected records where that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportAnswer {
    /// Taken; so many of its records ([`UNKNOWN`]) were rejected for good, and why.
    Accepted { rejected: u64, reason: String },
    /// Not now: why, and how long the collector wants to be left alone.
    Later { reason: String, wait: Option<Duration> },
    /// The request went out, and nobody knows what became of it: it may be what the collector cannot bear.
    Unanswered { reason: String, wait: Option<Duration> },
    /// Not with these settings.
    Denied { reason: String },
    /// Too much at once.
    TooLarge { reason: String },
    /// Never: something of it is wrong.
    Invalid { reason: String },
    /// Never.
    Refused { reason: String },
}

impl ExportAnswer {
    /// What the collector says, and how long it wants to be left alone.
    pub(super) fn into_reason(self) -> (String, Option<Duration>) {
        match self {
            Self::Later { reason, wait } | Self::Unanswered { reason, wait } => (reason, wait),
            Self::Accepted { reason, .. }
            | Self::Denied { reason }
            | Self::TooLarge { reason }
            | Self::Invalid { reason }
            | Self::Refused { reason } => (reason, None),
        }
    }
}

/// Whether the collector has what it accepted of so many rows, also where it did not say how much of it.
pub(super) const fn is_taken(rejected: u64, rows: usize) -> bool {
    rejected == UNKNOWN || rejected < rows as u64
}

/// Why a request is a dead letter although it was accepted, if it is.
pub(super) fn rejection(rejected: u64, reason: &str) -> Option<String> {
    match rejected {
        0 => None,
        UNKNOWN => Some(format!(
            "the collector accepted it, and how many records it rejected is not known: {reason}"
        )),
        _ => Some(format!(
            "the collector accepted it but for {rejected} records: {reason}"
        )),
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct CollectorResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) trailers: HeaderMap,
    pub(super) body: Bytes,
    /// The body goes on behind what was kept.
    pub(super) is_cut: bool,
}

impl CollectorResponse {
    /// What it means, at a time.
    pub(super) fn judge(&self, protocol: CollectorProtocol, now: Timestamp) -> ExportAnswer {
        match protocol {
            CollectorProtocol::Http => self.judge_http(now),
            CollectorProtocol::Grpc => self.judge_grpc(now),
        }
    }

    fn judge_http(&self, now: Timestamp) -> ExportAnswer {
        if self.status.is_success() {
            return self.judge_success();
        }
        let said = status_of(&self.body).ok().map(|(message, _)| message);
        let said = said.filter(|message| !message.is_empty());
        let said = said.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        let reason = reason(&self.status.to_string(), &said);
        self.judge_status(reason, now, |reason| match self.status {
            StatusCode::BAD_REQUEST => ExportAnswer::Invalid { reason },
            _ => ExportAnswer::Refused { reason },
        })
    }

    /// What a status of HTTP means, whoever it is from; what of any other one is for the caller to say.
    fn judge_status(&self, reason: String, now: Timestamp, other: impl FnOnce(String) -> ExportAnswer) -> ExportAnswer {
        let wait = parse_retry_after(&self.headers, now);
        match self.status.as_u16() {
            // The last ones are those of a proxy that did not reach the collector.
            425 | 429 | 503 | 521..=523 | 525..=530 => ExportAnswer::Later { reason, wait },
            408 | 502 | 504 | 520 | 524 => ExportAnswer::Unanswered { reason, wait },
            300..=399 | 401..=407 | 410 | 411 | 415 | 421 | 426 | 431 | 451 | 505 | 511 => {
                ExportAnswer::Denied { reason }
            }
            413 => ExportAnswer::TooLarge { reason },
            _ => other(reason),
        }
    }

    /// The content type without its parameters.
    fn content_type(&self) -> Option<&str> {
        let kind = self.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        Some(kind.split(';').next().unwrap_or_default().trim())
    }

    /// A page for people is no acceptance: whoever answered took nothing.
    fn judge_success(&self) -> ExportAnswer {
        let kind = self.content_type();
        let is = |wanted: &str| kind.is_some_and(|kind| kind.eq_ignore_ascii_case(wanted));
        let said = if self.body.is_empty() {
            Some((0, String::new()))
        } else if self.is_cut {
            let rejected = if is("application/json") {
                // Where the number stands in it is not known.
                self.body.starts_with(b"{").then_some(UNKNOWN)
            } else {
                let is_protobuf = kind.is_none() || is(PROTOBUF);
                rejected_of_start(&self.body).filter(|_| is_protobuf)
            };
            rejected.map(|rejected| (rejected, UNREADABLE.to_owned()))
        } else if is("application/json") {
            rejected_of_json(&self.body).ok()
        } else if kind.is_none() || is(PROTOBUF) {
            rejected_of(&self.body).ok()
        } else {
            None
        };
        let Some((rejected, reason)) = said else {
            let kind = kind.unwrap_or("no content type");
            let status = format!("{} with what is no answer of OTLP ({kind})", self.status);
            let reason = reason(&status, &String::from_utf8_lossy(&self.body));
            return ExportAnswer::Denied { reason };
        };
        accepted(rejected, &reason)
    }

    fn judge_grpc(&self, now: Timestamp) -> ExportAnswer {
        let header = |name: &str| self.trailers.get(name).or_else(|| self.headers.get(name));
        if self.status != StatusCode::OK {
            // What is between here and the collector answered.
            let reason = reason(&self.status.to_string(), &String::from_utf8_lossy(&self.body));
            return self.judge_status(reason, now, |reason| ExportAnswer::Later { reason, wait: None });
        }
        let status = header("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u8>().ok());
        let Some(status) = status else {
            let reason = "the answer ended without a status".to_owned();
            return ExportAnswer::Unanswered { reason, wait: None };
        };
        if status == 0 {
            let rejected = self.rejected_of_grpc();
            let (rejected, reason) = rejected.unwrap_or_else(|| (UNKNOWN, UNREADABLE.to_owned()));
            return accepted(rejected, &reason);
        }
        let details = header("grpc-status-details-bin").and_then(|details| {
            let details = details.to_str().ok()?.trim_end_matches('=');
            status_of(&STANDARD_NO_PAD.decode(details).ok()?).ok()
        });
        let wait = details.and_then(|(_, wait)| wait).map(|wait| wait.min(MAX_RETRY_AFTER));
        let said = header("grpc-message").map(|said| percent_decoded(said.as_bytes()));
        let said = said.unwrap_or_default();
        let reason = reason(&format!("gRPC status {status}"), &said);
        match status {
            // One of these is the library's answer to a message that is too large, which comes again for ever.
            code::RESOURCE_EXHAUSTED | code::OUT_OF_RANGE if says_too_large(&said) => ExportAnswer::TooLarge { reason },
            code::UNAUTHENTICATED | code::PERMISSION_DENIED | code::UNIMPLEMENTED => ExportAnswer::Denied { reason },
            code::INVALID_ARGUMENT => ExportAnswer::Invalid { reason },
            code::RESOURCE_EXHAUSTED if wait.is_none() => ExportAnswer::Refused { reason },
            code::DEADLINE_EXCEEDED => ExportAnswer::Unanswered { reason, wait },
            code::CANCELLED
            | code::RESOURCE_EXHAUSTED
            | code::ABORTED
            | code::OUT_OF_RANGE
            | code::UNAVAILABLE
            | code::DATA_LOSS => ExportAnswer::Later { reason, wait },
            _ => ExportAnswer::Refused { reason },
        }
    }

    /// How many records the message of an `OK` says were rejected, and why; `None` if it cannot be read. Libraries pack answers as the
    /// request was, whatever was asked for.
    fn rejected_of_grpc(&self) -> Option<(u64, String)> {
        if self.body.is_empty() {
            return Some((0, String::new()));
        }
        let (is_packed, message) = if self.is_cut {
            (self.body.first() == Some(&1), self.body.slice(self.body.len().min(5)..))
        } else {
            let framed = grpc::message(&self.body).ok()?;
            (framed.is_packed, framed.message)
        };
        let is_gzip = self.headers.get(ENCODING).is_some_and(|packing| packing == "gzip");
        let (plain, is_whole) = match (is_packed, is_gzip) {
            (false, _) => (Cow::from(&message[..]), !self.is_cut),
            (true, true) => {
                let (plain, is_whole) = unpacked(&message);
                (plain.into(), is_whole)
            }
            (true, false) => return None,
        };
        if is_whole {
            return rejected_of(&plain).ok();
        }
        rejected_of_start(&plain).map(|rejected| (rejected, UNREADABLE.to_owned()))
    }
}

/// What a message of gzip has, up to [`MAX_ANSWER`], and whether that is all of it.
fn unpacked(packed: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::new();
    let read = GzDecoder::new(packed)
        .take(MAX_ANSWER as u64 + 1)
        .read_to_end(&mut plain);
    let is_whole = read.is_ok() && plain.len() <= MAX_ANSWER;
    (plain, is_whole)
}

/// Whether a text is that of a library of gRPC about a message that is too large.
fn says_too_large(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    let texts = ["larger than max", "too large", "exceeds maximum size", "message size"];
    texts.iter().any(|text| said.contains(text))
}

fn accepted(rejected: u64, reason: &str) -> ExportAnswer {
    ExportAnswer::Accepted {
        rejected,
        reason: reason.chars().take(SHOWN).collect(),
    }
}

fn reason(status: &str, said: &str) -> String {
    let said: String = said.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if said.is_empty() {
        status.to_owned()
    } else {
        format!("{status}: {said}")
    }
}

/// The text of `grpc-message`.
fn percent_decoded(text: &[u8]) -> String {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = behind.first_chunk::<2>().filter(|_| *byte == b'%');
        let escaped = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(escaped.unwrap_or(*byte));
        rest = behind.get(if escaped.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
