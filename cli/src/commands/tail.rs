//! `platform tail`, `platform logs --follow` and `platform messages --follow`: live tail, over reconnects.
//!
//! # Invariants
//!
//! - A row is printed once: the next connection goes on behind the last event that came whole.
//! - What is missing is said on standard error.
//! - A stream that ends again and again at the same place is asked for less and less often.
//! - An interrupt ends it with 0; so does a reader of the output that has gone.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use model::filter::LogFilter;
use serde::Serialize;
use serde_json::Value;
use tokio::signal::ctrl_c;

use super::logs::{COLUMNS, line};
use super::note;
use crate::args::{ApiArgs, OutputFormat, TailArgs};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter};
use crate::sse::{SseEvent, SseReader};

/// The pause before the connection is made again; doubled with each that brought it no further …
const PAUSE: Duration = Duration::from_millis(250);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What is followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowTarget {
    /// Where.
    pub(crate) path: &'static str,
    /// The columns of CSV.
    pub(crate) columns: &'static [&'static str],
    /// A row for people, on a line.
    pub(crate) line: fn(&Row, RowPrinter, TextPainter) -> String,
}

/// The logs.
pub(crate) const LOGS: FollowTarget = FollowTarget {
    path: "/api/v1/telemetry/logs/tail",
    columns: COLUMNS,
    line,
};

pub(crate) fn run(args: &TailArgs) -> Result<(), Error> {
    let since = args
        .since
        .map(|since| since.when(args.api.zone(), chassis::system_clock().now()));
    let since = since
        .transpose()
        .map_err(|reason| Error::Usage(format!("--since: {reason}")))?;
    let filter = LogFilter {
        since,
        limit: args.limit,
        ..args.rows.filter()?
    };
    follow(&args.api, filter, LOGS)
}

/// Follows until an interrupt, or until nobody reads what is printed.
pub(crate) fn follow<F: Serialize + Send + 'static>(
    api: &ApiArgs,
    filter: F,
    followed: FollowTarget,
) -> Result<(), Error> {
    let printer = RowPrinter::from(api);
    if printer.format == OutputFormat::Json {
        let reason = "--output json is one array, and a tail has no end: use --output ndjson";
        return Err(Error::Usage(reason.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tail = FollowSession {
        client: ApiClient::streaming(api),
        filter,
        followed,
        last: None,
        pause: PAUSE,
        printer,
        paint: TextPainter::for_stdout(),
    };
    let ended = runtime.block_on(async {
        let printing = tokio::task::spawn_blocking(move || tail.run());
        tokio::select! {
            biased;
            _ = ctrl_c() => Ok(()),
            ended = printing => ended.unwrap_or_else(|died| Err(Error::Answer(died.to_string()))),
        }
    });
    // Who reads or prints just now ends with the process.
    runtime.shutdown_background();
    ended
}

struct FollowSession<F> {
    client: ApiClient,
    filter: F,
    followed: FollowTarget,
    /// The id of the last event.
    last: Option<String>,
    /// Before the next connection.
    pause: Duration,
    printer: RowPrinter,
    paint: TextPainter,
}

impl<F: Serialize> FollowSession<F> {
    fn run(mut self) -> Result<(), Error> {
        let mut out = BufWriter::new(io::stdout());
        self.printer.begin(&mut out, self.followed.columns)?;
        out.flush()?;
        let mut was_there = false;
        loop {
            let began = Instant::now();
            let broken = match self
                .client
                .stream(self.followed.path, &self.filter, self.last.as_deref())
            {
                Ok(body) => {
                    if std::mem::replace(&mut was_there, true) {
                        note("following again");
                    }
                    self.print(SseReader::new(body), &mut out)?
                }
                Err(error) if was_there && error.is_transient() => error.chain(),
                Err(error) => return Err(error),
            };
            // On a quiet store too a stream that has lasted is as good as one that came further.
            if began.elapsed() > LONGEST_PAUSE {
                self.pause = PAUSE;
            }
            if self.pause == PAUSE {
                note(&format!("the stream was interrupted ({broken}); reconnecting"));
            }
            std::thread::sleep(self.pause);
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }

    /// Prints events until the stream ends; why it did.
    fn print(&mut self, mut events: SseReader<impl io::Read>, out: &mut impl Write) -> Result<String, Error> {
        loop {
            let event = match events.next() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok("the Mixer ended it".to_owned()),
                Err(error) => return Ok(error.to_string()),
            };
            self.show(&event, out)?;
            // Who is told where it was already has come no further.
            if event.id.is_some() && event.id != self.last {
                (self.last, self.pause) = (event.id, PAUSE);
            }
            if !events.has_more() {
                out.flush()?;
            }
        }
    }

    fn show(&self, event: &SseEvent, out: &mut impl Write) -> Result<(), Error> {
        if event.data.is_empty() {
            return Ok(());
        }
        let data: Row = serde_json::from_str(&event.data).map_err(|error| Error::Answer(error.to_string()))?;
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let count = |key: &str| data.get(key).and_then(Value::as_u64).unwrap_or(0);
        match event.name.as_str() {
            "" => {
                return Ok(self.printer.one(out, &data, self.followed.columns, |row| {
                    (self.followed.line)(row, self.printer, self.paint)
                })?);
            }
            "lagged" => {
                out.flush()?;
                if count("missed") > 0 {
                    say(&format!("-- missed {} rows --", count("missed")));
                }
                if count("unseen") > 0 {
                    say(&format!(
                        "-- {} rows went by before the filter saw them --",
                        count("unseen")
                    ));
                }
            }
            "gap" => {
                out.flush()?;
                say(&format!(
                    "-- rows are missing before {}: {} --",
                    text("since"),
                    text("reason")
                ));
            }
            "error" => note(text("detail")),
            _ => {}
        }
        Ok(())
    }
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", escape_controls(text));
}
