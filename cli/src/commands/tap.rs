//! `platform tap`: messages as they leave an output port of a Rack.
//!
//! # Invariants
//!
//! - What is printed ends with a whole line, also where `--for` or an interrupt ends it while messages come; a reader of the output who
//!   takes nothing delays that by [`LAST_FLUSH`] at most.
//! - An interrupt ends it with 0; so does a reader of the output that has gone.
//! - A stream that breaks off is not begun again: what passed meanwhile could not be counted.

use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use model::scenario::GearPort;
use serde_json::{Value, json};
use tokio::signal::ctrl_c;
use tokio::sync::Mutex;

use crate::args::{OutputFormat, TapArgs};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter, plain};
use crate::sse::{SseEvent, SseReader};

/// How long the last lines may take.
const LAST_FLUSH: Duration = Duration::from_secs(2);
const COLUMNS: &[&str] = &[
    "ts",
    "flux_id",
    "message_id",
    "content_type",
    "meta",
    "encoding",
    "body",
    "bytes",
    "cut",
];

pub(crate) fn run(args: &TapArgs) -> Result<(), Error> {
    let mut printer = RowPrinter::from(&args.api);
    if args.json {
        printer.format = OutputFormat::Ndjson;
    }
    if printer.format == OutputFormat::Json {
        let reason = "--output json is one array, and a tap has no end: use --json, one object a line";
        return Err(Error::Usage(reason.to_owned()));
    }
    let (path, port) = asked(&args.port)?;
    let out = Arc::new(Mutex::new(TapOutput {
        writer: BufWriter::new(Box::new(io::stdout())),
        is_over: false,
    }));
    let client = ApiClient::streaming(&args.api);
    let tap = TapPrinter {
        left: args.count,
        out: Arc::clone(&out),
        printer,
        paint: TextPainter::for_stdout(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let printing = tokio::task::spawn_blocking(move || {
            let stream = client.stream(&path, &json!({ "port": port }), None)?;
            tap.print(SseReader::new(stream))
        });
        tokio::select! {
            biased;
            _ = ctrl_c() => finish(out).await,
            ended = printing => ended.unwrap_or_else(|died| Err(Error::Answer(died.to_string()))),
            () = passed(args.time.map(model::HumanDuration::get)) => finish(out).await,
        }
    });
    // Who reads or prints just now ends with the process.
    runtime.shutdown_background();
    ended
}

/// The path of the Rack's taps, and the port as it is asked for there.
fn asked(port: &GearPort) -> Result<(String, String), Error> {
    let GearPort { rack, gear, port } = port;
    let rack = rack.as_ref().ok_or_else(|| {
        let reason =
            format!("{gear}.{port} does not say on which Rack: RACK.GEAR.PORT (platform racks list shows Racks)");
        Error::Usage(reason)
    })?;
    Ok((format!("/api/v1/racks/{rack}/tap"), format!("{gear}.{port}")))
}

/// Waits for so long; for ever, if there is no such time.
async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Lets nothing more be printed than what is.
async fn finish(out: Arc<Mutex<TapOutput>>) -> Result<(), Error> {
    let flushed = tokio::task::spawn_blocking(move || {
        let mut out = out.blocking_lock();
        out.is_over = true;
        out.writer.flush()
    });
    match tokio::time::timeout(LAST_FLUSH, flushed).await {
        Ok(Ok(flushed)) => Ok(flushed?),
        // Nobody takes the last lines.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Where messages are printed, each whole.
struct TapOutput {
    writer: BufWriter<Box<dyn Write + Send>>,
    /// Whether nothing more shall be.
    is_over: bool,
}

struct TapPrinter {
    /// How many messages are still to be printed, where that has an end.
    left: Option<u64>,
    out: Arc<Mutex<TapOutput>>,
    printer: RowPrinter,
    paint: TextPainter,
}

impl TapPrinter {
    fn print(mut self, mut events: SseReader<impl Read>) -> Result<(), Error> {
        {
            let mut out = self.out.blocking_lock();
            self.printer.begin(&mut out.writer, COLUMNS)?;
            out.writer.flush()?;
        }
        while self.left != Some(0) {
            let event = match events.next() {
                Ok(Some(event)) => event,
                Ok(None) => return Err(Error::Ended("the Mixer ended it".to_owned())),
                Err(error) => return Err(Error::Ended(error.to_string())),
            };
            let out = Arc::clone(&self.out);
            let mut out = out.blocking_lock();
            if out.is_over {
                break;
            }
            self.show(&event, &mut out.writer)?;
            // A heartbeat behind a row is an event too.
            if !events.has_more() || self.left == Some(0) {
                out.writer.flush()?;
            }
        }
        Ok(())
    }

    /// Prints an event.
    fn show(&mut self, event: &SseEvent, writer: &mut impl Write) -> Result<(), Error> {
        if event.data.is_empty() {
            return Ok(());
        }
        let data: Row = serde_json::from_str(&event.data).map_err(|error| Error::Answer(error.to_string()))?;
        match event.name.as_str() {
            "" => {
                self.left = self.left.map(|left| left - 1);
                let line = |row: &Row| line(row, self.printer, self.paint);
                self.printer.one(writer, &data, COLUMNS, line)?;
            }
            "lagged" => {
                writer.flush()?;
                let missed = data.get("missed").and_then(Value::as_u64).unwrap_or(0);
                let _ = writeln!(io::stderr(), "-- {missed} messages were dropped --");
            }
            "error" => {
                writer.flush()?;
                return Err(Error::Ended(text(&data, "detail").to_owned()));
            }
            _ => {}
        }
        Ok(())
    }
}

fn text<'r>(row: &'r Row, key: &str) -> &'r str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A message for people, on a line: when, which signal, its facts, its body.
fn line(row: &Row, printer: RowPrinter, paint: TextPainter) -> String {
    let said = |key: &str| row.get(key).map(plain).unwrap_or_default();
    let is = |key: &str| row.get(key) == Some(&Value::Bool(true));
    let body = match row.get("body") {
        Some(Value::Object(_) | Value::Array(_)) => row
            .get("body")
            .map(|body| escape_controls(&body.to_string()).into_owned()),
        Some(body) => Some(plain(body)),
        None => None,
    };
    let hex = if text(row, "encoding") == "hex" { "0x" } else { "" };
    let cut = match row.get("bytes").and_then(Value::as_u64) {
        _ if !is("cut") => String::new(),
        Some(bytes) => format!("… ({bytes} bytes)"),
        None => "…".to_owned(),
    };
    let more_facts = if is("meta_cut") { " …" } else { "" };
    format!(
        "{} {} {} {hex}{}{cut}\n",
        printer.time(text(row, "ts")),
        paint.dim(&said("flux_id")),
        paint.dim(&format!("{}{more_facts}", said("meta"))),
        body.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;
    use crate::test_strings::{is_one_line_per_row, rows};

    fn shown(rows: &[Row]) -> String {
        let printer = RowPrinter::of(OutputFormat::Table);
        rows.iter()
            .map(|row| line(row, printer, TextPainter::for_stdout()))
            .collect()
    }

    #[test]
    fn a_message_is_a_line_with_its_body_as_far_as_it_came() {
        for (encoding, body, bytes, cut, wanted) in [
            ("json", json!({ "b": [1, null] }), json!(14), false, r#"{"b":[1,null]}"#),
            ("text", json!("a\nb"), json!(3), false, r"a\nb"),
            ("hex", json!("ff00"), json!(5000), true, "0xff00… (5000 bytes)"),
            ("text", json!("{\"a"), Value::Null, true, "{\"a…"),
        ] {
            let row = json!({
                "ts": "2026-11-21T10:00:00Z", "flux_id": "f", "meta": { "from": "x" }, "meta_cut": false,
                "encoding": encoding, "body": body, "bytes": bytes, "cut": cut,
            });
            let line = shown(&[row.as_object().cloned().unwrap()]);
            assert!(line.ends_with(&format!(" {wanted}\n")), "{line:?}");
            assert!(line.contains("from=x"), "{line:?}");
        }
    }

    #[test]
    fn a_port_without_its_rack_is_refused_with_the_full_form() {
        let port = |text: &str| asked(&GearPort::try_from(text.to_owned()).unwrap());
        let (path, asked) = port("rack-a.numbers.out").unwrap();
        assert_eq!((&path[..], &asked[..]), ("/api/v1/racks/rack-a/tap", "numbers.out"));
        let error = port("numbers.out").unwrap_err();
        assert!(error.to_string().contains("RACK.GEAR.PORT"), "{error}");
    }

    /// What was printed so far.
    #[derive(Clone, Default)]
    struct Printed(Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Rows that come at once, and the lines that are printed when more is asked for.
    struct OneChunk(Option<&'static [u8]>, Printed, usize);

    impl Read for OneChunk {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if let Some(chunk) = self.0.take() {
                return (&mut &*chunk).read(into);
            }
            let printed = self.1.0.lock().unwrap();
            assert_eq!(printed.iter().filter(|byte| **byte == b'\n').count(), self.2);
            Ok(0)
        }
    }

    #[test]
    fn a_row_is_printed_before_more_is_awaited_also_with_a_heartbeat_behind_it() {
        for (chunk, lines) in [
            (&b"data: {\"body\":1}\n\n: hb\n\n"[..], 1),
            (b"data: {\"body\":1}\n\ndata: {\"body\":2}\n\n", 2),
        ] {
            let printed = Printed::default();
            let tap = TapPrinter {
                left: None,
                out: Arc::new(Mutex::new(TapOutput {
                    writer: BufWriter::new(Box::new(printed.clone())),
                    is_over: false,
                })),
                printer: RowPrinter::of(OutputFormat::Table),
                paint: TextPainter::for_stdout(),
            };
            let stream = OneChunk(Some(chunk), printed, lines);
            assert!(matches!(tap.print(SseReader::new(stream)), Err(Error::Ended(_))));
        }
    }

    proptest! {
        #[test]
        fn a_message_is_one_line_whatever_is_in_it(rows in rows(|a, b| json!({ "ts": a, "flux_id": b, "meta": { (a): b }, "body": { (b): a }, "encoding": a }))) {
            prop_assert!(is_one_line_per_row(&shown(&rows), &rows));
        }
    }
}
