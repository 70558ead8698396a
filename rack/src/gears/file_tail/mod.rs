//! `file_tail`: follows a text file; each line becomes a log record, and a message where port `out` is wired.
//!
//! # Invariants
//!
//! - Exactly once, whatever happens: the records and the position behind them are one durable write
//!   ([`TelemetryRecorder::log_durably`](crate::telemetry::TelemetryRecorder::log_durably)); after a crash the gear goes on from the last
//!   position that is on disk.
//! - Records keep the order of the lines: their times grow by at least a microsecond.
//! - A message on a hot wire leaves after its record is durable, and at most once: a crash in between loses the message, not the
//!   record. On a guaranteed wire it leaves exactly once: before its record, with a note of how many did ([`replay_dedup`]).
//!
//! # Not here
//!
//! Rotation and truncation ([`file_tailer`]), record_assembler ([`record_assembler`]), levels ([`super::level_detection`]).

mod file_tailer;
#[cfg(test)]
mod model_test;
mod record_assembler;
mod replay_dedup;
mod tail_position;
mod tailed_file;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzz"))]
pub(super) use tail_position::fuzz_position;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use gear_spec::file_tail::FileTailConfig;
use model::gear_manifest;
use model::message::Message;
use model::{Attributes, Level, Timestamp};
use regex::Regex;

use super::level_detection::level_of;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
use crate::spool::{RecordingError, SourceCheckpoint};
use crate::telemetry::{BATCH_ROWS, LogRow};
use file_tailer::{FileTailer, TailEvent, TailPollLimit};
use record_assembler::{RecordRules, TailRecord};
use replay_dedup::SentRecordCount;
use tail_position::TailPosition;

/// The most bytes of one durable write, short of its last record, which may have 1 MiB by itself.
const WRITE_BYTES: usize = 256 * 1024;
/// About how many bytes a record takes beside its text and its path.
const ROW_OVERHEAD: usize = 320;
/// How long a write that is under way at the stop may take.
const GRACE: Duration = Duration::from_millis(300);
/// The longest path that is part of a checkpoint's key as it is.
const MAX_KEY_PATH: usize = 512;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: FileTailConfig = gear_manifest::config(config)?;
    let start = config
        .multiline_start
        .as_deref()
        .map(Regex::new)
        .transpose()
        .map_err(|error| format!("multiline_start is not a regular expression: {error}"))?;
    let rules = RecordRules {
        max: config.max_line_bytes as usize,
        start,
        patience: config.multiline_timeout.get(),
    };
    Ok(Gear::Active(Box::new(FileTailRunner { config, rules })))
}

struct FileTailRunner {
    config: FileTailConfig,
    rules: RecordRules,
}

impl ActiveGear for FileTailRunner {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            match self.follow(cx).await {
                // The Rack stops; what was not recorded is read again.
                Err(GearError::NotRecorded(RecordingError::Closed)) => Ok(()),
                ended => ended,
            }
        }
        .boxed()
    }
}

impl FileTailRunner {
    async fn follow(&self, cx: &Arc<GearContext>) -> Result<(), GearError> {
        let key = checkpoint_key(cx, &self.config.path);
        let Some(mut stored) = self.stored_position(cx, &key).await? else {
            return Ok(());
        };
        let (path, rules, from) = (self.config.path.clone(), self.rules.clone(), self.config.from);
        let reader = TailReader {
            cx: Arc::clone(cx),
            facts: Attributes::new().with("log.file.path", path.display().to_string()),
            default_level: self.config.level,
            limit: TailPollLimit {
                records: BATCH_ROWS,
                bytes: WRITE_BYTES,
                overhead: ROW_OVERHEAD + path.as_os_str().len(),
            },
            last: Timestamp::MIN,
            tailer: FileTailer::new(
                (cx.policy().readable().clone(), path),
                rules,
                from,
                stored.clone(),
                Instant::now(),
            ),
        };
        let mut sent = SentRecordCount::load(cx, &key, stored.as_ref());
        let mut take = reader.take().await?;
        loop {
            let TailBatch {
                reader,
                rows,
                mut messages,
                position,
                notices,
                idle,
            } = take;
            if cx.is_published("out") {
                let note = sent.skip(&key, stored.as_ref(), &position, &mut messages);
                if !self.send_before(cx, note, std::mem::take(&mut messages)).await {
                    return Ok(());
                }
            }
            notices
                .iter()
                .for_each(|notice| log_event(cx, &self.config.path, notice));
            let moved = !rows.is_empty() || stored.as_ref() != Some(&position);
            let checkpoint = moved.then(|| SourceCheckpoint {
                key: key.clone(),
                value: position.to_bytes(),
            });
            let store = store(cx, rows, checkpoint);
            if idle {
                if !store.await? || !self.pass_on(cx, messages).await || self.pause(cx).await {
                    return Ok(());
                }
                take = reader.take().await?;
            } else {
                let (done, next) = tokio::join!(store, reader.take());
                if !done? || !self.pass_on(cx, messages).await {
                    return Ok(());
                }
                take = next?;
            }
            stored = Some(position);
        }
    }

    /// The position on disk: none inside for a file that was never followed, none at all if the gear shall stop.
    async fn stored_position(&self, cx: &GearContext, key: &str) -> Result<Option<Option<TailPosition>>, GearError> {
        // A life before this one may have left writes under way; this one is behind them.
        if !store(cx, Vec::new(), None).await? || !self.wait_for_sent_note(cx).await {
            return Ok(None);
        }
        let Some(bytes) = cx.recorder().checkpoint(key) else {
            return Ok(Some(None));
        };
        match TailPosition::from_bytes(&bytes) {
            Ok(position) => Ok(Some(Some(position))),
            Err(reason) => {
                let path = self.config.path.display();
                cx.error(format!(
                    "the stored position of {path} cannot be read ({reason}); following it as a new file"
                ));
                Ok(Some(None))
            }
        }
    }

    /// Waits until the note of what a life before this one sent is durable, however full the outbox is; false if the gear shall
    /// stop.
    async fn wait_for_sent_note(&self, cx: &GearContext) -> bool {
        if !cx.is_published("out") {
            return true;
        }
        tokio::select! {
            biased;
            is_known = cx.wait_until_durable() => is_known,
            () = cx.stopping() => false,
        }
    }

    /// Sends messages over the guaranteed lane, with the note that they were sent; false if the gear shall stop.
    async fn send_before(&self, cx: &GearContext, note: Option<SourceCheckpoint>, messages: Vec<Message>) -> bool {
        if note.is_none() {
            return true;
        }
        let sending = async {
            self.pass_on(cx, messages).await;
        };
        cx.commit_together(note, sending).await
    }

    /// Sends what became durable; false if the gear shall stop.
    async fn pass_on(&self, cx: &GearContext, messages: Vec<Message>) -> bool {
        let began = Instant::now();
        for message in messages {
            // A refusal has been counted and reported; the record is stored all the same.
            cx.emit("out", message, None, began).await.ok();
        }
        !cx.is_stopping()
    }

    /// Waits until the file is to be looked at again; true if the gear shall stop.
    async fn pause(&self, cx: &GearContext) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.config.poll_interval.get()) => cx.is_stopping(),
            () = cx.stopping() => true,
        }
    }
}

/// Makes rows and position durable; false if the gear shall stop and it is not known whether they are.
async fn store(cx: &GearContext, rows: Vec<LogRow>, checkpoint: Option<SourceCheckpoint>) -> Result<bool, GearError> {
    let write = cx.recorder().log_durably(rows, checkpoint);
    tokio::pin!(write);
    tokio::select! {
        biased;
        done = &mut write => done?,
        () = cx.stopping() => match tokio::time::timeout(GRACE, write).await {
            Ok(done) => done?,
            Err(_) => return Ok(false),
        },
    }
    Ok(true)
}

/// The tailer on its way through threads that may block.
struct TailReader {
    cx: Arc<GearContext>,
    facts: Attributes,
    default_level: Level,
    limit: TailPollLimit,
    /// The time of the last row.
    last: Timestamp,
    tailer: FileTailer,
}

/// What a reader took, and the reader.
struct TailBatch {
    reader: TailReader,
    rows: Vec<LogRow>,
    messages: Vec<Message>,
    position: TailPosition,
    notices: Vec<TailEvent>,
    idle: bool,
}

impl TailReader {
    async fn take(self) -> Result<TailBatch, GearError> {
        Ok(tokio::task::spawn_blocking(move || self.take_now()).await?)
    }

    fn take_now(mut self) -> TailBatch {
        let harvest = self.tailer.poll(self.limit, Instant::now());
        let wired = self.cx.is_wired("out");
        let now = self.cx.recorder().now();
        let mut rows = Vec::with_capacity(harvest.records.len());
        let mut messages = Vec::new();
        for record in harvest.records {
            let mut row = self.row(record, now);
            if wired {
                let meta = row.attributes.clone();
                let message = self.cx.make(None, meta, row.message.clone().into_bytes());
                row.flux_id = Some(message.flux_id);
                row.attributes.set("trace_id", message.trace_id.to_string());
                row.attributes.set("span_id", message.span_id.to_string());
                messages.push(message);
            }
            rows.push(row);
        }
        TailBatch {
            reader: self,
            rows,
            messages,
            position: harvest.position,
            notices: harvest.notices,
            idle: harvest.idle,
        }
    }

    fn row(&mut self, record: TailRecord, now: Timestamp) -> LogRow {
        self.last = now.max(Timestamp::from_micros(self.last.micros().saturating_add(1)));
        let mut attributes = self.facts.clone();
        attributes.set("log.file.offset", record.offset);
        if record.truncated {
            attributes.set("truncated", true);
        }
        if record.invalid_utf8 {
            attributes.set("invalid_utf8", true);
        }
        LogRow {
            ts: self.last,
            level: level_of(&record.text).unwrap_or(self.default_level),
            message: record.text,
            attributes,
            flux_id: None,
        }
    }
}

fn checkpoint_key(cx: &GearContext, path: &Path) -> String {
    let text = path.display().to_string();
    let name = cx.name();
    if text.len() <= MAX_KEY_PATH {
        format!("file_tail/{name}/{text}")
    } else {
        format!(
            "file_tail/{name}/{:08x}-{}",
            crc32c::crc32c(text.as_bytes()),
            text.len()
        )
    }
}

fn log_event(cx: &GearContext, path: &Path, notice: &TailEvent) {
    let path = path.display();
    match notice {
        TailEvent::Missing => cx.log(Level::Warn, format!("{path} does not exist; waiting for it")),
        TailEvent::Follows { offset } => cx.log(Level::Info, format!("following {path} from byte {offset}")),
        TailEvent::Rotated => cx.log(
            Level::Info,
            format!("{path} was rotated; the old file is read to its end first"),
        ),
        TailEvent::Truncated => cx.log(
            Level::Warn,
            format!("{path} was truncated or rewritten; reading it from its beginning"),
        ),
        TailEvent::Lost { offset } => cx.log(
            Level::Warn,
            format!("the file that was {path} and was read up to byte {offset} is gone: what followed in it is lost"),
        ),
        TailEvent::Unreadable { reason } => {
            cx.error(format!(
                "cannot read {path}: {reason}; trying again until it can be read"
            ));
        }
    }
}
