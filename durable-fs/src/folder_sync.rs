//! Folders: handles on those whose names are going to change, and their syncs.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::DurableFsError;

/// Folders whose names are going to change, opened before they do.
#[derive(Debug)]
pub struct FolderHandles(Vec<(PathBuf, File)>);

impl FolderHandles {
    /// Opens each folder once. An error harms nothing.
    pub fn open<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<Self, DurableFsError> {
        let mut open: Vec<(PathBuf, File)> = Vec::new();
        for folder in folders {
            if open.iter().all(|(other, _)| other != folder) {
                fault!(OpenFolder, "open", folder);
                let handle = File::open(folder).map_err(DurableFsError::of("open", folder))?;
                open.push((folder.to_owned(), handle));
            }
        }
        Ok(Self(open))
    }

    /// Makes the names in them durable.
    ///
    /// # Errors
    /// In doubt: what is on the disk is unknown.
    pub fn sync(&self) -> Result<(), DurableFsError> {
        for (path, folder) in &self.0 {
            let sync = || {
                fault!(SyncFolder, "sync", path);
                folder.sync_all().map_err(DurableFsError::of("sync", path))
            };
            sync().map_err(|error| DurableFsError {
                in_doubt: true,
                ..error
            })?;
        }
        Ok(())
    }
}

/// Makes the names in a folder durable. An error of the sync is in doubt, as with [`FolderHandles::sync`].
pub fn sync_dir(dir: &Path) -> Result<(), DurableFsError> {
    FolderHandles::open([dir])?.sync()
}

/// Creates a folder with its missing ancestors, durably: the folder of each new name is synced.
///
/// A process that was killed here left at most one name unsynced, that of the deepest folder: it is synced too, except in a folder
/// that we may not read, where no process of ours has made a name.
pub fn create_dirs(dir: &Path) -> Result<(), DurableFsError> {
    let is_missing = |at: &&Path| !at.as_os_str().is_empty() && !at.is_dir();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    let deepest = dir.ancestors().nth(missing.len()).unwrap_or(dir);
    match sync_dir(parent_of(deepest)) {
        // Nor is it ours to sync where we may not open it, or where its file system knows no such thing.
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            return Err(error);
        }
        _ => {}
    }
    for dir in missing.iter().rev() {
        let folder = FolderHandles::open([parent_of(dir)])?;
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DurableFsError::of("create", dir)(error));
            }
            _ => folder.sync()?,
        }
    }
    Ok(())
}

/// The same for a folder that nobody else may enter: its mode is 0700 afterwards, whoever made it.
pub fn create_private_dirs(dir: &Path) -> Result<(), DurableFsError> {
    create_dirs(dir)?;
    let found = fs::metadata(dir).map_err(DurableFsError::of("read", dir))?;
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(DurableFsError::of("restrict", dir))
}

/// The folder that holds a name; the working folder for a bare one.
#[must_use]
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn missing_ancestors_are_created_and_existing_ones_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("2026/11/21/10");
        create_dirs(&deep).unwrap();
        create_dirs(&deep).unwrap();
        assert!(deep.is_dir());
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        assert!(create_dirs(&file.join("x")).is_err());
    }

    #[test]
    fn a_private_folder_is_closed_to_others_also_where_it_was_open() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("a/meta");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_private_dirs(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
        fs::set_permissions(&private, Permissions::from_mode(0o755)).unwrap();
        create_private_dirs(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
    }

    #[test]
    fn a_parent_whose_file_system_cannot_sync_folders_is_not_ours_to_sync() {
        let error = sync_dir(Path::new("/proc")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        create_dirs(Path::new("/proc/self")).unwrap();
    }
}
