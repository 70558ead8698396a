//! gRPC's framing of one message, its codes, and the services that export OTLP's signals: for those who serve and who call.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use bytes::Bytes;
use model::Table;

/// The content type, to which the encoding of messages may be added.
pub(crate) const GRPC: &str = "application/grpc";
/// How messages are packed that say that they are.
pub(crate) const ENCODING: &str = "grpc-encoding";
/// What is before a message: whether it is packed, and its length.
const FRAME: usize = 5;

/// Codes of gRPC.
pub(crate) mod code {
    pub(crate) const CANCELLED: u8 = 1;
    pub(crate) const INVALID_ARGUMENT: u8 = 3;
    pub(crate) const DEADLINE_EXCEEDED: u8 = 4;
    pub(crate) const PERMISSION_DENIED: u8 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u8 = 8;
    pub(crate) const ABORTED: u8 = 10;
    pub(crate) const OUT_OF_RANGE: u8 = 11;
    pub(crate) const UNIMPLEMENTED: u8 = 12;
    pub(crate) const INTERNAL: u8 = 13;
    pub(crate) const UNAVAILABLE: u8 = 14;
    pub(crate) const DATA_LOSS: u8 = 15;
    pub(crate) const UNAUTHENTICATED: u8 = 16;
}

/// The path of the method that exports a signal; none of a table that is no signal.
pub(crate) const fn export_method(table: Table) -> Option<&'static str> {
    match table {
        Table::Logs => Some("/opentelemetry.proto.collector.logs.v1.LogsService/Export"),
        Table::Metrics => Some("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"),
        Table::Traces => Some("/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        Table::DeadLetters | Table::Messages => None,
    }
}

/// A message in its frame.
pub(crate) fn frame(is_packed: bool, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[u8::from(is_packed)][..], &length.to_be_bytes(), message]
        .concat()
        .into()
}

/// The one message of a body and whether it is packed, or what is wrong with its frame.
pub(crate) fn unframe(framed: &Bytes) -> Result<(bool, Bytes), &'static str> {
    let Some(([is_packed, length @ ..], message)) = framed.split_first_chunk::<FRAME>() else {
        return Err("the body ends before its message");
    };
    if message.len() != u32::from_be_bytes(*length) as usize {
        return Err("the body is not one message of the length that stands before it");
    }
    match is_packed {
        0 | 1 => Ok((*is_packed == 1, framed.slice(FRAME..))),
        _ => Err("the first byte of a message is 0 or 1"),
    }
}
