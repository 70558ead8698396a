//! The folders of a store: locks them, lists their files, and tells a lost catalogue from a new store.

use std::path::{Path, PathBuf};

use durable_fs::{FileLock, LockError};
use model::Table;
use uuid::Uuid;

use crate::datafile::inspect;
use crate::layout::StoreLayout;
use crate::manifest::known_store_id;
use crate::{Error, Settings, wal};

/// Takes the store and its tree for this process. Of the folders that it needs, those in staging are made.
pub(crate) fn lock_store(layout: &StoreLayout, settings: &Settings) -> Result<Vec<FileLock>, Error> {
    for dir in layout.staging_folders() {
        durable_fs::create_private_dirs(dir)?;
    }
    let mut locks = vec![
        take_lock(&layout.meta, &settings.store_dir)?,
        take_lock(&layout.data_staging, &settings.data_dir)?,
    ];
    if layout.messages_staging != layout.data_staging {
        locks.push(take_lock(&layout.messages_staging, &settings.messages_dir)?);
    }
    Ok(locks)
}

/// Locks the store's folder `dir` by the file `LOCK` in `folder`.
fn take_lock(folder: &Path, dir: &Path) -> Result<FileLock, Error> {
    FileLock::take(&folder.join("LOCK")).map_err(|error| match error {
        LockError::Held { pid, .. } => Error::Locked {
            dir: dir.to_owned(),
            pid: pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string()),
        },
        LockError::File(error) => error.into(),
    })
}

/// Refuses a store whose catalogue is gone: it must not begin anew beside its data, and forget what it had stored.
pub(crate) fn check_not_lost(layout: &StoreLayout) -> Result<(), Error> {
    let id = || known_store_id(&layout.meta).map_err(Error::of_catalogue);
    let beside = if wal::is_there(&layout.wal)? {
        "a log"
    } else if id()?.is_some_and(|id| has_data(layout, id)) {
        "data files"
    } else {
        return Ok(());
    };
    Err(Error::Catalogue {
        path: layout.meta.clone(),
        reason: format!("it has no checkpoint, beside {beside}"),
    })
}

fn has_data(layout: &StoreLayout, store: Uuid) -> bool {
    let files = Table::ALL
        .iter()
        .filter_map(|table| data_files(&layout.folder(*table)).ok());
    let mut files = files.flatten();
    files.any(|path| inspect(&path).is_ok_and(|about| about.identity.store == store))
}

/// The data files in the tree.
pub(crate) fn data_files(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("list", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            if entry.file_type().map_err(Error::io("read", &entry.path()))?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// Removes the folders above a file that went, up to its table's, as far as they are empty.
pub(crate) fn remove_empty_folders(file: &Path, data: &Path) {
    let folders = file.ancestors().skip(1);
    for folder in folders.take_while(|folder| folder.parent().is_some_and(|parent| parent != data && *folder != data)) {
        // A folder that is not empty ends the way up.
        if std::fs::remove_dir(folder).is_err() {
            return;
        }
    }
}
