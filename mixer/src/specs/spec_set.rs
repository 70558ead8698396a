//! The spec state file `<store.dir>/specs.json`: the specs in force, and all types that their fields ever had.
//!
//! # Invariants
//!
//! - The file is whole at any moment, and has everything before any of it is in force.
//! - A text that this program reads no more, written by another version of it, does not take the others away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use durable_fs::DurableFsError;
use model::spec::{FieldHistory, SpecHistory};
use model::{SpecName, Timestamp};
use serde::{Deserialize, Serialize};

/// The version of the file.
const FORMAT: u16 = 1;

/// Why what stands cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum SpecSetError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not what was written.
    #[error(
        "{} is damaged: {reason}. Put it back from a copy, or remove it: then spec files are taken as new, and the types of former fields are forgotten",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        reason: String,
    },
    /// The file was written by a later version of this program.
    #[error("{} has format {found}, this program knows {FORMAT}: start the version that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
    },
}

/// A spec that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpecEntry {
    /// The file that it was read from.
    pub(super) file: String,
    /// That file's text.
    pub(super) text: String,
    /// When this version was taken.
    pub(super) taken: Timestamp,
    /// Its file is gone.
    pub(super) withdrawn: bool,
    pub(super) known: SpecHistory,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SpecSet {
    specs: BTreeMap<SpecName, SpecEntry>,
    /// What this program does not understand is kept for the one that does.
    unread: Vec<SpecFileEntry>,
}

#[derive(Serialize, Deserialize)]
struct SpecSetFile {
    format: u16,
    specs: Vec<SpecFileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SpecFileEntry {
    file: String,
    taken: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    withdrawn: bool,
    past: FieldHistory,
    text: String,
}

impl SpecSet {
    /// What was written; nothing if there is no file.
    pub(super) fn read(path: &Path) -> Result<Self, SpecSetError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(SpecSetError::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let stored: SpecSetFile = serde_json::from_slice(&bytes).map_err(|error| SpecSetError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        if stored.format != FORMAT {
            return Err(SpecSetError::Format {
                path: path.to_owned(),
                found: stored.format,
            });
        }
        let mut standing = Self::default();
        for entry in stored.specs {
            match model::spec::parse(&entry.text) {
                Ok(spec) => standing.put(SpecEntry {
                    file: entry.file,
                    taken: entry.taken,
                    withdrawn: entry.withdrawn,
                    known: SpecHistory {
                        past: entry.past.with(&spec),
                        spec,
                    },
                    text: entry.text,
                }),
                Err(error) => {
                    tracing::error!(file = entry.file, %error, "cannot parse a spec that was in force; it matches no more messages");
                    standing.unread.push(entry);
                }
            }
        }
        Ok(standing)
    }

    /// Puts it on disk.
    pub(super) fn write(&self, path: &Path) -> Result<(), DurableFsError> {
        let stored = self.specs.values().map(|entry| SpecFileEntry {
            file: entry.file.clone(),
            taken: entry.taken,
            withdrawn: entry.withdrawn,
            past: entry.known.past.clone(),
            text: entry.text.clone(),
        });
        let stored = SpecSetFile {
            format: FORMAT,
            specs: stored.chain(self.unread.iter().cloned()).collect(),
        };
        let bytes = serde_json::to_vec_pretty(&stored).unwrap_or_default();
        durable_fs::write_atomically(path, &bytes, 0o640)
    }

    /// What stands under a name that differs from this one in its capitals only.
    pub(super) fn twin(&self, name: &SpecName) -> Option<&SpecEntry> {
        let mut twins = self.specs.iter().filter(|(other, _)| other.is_case_variant_of(name));
        twins.next().map(|(_, entry)| entry)
    }

    pub(super) fn get(&self, name: &SpecName) -> Option<&SpecEntry> {
        self.specs.get(name)
    }

    pub(super) fn put(&mut self, entry: SpecEntry) {
        self.specs.insert(entry.known.spec.name, entry);
    }

    /// All of them, by name.
    pub(super) fn specs(&self) -> impl Iterator<Item = (&SpecName, &SpecEntry)> {
        self.specs.iter()
    }

    /// Those that take messages.
    pub(super) fn active(&self) -> impl Iterator<Item = &SpecEntry> {
        self.specs.values().filter(|entry| !entry.withdrawn)
    }
}
