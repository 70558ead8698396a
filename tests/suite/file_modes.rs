//! What other users of the machine may do with the folders and files of a Mixer and a Rack.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Failure, TestRack, eventually, process};
use nix::sys::stat::{Mode, umask};

use crate::faults::run_in;
use crate::first_light::{mixer_with, tail_scenario};

const SOON: Duration = Duration::from_secs(30);

/// A folder and all below it, with the permission bits of each.
fn modes_below(root: &Path) -> std::io::Result<Vec<(PathBuf, u32)>> {
    let facts = root.symlink_metadata()?;
    let mut found = vec![(root.to_owned(), facts.permissions().mode() & 0o7777)];
    if facts.is_dir() {
        for entry in std::fs::read_dir(root)? {
            found.extend(modes_below(&entry?.path())?);
        }
    }
    Ok(found)
}

fn assert_none_of(bits: u32, root: &Path) -> Result<(), Failure> {
    let open: Vec<String> = modes_below(root)?
        .iter()
        .filter(|(_, mode)| mode & bits != 0)
        .map(|(path, mode)| format!("{mode:04o} {}", path.display()))
        .collect();
    assert!(open.is_empty(), "{open:#?}");
    Ok(())
}

fn mode_of(path: &Path) -> std::io::Result<u32> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o7777)
}

/// Puts the umask of this process back at the end.
struct UmaskGuard(Mode);

impl Drop for UmaskGuard {
    fn drop(&mut self) {
        umask(self.0);
    }
}

#[test]
fn group_reads_data_files_alone_and_others_nothing() -> Result<(), Failure> {
    let logs = harness::gear_files()?;
    let file = logs.path().join("app.log");
    // The programs inherit a umask that takes nothing away: the modes are of their own making.
    let former_umask = UmaskGuard(umask(Mode::empty()));
    let (mut mixer, _scenario) = mixer_with(&tail_scenario(&file))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    drop(former_umask);
    assert_ne!(mode_of(mixer.path())? & 0o022, 0, "the umask is the runner's");
    writeln!(process::append_to(&file)?, "WARN disk almost full")?;
    let published = eventually("a published data file", SOON, || {
        let found = modes_below(&mixer.telemetry().join("logs")).ok()?;
        let mut files = found
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|kind| kind == "parquet"));
        files.next()
    })?;
    assert_eq!(published.1, 0o640, "{}", published.0.display());
    assert!(rack.process()?.terminate(SOON)?.success());
    assert!(mixer.process()?.terminate(SOON)?.success());

    let store = mixer.path().join("data");
    for folder in [&store, &mixer.telemetry(), &store.join("messages")] {
        assert_eq!(mode_of(folder)?, 0o750, "{}", folder.display());
    }
    assert_eq!(mode_of(&store.join("platform.sql"))?, 0o640);
    for root in [
        &store,
        &mixer.path().join("logs"),
        &rack.path().join("data"),
        &rack.path().join("logs"),
    ] {
        assert!(modes_below(root)?.len() > 1, "{} is empty", root.display());
        assert_none_of(0o027, root)?;
    }
    for private in ["meta", "wal", "quarantine", "registry.redb", "cluster.key"] {
        assert_none_of(0o077, &store.join(private))?;
    }
    assert_none_of(0o077, &rack.path().join("data"))?;
    // Below it, the bus server's files have the modes that it gives them.
    assert_eq!(mode_of(&store.join("js"))?, 0o700);
    Ok(())
}

#[test]
fn folder_that_others_may_write_is_refused_at_start() -> Result<(), Failure> {
    for program in ["platform-mixer", "platform"] {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o770))?;
        let done = run_in(folder.path(), program, &[])?;
        assert_eq!(done.code, Some(77), "{program}: {}", done.err);
        assert!(done.err.contains("chmod go-w"), "{program}: {}", done.err);
        assert!(done.err.contains("data"), "{program}: {}", done.err);
    }
    Ok(())
}
