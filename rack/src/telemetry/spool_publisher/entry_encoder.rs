//! Encodes spool entries as bus messages, and makes substitutes for entries that cannot be published.
//!
//! | entry | subject | body |
//! |---|---|---|
//! | telemetry | `flux.telemetry.<table>.<rack>` | an Arrow stream |
//! | messages of the outbox | `flux.msg.<rack>.<gear>.<port>` | CBOR, of several a CBOR sequence |
//! | dead letter of the outbox | `flux.gear.<rack>.<gear>` | CBOR |
//! | lost, undecodable or too large | the same sequence: a log record that says so, or a truncated dead letter | |

use std::sync::Arc;

use async_nats::Subject;
use async_nats::header::HeaderMap;
use bytes::Bytes;
use model::telemetry_codec::{self, BatchEncoding};
use model::{Attributes, Clock, Level, LogRecord, Table, TelemetryRecord as _, subject};
use tokio::sync::watch;

use crate::identity::RackIdentity;
use crate::outbox::{MessageOutbox, OutboxRecord, PortSequenceNumber};
use crate::spool::{ProducerRun, SpoolEntry};

/// A spool entry as it is published.
pub(super) struct BusMessage {
    pub(super) subject: Subject,
    /// `None` for dead letters and telemetry.
    pub(super) place: Option<PortSequenceNumber>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// See the module.
pub(super) struct EntryEncoder {
    pub(super) identity: watch::Receiver<Option<RackIdentity>>,
    pub(super) clock: Clock,
    /// The outbox, if that is the spool.
    pub(super) outbox: Option<Arc<MessageOutbox>>,
}

impl EntryEncoder {
    /// `settled` is the sequence up to which nothing of the run will be sent any more. `None` if the entry cannot be decoded.
    pub(super) fn encode(&self, kept: &SpoolEntry, settled: u64) -> Option<BusMessage> {
        let owner = self.identity.borrow();
        let owner = owner.as_ref()?;
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::ENTITY_ID, kept.run.entity.to_string());
        headers.insert(telemetry_codec::ENTITY_NAME, owner.name.as_str());
        headers.insert(telemetry_codec::BOOT_EPOCH, kept.run.epoch.to_string());
        headers.insert(telemetry_codec::SEQUENCE, kept.seq.to_string());
        headers.insert(telemetry_codec::SETTLED, settled.min(kept.seq - 1).to_string());
        if kept.table != Table::Messages {
            headers.insert(telemetry_codec::CONTENT_TYPE, BatchEncoding::Arrow.content_type());
            return Some(BusMessage {
                subject: subject::telemetry(kept.table, &owner.name)?.into(),
                place: None,
                headers,
                body: Bytes::clone(&kept.payload),
            });
        }
        let letter = OutboxRecord::decode(&kept.payload)?;
        let content_type = match letter.count() {
            0 | 1 => BatchEncoding::Cbor.content_type(),
            _ => telemetry_codec::CBOR_SEQUENCE,
        };
        headers.insert(telemetry_codec::CONTENT_TYPE, content_type);
        let outbox = self.outbox.as_ref()?;
        let place = letter.number().map(|number| outbox.place(kept.run.epoch, number));
        letter.write_headers(place, &mut headers);
        Some(BusMessage {
            subject: letter.subject(&owner.name)?.into(),
            place,
            headers,
            body: letter.body().clone(),
        })
    }

    /// Whether an entry is several messages: no substitute can stand for them.
    pub(super) fn is_message_batch(kept: &SpoolEntry) -> bool {
        kept.table == Table::Messages && OutboxRecord::decode(&kept.payload).is_some_and(|letter| letter.count() > 1)
    }

    /// A log record that takes the place of an entry.
    pub(super) fn log_record(&self, run: ProducerRun, seq: u64, reason: String) -> Option<SpoolEntry> {
        let record = LogRecord {
            ts: self.clock.now(),
            entity_id: run.entity,
            entity_name: self.identity.borrow().as_ref()?.name.as_str().to_owned(),
            flux_id: None,
            level: Level::Error,
            message: reason,
            attributes: Attributes::new()
                .with("batch.seq", seq)
                .with("batch.boot_epoch", run.epoch),
        };
        let payload = LogRecord::to_batch(&[record]).and_then(|columns| telemetry_codec::encode_arrow(&[columns]));
        Some(SpoolEntry {
            run,
            seq,
            table: Table::Logs,
            payload: payload.ok()?.into(),
        })
    }

    /// What takes the place of an entry of `bytes` where the bus accepts `most`: a message becomes a truncated dead letter.
    pub(super) fn substitute(&self, kept: &SpoolEntry, bytes: usize, most: usize) -> Option<SpoolEntry> {
        let reason = format!(
            "dropped a batch of {}: it has {bytes} bytes and the bus takes {most}",
            kept.table
        );
        tracing::error!(seq = kept.seq, "{reason}");
        let letter = (kept.table == Table::Messages).then(|| OutboxRecord::decode(&kept.payload));
        match letter.flatten() {
            Some(letter) => Some(SpoolEntry {
                payload: letter.truncate(most).encode().into(),
                ..kept.clone()
            }),
            None => self.log_record(kept.run, kept.seq, reason),
        }
    }
}
