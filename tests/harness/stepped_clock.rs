//! A wall clock that a test steps under a running program: a preloaded library adds seconds that it reads from a file. The monotonic
//! clock runs evenly. It needs a C compiler, and does nothing to a static program.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::disk::Lacking;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/harness/stepped_clock.c");

/// See the module.
#[derive(Debug)]
pub struct SteppedClock {
    library: String,
    ahead: String,
}

impl SteppedClock {
    /// A clock that is right so far; its files are in the folder.
    ///
    /// # Errors
    /// [`Lacking`], where nothing compiles C here.
    pub fn new(folder: &Path, name: &str) -> Result<Self, Lacking> {
        let in_folder = |name: &str| folder.join(name).display().to_string();
        let (library, ahead) = (in_folder("stepped_clock.so"), in_folder(&format!("{name}.ahead")));
        let arguments = ["-O1", "-shared", "-fPIC", "-o", &library, SOURCE];
        let built = Command::new("cc").args(arguments).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(Lacking("a C compiler for a clock that can be stepped".to_owned()));
        }
        std::fs::write(&ahead, [0; 8]).map_err(|error| Lacking(format!("{ahead}: {error}")))?;
        Ok(Self { library, ahead })
    }

    /// The environment of a program that goes by this clock.
    #[must_use]
    pub fn envs(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_STEP_FILE", &self.ahead)]
    }

    /// From now on the clock is so many seconds ahead of the machine's, or behind it.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn step_to(&self, seconds: i64) -> Result<(), Failure> {
        let file = OpenOptions::new().write(true).open(&self.ahead)?;
        Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}
