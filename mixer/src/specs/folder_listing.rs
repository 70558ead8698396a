//! Lists the files of a folder, and detects changes.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use model::spec::MAX_FILE;

/// Files that are looked at, at most.
const MOST_FILES: usize = 1000;

/// What the files of a folder are, without their content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderListing(Vec<FileStamp>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileStamp {
    name: String,
    size: u64,
    changed: Option<SystemTime>,
}

/// A file's name, and its text or why there is none.
pub(super) type FileContent = (String, Result<String, String>);

impl FolderListing {
    /// The spec files of a folder, by name; none of one that is not there.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self(Vec::new())),
            Err(error) => return Err(error),
        };
        let mut seen = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(name) = entry
                .file_name()
                .to_str()
                .filter(|name| is_spec(name))
                .map(str::to_owned)
            else {
                continue;
            };
            // What a link means counts; a file that went meanwhile is none.
            let about = match std::fs::metadata(entry.path()) {
                Ok(about) => about,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // It may well be there: to take it for gone would withdraw its spec.
                Err(error) => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
            };
            if about.is_file() {
                seen.push(FileStamp {
                    name,
                    size: about.len(),
                    changed: about.modified().ok(),
                });
            }
        }
        seen.sort();
        if seen.len() > MOST_FILES {
            let says = format!("it has {} files, {MOST_FILES} at most", seen.len());
            return Err(io::Error::other(says));
        }
        Ok(Self(seen))
    }

    /// Their texts, and whether that is all there is to know. A file that the system does not give out may be had later without
    /// any sign of it here.
    pub(super) fn read(&self, folder: &Path) -> (Vec<FileContent>, bool) {
        let mut is_whole = true;
        let mut read = |seen: &FileStamp| {
            if seen.size > MAX_FILE {
                return Err(format!("it has {} bytes, {MAX_FILE} at most", seen.size));
            }
            std::fs::read_to_string(folder.join(&seen.name)).map_err(|error| {
                is_whole &= error.kind() == io::ErrorKind::InvalidData;
                format!("it cannot be read: {error}")
            })
        };
        let read = self.0.iter().map(|seen| (seen.name.clone(), read(seen))).collect();
        (read, is_whole)
    }
}

fn is_spec(name: &str) -> bool {
    let ending = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml"));
    ending.is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.'))
}
