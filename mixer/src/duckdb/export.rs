//! `platform-mixer export duckdb`: a database of the store, made by the program `duckdb` from `platform.sql`.
//!
//! # Invariants
//!
//! - The database has its name only when it is whole; one that is there is replaced only with `force`.
//! - No process of ours keeps it open: DuckDB lets nobody else in while one does.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chassis::ExitReason;
use model::dialect::specs::quoted;
use model::{SpecName, Table};

use super::VIEWS_FILE;
use crate::bus_server::places;
use crate::config::MixerConfig;

const PROGRAM: &str = "duckdb";

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions<'a> {
    /// The database; `store.database_file` if none.
    pub file: Option<&'a Path>,
    /// Tables with all rows instead of views of the data files.
    pub rows: bool,
    /// Replace a file that is there.
    pub force: bool,
    /// The program; the first one that is found if none.
    pub program: Option<&'a Path>,
}

/// Makes the database, beside a running Mixer or without one. Says what it made.
///
/// # Errors
/// A sentence and an exit code if the file is there already, there are no views yet, or DuckDB is missing or fails.
pub fn duckdb(config: &MixerConfig, task: ExportOptions<'_>) -> Result<String, (ExitReason, String)> {
    let target = task.file.unwrap_or(&config.store.database_file);
    if target.exists() && !task.force {
        let sentence = format!("{} is there already; --force replaces it", target.display());
        return Err((ExitReason::Usage, sentence));
    }
    let log = PathBuf::from([target.as_os_str(), OsStr::new(".wal")].join(OsStr::new("")));
    if log.exists() {
        // DuckDB would apply it to the new database.
        let (target, log) = (target.display(), log.display());
        let sentence = format!("{log} is there: DuckDB has {target} open, or ended early; open and close it once more");
        return Err((ExitReason::Usage, sentence));
    }
    let views = config.store.dir.join(VIEWS_FILE);
    let views = std::fs::read_to_string(&views).map_err(|error| {
        let views = views.display();
        let sentence = format!("cannot read {views}: {error}; a Mixer writes it when it starts with this store.dir");
        (ExitReason::Io, sentence)
    })?;
    let program = find(task.program)?;
    let staged = staged(target)?;
    let specs = specs_in(&views);
    let made = make(&program, &views, &staged, task.rows.then_some(&specs)).and_then(|()| {
        let synced = std::fs::File::open(&staged).and_then(|file| file.sync_all());
        let named = synced.and_then(|()| Ok(durable_fs::rename_durably(&staged, target)?));
        named.map_err(|error| (ExitReason::Io, format!("cannot write {}: {error}", target.display())))
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&staged);
    }
    made?;
    let what = if task.rows {
        "tables with all rows"
    } else {
        "views of the data files"
    };
    Ok(format!("{}: {what}\n", target.display()))
}

fn find(named: Option<&Path>) -> Result<PathBuf, (ExitReason, String)> {
    match named {
        Some(named) => Ok(named.to_owned()),
        None => places(PROGRAM).into_iter().find(|path| path.is_file()).ok_or_else(|| {
            let sentence = "the program duckdb is missing: put it on PATH, or name it with --program; without it, the file \
                            platform.sql of store.dir makes the same views in any DuckDB";
            (ExitReason::Unavailable, sentence.to_owned())
        }),
    }
}

/// The name beside the target under which the database is made; nothing has it.
fn staged(target: &Path) -> Result<PathBuf, (ExitReason, String)> {
    let unusable = |reason: &str| (ExitReason::Usage, format!("{} {reason}", target.display()));
    let name = target.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| unusable("names no file"))?;
    let staged = target.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    durable_fs::remove_if_there(&staged).map_err(|error| unusable(&format!("cannot be made: {error}")))?;
    Ok(staged)
}

fn make(program: &Path, views: &str, staged: &Path, rows: Option<&[SpecName]>) -> Result<(), (ExitReason, String)> {
    let failed = |reason: String| {
        (
            ExitReason::Io,
            format!("{} failed: {}", program.display(), reason.trim()),
        )
    };
    let mut command = Command::new(program);
    command.args(["-batch", "-bail", "-no-init"]);
    let script = if let Some(specs) = rows {
        format!("{views}\n{}", copies(staged, specs)?)
    } else {
        command.arg(staged);
        views.to_owned()
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            (
                ExitReason::Unavailable,
                format!("cannot run {}: {error}", program.display()),
            )
        })?;
    // What it says is short, so it never waits for us while we wait for it.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let done = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    match written {
        _ if !done.status.success() => Err(failed(String::from_utf8_lossy(&done.stderr).into_owned())),
        Some(Err(error)) => Err(failed(error.to_string())),
        _ => Ok(()),
    }
}

/// The specs of whose tables a file of views has views.
fn specs_in(views: &str) -> Vec<SpecName> {
    let start = format!("CREATE OR REPLACE VIEW \"{}_", Table::Messages);
    let names = views.lines().filter_map(|line| line.strip_prefix(&start));
    names.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
}

/// Copies every view into a database, under the same names.
fn copies(staged: &Path, specs: &[SpecName]) -> Result<String, (ExitReason, String)> {
    let path = staged
        .to_str()
        .ok_or_else(|| (ExitReason::Usage, format!("{} is not UTF-8", staged.display())))?;
    let mut script = format!("ATTACH '{}' AS exported;\n", path.replace('\'', "''"));
    let specs = specs.iter().map(model::spec::table_name);
    for name in Table::ALL.map(|table| table.name().to_owned()).into_iter().chain(specs) {
        let (between, name) = (quoted(&format!("{name}_between")), quoted(&name));
        script.push_str(&format!(
            "CREATE TABLE exported.{name} AS FROM {name};\n\
             CREATE MACRO exported.{between}(since, until) AS TABLE\n\
             SELECT * FROM {name} WHERE ts >= since::TIMESTAMPTZ AND ts < until::TIMESTAMPTZ;\n"
        ));
    }
    script.push_str("DETACH exported;\n");
    Ok(script)
}
