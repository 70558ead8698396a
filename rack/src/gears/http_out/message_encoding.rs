//! What requests have of a message, and what answers mean for it: of any body, and of a log record of OTLP.
//!
//! # Invariants
//!
//! - A message's request has the same bytes in every attempt.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::StatusCode;
use model::Level;
use model::message::Message;
use protocols::otlp::{MessageLogSource, OtlpEncoding, PROTOBUF, message_log_request, refused_logs};
use serde_json::Value;

use super::super::GearContext;
use super::super::http_client::HttpResponse;

/// The resource attribute without which no record is sent.
const SERVICE_NAME: &str = "service.name";

/// See the module.
#[derive(Debug)]
pub(in super::super) enum MessageEncoding {
    /// Its body as it is.
    Body,
    /// An export of one log record.
    Otlp(OtlpLogEncoding),
}

/// How messages become log records.
#[derive(Debug)]
pub(in super::super) struct OtlpLogEncoding {
    pub(in super::super) level: Level,
    pub(in super::super) resource: Vec<(String, String)>,
    pub(in super::super) gzip: bool,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct EncodedMessage<'a> {
    pub(super) body: Bytes,
    pub(super) content_type: Option<&'a str>,
    /// How it is packed, if it is.
    pub(super) content_encoding: Option<&'static str>,
}

impl MessageEncoding {
    pub(super) fn encode<'a>(&self, cx: &GearContext, message: &'a Message) -> EncodedMessage<'a> {
        match self {
            Self::Body => EncodedMessage {
                body: Bytes::from(message.body().into_owned()),
                content_type: match message.meta.get("content_type").and_then(Value::as_str) {
                    None if !message.data.is_null() => Some("application/json"),
                    known => known,
                },
                content_encoding: None,
            },
            Self::Otlp(encoding) => encoding.encode(cx, message),
        }
    }

    /// Whether an answer is worth another attempt.
    pub(super) fn is_retriable(&self, status: StatusCode) -> bool {
        match self {
            Self::Body => status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS,
            // OTLP names them: other answers come again and again.
            Self::Otlp(_) => matches!(status.as_u16(), 429 | 502..=504),
        }
    }

    /// Why a target that took the request refused the message.
    pub(super) fn refusal(&self, answer: &HttpResponse) -> Option<String> {
        let Self::Otlp(_) = self else { return None };
        let kind = answer.header("content-type").unwrap_or(PROTOBUF);
        let why = refused_logs(OtlpEncoding::of_content_type(kind)?, &answer.body)?;
        Some(format!("the collector refused the record: {why}"))
    }
}

impl OtlpLogEncoding {
    fn encode(&self, cx: &GearContext, message: &Message) -> EncodedMessage<'static> {
        let mut resource = self.resource.clone();
        if !resource.iter().any(|(key, _)| key == SERVICE_NAME) {
            let name = cx.rack().unwrap_or_else(|| cx.name().clone());
            resource.push((SERVICE_NAME.to_owned(), name.to_string()));
        }
        let source = MessageLogSource {
            resource: &resource,
            scope: cx.name().as_str(),
            level: self.level,
        };
        let plain = message_log_request(source, message);
        let packed = if self.gzip { packed(&plain) } else { None };
        EncodedMessage {
            content_type: Some(PROTOBUF),
            content_encoding: packed.is_some().then_some("gzip"),
            body: packed.unwrap_or(plain).into(),
        }
    }
}

/// Writing to memory does not fail; if it did, the request would go as it is.
fn packed(plain: &[u8]) -> Option<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(plain).ok()?;
    packer.finish().ok()
}
