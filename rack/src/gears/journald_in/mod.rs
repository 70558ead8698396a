//! `journald_in`: follows the journal of systemd; each entry becomes a log record.
//!
//! ```text
//! journalctl --follow --cursor ─▶ entries ─▶ records and the last cursor in one write of the spool
//! ```
//!
//! # Invariants
//!
//! - The cursor is durable with the records behind which it stands: a gear that begins anew goes on exactly there.
//! - Its entry is asked for again, and passed over: systemd before 255 passes over the one behind a cursor whatever it is, also where
//!   that of the cursor is gone. Without an entry so far, the place is the time at which the gear began first.
//! - A slow disk holds up the program, which waits to write; nothing is dropped between it and the spool.
//! - The journal is read only where the Rack's operator allows it (`gears.journald.allow`); the program ends with the gear, and what a scenario says reaches it
//!   as values of options only.
//!
//! # Not here
//!
//! The format of entries ([`journal_export`]), processes and their end ([`super::exec`]).

mod journal_export;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use chassis::child_spawner::ChildSpawner;
use futures::FutureExt;
use gear_spec::journald_in::{JournalStart, JournaldInConfig, PROGRAM};
use model::{Attributes, HumanDuration, Level, Timestamp, gear_manifest};
use nix::sys::signal::Signal;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::exec::child_process::{OutputReader, ProgramCall};
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
use crate::spool::{RecordingError, SourceCheckpoint};
use crate::telemetry::{BATCH_BYTES, BATCH_ROWS, LogRow};
use journal_export::{JournalEntry, JournalExportReader};

/// The fields of an entry that are asked for.
const FIELDS: &str = "MESSAGE,PRIORITY,_HOSTNAME,SYSLOG_IDENTIFIER,_SYSTEMD_UNIT,_PID";
/// The pause before the program is started again, the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest; a run this long makes the next pause short again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most that is kept of what the program says when it ends, in bytes.
const MAX_SAID: usize = 1 << 10;
/// The longest cursor; a checkpoint has room for more.
const MAX_CURSOR: usize = 1 << 10;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(JournalFollower {
        config: gear_manifest::config(config)?,
        keeper: None,
    })))
}

struct JournalFollower {
    config: JournaldInConfig,
    keeper: Option<ChildSpawner>,
}

impl ActiveGear for JournalFollower {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            cx.check_recording()?;
            let programs = cx.programs().clone();
            let admitted = tokio::task::spawn_blocking(move || programs.admit_journal(PROGRAM)).await?;
            admitted.map_err(GearError::Config)?;
            let keeper = ChildSpawner::start("journal-keeper", Signal::SIGKILL);
            self.keeper = Some(keeper.map_err(|reason| GearError::Outside {
                what: "start the thread that spawns programs".to_owned(),
                reason,
            })?);
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let Some(keeper) = &self.keeper else {
                return Ok(());
            };
            let mut pause = FIRST_PAUSE;
            loop {
                let began = Instant::now();
                let said = match self.follow(cx, keeper).await {
                    Ok(said) => said,
                    // The Rack stops; what was not recorded is read again.
                    Err(GearError::NotRecorded(RecordingError::Closed)) => return Ok(()),
                    Err(fault) => return Err(fault),
                };
                if cx.is_stopping() {
                    return Ok(());
                }
                if began.elapsed() >= LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                let again = HumanDuration::from(pause);
                cx.error(format!("{PROGRAM} has ended: {said}; it is started again in {again}"));
                tokio::select! {
                    biased;
                    () = cx.stopping() => return Ok(()),
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                }
            }
        }
        .boxed()
    }
}

impl JournalFollower {
    /// Runs the program to its end; what it said then.
    async fn follow(&self, cx: &Arc<GearContext>, keeper: &ChildSpawner) -> Result<String, GearError> {
        let key = format!("journald_in/{}", cx.name());
        let place = cx.recorder().checkpoint(&key);
        let mut place = place.and_then(|place| String::from_utf8(place).ok());
        if place.is_none() && self.config.start == JournalStart::Now {
            let now = time_place(cx.recorder().now());
            write(cx, &key, Vec::new(), Some(now.clone())).await?;
            place = Some(now);
        }
        let call = ProgramCall {
            program: PROGRAM.to_owned(),
            arguments: arguments(&self.config, place.as_deref()),
            environment: vec![("LC_ALL".to_owned(), "C".to_owned())],
            folder: None,
        };
        let (mut child, outputs) = match call.start(keeper).await {
            Ok(started) => started,
            Err(error) => return Ok(error.to_string()),
        };
        let failed = CancellationToken::new();
        let asked = async {
            tokio::select! {
                () = cx.stopping() => {}
                () = failed.cancelled() => {}
            }
        };
        let stuck = || cx.error(format!("{PROGRAM} cannot be killed; waiting for its exit"));
        let taking = async {
            let taken = record(cx, &key, place, outputs.out).await;
            if taken.is_err() {
                failed.cancel();
            }
            taken
        };
        let (ended, taken, said) = tokio::join!(child.end(asked, stuck), taking, last_words(outputs.err));
        taken?;
        Ok(match ended {
            Ok((status, _)) if said.is_empty() => status.to_string(),
            Ok((status, _)) => format!("{status}, {said}"),
            Err(error) => error.to_string(),
        })
    }
}

/// A time as a place, which `--since` takes; no cursor begins so.
fn time_place(at: Timestamp) -> String {
    let micros = at.micros();
    format!("@{}.{:06}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000))
}

/// How the program is called, to begin at a place: a cursor or a time.
fn arguments(config: &JournaldInConfig, place: Option<&str>) -> Vec<String> {
    let mut arguments: Vec<String> =
        Vec::from(["--follow", "--quiet", "--output=export", "--no-tail"].map(str::to_owned));
    arguments.push(format!("--output-fields={FIELDS}"));
    if let Some(place) = place {
        let option = if place.starts_with('@') { "since" } else { "cursor" };
        arguments.push(format!("--{option}={place}"));
    }
    arguments.extend(config.units.iter().map(|unit| format!("--unit={unit}")));
    arguments
}

/// Takes away the entry at the place from which the program goes on; it can only be the first.
fn remove_recorded(entries: &mut Vec<JournalEntry>, place: &mut Option<String>) {
    if let Some(first) = entries.first()
        && place.take().is_some_and(|place| place == first.cursor)
    {
        entries.remove(0);
    }
}

/// Records entries as they come.
async fn record(
    cx: &GearContext,
    key: &str,
    mut place: Option<String>,
    out: Option<OutputReader<ChildStdout>>,
) -> Result<(), GearError> {
    let Some(mut out) = out else { return Ok(()) };
    let mut reader = JournalExportReader::default();
    while let Some(bytes) = out.next().await {
        let mut entries = reader.take(bytes).map_err(|error| GearError::Outside {
            what: format!("read what {PROGRAM} writes"),
            reason: std::io::Error::other(error),
        })?;
        remove_recorded(&mut entries, &mut place);
        let (mut rows, mut size, mut last) = (Vec::new(), 0, None);
        for entry in entries {
            let cursor = entry.cursor.clone();
            let row = row(entry, cx.recorder().now());
            if !rows.is_empty() && (rows.len() >= BATCH_ROWS || size + row.size() > BATCH_BYTES) {
                write(cx, key, std::mem::take(&mut rows), last.take()).await?;
                size = 0;
            }
            size += row.size();
            rows.push(row);
            last = Some(cursor).filter(|cursor| cursor.len() <= MAX_CURSOR).or(last);
        }
        if !rows.is_empty() {
            write(cx, key, rows, last).await?;
        }
    }
    Ok(())
}

async fn write(cx: &GearContext, key: &str, rows: Vec<LogRow>, cursor: Option<String>) -> Result<(), GearError> {
    let checkpoint = cursor.map(|cursor| SourceCheckpoint {
        key: key.to_owned(),
        value: cursor.into_bytes(),
    });
    tokio::select! {
        biased;
        written = cx.recorder().log_durably(rows, checkpoint) => Ok(written?),
        // What waits is not written then, and read again.
        () = cx.stopping() => Err(RecordingError::Closed.into()),
    }
}

/// An entry as a record.
fn row(entry: JournalEntry, now: Timestamp) -> LogRow {
    let mut attributes = Attributes::new();
    for (key, value) in [
        ("host.name", entry.host),
        ("syslog.identifier", entry.identifier),
        ("systemd.unit", entry.unit),
    ] {
        if let Some(value) = value {
            attributes.set(key, value);
        }
    }
    if let Some(pid) = entry.pid {
        attributes.set("process.pid", pid);
    }
    if let Some(priority) = entry.priority {
        attributes.set("syslog.priority", priority);
    }
    if entry.is_truncated {
        attributes.set("truncated", true);
    }
    let message = String::from_utf8(entry.message).unwrap_or_else(|error| {
        attributes.set("invalid_utf8", true);
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    LogRow {
        ts: entry.micros.map_or(now, Timestamp::from_micros),
        level: match entry.priority {
            Some(0..=3) => Level::Error,
            Some(4) => Level::Warn,
            Some(7) => Level::Debug,
            _ => Level::Info,
        },
        message,
        attributes,
        flux_id: None,
    }
}

/// The end of what the program says on its standard error.
async fn last_words(err: Option<OutputReader<ChildStderr>>) -> String {
    let Some(mut err) = err else { return String::new() };
    let mut said: Vec<u8> = Vec::new();
    while let Some(bytes) = err.next().await {
        said.extend_from_slice(bytes);
        let surplus = said.len().saturating_sub(MAX_SAID);
        said.drain(..surplus);
    }
    String::from_utf8_lossy(&said).trim().replace('\n', "; ")
}
