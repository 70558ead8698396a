//! File modes: the umask of our programs, and the refusal of folders that somebody else may write.
//!
//! ```text
//! store.dir               0750   the group may read what tools of analysts read: telemetry/, messages/, the view files (0640)
//! meta/ wal/ js/ …        0700   only we read (0600; JetStream's own files have the modes that the bus server gives them)
//! base.state_dir          0700   made so; an existing one keeps the mode that the operator gave it
//! ```
//!
//! # Invariants
//!
//! - A stricter umask that the operator set stays.
//! - Only the folder itself is looked at. Its ancestors, such as `/tmp` with its sticky bit, are the operator's.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

use crate::Error;

/// What group and others may not do with our files: the group not write, others nothing.
const DENIED: Mode = Mode::S_IWGRP.union(Mode::S_IRWXO);
const SHARED_WRITE: u32 = 0o022;

/// Sets the umask of this process to 027, or to what it is where that is stricter. The first thing that a program does.
pub fn restrict_umask() {
    let before = umask(Mode::all());
    umask(before | DENIED);
}

/// Refuses a folder of ours that group or others may write, or that is neither ours nor root's: they could have put anything into it. A
/// missing one passes.
///
/// # Errors
/// [`Error::SharedFolder`], [`Error::ForeignFolder`], or [`Error::Folder`] if its mode cannot be read.
pub fn require_unshared(folder: &Path) -> Result<(), Error> {
    match std::fs::metadata(folder) {
        Ok(found) if found.permissions().mode() & SHARED_WRITE != 0 => Err(Error::SharedFolder {
            path: folder.to_owned(),
            mode: found.permissions().mode() & 0o7777,
        }),
        Ok(found) if found.uid() != 0 && found.uid() != geteuid().as_raw() => Err(Error::ForeignFolder {
            path: folder.to_owned(),
            uid: found.uid(),
            own: geteuid().as_raw(),
        }),
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Folder {
            path: folder.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{Permissions, set_permissions};

    use super::*;

    #[test]
    fn a_folder_of_another_user_is_refused_even_by_root() {
        let folder = tempfile::tempdir().unwrap();
        if !geteuid().is_root() {
            // Nobody else can give a folder away.
            return;
        }
        std::os::unix::fs::chown(folder.path(), Some(65_534), None).unwrap();
        let refused = require_unshared(folder.path()).unwrap_err();
        assert!(matches!(refused, Error::ForeignFolder { uid: 65_534, .. }), "{refused}");
        assert!(refused.to_string().contains("chown 0 "), "{refused}");
    }

    #[test]
    fn a_folder_that_group_or_others_may_write_is_refused_with_the_command_that_mends_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        require_unshared(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        for (mode, is_refused) in [
            (0o700, false),
            (0o755, false),
            (0o770, true),
            (0o702, true),
            (0o1777, true),
        ] {
            set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let refused = require_unshared(&folder).map_err(|error| error.to_string());
            assert_eq!(refused.is_err(), is_refused, "{mode:o}");
            if let Err(text) = refused {
                assert!(text.contains(&format!("chmod go-w {}", folder.display())), "{text}");
            }
        }
        set_permissions(parent.path(), Permissions::from_mode(0o1777)).unwrap();
        set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        require_unshared(&folder).unwrap();
    }
}
