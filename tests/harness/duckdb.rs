//! DuckDB over the live tree, by patterns of files or by the store's `platform.sql`: the outside reader.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Map, Value};

use crate::{Failure, process, tool};

/// What a session prints behind an answer.
const END: &str = "-- end of the answer";

/// The first value of a query's answer, as text.
///
/// # Errors
/// What DuckDB says.
pub fn scalar(sql: &str, folder: &Path) -> Result<String, Failure> {
    let done = process::run(&tool("duckdb")?, &["-noheader", "-csv", "-c", sql], folder, &[])?;
    if done.code == Some(0) {
        Ok(done.out.trim().to_owned())
    } else {
        Err(format!("{sql}: {}", done.err).into())
    }
}

/// The number of rows that a condition selects of a table's files; 0 while there are none.
///
/// # Errors
/// What DuckDB says.
pub fn count(telemetry: &Path, table: &str, condition: &str) -> Result<u64, Failure> {
    let root = telemetry.join(table);
    if !root.is_dir() {
        return Ok(0);
    }
    let sql = format!(
        "select count(*) from read_parquet('{}/**/*.parquet') where {condition}",
        root.display()
    );
    Ok(scalar(&sql, telemetry)?.parse()?)
}

/// The rows of a statement over the tables of a store, as views of its files.
///
/// # Errors
/// What DuckDB says.
pub fn rows(statement: &str, store: &Path) -> Result<Vec<Map<String, Value>>, Failure> {
    let views = [
        ("logs", "telemetry/logs"),
        ("traces", "telemetry/traces"),
        ("metrics", "telemetry/metrics"),
        ("messages", "messages"),
    ];
    let views = views.map(|(name, folder)| {
        let files = store.join(folder).join("**/*.parquet");
        format!(
            "create view {name} as select * from read_parquet('{}', hive_partitioning = false);",
            files.display()
        )
    });
    let script = format!("set timezone = 'UTC'; {} {statement}", views.concat());
    let done = process::run(&tool("duckdb")?, &["-json", "-c", &script], store, &[])?;
    if done.code != Some(0) {
        return Err(format!("{statement}: {}", done.err).into());
    }
    if done.out.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&done.out).map_err(|error| format!("{statement}: {error}: {}", done.out).into())
}

/// One session of DuckDB that has loaded a store's `platform.sql` and is asked again and again.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
}

impl Session {
    /// Starts it and loads the file of views; what it complains about goes to `errors`.
    ///
    /// # Errors
    /// If it cannot be started, or what DuckDB says of the views.
    pub fn open(views: &Path, errors: &Path) -> Result<Self, Failure> {
        let args = ["-batch", "-noheader", "-list", "-no-init"].map(PathBuf::from);
        let mut session = Self::start(&tool("duckdb")?, &args, errors)?;
        session.tell(&format!(".read '{}'", views.display()))?;
        Ok(session)
    }

    /// Starts another program that is asked in lines and understands `.print`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, args: &[PathBuf], errors: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(errors)?)
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err("DuckDB has no pipes".into());
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            errors: errors.to_owned(),
        })
    }

    /// The lines of an answer.
    ///
    /// # Errors
    /// What DuckDB says.
    pub fn ask(&mut self, statement: &str) -> Result<Vec<String>, Failure> {
        self.tell(&format!("{statement};"))
    }

    fn tell(&mut self, asked: &str) -> Result<Vec<String>, Failure> {
        let before = std::fs::metadata(&self.errors)?.len();
        writeln!(self.input, "{asked}\n.print {END}")?;
        self.input.flush()?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("{asked}: DuckDB ended: {}", self.said(0)?).into());
            }
            match line.trim_end_matches('\n') {
                END => break,
                line => lines.push(line.to_owned()),
            }
        }
        match self.said(before)? {
            said if said.is_empty() => Ok(lines),
            said => Err(format!("{asked}: {said}").into()),
        }
    }

    /// What it complained about since its complaints had so many bytes.
    fn said(&self, since: u64) -> Result<String, Failure> {
        let all = std::fs::read(&self.errors)?;
        let new = all.get(usize::try_from(since)?..).unwrap_or_default();
        Ok(String::from_utf8_lossy(new).trim().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
