//! The formats of bodies: records of ours, and what others speak.

use bytes::Bytes;
use http::StatusCode;
use model::Table;
use model::telemetry_codec::{BatchEncoding, BodyRecordReader, PublisherIdentity, WriterEntities};
use protocols::elasticsearch::{self, BulkError, BulkSettings};
use protocols::json_records::{JsonFraming, JsonRecordSettings, json_records};
use protocols::loki::{self, LokiEncoding};
use protocols::otlp::{self, OtlpEncoding, OtlpSettings};
use protocols::remote_write::{self, WriteSettings};
use protocols::{OpenedRequest, SenderSettings};

use super::body_reader::DecodeBudget;
use super::idempotency_key::{BodyKey, IdempotentRequest};
use crate::api::problem::ApiProblem;

/// How a body says what it says.
#[derive(Debug)]
pub(super) enum BodyFormat {
    /// Records in an encoding of the bus.
    Records {
        encoding: BatchEncoding,
        /// Whose they are where they do not say it.
        publisher: PublisherIdentity,
        keeps_refused: bool,
    },
    /// JSON records of any shape.
    Shaped {
        framing: JsonFraming,
        settings: JsonRecordSettings,
        keeps_refused: bool,
    },
    /// A request of OTLP.
    Otlp(OtlpEncoding, OtlpSettings),
    /// A push request of Loki.
    Loki(LokiEncoding, SenderSettings),
    /// A bulk request of Elasticsearch.
    Bulk(BulkSettings, SenderSettings),
    /// A remote write request of Prometheus.
    RemoteWrite(WriteSettings, SenderSettings),
}

/// A body that can be read, what reading takes, and which request it is.
#[derive(Debug)]
pub(super) struct OpenedBody {
    pub(super) records: BodyRecordReader,
    pub(super) budget: DecodeBudget,
    pub(super) request: Option<IdempotentRequest>,
}

impl BodyFormat {
    /// Whose rows are those that do not say it.
    pub(super) fn publisher(&self) -> PublisherIdentity {
        let publisher = match self {
            Self::Records { publisher, .. } => publisher,
            Self::Shaped { settings, .. } => &settings.fallback,
            Self::Otlp(_, settings) => &settings.fallback,
            Self::Loki(_, settings) | Self::Bulk(_, settings) | Self::RemoteWrite(_, settings) => &settings.fallback,
        };
        publisher.clone()
    }

    /// The bytes that are needed beside the body until it is open.
    pub(super) fn opening_bytes(&self, body: &[u8], largest: usize) -> usize {
        match self {
            Self::Records { encoding, .. } => DecodeBudget::of(*encoding, body, largest).bytes,
            Self::Shaped { .. } | Self::Otlp(OtlpEncoding::Protobuf, _) | Self::Loki(LokiEncoding::Protobuf, _) => 0,
            Self::Otlp(OtlpEncoding::Json, _) => usize::try_from(otlp::json_bytes(body)).unwrap_or(usize::MAX),
            Self::Bulk(..) => elasticsearch::items_bytes(body),
            Self::RemoteWrite(..) => remote_write::opening_bytes(body),
            Self::Loki(LokiEncoding::Json, _) => usize::try_from(loki::json_bytes(body)).unwrap_or(usize::MAX),
        }
    }

    /// Begins to read a body, of which a part has at most `largest` bytes.
    pub(super) fn open(
        self,
        table: Table,
        body: Bytes,
        (key, writers): (BodyKey, Option<WriterEntities>),
        largest: usize,
    ) -> Result<OpenedBody, ApiProblem> {
        let malformed = |error: &dyn std::fmt::Display| ApiProblem::body(StatusCode::BAD_REQUEST, error.to_string());
        match self {
            Self::Records {
                encoding,
                publisher,
                keeps_refused,
            } => {
                let request = key.of_records(encoding.content_type(), &body);
                let mut budget = DecodeBudget::of(encoding, &body, largest);
                let records = if keeps_refused {
                    BodyRecordReader::new_keeping_refused(table, encoding, body, publisher)
                } else {
                    BodyRecordReader::new(table, encoding, body, publisher)
                };
                let records = records.map_err(|error| malformed(&error))?.with_writers(writers);
                // Of an Arrow stream they are here already, and share nothing with the body.
                budget.hold(records.refused().iter().map(|bad| bad.record.len()).sum());
                Ok(OpenedBody {
                    records,
                    budget,
                    request,
                })
            }
            Self::Shaped {
                framing,
                settings,
                keeps_refused,
            } => {
                let request = key.of_records(framing.name(), &body);
                let publisher = settings.fallback.clone();
                let budget = DecodeBudget::of_expanded(body.len() as u64, 0, largest);
                let format = json_records(table, framing, &body, settings).map_err(|error| malformed(&error))?;
                let records = BodyRecordReader::of_format(table, format, body, publisher).with_writers(writers);
                Ok(OpenedBody {
                    records: if keeps_refused {
                        records.keeping_refused()
                    } else {
                        records
                    },
                    budget,
                    request,
                })
            }
            Self::Otlp(encoding, settings) => {
                let publisher = settings.fallback.clone();
                let sent = body.clone();
                let opened = otlp::request(table, encoding, body, settings).map_err(|error| malformed(&error))?;
                let converted = if encoding == OtlpEncoding::Json {
                    opened.body.len()
                } else {
                    0
                };
                let budget = DecodeBudget::of_expanded(opened.expanded, converted, largest);
                let request = opened.sender.and_then(|sender| key.of_content(table, sender, &sent));
                let records = BodyRecordReader::of_format(table, opened.records, opened.body, publisher);
                Ok(OpenedBody {
                    records: records.with_writers(writers).keeping_refused(),
                    budget,
                    request,
                })
            }
            Self::Loki(encoding, settings) => {
                let (publisher, sent) = (settings.fallback.clone(), body.clone());
                let opened = loki::request(encoding, body, settings).map_err(|error| malformed(&error))?;
                Ok(OpenedBody::of_sender(
                    (table, publisher),
                    opened,
                    &sent,
                    (key, writers),
                    largest,
                ))
            }
            Self::RemoteWrite(write, settings) => {
                let (publisher, sent) = (settings.fallback.clone(), body.clone());
                let opened = remote_write::request(body, write, settings).map_err(|error| malformed(&error))?;
                let opened = OpenedBody::of_sender((table, publisher), opened, &sent, (key, writers), largest);
                Ok(OpenedBody {
                    records: opened.records.marking_refused(),
                    ..opened
                })
            }
            Self::Bulk(bulk, settings) => {
                let (publisher, sent) = (settings.fallback.clone(), body.clone());
                let opened = elasticsearch::request(body, bulk, settings).map_err(|error| match error {
                    BulkError::TooMany => ApiProblem::body(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
                    other => malformed(&other),
                })?;
                let opened = OpenedBody::of_sender((table, publisher), opened, &sent, (key, writers), largest);
                Ok(OpenedBody {
                    records: opened.records.marking_refused(),
                    ..opened
                })
            }
        }
    }
}

impl OpenedBody {
    /// A request of another sender that was looked through.
    fn of_sender(
        (table, publisher): (Table, PublisherIdentity),
        opened: OpenedRequest,
        sent: &[u8],
        (key, writers): (BodyKey, Option<WriterEntities>),
        largest: usize,
    ) -> Self {
        let request = opened.sender.and_then(|sender| key.of_content(table, sender, sent));
        let records = BodyRecordReader::of_format(table, opened.records, opened.body, publisher);
        Self {
            records: records.with_writers(writers).keeping_refused(),
            budget: DecodeBudget::of_expanded(opened.expanded, opened.held, largest),
            request,
        }
    }
}
