//! The allow list of programs: what the operator of a Rack lets scenarios run, and whether they may read the journal.
//!
//! # Invariants
//!
//! - A scenario comes from elsewhere: a program runs only if the Rack's own configuration names it, by the very path that the scenario
//!   gives. Who may read the journal may not call its program as `exec` does, with arguments of a scenario's choice, nor the other way round.
//! - A scenario writes files as the Rack's user (`file_out`): a program that this user may write, or put in the place of another, is
//!   refused. Root may write everything: where the Rack is root's, what others may write is refused.
//!
//! # Not here
//!
//! What a program does with its arguments, its folder and the files it reads: the scenario may choose all of them. The check is made when
//! a gear begins, not again before each run.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::{AccessFlags, Uid, access, geteuid};

/// The permission of the group or of all others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Programs by their absolute paths. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramAllowList {
    programs: Arc<[PathBuf]>,
    has_journal: bool,
}

impl ProgramAllowList {
    pub(crate) fn new(programs: &[PathBuf]) -> Self {
        Self {
            programs: programs.into(),
            has_journal: false,
        }
    }

    /// The same, where the journal may be read, or not.
    pub(crate) fn with_journal(self, has_journal: bool) -> Self {
        Self { has_journal, ..self }
    }

    /// Says how the journal may be read, which this program does. It asks the file system.
    pub(in crate::gears) fn admit_journal(&self, program: &str) -> Result<(), String> {
        if !self.has_journal {
            return Err(format!(
                "gears may not read the journal of this machine, by {program}: the Rack's operator sets gears.journald.allow in platform.toml, as in \
                 [gears.journald] allow = true, and starts the Rack again"
            ));
        }
        check_exposure(program)
    }

    /// Says how a program is allowed that is not. It asks the file system.
    pub(in crate::gears) fn admit(&self, program: &str) -> Result<(), String> {
        let path = Path::new(program);
        if !self
            .programs
            .iter()
            .any(|allowed| allowed.as_os_str() == path.as_os_str())
        {
            return Err(format!(
                "the program {program} is not allowed on this Rack: its operator adds it to gears.exec.allow in platform.toml, as in \
                 [gears.exec] allow = [{program:?}], and starts the Rack again"
            ));
        }
        check_exposure(program)
    }
}

/// Refuses a program that a scenario may have written.
fn check_exposure(program: &str) -> Result<(), String> {
    let path = Path::new(program);
    let real = path.canonicalize().unwrap_or_default();
    match path.ancestors().chain(real.ancestors()).find(|place| is_exposed(place)) {
        None => Ok(()),
        Some(place) => Err(format!(
            "the program {program} is not run: {} may be written by the Rack's own user or by others, and so by a scenario; \
             make it root's own, without write permission for its group and others, or move the program",
            place.display()
        )),
    }
}

/// Whether a file or folder may be written by a scenario. One that is not there is not.
fn is_exposed(place: &Path) -> bool {
    let Ok(found) = metadata(place) else { return false };
    let (user, owner) = (geteuid(), Uid::from_raw(found.uid()));
    if user.is_root() {
        !owner.is_root() || found.mode() & OTHERS_WRITE != 0
    } else {
        owner == user || access(place, AccessFlags::W_OK).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_program_that_a_scenario_could_have_written_is_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        write(&script, "#!/bin/sh").unwrap();
        let mut exposed = Vec::new();
        for mode in [0o755, 0o775, 0o757] {
            set_permissions(&script, Permissions::from_mode(mode)).unwrap();
            exposed.push(is_exposed(&script));
        }
        let is_root = geteuid().is_root();
        assert_eq!(exposed, [!is_root, true, true]);
        if is_root {
            set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
            chown(&script, Some(65_534), None).unwrap();
            assert!(is_exposed(&script));
        }
        let programs = ProgramAllowList::new(&[script.clone(), "/bin/true".into(), "/no/such".into()]);
        let error = programs.admit(script.to_str().unwrap()).unwrap_err();
        let says = format!("{} may be written by the Rack's own user", script.display());
        assert!(error.contains(&says) && error.contains("make it root's own"), "{error}");
        assert_eq!(programs.admit("/bin/true"), Ok(()));
        assert_eq!(programs.admit("/no/such"), Ok(()));
    }

    #[test]
    fn a_program_in_a_folder_that_others_may_write_is_refused_also_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        set_permissions(&bin, Permissions::from_mode(0o777)).unwrap();
        let link = bin.join("link");
        std::os::unix::fs::symlink("/bin/true", &link).unwrap();
        let programs = ProgramAllowList::new(std::slice::from_ref(&link));
        let error = programs.admit(link.to_str().unwrap()).unwrap_err();
        assert!(error.contains(&format!("{} may be written", bin.display())), "{error}");
    }
}
