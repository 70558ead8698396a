//! `platform spec`: validates spec files, and lists the specs of the Mixer.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use model::SpecName;
use model::spec::{self, BadSpec, MAX_FILE, Spec};
use serde_json::{Value, json};

use crate::args::{ApiArgs, SpecArgs, SpecVerb};
use crate::client::{self, ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &[
    "name",
    "version",
    "state",
    "file",
    "table",
    "fields",
    "messages",
    "failed_values",
];

pub(crate) fn run(args: &SpecArgs) -> Result<(), Error> {
    match &args.verb {
        SpecVerb::Validate { paths } => validate(paths),
        SpecVerb::List(api) => list(api),
    }
}

fn validate(paths: &[PathBuf]) -> Result<(), Error> {
    let mut faults = Vec::new();
    let mut good: BTreeMap<SpecName, (PathBuf, Spec)> = BTreeMap::new();
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_of(path)?);
    }
    for path in files {
        let origin = path.display().to_string();
        match spec::parse(&text(&path)?) {
            Err(BadSpec(found)) => faults.extend(found.iter().map(|fault| format!("{origin}:{fault}"))),
            Ok(found) => {
                if let Some((other, _)) = good.get(&found.name) {
                    faults.push(format!(
                        "{origin}:1:1: {} already defines the spec {}",
                        other.display(),
                        found.name
                    ));
                } else if let Some((twin, (other, _))) =
                    good.iter().find(|(name, _)| name.is_case_variant_of(&found.name))
                {
                    faults.push(format!(
                        "{origin}:1:1: {} is the spec {twin}, and DuckDB cannot distinguish messages_{} from \
                         messages_{twin}: rename one of them",
                        other.display(),
                        found.name
                    ));
                } else {
                    good.insert(found.name, (path, found));
                }
            }
        }
    }
    if !faults.is_empty() {
        return Err(Error::Files(faults));
    }
    let mut out = std::io::stdout().lock();
    for (name, (path, spec)) in &good {
        let (file, fields) = (path.display(), spec.fields.len());
        writeln!(
            out,
            "{file}: {name}, version {}, is valid: {fields} fields",
            spec.version
        )?;
    }
    Ok(out.flush()?)
}

/// The spec in a file.
pub(super) fn read(path: &Path) -> Result<Spec, Error> {
    let origin = path.display();
    spec::parse(&text(path)?)
        .map_err(|BadSpec(found)| Error::Files(found.iter().map(|fault| format!("{origin}:{fault}")).collect()))
}

/// The file; of a folder its spec files, by name.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_spec = path
            .extension()
            .is_some_and(|ending| ending == "yaml" || ending == "yml");
        if is_spec && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let reason = "there is no file that ends in .yaml or .yml".to_owned();
        return Err(Error::Data {
            path: path.to_owned(),
            reason,
        });
    }
    Ok(files)
}

fn text(path: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE {
        return Err(Error::Data {
            path: path.to_owned(),
            reason: format!("it has {size} bytes, {MAX_FILE} at most"),
        });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn list(api: &ApiArgs) -> Result<(), Error> {
    let answer = ApiClient::new(api).get("/api/v1/specs", &())?;
    let data = client::one(answer, "it does not say which specs there are")?;
    let rows: Vec<Row> = entries(data.get("specs")).map(shown).collect();
    RowPrinter::from(api).rows(&rows, COLUMNS)?;
    if rows.is_empty() {
        super::note("no specs in force; files in the Mixer's folder store.specs_dir are");
    }
    let mut out = std::io::stderr().lock();
    for refused in entries(data.get("refused")) {
        let file = refused.get("file").and_then(Value::as_str).unwrap_or_default();
        for fault in entries(refused.get("faults")) {
            let (line, column) = (&fault["line"], &fault["column"]);
            let text = fault["text"].as_str().unwrap_or_default();
            let says = format!("{file}:{line}:{column}: {text} (refused; its previous version stays in force)");
            let _ = writeln!(out, "platform: {}", escape_controls(&says));
        }
    }
    Ok(())
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// A spec as a row: of its columns the names.
fn shown(spec: &Value) -> Row {
    let mut row = spec.as_object().cloned().unwrap_or_default();
    let names = entries(spec.get("columns")).filter_map(|column| column.get("name")?.as_str());
    row.insert("fields".to_owned(), json!(names.collect::<Vec<_>>().join(",")));
    row
}
