//! What a collector refused for good as dead letters: a letter for a request, for who rejects records of it does not say which.
//!
//! # Invariants
//!
//! - A letter is durable before the rows of its request are settled. It is stored once, also if the process ends in between and the
//!   request is refused again.
//! - A letter needs room in the log, which may be full of what waits behind its request. Then it becomes a file in quarantine.

use std::time::Duration;

use bytes::Bytes;
use engine::{AppendBatch, Engine, Error, ErrorKind, RequestPart};
use engine::{ArrivalPosition, BatchOrigin};
use model::batch::{DeadLetter, dead_letters};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, Table, Timestamp, stable_hash};
use protocols::otlp::PROTOBUF;
use uuid::Uuid;

/// How long a letter waits for room in the log.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request that is not going to be accepted.
#[derive(Debug)]
pub(super) struct RefusedRequest<'a> {
    pub(super) signal: Table,
    pub(super) collector: &'a str,
    /// The place of its first row.
    pub(super) position: ArrivalPosition,
    pub(super) rows: usize,
    pub(super) reason: String,
    pub(super) message: Bytes,
}

impl RefusedRequest<'_> {
    /// Keeps it, durably; or why it could not be kept.
    pub(super) async fn keep(&self, engine: &Engine, now: Timestamp) -> Result<(), String> {
        let letter = self.letter(engine, now)?;
        match engine.append_within(letter, PATIENCE).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Busy || matches!(error, Error::TooLarge { .. }) => {
                self.keep_file(engine).await
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn letter(&self, engine: &Engine, now: Timestamp) -> Result<AppendBatch, String> {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let letter = DeadLetter {
            ts: now,
            subject: self.subject(),
            reason: self.reason.clone(),
            content_type: Some(PROTOBUF.to_owned()),
            headers: Attributes::new().with("collector", self.collector).with("rows", rows),
            payload: self.message.to_vec(),
        };
        let rows = vec![dead_letters(&[letter]).map_err(|error| error.to_string())?];
        let payload = encode_arrow(&rows).map_err(|error| error.to_string())?;
        let place = format!("{} {} {}", self.signal, self.position.lsn, self.position.row);
        let request = RequestPart {
            id: Uuid::new_v5(&engine.store_id(), place.as_bytes()),
            sender: stable_hash(self.subject().as_bytes()),
            digest: stable_hash(&self.message),
            from: 0,
            to: 1,
        };
        Ok(AppendBatch {
            table: Table::DeadLetters,
            origin: BatchOrigin {
                request: Some(request),
                ..BatchOrigin::default()
            },
            payload: payload.into(),
            rows,
        })
    }

    fn subject(&self) -> String {
        format!("otlp-export/{}", self.signal)
    }

    /// Keeps it as a file, for which the log needs no room.
    async fn keep_file(&self, engine: &Engine) -> Result<(), String> {
        let name = format!(
            "export_{}_{:020}_{}.otlp",
            self.signal, self.position.lsn, self.position.row
        );
        let path = engine.settings().store_dir.join("quarantine").join(name);
        let (message, file) = (self.message.clone(), path.clone());
        let written = tokio::task::spawn_blocking(move || durable_fs::write_durably(&file, &message)).await;
        let written = written.map_err(|error| error.to_string())?;
        written.map_err(|error| error.to_string())?;
        tracing::error!(
            path = %path.display(),
            reason = self.reason,
            "the log has no room for a dead letter of what the collector refused: it is a file"
        );
        Ok(())
    }
}
