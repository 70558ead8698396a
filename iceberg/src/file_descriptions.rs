//! Descriptions of data files by their footers, several of which are read at once: in an object store each is a request.
//!
//! # Invariants
//!
//! - A footer is in memory only while its file is described.
//! - Descriptions come in the order of the files, whichever was read first.
//!
//! # Not here
//!
//! Which files are described already: [`crate::day_manifests`].

use std::thread::Builder;

use engine::PublishedFile;

use crate::data_file::DataFile;
use crate::error::IcebergError;
use crate::schema::IcebergSchema;
use crate::table_schemas::TableSchemas;

/// Footers that are read at once.
pub(crate) const READ_AT_ONCE: usize = 16;

/// A file and its schema, or why its footer could not be read.
type FileDescription = Result<(IcebergSchema, DataFile), IcebergError>;

/// Describes files, a thread for each: callers give [`READ_AT_ONCE`] at most.
pub(crate) fn describe_at_once(schemas: &TableSchemas, files: &[&PublishedFile]) -> Vec<FileDescription> {
    std::thread::scope(|scope| {
        let started = files.iter().map(|&file| {
            let thread = Builder::new().name("iceberg-footer".to_owned());
            (file, thread.spawn_scoped(scope, move || describe(schemas, file)).ok())
        });
        let started: Vec<_> = started.collect();
        let described = started.into_iter().map(|(file, thread)| match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No thread was to be had.
            None => describe(schemas, file),
        });
        described.collect()
    })
}

fn describe(schemas: &TableSchemas, file: &PublishedFile) -> FileDescription {
    let footer = file.footer()?;
    let schema = schemas.of_file(footer.as_deref())?;
    let described = DataFile::new(file, footer.as_deref(), &schema);
    Ok((schema, described))
}
