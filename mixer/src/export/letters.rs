//! What a collector refused for good as dead letters: a letter for a request, for who rejects records of it does not say which.
//!
//! # Invariants
//!
//! - A letter is durable before the rows of its request are settled. It is stored once, also if the process ends in between and the same
//!   request is refused again; a request that then has other rows has a letter of its own.
//! - A letter needs room in the log, which may be full of what waits behind its request. Then it becomes a file in quarantine; it may be
//!   there twice if the process ended in between and there was room.
//! - All such files take a quarter of what the log may take, unless one alone takes more. Beyond that there is none, and their
//!   request waits: nothing that was kept is removed for them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{AppendBatch, Engine, Error, ErrorKind, RequestPart};
use engine::{ArrivalPosition, BatchOrigin};
use model::batch::{DeadLetter, dead_letters};
use model::telemetry_codec::encode_arrow;
use model::{Attributes, Table, Timestamp, stable_hash};
use parking_lot::Mutex;
use protocols::otlp::PROTOBUF;
use uuid::Uuid;

/// How long a letter waits for room in the log.
const PATIENCE: Duration = Duration::from_secs(5);
/// What stands before the signal in the subjects of letters.
pub(crate) const EXPORT_SUBJECT: &str = "otlp-export/";
/// The beginning of the names of files that are letters.
const FILE: &str = "export_";
/// A file takes a multiple of so many bytes.
const BLOCK: u64 = 4096;

/// A request that is not going to be accepted.
#[derive(Debug)]
pub(super) struct RefusedRequest<'a> {
    pub(super) signal: Table,
    pub(super) collector: &'a str,
    /// The place of its first row, and the place behind its last one.
    pub(super) range: (ArrivalPosition, ArrivalPosition),
    pub(super) rows: usize,
    /// Whether the collector has taken others of these rows.
    pub(super) is_partial: bool,
    pub(super) reason: String,
    pub(super) message: Bytes,
}

impl RefusedRequest<'_> {
    /// Keeps it, durably; or why it could not be kept.
    pub(super) async fn keep(&self, engine: &Engine, files: &Arc<LetterFiles>, now: Timestamp) -> Result<(), String> {
        let letter = self.letter(engine, now)?;
        match engine.append_within(letter, PATIENCE).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Busy || matches!(error, Error::TooLarge { .. }) => {
                self.keep_file(engine, Arc::clone(files)).await
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn letter(&self, engine: &Engine, now: Timestamp) -> Result<AppendBatch, String> {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let mut headers = Attributes::new().with("collector", self.collector).with("rows", rows);
        if self.is_partial {
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

    /// Where its rows are in the log, and whether the collector has others of them.
    fn place(&self) -> String {
        let (first, end) = self.range;
        let (signal, from, to) = (self.signal, first.lsn, end.lsn);
        let partial = if self.is_partial { "_partial" } else { "" };
        format!("{signal}_{from:020}_{}_{to:020}_{}{partial}", first.row, end.row)
    }

    /// Keeps it as a file, for which the log needs no room.
    async fn keep_file(&self, engine: &Engine, files: Arc<LetterFiles>) -> Result<(), String> {
        let path = engine.settings().store_dir.join("quarantine");
        let path = path.join(format!("{FILE}{}.otlp", self.place()));
        let (message, most) = (self.message.clone(), engine.settings().wal_max.get() / 4);
        let kept = tokio::task::spawn_blocking(move || files.keep(&path, &message, most).map(|()| path));
        let path = kept.await.map_err(|error| error.to_string())??;
        tracing::error!(
            path = %path.display(),
            reason = self.reason,
            "the log has no room for a dead letter of what the collector refused: it is a file"
        );
        Ok(())
    }
}

/// The files of letters of all signals: how much of the disk they take, once that was looked up.
#[derive(Debug, Default)]
pub(super) struct LetterFiles(Mutex<Option<u64>>);

impl LetterFiles {
    /// Writes one, unless all of them would take more than `most` bytes of the disk then.
    fn keep(&self, path: &Path, message: &[u8], most: u64) -> Result<(), String> {
        let mut known = self.0.lock();
        let folder = durable_fs::parent_of(path);
        let own = (message.len() as u64).next_multiple_of(BLOCK);
        let all = match *known {
            Some(all) if all + own <= most => all,
            // Somebody may have removed some.
            _ => taken_by_letters(folder).map_err(|error| format!("{} cannot be listed: {error}", folder.display()))?,
        };
        if all > 0 && all + own > most {
            return Err(format!(
                "the log is full, and so is what its dead letters may take as files, a quarter of \
                 observability.otlp.queue_max_size_mb: remove {}/{FILE}* once their requests are sent, or make the queue larger",
                folder.display()
            ));
        }
        durable_fs::write_durably(path, message).map_err(|error| error.to_string())?;
        *known = Some(all + own);
        Ok(())
    }
}

/// How many bytes of the disk the files of letters in a folder take.
fn taken_by_letters(folder: &Path) -> std::io::Result<u64> {
    let mut all = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(FILE) {
            all += entry.metadata()?.blocks() * 512;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_of_a_letter_waits_until_older_ones_are_gone_and_takes_blocks_of_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: u64| dir.path().join(format!("{FILE}logs_{number}.otlp"));
        let files = LetterFiles::default();
        std::fs::write(dir.path().join("batch_1"), [0; 99_999]).unwrap();
        files.keep(&path(0), &[0; 9_000], 1).unwrap();
        assert_eq!(
            taken_by_letters(dir.path()).unwrap(),
            3 * BLOCK,
            "one that is larger than all may be"
        );
        for files in [files, LetterFiles::default()] {
            let refused = files.keep(&path(1), &[0; 10], 4 * BLOCK - 1).unwrap_err();
            assert!(
                refused.contains(dir.path().to_str().unwrap()) && !path(1).exists(),
                "{refused}"
            );
            files.keep(&path(1), &[0; 10], 4 * BLOCK).unwrap();
            files.keep(&path(2), &[0; 10], 4 * BLOCK).unwrap_err();
            assert!(path(0).exists() && path(1).exists() && !path(2).exists());
            std::fs::remove_file(path(1)).unwrap();
        }
    }
}
