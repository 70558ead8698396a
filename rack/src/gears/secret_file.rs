//! Secrets of gears that lie in files beneath the read roots of the Rack's policy.
//!
//! # Invariants
//!
//! - An end of line after the secret does not belong to it; everything else does.

use std::error::Error;
use std::path::Path;

use crate::policy::FileRoots;

/// The most bytes of a file with a secret.
const MAX_SECRET_FILE: u64 = 1 << 20;

/// The secret in the file of a key; the error names both.
pub(super) fn read_secret(files: &FileRoots, key: &str, path: &Path) -> Result<String, String> {
    let bad = |error: &dyn Error| format!("{key} {}: {error}", path.display());
    let bytes = files.read(path, MAX_SECRET_FILE).map_err(|error| bad(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| bad(&error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
