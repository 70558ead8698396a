//! What a collector refused for good as dead letters: a letter for a request, for who rejects records of it does not say which.
//!
//! # Invariants
//!
//! - A letter is durable before the rows of its request are settled. It is stored once, also if the process ends in between and the same
//!   request is refused again; a request that then has other rows has a letter of its own.
//! - A letter needs room in the log, which may be full of what waits behind its request. Then it becomes a file in quarantine.
//! - All such files take a quarter of what the log may take: then the oldest goes for the newest, which is counted and logged.

use std::path::Path;
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
/// What stands before the signal in the subjects of letters.
pub(crate) const EXPORT_SUBJECT: &str = "otlp-export/";
/// The beginning of the names of files that are letters.
const FILE: &str = "export_";

/// A request that is not going to be accepted.
#[derive(Debug)]
pub(super) struct RefusedRequest<'a> {
    pub(super) signal: Table,
    pub(super) collector: &'a str,
    pub(super) rows: RefusedRows,
    pub(super) reason: String,
    pub(super) message: Bytes,
}

/// The rows of such a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedRows {
    /// The place of the first one, and the place behind the last one.
    pub(super) range: (ArrivalPosition, ArrivalPosition),
    pub(super) count: usize,
    /// Whether the collector has taken the others of them.
    pub(super) is_partial: bool,
}

impl RefusedRequest<'_> {
    /// Keeps it, durably, and says how many older ones went for that; or why it could not be kept.
    pub(super) async fn keep(&self, engine: &Engine, now: Timestamp) -> Result<u64, String> {
        let letter = self.letter(engine, now)?;
        match engine.append_within(letter, PATIENCE).await {
            Ok(_) => Ok(0),
            Err(error) if error.kind() == ErrorKind::Busy || matches!(error, Error::TooLarge { .. }) => {
                self.keep_file(engine).await
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn letter(&self, engine: &Engine, now: Timestamp) -> Result<AppendBatch, String> {
        let rows = u64::try_from(self.rows.count).unwrap_or(u64::MAX);
        let mut headers = Attributes::new().with("collector", self.collector).with("rows", rows);
        if self.rows.is_partial {
            headers.set("partial", true);
        }
        let letter = DeadLetter {
            ts: now,
            subject: self.subject(),
            reason: self.reason.clone(),
            content_type: Some(PROTOBUF.to_owned()),
            headers,
            payload: self.message.to_vec(),
        };
        let rows = vec![dead_letters(&[letter]).map_err(|error| error.to_string())?];
        let payload = encode_arrow(&rows).map_err(|error| error.to_string())?;
        let request = RequestPart {
            id: Uuid::new_v5(&engine.store_id(), self.place().as_bytes()),
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
        format!("{EXPORT_SUBJECT}{}", self.signal)
    }

    /// Where its rows are in the log.
    fn place(&self) -> String {
        let (first, end) = self.rows.range;
        let (signal, from, to) = (self.signal, first.lsn, end.lsn);
        format!("{signal}_{from:020}_{}_{to:020}_{}", first.row, end.row)
    }

    /// Keeps it as a file, for which the log needs no room.
    async fn keep_file(&self, engine: &Engine) -> Result<u64, String> {
        let name = format!("{FILE}{}.otlp", self.place());
        let folder = engine.settings().store_dir.join("quarantine");
        let most = engine.settings().wal_max.get() / 4;
        let (message, path) = (self.message.clone(), folder.join(name));
        tracing::error!(
            path = %path.display(),
            reason = self.reason,
            "the log has no room for a dead letter of what the collector refused: it becomes a file"
        );
        let kept = tokio::task::spawn_blocking(move || {
            durable_fs::write_durably(&path, &message).map_err(|error| error.to_string())?;
            drop_oldest(&folder, &path, most).map_err(|error| error.to_string())
        });
        kept.await.map_err(|error| error.to_string())?
    }
}

/// Removes the oldest files of letters, but for the one at `newest`, until all of them have at most so many bytes. How many went.
fn drop_oldest(folder: &Path, newest: &Path, most: u64) -> std::io::Result<u64> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(FILE) && entry.path() != newest {
            let about = entry.metadata()?;
            files.push((about.modified()?, entry.path(), about.len()));
        }
    }
    files.sort();
    let mut all = files.iter().map(|(.., bytes)| bytes).sum::<u64>() + newest.metadata()?.len();
    let mut dropped = 0;
    for (_, path, bytes) in files {
        if all <= most {
            break;
        }
        match std::fs::remove_file(&path) {
            // Another signal's exporter was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => {
                removed?;
                dropped += 1;
                tracing::error!(
                    path = %path.display(), bytes, most,
                    "removed the oldest file of a dead letter of the export: together they had more bytes than a quarter of \
                     observability.otlp.queue_max_size_mb"
                );
            }
        }
        all -= bytes;
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_oldest_files_of_letters_go_for_the_newest_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, age: u64| {
            let path = dir.path().join(name);
            std::fs::write(&path, [0; 10]).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let then = std::time::SystemTime::now() - Duration::from_secs(age);
            file.set_modified(then).unwrap();
            path
        };
        let names = [
            "export_traces_1_0.otlp",
            "export_logs_2_0.otlp",
            "export_metrics_3_0.otlp",
        ];
        for (name, age) in names.iter().zip([30, 20, 10]) {
            write(name, age);
        }
        write("batch_1", 99);
        // Older than all others by its time, as after a step of the clock.
        let newest = write("export_logs_4_0.otlp", 50);
        let left = || names.map(|name| dir.path().join(name).exists());
        assert_eq!(drop_oldest(dir.path(), &newest, 40).unwrap(), 0);
        assert_eq!(left(), [true; 3]);
        assert_eq!(drop_oldest(dir.path(), &newest, 39).unwrap(), 1);
        assert_eq!(left(), [false, true, true]);
        assert_eq!(drop_oldest(dir.path(), &newest, 1).unwrap(), 2);
        assert!(newest.exists() && dir.path().join("batch_1").exists());
    }
}
