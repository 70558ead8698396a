//! What a root of a policy may be: checked when the Rack starts.
//!
//! # Invariants
//!
//! - A root neither is, holds nor lies within what the Rack keeps for itself: its state file, spool and outbox. A scenario that reads or writes
//!   there would have the Rack's identity.
//! - A root is not within a file system of the kernel, whose files give away the Rack's environment.

use std::path::{Path, PathBuf};

use crate::Error;

/// File systems whose files are the kernel's.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Where the Rack keeps what is its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RackPlaces<'a> {
    pub(crate) state_dir: &'a Path,
    pub(crate) state_file: &'a Path,
    pub(crate) store_dir: &'a Path,
}

impl RackPlaces<'_> {
    /// The roots of a key as absolute paths, made where it is the default one.
    pub(super) fn check_roots(&self, key: &'static str, roots: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
        roots.iter().map(|root| check(self, key, root)).collect()
    }
}

fn check(places: &RackPlaces<'_>, key: &'static str, root: &Path) -> Result<PathBuf, Error> {
    let bad = |reason: String| Error::Policy {
        key,
        value: root.display().to_string(),
        reason,
    };
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| bad(error.to_string()));
    let made = (root == places.store_dir.join("files")).then(|| durable_fs::create_dirs(root));
    if let Some(Err(error)) = made {
        tracing::warn!("{key}: {error}; gears cannot use files there");
    } else if !root.is_dir() {
        tracing::warn!(
            "{key}: the folder {} does not exist; gears cannot use files there until it does",
            root.display()
        );
    }
    let state_dir = absolute(places.state_dir)?;
    let state_dirs = [state_dir.clone(), state_dir.canonicalize().unwrap_or_default()];
    let own = state_dirs
        .iter()
        .flat_map(|dir| ["spool", "outbox"].map(|name| dir.join(name)));
    let own: Vec<PathBuf> = own.collect();
    let state_file = absolute(places.state_file)?;
    let spellings = [absolute(root)?, root.canonicalize().unwrap_or_default()];
    for spelling in &spellings {
        let holds = |place: &Path| {
            let real = place.canonicalize().unwrap_or_else(|_| place.to_owned());
            place.starts_with(spelling) || real.starts_with(spelling)
        };
        let is_within = |place: &Path| spelling.starts_with(place);
        if spelling.as_os_str().is_empty() {
            continue;
        }
        if holds(&state_dir) || holds(&state_file) || own.iter().any(|own| is_within(own)) {
            return Err(bad(format!(
                "it would open the state of the Rack itself, in {}, to scenarios: name a folder beside or beneath it, such as {}",
                state_dir.display(),
                places.store_dir.join("files").display()
            )));
        }
        if let Some(kernel) = KERNEL.iter().find(|kernel| is_within(Path::new(kernel))) {
            return Err(bad(format!(
                "{kernel} holds no files but the kernel's, with secrets of processes; name a folder of files"
            )));
        }
    }
    let [absolute, _] = spellings;
    Ok(absolute)
}
