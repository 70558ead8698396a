//! A working folder that is gone with whoever made it.

use std::io;
use std::path::{Path, PathBuf};

use model::Entropy;

/// The folder.
#[derive(Debug)]
pub(super) struct ScenarioTestFolder(PathBuf);

impl ScenarioTestFolder {
    /// Makes a new one among the temporary files of the system.
    pub(super) fn make(entropy: &Entropy) -> io::Result<Self> {
        let number = u64::from_be_bytes(entropy.bytes());
        let path = std::env::temp_dir().join(format!("platform-scenario-test-{number:016x}"));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScenarioTestFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a working folder stays");
        }
    }
}
