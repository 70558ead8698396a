//! `platform-mixer export iceberg`: a catalogue of the data files in a folder of its own, for other catalogues to register.
//!
//! # Invariants
//!
//! - It is of one moment: files that leave the store later are missing then.
//! - The folder was empty or was not there; an export that fails leaves nothing in it.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use chassis::ExitReason;
use engine::SideObjects;
use iceberg::{CatalogPublisher, IcebergError, NAMESPACE};
use model::Clock;
use serde::Serialize;

use crate::app::settings;
use crate::config::MixerConfig;
use crate::retention::ReportFormat;
use crate::start_error::of_engine;

/// A table that was exported.
#[derive(Debug, Serialize)]
struct ExportedTable {
    table: String,
    metadata_location: String,
}

/// Writes the catalogue, beside a running Mixer or without one. Says where each table's metadata is.
///
/// # Errors
/// A sentence and an exit code if the folder has something in it, there is no store, or the system refuses.
pub fn export(
    config: &MixerConfig,
    clock: &Clock,
    (folder, output): (&Path, ReportFormat),
) -> Result<String, (ExitReason, String)> {
    let refused = |reason: String| Err((ExitReason::Usage, reason));
    if let Some(url) = &config.storage.url {
        let url = url.trim_end_matches('/');
        return refused(format!(
            "the store's catalogue is in the object store, below {url}/iceberg/{NAMESPACE}/: register the newest metadata of \
             each table there; platform catalog shows its version"
        ));
    }
    let io = |error: std::io::Error| (ExitReason::Io, format!("cannot use {}: {error}", folder.display()));
    let is_used = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) if error.kind() == ErrorKind::NotADirectory => true,
        Err(error) => return Err(io(error)),
    };
    if is_used {
        return refused(format!(
            "{} is not an empty folder: name one that is, or a new one",
            folder.display()
        ));
    }
    let folder = std::path::absolute(folder).map_err(io)?;
    let read = engine::published_files_of(&settings::engine(config));
    let (store, files) = read.map_err(|error| (of_engine(error.kind()), error.to_string()))?;
    durable_fs::create_dirs(&folder).map_err(|error| (ExitReason::Io, error.to_string()))?;
    let mut publisher = CatalogPublisher::new(SideObjects::in_folder(folder.clone()), store, settings::catalog(config));
    let published = publisher.publish(files, clock.now());
    let tables = published.and_then(|_| exported(&publisher)).map_err(|error| {
        // It is ours: nothing was there.
        let _ = std::fs::remove_dir_all(folder.join(NAMESPACE));
        (ExitReason::Io, error.to_string())
    })?;
    Ok(match output {
        ReportFormat::Json => format!("{}\n", serde_json::json!({ "tables": tables })),
        ReportFormat::Table => text(&tables),
    })
}

fn exported(publisher: &CatalogPublisher) -> Result<Vec<ExportedTable>, IcebergError> {
    let catalog = publisher.catalog();
    let mut tables = Vec::new();
    for table in catalog.tables()? {
        if let Some(loaded) = catalog.load(&table)? {
            let metadata_location = loaded.metadata_location;
            tables.push(ExportedTable {
                table,
                metadata_location,
            });
        }
    }
    Ok(tables)
}

fn text(tables: &[ExportedTable]) -> String {
    let width = tables.iter().map(|table| table.table.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ExportedTable {
        table,
        metadata_location,
    } in tables
    {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{table:<width$}  {metadata_location}");
    }
    text
}
