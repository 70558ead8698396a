//! A running engine that has the catalogue of a Mixer attached.

use std::path::{Path, PathBuf};

use harness::s3::{BUCKET, KEY, SECRET};
use harness::{Failure, TestMixer, duckdb};
use serde_json::{Value, json};

use crate::readme::project;

/// An engine; `engines.py` says what it can be asked.
#[derive(Debug)]
pub(super) struct CatalogReader {
    pub(super) name: String,
    session: duckdb::Session,
}

/// ClickHouse is not small: it comes with the readers of files.
fn python_of(engine: &str) -> Result<PathBuf, Failure> {
    let (folder, target) = match engine {
        "chdb" => (".tools/bench-python", "lakehouse"),
        _ => (".tools/lakehouse-python", "tools or lakehouse"),
    };
    let python = project().join(folder).join("bin/python");
    if python.is_file() {
        Ok(python)
    } else {
        Err(format!("{engine} is missing: make {target} installs it").into())
    }
}

/// How the catalogue of a Mixer is reached.
#[derive(Debug, Default)]
pub(super) struct CatalogAccess {
    /// Where the test's bucket is, if the tables are there.
    pub(super) endpoint: Option<String>,
    /// What the engine shows, if it says who it is.
    pub(super) token: Option<String>,
}

impl CatalogReader {
    /// Starts an engine; what it prints and says goes to files in `folder`.
    pub(super) fn open(name: &str, mixer: &TestMixer, access: &CatalogAccess, folder: &Path) -> Result<Self, Failure> {
        let mut settings = json!({
            "api": mixer.api.base, "store": mixer.path().join("data"), "log": folder.join(format!("{name}.log")),
        });
        if let Some(token) = &access.token {
            settings["token"] = token.as_str().into();
        }
        if let Some(endpoint) = &access.endpoint {
            settings["s3"] = json!({ "endpoint": endpoint, "bucket": BUCKET, "key": KEY, "secret": SECRET });
        }
        let script = project().join("tests/suite/lakehouse/engines.py");
        let args: [PathBuf; 5] = [
            "-W".into(),
            "ignore".into(),
            script,
            name.into(),
            settings.to_string().into(),
        ];
        let errors = folder.join(format!("{name}.errors"));
        Ok(Self {
            name: name.to_owned(),
            session: duckdb::Session::start(&python_of(name)?, &args, &errors)?,
        })
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, question: &Value) -> Result<Value, Failure> {
        let lines = self.session.ask(&question.to_string());
        let lines = lines.map_err(|error| format!("{}: {error}", self.name))?;
        let line = lines
            .last()
            .ok_or_else(|| format!("{}: no answer to {question}", self.name))?;
        Ok(serde_json::from_str(line)?)
    }
}
