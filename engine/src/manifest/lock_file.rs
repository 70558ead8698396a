//! The lock file of a store: one process per store, as long as it is open.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::Error;

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub(crate) struct StoreLockFile {
    _file: Flock<File>,
}

impl StoreLockFile {
    /// Locks `meta/LOCK` of the store at `store` and writes our process id into it.
    ///
    /// # Errors
    /// [`Error::Locked`] with the holder's process id if somebody has it.
    pub(crate) fn take(meta: &Path, store: &Path) -> Result<Self, Error> {
        let path = meta.join("LOCK");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                // Who holds it is for people to read; on a full disk it stays unsaid.
                let _ = held.set_len(0);
                let _ = held.rewind();
                let _ = writeln!(held, "{}", std::process::id());
                Ok(Self { _file: held })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // The holder may be just writing it.
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                Err(Error::Locked {
                    dir: store.to_owned(),
                    pid: if pid.is_empty() { "unknown" } else { pid }.to_owned(),
                })
            }
            Err((_, errno)) => Err(Error::io("lock", &path)(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_second_taker_is_refused_with_the_folder_and_the_process_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let held = StoreLockFile::take(dir.path(), dir.path()).unwrap();
        let refused = StoreLockFile::take(dir.path(), dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
        drop(held);
        StoreLockFile::take(dir.path(), dir.path()).unwrap();
    }
}
