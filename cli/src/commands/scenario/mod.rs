//! `platform scenario`.

mod diff;
mod rollout_status;
mod scenario_locator;
mod scenario_test;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use model::HumanDuration;
use model::scenario::{ScenarioReview, SourceDiagnostic};
use serde_json::{Value, json};

pub(crate) use self::rollout_status::word;
use self::scenario_locator::ScenarioLocator;
use crate::args::{ActivationArgs, ApiArgs, GraphFormat, OutputFormat, ScenarioArgs, ScenarioVerb};
use crate::client::{self, ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::RowPrinter;
use crate::{graph, pager};

const COLUMNS: &[&str] = &["name", "version", "hash", "stored", "active"];
const IMPORTED: &[&str] = &["reference", "hash", "new", "replaced"];

pub(crate) fn run(args: &ScenarioArgs) -> Result<(), Error> {
    match &args.verb {
        ScenarioVerb::Validate { file, max_hops, strict } => validate(file, (*max_hops).into(), *strict),
        ScenarioVerb::Test { file, output } => scenario_test::run(file, *output),
        ScenarioVerb::Import { file, replace, api } => {
            let row = import(file, *replace, api)?;
            RowPrinter::from(api).rows(std::slice::from_ref(&row), IMPORTED)?;
            if row.get("new") == Some(&Value::Bool(false)) && row.get("replaced").is_none_or(Value::is_null) {
                super::note("this content was stored already: nothing changed");
            }
            Ok(())
        }
        ScenarioVerb::List(api) => {
            let page = ApiClient::new(api).page("/api/v1/scenarios", &())?;
            RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
            super::notes(&page, "no scenarios; `platform scenario import FILE` stores one")
        }
        ScenarioVerb::Show { reference, api } => show(reference, api),
        ScenarioVerb::Diff { from, to, api } => diff::run(from, to, api),
        ScenarioVerb::Activate { scenario, strict, how } => activate(scenario, *strict, how),
        ScenarioVerb::Status(api) => {
            let report = rollout_status::of(ApiClient::new(api).get("/api/v1/scenarios/status", &())?)?;
            rollout_status::print(&report, api)
        }
        ScenarioVerb::Rollback(how) => {
            let query = json!({ "wait": how.wait, "dry_run": how.dry_run, "resume_from": how.resume_from });
            let client = patient(&how.api, how.wait);
            let report = rollout_status::of(client.post_with("/api/v1/scenarios/rollback", &query, &json!({}))?)?;
            rollout_status::print(&report, &how.api)?;
            if how.dry_run {
                return Ok(());
            }
            rollout_status::verdict(&report, how.wait)
        }
        ScenarioVerb::Delete { reference, api } => {
            let path = scenario_locator::path(reference, "/delete")?;
            let answer = ApiClient::new(api).post(&path, &json!({}))?;
            let deleted = client::one(answer, "it does not say what was deleted")?;
            Ok(RowPrinter::from(api).rows(&[deleted], &["reference", "hash"])?)
        }
        ScenarioVerb::Graph(graph) => {
            let ScenarioReview { scenario, .. } = ScenarioLocator::of(&graph.scenario)?.read(&graph.api())?;
            let picture = match graph.format {
                GraphFormat::Mermaid => graph::mermaid(&scenario),
                GraphFormat::Svg => graph::svg(&scenario),
            };
            let mut out = std::io::stdout().lock();
            out.write_all(picture.as_bytes())?;
            Ok(out.flush()?)
        }
    }
}

fn validate(file: &Path, max_hops: u32, strict: bool) -> Result<(), Error> {
    let source = ScenarioLocator::File(file.to_owned());
    let ScenarioReview { scenario, warnings, .. } = source.read_within(max_hops)?;
    warn(&file.display().to_string(), &warnings);
    if strict && !warnings.is_empty() {
        return Err(Error::Warned {
            count: warnings.len(),
            spared: "the file is not valid with --strict",
        });
    }
    let meta = &scenario.meta;
    let (gears, wires) = (scenario.gears.len(), scenario.wires.len());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: {}:{} is valid: {gears} gears, {wires} wires",
        file.display(),
        meta.name,
        meta.version
    )?;
    Ok(out.flush()?)
}

/// Says on standard error what an author should know.
fn warn(origin: &str, warnings: &[SourceDiagnostic]) {
    let mut out = std::io::stderr().lock();
    for warning in warnings {
        let _ = writeln!(
            out,
            "{}:{}",
            escape_controls(origin),
            escape_controls(&format!("{warning} (warning)"))
        );
    }
}

/// Stores a file at the Mixer; what it came to.
fn import(file: &Path, replace: bool, api: &ApiArgs) -> Result<Row, Error> {
    let source = ScenarioLocator::File(file.to_owned());
    let text = source.text(api)?;
    // The Mixer checks it again, with the gear types that it knows.
    let ScenarioReview { warnings, .. } = source.review(&text)?;
    warn(&file.display().to_string(), &warnings);
    let query = if replace { json!({ "replace": true }) } else { json!({}) };
    let sent = ApiClient::new(api).send("/api/v1/scenarios", &query, "application/yaml", text.as_bytes());
    let answer = sent.map_err(|error| match error {
        Error::Refused {
            status: 422, detail, ..
        } => Error::Data {
            path: file.to_owned(),
            reason: detail,
        },
        other => other,
    })?;
    client::one(answer, "it does not say what was stored")
}

fn show(reference: &str, api: &ApiArgs) -> Result<(), Error> {
    let answer = ApiClient::new(api).get(&scenario_locator::path(reference, "")?, &())?;
    let row = client::one(answer, "it is not a scenario")?;
    if api.output != OutputFormat::Table {
        return Ok(RowPrinter::from(api).rows(&[row], COLUMNS)?);
    }
    let text = row.get("text").and_then(Value::as_str).unwrap_or_default();
    let lines: String = text
        .lines()
        .flat_map(|line| [escape_controls(line), "\n".into()])
        .collect();
    Ok(pager::show(&lines, !api.no_pager)?)
}

fn activate(scenario: &str, strict: bool, how: &ActivationArgs) -> Result<(), Error> {
    let ActivationArgs { dry_run, wait, api, .. } = how;
    let (dry_run, wait) = (*dry_run, *wait);
    let reference = match ScenarioLocator::of(scenario)? {
        ScenarioLocator::Stored(reference) => reference,
        ScenarioLocator::File(file) if dry_run => {
            let reason = format!(
                "--dry-run takes a stored scenario: platform scenario import {}",
                file.display()
            );
            return Err(Error::Usage(reason));
        }
        ScenarioLocator::File(file) => {
            let row = import(&file, false, api)?;
            // Its reference may mean another content by now.
            let hash = row.get("hash").and_then(Value::as_str);
            hash.unwrap_or_default().to_owned()
        }
    };
    let path = scenario_locator::path(&reference, "/activate")?;
    let ask = |query: Value| rollout_status::of(patient(api, wait).post_with(&path, &query, &json!({}))?);
    if dry_run || strict {
        let report = ask(json!({ "dry_run": true, "resume_from": how.resume_from }))?;
        let warnings = report.get("warnings").and_then(Value::as_array).map_or(0, Vec::len);
        let is_refused = strict && warnings > 0;
        if dry_run || is_refused {
            rollout_status::print(&report, api)?;
        }
        if is_refused {
            return Err(Error::Warned {
                count: warnings,
                spared: "nothing was activated (--strict)",
            });
        }
    }
    if dry_run {
        return Ok(());
    }
    let report = ask(json!({ "wait": wait, "resume_from": how.resume_from }))?;
    rollout_status::print(&report, api)?;
    rollout_status::verdict(&report, wait)
}

/// A client that waits longer than the Mixer does for its Racks.
fn patient(api: &ApiArgs, wait: Option<HumanDuration>) -> ApiClient {
    let most = Duration::from_secs(100);
    let wait = wait.map_or(most, |wait| wait.get().min(most));
    ApiClient::within(api, wait + Duration::from_secs(30))
}
