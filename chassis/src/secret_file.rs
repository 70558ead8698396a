//! Secret files: keys and tokens that nobody else may read.
//!
//! # Invariants
//!
//! - The mode is that of the very file that is read, and is looked at before a byte is.
//! - Group and others may do nothing with it. A file of root may be read by its group, if that is root's, or this process's and nobody is a
//!   member of it: systemd's credentials and secrets that Kubernetes mounts (`fsGroup`) are such files. Who has been let into the group, to read
//!   data files for example, is not to read keys.
//! - The text is wiped from memory when it is dropped.
//!
//! Not here: what is in it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Group, getegid};
use zeroize::Zeroizing;

/// Why a secret file is not used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// Others may read or write it.
    #[error("it has mode {0:04o}, others may read it: run `chmod 600` on it")]
    Exposed(u32),
    /// It is larger than what it should have.
    #[error("it has more than {0} bytes")]
    TooLarge(u64),
}

/// The text of a secret file of at most so many bytes.
///
/// # Errors
/// [`SecretFileError`].
pub fn read_secret(path: &Path, largest: u64) -> Result<Zeroizing<String>, SecretFileError> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    // Only what its group may read is worth the question.
    let own_group = (found.mode() & 0o070 != 0).then(memberless_group).flatten();
    if is_exposed((found.uid(), found.gid()), found.mode(), own_group) {
        return Err(SecretFileError::Exposed(found.mode() & 0o777));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(largest.saturating_add(1)).read_to_string(&mut text)?;
    match text.len() as u64 > largest {
        true => Err(SecretFileError::TooLarge(largest)),
        false => Ok(text),
    }
}

/// This process's group, if nobody is a member of it. Who has it as the first group of an account is not listed there, and is not seen.
fn memberless_group() -> Option<u32> {
    let own = getegid();
    let is_memberless = match Group::from_gid(own) {
        // A container has no entry for it, or no list at all.
        Ok(None) | Err(Errno::ENOENT) => true,
        Ok(Some(group)) => group.mem.is_empty(),
        Err(_) => false,
    };
    is_memberless.then(|| own.as_raw())
}

/// Whether others may read a file of this user and group, or write it, where the process has this group to itself.
fn is_exposed((uid, gid): (u32, u32), mode: u32, own_group: Option<u32>) -> bool {
    let is_of_root = uid == 0 && (gid == 0 || own_group == Some(gid));
    let denied = if is_of_root { 0o037 } else { 0o077 };
    mode & denied != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused_and_credentials_of_systemd_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret\n").unwrap();
        let is_root = std::fs::metadata(&path)
            .map(|found| found.uid() == 0 && found.gid() == 0)
            .unwrap();
        for (mode, is_refused) in [
            (0o600, false),
            (0o400, false),
            (0o440, !is_root),
            (0o640, !is_root),
            (0o660, true),
            (0o604, true),
            (0o444, true),
        ] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read_secret(&path, 7);
            let refused = matches!(&read, Err(SecretFileError::Exposed(found)) if *found == mode);
            assert_eq!(refused, is_refused, "{mode:o}: {read:?}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read_secret(&path, 6), Err(SecretFileError::TooLarge(6))));
        let missing = read_secret(&folder.path().join("none"), 7);
        assert!(matches!(missing, Err(SecretFileError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_file_of_root_may_be_read_by_the_group_of_the_process_alone_and_by_no_other() {
        const OWN: u32 = 65_532;
        for (owner, mode, expected) in [
            ((0, OWN), 0o440, false),
            ((0, OWN), 0o640, false),
            ((0, 0), 0o440, false),
            ((0, OWN), 0o460, true),
            ((0, OWN), 0o444, true),
            ((0, 1_000), 0o440, true),
            ((OWN, OWN), 0o440, true),
            ((OWN, OWN), 0o400, false),
        ] {
            assert_eq!(is_exposed(owner, mode, Some(OWN)), expected, "{owner:?} {mode:o}");
            let with_members = expected || (owner.1 == OWN && mode & 0o070 != 0);
            assert_eq!(
                is_exposed(owner, mode, None),
                with_members,
                "{owner:?} {mode:o} with members"
            );
        }
    }
}
