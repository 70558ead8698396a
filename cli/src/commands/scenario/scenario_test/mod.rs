//! `platform scenario test`: unit tests of a scenario.
//!
//! # Invariants
//!
//! - A file is checked whole, with its scenario, before its first case runs.
//! - An interrupt ends the case that runs, and leaves nothing of it; its exit code is 130.
//! - Cases run one after the other, each with gears of its own: none sees anything of another.
//!
//! # Not here
//!
//! How gears run (`rack::scenario_test`), the form of files (`model::scenario_test`).

mod comparison;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use model::scenario::Scenario;
use model::scenario_test::{self, ScenarioSource, ScenarioTestCase, ScenarioTestFile};
use serde_json::{Value, json};
use tokio::signal::ctrl_c;

use super::scenario_locator::{self, ScenarioLocator};
use crate::args::OutputFormat;
use crate::client::Row;
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &["case", "passed", "ms", "reasons"];

pub(super) fn run(path: &Path, output: OutputFormat) -> Result<(), Error> {
    let origin = path.display().to_string();
    let file = scenario_test::parse(&scenario_locator::file(path)?).map_err(|faults| {
        let line = |fault: &scenario_test::SourceDiagnostic| format!("{origin}:{fault}");
        Error::Files(faults.iter().map(line).collect())
    })?;
    let scenario = scenario(path, &file)?;
    check(&origin, &scenario, &file)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let verdicts = runtime.block_on(async {
        tokio::select! {
            biased;
            // The case that runs is dropped, and its working folder with it.
            _ = ctrl_c() => Err(Error::Interrupted),
            verdicts = try_cases(&scenario, &file, output) => verdicts,
        }
    });
    // Gears of a case that was dropped end with the process.
    runtime.shutdown_background();
    let verdicts = verdicts?;
    if output != OutputFormat::Table {
        let rows: Vec<Row> = verdicts.iter().map(CaseVerdict::row).collect();
        RowPrinter::of(output).rows(&rows, COLUMNS)?;
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.reasons.is_empty()).count();
    match failed {
        0 => Ok(()),
        failed => Err(Error::Failed {
            failed,
            all: verdicts.len(),
        }),
    }
}

/// The scenario that a file tests: a path is seen from the file.
fn scenario(path: &Path, file: &ScenarioTestFile) -> Result<Scenario, Error> {
    match &file.scenario {
        ScenarioSource::Path(scenario) => {
            let folder = path.parent().unwrap_or(Path::new(""));
            let scenario = folder.join(scenario);
            let text = scenario_locator::file(&scenario)?;
            Ok(ScenarioLocator::File(scenario).review(&text)?.scenario)
        }
        ScenarioSource::Inline(text) => {
            let parsed = model::scenario::parse(text, gear_spec::manifests());
            parsed.map_err(|faults| Error::Data {
                path: path.to_owned(),
                // Places are those of another text.
                reason: faults
                    .0
                    .iter()
                    .map(|fault| format!("scenario: {}", fault.text))
                    .collect::<Vec<_>>()
                    .join("; "),
            })
        }
    }
}

/// Whether every case is about gears and ports that there are.
fn check(origin: &str, scenario: &Scenario, file: &ScenarioTestFile) -> Result<(), Error> {
    let of_case = |case: &ScenarioTestCase| {
        let (line, column) = case.place;
        let misfits = rack::scenario_test::validate_case(scenario, case).into_iter();
        let told = misfits.map(move |misfit| format!("{origin}:{line}:{column}: {misfit}"));
        told.collect::<Vec<_>>()
    };
    let misfits: Vec<String> = file.cases.iter().flat_map(of_case).collect();
    match misfits.is_empty() {
        true => Ok(()),
        false => Err(Error::Files(misfits)),
    }
}

/// What a case came to.
struct CaseVerdict {
    case: String,
    took: Duration,
    /// Why it failed; none if it did not.
    reasons: Vec<String>,
    /// What gears complained of.
    complaints: Vec<String>,
}

impl CaseVerdict {
    fn row(&self) -> Row {
        let row = json!({
            "case": self.case,
            "passed": self.reasons.is_empty(),
            "ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "reasons": self.reasons,
            "complaints": self.complaints,
        });
        match row {
            Value::Object(row) => row,
            _ => Row::new(),
        }
    }
}

async fn try_cases(
    scenario: &Scenario,
    file: &ScenarioTestFile,
    output: OutputFormat,
) -> Result<Vec<CaseVerdict>, Error> {
    let mut verdicts = Vec::new();
    for case in &file.cases {
        let verdict = try_case(scenario, case).await?;
        if output == OutputFormat::Table {
            tell(&verdict)?;
        }
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

async fn try_case(scenario: &Scenario, case: &ScenarioTestCase) -> Result<CaseVerdict, Error> {
    let began = Instant::now();
    let (clock, entropy) = (chassis::system_clock(), chassis::os_entropy());
    let (reasons, complaints) = match rack::scenario_test::run(scenario, case, (&clock, &entropy)).await {
        Ok(report) => (comparison::reasons(case, &report), report.complaints),
        Err(rack::scenario_test::ScenarioTestError::Folder(source)) => {
            let path = std::env::temp_dir();
            return Err(Error::WriteFile { path, source });
        }
        Err(error) => (vec![error.to_string()], Vec::new()),
    };
    Ok(CaseVerdict {
        case: case.name.clone(),
        took: began.elapsed(),
        reasons,
        complaints,
    })
}

/// Says what a case came to, with what gears said where it failed.
fn tell(verdict: &CaseVerdict) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let (name, millis) = (escape_controls(&verdict.case), verdict.took.as_millis());
    if verdict.reasons.is_empty() {
        writeln!(out, "ok    {name} ({millis} ms)")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "FAIL  {name} ({millis} ms)")?;
    for reason in &verdict.reasons {
        writeln!(out, "      {}", escape_controls(reason))?;
    }
    for complaint in &verdict.complaints {
        writeln!(out, "      gear {}", escape_controls(complaint))?;
    }
    Ok(out.flush()?)
}
