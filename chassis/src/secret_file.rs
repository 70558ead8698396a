//! Secret files: keys and tokens that nobody else may read.
//!
//! # Invariants
//!
//! - The mode is that of the very file that is read, and is looked at before a byte is.
//! - Group and others may do nothing with it. Of a file of root and root's group, that group may read: systemd's credentials are such files.
//! - The text is wiped from memory when it is dropped.
//!
//! Not here: what is in it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    if is_exposed(&found) {
        return Err(SecretFileError::Exposed(found.mode() & 0o777));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(largest.saturating_add(1)).read_to_string(&mut text)?;
    match text.len() as u64 > largest {
        true => Err(SecretFileError::TooLarge(largest)),
        false => Ok(text),
    }
}

fn is_exposed(found: &Metadata) -> bool {
    let is_of_root = found.uid() == 0 && found.gid() == 0;
    let denied = if is_of_root { 0o037 } else { 0o077 };
    found.mode() & denied != 0
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
}
