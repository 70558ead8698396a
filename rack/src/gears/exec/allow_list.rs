//! The allow list of programs: what the operator of a Rack lets scenarios run.
//!
//! # Invariants
//!
//! - A scenario comes from elsewhere: a program runs only if the Rack's own configuration names it, by the very path that the scenario
//!   gives.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Programs by their absolute paths. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramAllowList(Arc<[PathBuf]>);

impl ProgramAllowList {
    pub(crate) fn new(programs: &[PathBuf]) -> Self {
        Self(programs.into())
    }

    /// Says how a program is allowed that is not.
    pub(super) fn admit(&self, program: &str) -> Result<(), String> {
        if self
            .0
            .iter()
            .any(|allowed| allowed.as_os_str() == Path::new(program).as_os_str())
        {
            return Ok(());
        }
        Err(format!(
            "the program {program} is not allowed on this Rack: its operator adds it to gears.exec.allow in platform.toml, as in \
             [gears.exec] allow = [{program:?}], and starts the Rack again"
        ))
    }
}
