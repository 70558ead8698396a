//! `platform-mixer export iceberg`: a catalogue of the data files in a folder of its own, for other catalogues to register.
//!
//! # Invariants
//!
//! - It is of one moment and names files as the tree does: those that leave the store later are missing then.
//! - The folder was empty or was not there; an export that fails leaves nothing in it.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use chassis::ExitReason;
use engine::{PublishedFiles, SideObjects};
use iceberg::{CatalogPublisher, CatalogSettings, IcebergError, NAMESPACE};
use model::Clock;
use serde::Serialize;
use uuid::Uuid;

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
/// A sentence and an exit code if the folder has something in it or is the store's, there is no store, or the system refuses.
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
    if is_within(&folder, &config.store.dir) {
        return refused(format!(
            "{} is inside store.dir, whose folders are the Mixer's: name one elsewhere",
            folder.display()
        ));
    }
    let missing = folder.ancestors().take_while(|at| !at.exists());
    let missing: Vec<_> = missing.map(Path::to_owned).collect();
    let mut is_again = false;
    let tables = loop {
        let read = engine::published_files_of(&settings::engine(config));
        let (store, files) = read.map_err(|error| (of_engine(error.kind()), error.to_string()))?;
        let settings = settings::catalog(config);
        match write(&folder, (store, files), (settings, clock)) {
            Ok(tables) => break tables,
            Err(error) => {
                clear(&folder, &missing);
                // A file may have left the store since the list was read.
                if is_again || !is_gone(&error) {
                    return Err((ExitReason::Io, error.to_string()));
                }
                is_again = true;
            }
        }
    };
    Ok(match output {
        ReportFormat::Json => format!("{}\n", serde_json::json!({ "tables": tables })),
        ReportFormat::Table => text(&tables),
    })
}

/// Whether a folder that need not be there is in another one, whatever links lead there.
fn is_within(folder: &Path, store: &Path) -> bool {
    let nearest = folder.ancestors().find_map(|at| at.canonicalize().ok());
    let store = store.canonicalize().ok();
    nearest.zip(store).is_some_and(|(at, store)| at.starts_with(store))
}

/// Removes what an export made: the catalogue, and the folders that were `missing`, the innermost first.
fn clear(folder: &Path, missing: &[PathBuf]) {
    let _ = std::fs::remove_dir_all(folder.join(NAMESPACE));
    for made in missing {
        let _ = std::fs::remove_dir(made);
    }
}

fn is_gone(error: &IcebergError) -> bool {
    matches!(error, IcebergError::Storage(engine::Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound)
}

fn write(
    folder: &Path,
    (store, files): (Uuid, PublishedFiles),
    (settings, clock): (CatalogSettings, &Clock),
) -> Result<Vec<ExportedTable>, IcebergError> {
    durable_fs::create_dirs(folder).map_err(engine::Error::from)?;
    let mut publisher = CatalogPublisher::new(SideObjects::in_folder(folder.to_owned()), store, settings);
    publisher.publish(files, clock.now())?;
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
