//! Checks of this machine: its disk space, who can read the Rack's identity, and whether that was admitted.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use chassis::ExitReason;
use model::ByteSize;
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use rack::AdmissionStatus;
use rack::config::RackConfig;

use super::DoctorCheck;

/// Below this a Rack cannot keep even its own state safely.
const LEAST_FREE: ByteSize = ByteSize::mib(64);

/// The folder of the Rack's state and spool.
pub(super) fn disk(rack: &RackConfig) -> DoctorCheck {
    let folder = &rack.base.state_dir;
    let there = nearest(folder);
    let fail = |exit, found: String| {
        DoctorCheck::fail(
            "disk",
            exit,
            found,
            "set base.state_dir to a folder that can be written",
        )
    };
    if !there.is_dir() {
        return fail(ExitReason::Io, format!("{} is not a folder", there.display()));
    }
    match access(there, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => {}
        Err(Errno::EACCES | Errno::EPERM) => {
            return fail(
                ExitReason::Denied,
                format!("{} cannot be written by this user", there.display()),
            );
        }
        Err(errno) => return fail(ExitReason::Io, format!("{}: {}", there.display(), errno.desc())),
    }
    match statvfs(there) {
        Ok(facts) => {
            // Fragments of a file system fit 64 bits together; saturating, should one lie.
            let free = facts.blocks_available().saturating_mul(facts.fragment_size());
            room(folder, ByteSize::bytes(free), rack.spool.max_size)
        }
        Err(errno) => fail(ExitReason::Io, format!("{}: {}", there.display(), errno.desc())),
    }
}

fn room(folder: &Path, free: ByteSize, spool: ByteSize) -> DoctorCheck {
    let found = format!("{} has {free} free", folder.display());
    if free < LEAST_FREE {
        DoctorCheck::fail("disk", ExitReason::Io, found, format!("free at least {LEAST_FREE}"))
    } else if free < spool {
        let fix = format!("free {spool}, or lower spool.max_size_mb");
        DoctorCheck::warn("disk", format!("{found}, less than a full spool takes ({spool})"), fix)
    } else {
        DoctorCheck::ok("disk", found)
    }
}

/// The folder itself, or the nearest one above it that is there.
fn nearest(folder: &Path) -> &Path {
    let above = folder.ancestors().filter(|path| !path.as_os_str().is_empty());
    above.into_iter().find(|path| path.exists()).unwrap_or(Path::new("."))
}

/// The state bundle holds the Rack's keys.
pub(super) fn secrets(rack: &RackConfig) -> DoctorCheck {
    let path = &rack.base.state_file;
    let shown = path.display();
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return DoctorCheck::ok(
                "secrets",
                format!("{shown} does not exist yet: this Rack has not enrolled"),
            );
        }
        Err(error) => {
            let fix = "run as the user of the Rack, or fix the permissions of its folder";
            return DoctorCheck::fail("secrets", ExitReason::Denied, format!("{shown}: {error}"), fix);
        }
    };
    let mode = facts.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let found = format!("{shown} has mode {mode:04o}: others can read the Rack's keys");
        return DoctorCheck::fail("secrets", ExitReason::Denied, found, format!("chmod 600 {shown}"));
    }
    if std::fs::File::open(path).is_err() {
        let fix = "run as the user of the Rack";
        return DoctorCheck::fail(
            "secrets",
            ExitReason::Denied,
            format!("{shown} cannot be read by this user"),
            fix,
        );
    }
    DoctorCheck::ok("secrets", format!("{shown} is readable by its owner only"))
}

/// Whether a Mixer has admitted the Rack: one that waits runs nothing and sends nothing.
pub(super) fn admission(rack: &RackConfig, found: Result<AdmissionStatus, ::rack::Error>) -> DoctorCheck {
    match found {
        Ok(AdmissionStatus::NotStarted) => DoctorCheck::ok("admission", "this Rack was not started yet"),
        Ok(AdmissionStatus::Admitted(name)) => DoctorCheck::ok("admission", format!("admitted as {name}")),
        Ok(AdmissionStatus::Invited { name, .. }) => DoctorCheck::warn(
            "admission",
            format!("this Rack has not enrolled: it has an invite as {name}"),
            "start it; if it runs, its log says why it was not admitted",
        ),
        Ok(AdmissionStatus::Unapproved) => {
            // One without a name waits under a name that the Mixer gave it.
            let (name, which) = match &rack.base.name {
                Some(name) => (name.as_str(), ""),
                None => ("NAME", ", with the name that `platform racks list` shows"),
            };
            DoctorCheck::warn(
                "admission",
                "this Rack has not enrolled: it waits for approval",
                format!(
                    "`platform racks approve {name}` on the Mixer{which}; or `platform racks invite {name}` there, and here stop the Rack and \
                     `platform join INVITE`"
                ),
            )
        }
        Err(error) => DoctorCheck::failed("admission", error.exit(), &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckOutcome;
    use super::*;

    #[test]
    fn a_disk_needs_room_for_the_spool_and_at_least_for_the_state() {
        let state = |free| room(Path::new("data"), ByteSize::mib(free), ByteSize::mib(256)).state;
        assert_eq!(state(63), CheckOutcome::Fail(ExitReason::Io));
        assert_eq!(state(64), CheckOutcome::Warn);
        assert_eq!(state(256), CheckOutcome::Ok);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_stands_on_the_nearest_one_above_it() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        assert_eq!(nearest(&folder.path().join("a/b/c")), folder.path());
        assert_eq!(nearest(Path::new("not-there/at-all")), Path::new("."));
        Ok(())
    }
}
