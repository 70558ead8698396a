//! The formats of bodies: records of ours, and what others speak.

use bytes::Bytes;
use http::StatusCode;
use model::Table;
use model::telemetry_codec::{BatchEncoding, BodyRecordReader, PublisherIdentity, WriterEntities};
use protocols::elasticsearch::{self, BulkError, BulkSettings};
use protocols::json_records::{JsonFraming, json_records};
use protocols::loki::{self, LokiEncoding};
use protocols::otlp::{self, OtlpEncoding};
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
        settings: SenderSettings,
        keeps_refused: bool,
    },
    /// A request of a protocol of others.
    Foreign(ForeignFormat, SenderSettings),
}

/// A protocol of others.
#[derive(Debug)]
pub(super) enum ForeignFormat {
    /// A request of OTLP.
    Otlp(OtlpEncoding),
    /// A push request of Loki.
    Loki(LokiEncoding),
    /// A bulk request of Elasticsearch.
    Bulk(BulkSettings),
    /// A remote write request of Prometheus.
    RemoteWrite(WriteSettings),
}

/// A body that can be read, what reading takes, and which request it is.
#[derive(Debug)]
pub(super) struct OpenedBody {
    pub(super) records: BodyRecordReader,
    pub(super) budget: DecodeBudget,
    pub(super) request: Option<IdempotentRequest>,
}

impl BodyFormat {
    /// The bytes that are needed beside the body until it is open.
    pub(super) fn opening_bytes(&self, body: &[u8], largest: usize) -> usize {
        match self {
            Self::Records { encoding, .. } => DecodeBudget::of(*encoding, body, largest).bytes,
            Self::Shaped { .. } => 0,
            Self::Foreign(format, _) => format.opening_bytes(body),
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
                let records = records.map_err(malformed)?.with_writers(writers);
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
                let format = json_records(table, framing, &body, settings).map_err(malformed)?;
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
            Self::Foreign(format, settings) => {
                let (publisher, sent) = (settings.fallback.clone(), body.clone());
                let (name, marks_refused) = (format.name(), format.marks_refused());
                let opened = format.open(table, body, settings)?;
                let request = opened
                    .sender
                    .and_then(|sender| key.of_content((table, name), sender, &sent));
                let records = BodyRecordReader::of_format(table, opened.records, opened.body, publisher);
                let records = records.with_writers(writers).keeping_refused();
                Ok(OpenedBody {
                    records: if marks_refused {
                        records.marking_refused()
                    } else {
                        records
                    },
                    budget: DecodeBudget::of_expanded(opened.expanded, opened.held, largest),
                    request,
                })
            }
        }
    }
}

impl ForeignFormat {
    /// As of [`BodyFormat::opening_bytes`].
    fn opening_bytes(&self, body: &[u8]) -> usize {
        match self {
            Self::Otlp(OtlpEncoding::Protobuf) | Self::Loki(LokiEncoding::Protobuf) => 0,
            Self::Otlp(OtlpEncoding::Json) => usize::try_from(otlp::json_bytes(body)).unwrap_or(usize::MAX),
            Self::Loki(LokiEncoding::Json) => usize::try_from(loki::json_bytes(body)).unwrap_or(usize::MAX),
            Self::Bulk(_) => elasticsearch::items_bytes(body),
            Self::RemoteWrite(_) => remote_write::opening_bytes(body),
        }
    }

    /// What tells requests of a protocol from equal bytes of another one.
    const fn name(&self) -> &'static str {
        match self {
            Self::Otlp(_) => "otlp",
            Self::Loki(_) => "loki",
            Self::Bulk(_) => "elasticsearch",
            Self::RemoteWrite(_) => "prometheus",
        }
    }

    /// Whether an answer says of each record what became of it.
    const fn marks_refused(&self) -> bool {
        matches!(self, Self::Bulk(_) | Self::RemoteWrite(_))
    }

    /// Looks through a request.
    fn open(self, table: Table, body: Bytes, settings: SenderSettings) -> Result<OpenedRequest, ApiProblem> {
        match self {
            Self::Otlp(encoding) => otlp::request(table, encoding, body, settings).map_err(malformed),
            Self::Loki(encoding) => loki::request(encoding, body, settings).map_err(malformed),
            Self::RemoteWrite(write) => remote_write::request(body, write, settings).map_err(malformed),
            Self::Bulk(bulk) => elasticsearch::request(body, bulk, settings).map_err(|error| match error {
                BulkError::TooMany => ApiProblem::body(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
                other => malformed(other),
            }),
        }
    }
}

fn malformed(error: impl std::fmt::Display) -> ApiProblem {
    ApiProblem::body(StatusCode::BAD_REQUEST, error.to_string())
}
