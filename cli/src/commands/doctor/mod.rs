//! `platform doctor`: checks whether this Rack has what it needs. A line for each check, with the fix where one fails.
//!
//! | check | asks |
//! |---|---|
//! | config | can `platform.toml` and the environment be read? |
//! | api | does the Mixer's API answer, and is the Mixer ready? |
//! | clock | does the Mixer's clock agree with ours? |
//! | version | are the Mixer and this program of one version? |
//! | disk | can the Rack's folder be written, and is there room for the spool? |
//! | bus | does the bus take us, and has it the streams of our domain? |
//! | secrets | can nobody else read the Rack's identity? |
//! | admission | has a Mixer admitted the Rack, or does it wait? |
//!
//! With `--mixer` instead whether the Mixer is well: its API, and what that says of storage, Racks, wires and dead letters; with `--ready` too only whether it is ready.
//! With `--security` what is off in the Mixer's security, and in the Rack's.
//!
//! # Invariants
//!
//! - Nothing is changed: no folder is made, no message published.
//! - The exit code is that of the first check that failed; a warning fails nothing.

mod host_checks;
mod mixer_checks;
mod security_checks;
mod service_checks;

use std::borrow::Cow;
use std::time::Duration;

use chassis::{ExitReason, config};
use rack::AdmissionStatus;
use rack::config::{RackConfig, SCHEMA};
use serde_json::json;

use crate::args::{DoctorArgs, GlobalArgs};
use crate::client::{ApiClient, Row};
use crate::commands::config::sources;
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::RowPrinter;

/// A Mixer that is well answers much sooner.
const PATIENCE: Duration = Duration::from_secs(10);
const COLUMNS: &[&str] = &["check", "state", "found", "fix"];

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckOutcome {
    Ok,
    /// It works, but not as it should.
    Warn,
    Fail(ExitReason),
    /// It could not be asked, because of another one that failed.
    Skipped,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DoctorCheck {
    name: Cow<'static, str>,
    state: CheckOutcome,
    found: String,
    fix: String,
}

impl DoctorCheck {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Ok, found, "")
    }

    fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Warn, found, fix)
    }

    fn fail(name: &'static str, exit: ExitReason, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Fail(exit), found, fix)
    }

    /// A message of ours names the trouble, and after the last semicolon what helps.
    fn failed(name: &'static str, exit: ExitReason, message: &str) -> Self {
        let (found, fix) = message.rsplit_once("; ").unwrap_or((message, ""));
        Self::fail(name, exit, found, fix)
    }

    fn skipped(name: &'static str, because: &str) -> Self {
        Self::new(name, CheckOutcome::Skipped, format!("not checked: {because}"), "")
    }

    fn new(
        name: impl Into<Cow<'static, str>>,
        state: CheckOutcome,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            state,
            found: found.into(),
            fix: fix.into(),
        }
    }

    fn state(&self) -> &'static str {
        match self.state {
            CheckOutcome::Ok => "ok",
            CheckOutcome::Warn => "warn",
            CheckOutcome::Fail(_) => "FAIL",
            CheckOutcome::Skipped => "skipped",
        }
    }

    fn row(&self) -> Option<Row> {
        let row = json!({ "check": self.name, "state": self.state(), "found": self.found, "fix": self.fix });
        row.as_object().cloned()
    }
}

/// Asks everything, prints it, and fails if a check did.
pub(crate) fn run(global: &GlobalArgs, args: &DoctorArgs) -> Result<(), Error> {
    let client = ApiClient::within(&args.api, PATIENCE);
    let checks = if args.ready {
        vec![service_checks::readiness(&client)]
    } else if args.mixer {
        mixer_checks::checks(&client, &chassis::system_clock())
    } else {
        rack_checks(global, args, &client)
    };
    let rows: Vec<Row> = checks.iter().filter_map(DoctorCheck::row).collect();
    let printer = RowPrinter::from(&args.api);
    if printer.is_fitting(&rows, COLUMNS) {
        printer.rows(&rows, COLUMNS)?;
    } else {
        printer.text(&lines(&checks))?;
    }
    verdict(&checks)
}

/// The checks of this Rack, or of its security and the Mixer's.
fn rack_checks(global: &GlobalArgs, args: &DoctorArgs, client: &ApiClient) -> Vec<DoctorCheck> {
    let (config, rack) = configured(global);
    let mut checks = vec![config];
    if args.security {
        let off = if args.strict {
            CheckOutcome::Fail(ExitReason::Denied)
        } else {
            CheckOutcome::Warn
        };
        checks.extend(security_checks::mixer(client, off));
        checks.extend(rack.iter().flat_map(|rack| security_checks::rack(rack, off)));
    } else {
        checks.extend(service_checks::mixer(client, &chassis::system_clock()));
        checks.extend(rack.map_or_else(without_config, |rack| with_config(&rack)));
    }
    checks
}

/// The checks where a table has no room: what helps stands below what was found, and neither is cut.
fn lines(checks: &[DoctorCheck]) -> String {
    let names = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let line = |check: &DoctorCheck| {
        let (found, fix) = (escape_controls(&check.found), escape_controls(&check.fix));
        let fix = if fix.is_empty() {
            String::new()
        } else {
            format!("{:names$}  {:7}  → {fix}\n", "", "")
        };
        format!("{:names$}  {:7}  {found}\n{fix}", check.name, check.state())
    };
    checks.iter().map(line).collect()
}

fn with_config(rack: &RackConfig) -> Vec<DoctorCheck> {
    let admission = ::rack::admission_status(rack, &chassis::os_entropy());
    let is_admitted = matches!(admission, Ok(AdmissionStatus::Admitted(_)));
    vec![
        host_checks::disk(rack),
        service_checks::bus(rack, is_admitted),
        host_checks::secrets(rack),
        host_checks::admission(rack, admission),
    ]
}

fn without_config() -> Vec<DoctorCheck> {
    ["disk", "bus", "secrets", "admission"]
        .map(|name| DoctorCheck::skipped(name, "there is no configuration"))
        .into()
}

/// The configuration, if it can be read.
fn configured(global: &GlobalArgs) -> (DoctorCheck, Option<RackConfig>) {
    let loaded = config::load(&SCHEMA, &sources(global));
    let rack = loaded.and_then(|settings| RackConfig::of(&settings).map(|rack| (settings, rack)));
    match rack {
        Err(bad) => {
            let fix = "correct it; `platform config init` prints a commented one";
            let lines: Vec<String> = bad.to_string().lines().map(|line| line.trim().to_owned()).collect();
            (
                DoctorCheck::fail("config", ExitReason::Config, lines.join("; "), fix),
                None,
            )
        }
        Ok((settings, rack)) => {
            let found = match settings.file() {
                Some(file) => format!("{} is valid", file.display()),
                None => "no file; defaults and the environment apply".to_owned(),
            };
            let check = match settings.warnings() {
                [] => DoctorCheck::ok("config", found),
                warnings => DoctorCheck::warn(
                    "config",
                    format!("{found}, but: {}", warnings.join("; ")),
                    "see `platform config show --origin`",
                ),
            };
            (check, Some(rack))
        }
    }
}

fn verdict(checks: &[DoctorCheck]) -> Result<(), Error> {
    let failed = || {
        checks.iter().filter_map(|check| match check.state {
            CheckOutcome::Fail(exit) => Some(exit),
            _ => None,
        })
    };
    match failed().next() {
        None => Ok(()),
        Some(exit) => Err(Error::Unwell {
            failed: failed().count(),
            all: checks.len(),
            exit,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_check_that_fails_gives_the_exit_code_and_warnings_give_none() {
        let fail = |exit| DoctorCheck::fail("x", exit, "it is broken", "mend it");
        let code = |checks: &[DoctorCheck]| verdict(checks).err().map_or(0, |error| error.exit_code());
        assert_eq!(
            code(&[
                DoctorCheck::ok("a", "fine"),
                DoctorCheck::warn("b", "so so", "look"),
                DoctorCheck::skipped("c", "b")
            ]),
            0
        );
        assert_eq!(
            code(&[
                DoctorCheck::ok("a", "fine"),
                fail(ExitReason::Denied),
                fail(ExitReason::Unavailable)
            ]),
            77
        );
        assert_eq!(code(&[fail(ExitReason::Config), fail(ExitReason::Unavailable)]), 78);
    }

    #[test]
    fn a_message_is_what_was_found_and_what_helps() {
        let check = DoctorCheck::failed("bus", ExitReason::Denied, "the bus refuses us; really; set the token");
        assert_eq!(
            (check.found.as_str(), check.fix.as_str()),
            ("the bus refuses us; really", "set the token")
        );
    }

    #[test]
    fn the_table_has_a_line_for_each_check_with_what_helps() {
        let checks = [
            DoctorCheck::ok("config", "platform.toml is valid"),
            DoctorCheck::failed("api", ExitReason::Unavailable, "cannot reach it; is it running?"),
            DoctorCheck::skipped("clock", "the API does not answer"),
            DoctorCheck::warn("disk", "little room", "free some\nmore"),
        ];
        let rows: Vec<Row> = checks.iter().filter_map(DoctorCheck::row).collect();
        insta::assert_snapshot!(RowPrinter::of(crate::args::OutputFormat::Table).table(&rows, COLUMNS));
        assert_eq!(
            lines(&checks),
            "config  ok       platform.toml is valid\napi     FAIL     cannot reach it\n                 → is it running?\n\
             clock   skipped  not checked: the API does not answer\ndisk    warn     little room\n                 → free some\\nmore\n"
        );
    }
}
