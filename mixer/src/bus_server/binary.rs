//! Lookup and verification of the `nats-server` program.
//!
//! `snake.server_binary` alone if it is set; otherwise the first of: beside our executable, `lib/platform-mixer` beside its folder (where the
//! package has it), `.tools/bin` of the executable's ancestors, `PATH`. One that is too old, is not the pinned one, or could be exchanged by others is passed over for a later one.
//!
//! # Invariants
//!
//! - Only absolute paths: the working folder decides nothing.
//! - No program is run, not even for its version, before its hash is compared where one is pinned. It is compared before every run, so a
//!   restart does not run what came into its place meanwhile.
//! - Nobody but root and our user may write the program or a folder above it: between the comparison and the run nobody else can exchange it.
//! - It gets `PATH` of our environment and nothing else: no credentials of ours.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Group, Uid, User};
use sha2::{Digest, Sha256};

use super::BusError;

const NAME: &str = "nats-server";
/// The oldest version whose durability and settings are the ones we rely on.
const REQUIRED: (u64, u64) = (2, 15);
const REQUIRED_TEXT: &str = "2.15.0";

/// A program that was found, and the hash that it must have whenever it is run.
#[derive(Debug, Clone)]
pub(super) struct ServerProgram {
    path: PathBuf,
    sha256: Option<String>,
}

impl ServerProgram {
    /// Finds the program and makes sure of its hash, if pinned, and of its version.
    pub(super) fn find(configured: Option<&Path>, sha256: Option<&str>) -> Result<Self, BusError> {
        let candidate = |path: &Path| Self {
            path: path.to_owned(),
            sha256: sha256.map(str::to_owned),
        };
        if let Some(path) = configured {
            let program = candidate(path);
            if !path.is_absolute() {
                return Err(program.unusable("snake.server_binary must be an absolute path"));
            }
            if !path.is_file() {
                return Err(program.unusable("snake.server_binary names no file"));
            }
            return program.check_version().map(|()| program);
        }
        let (mut refused, searched) = (None, places(NAME));
        for path in searched.iter().filter(|path| path.is_file()) {
            let program = candidate(path);
            match program.check_version() {
                Ok(()) => return Ok(program),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(BusError::NoBinary { searched }))
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it at once, after it was verified. It reads files, so it may block.
    pub(super) fn command(&self) -> Result<Command, BusError> {
        let path = self.verified()?;
        let mut command = Command::new(path);
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        Ok(command)
    }

    /// The file behind all links, which only root and our user may exchange, and which has the pinned hash.
    fn verified(&self) -> Result<PathBuf, BusError> {
        let io = |source| BusError::Io {
            action: "read",
            path: self.path.clone(),
            source,
        };
        let file = std::fs::canonicalize(&self.path).map_err(io)?;
        let named_in = self.path.parent().unwrap_or(&self.path);
        let named_in = std::fs::canonicalize(named_in).map_err(io)?;
        for place in file.ancestors().chain(named_in.ancestors()) {
            let is_trusted = is_written_by_us_only(&std::fs::metadata(place).map_err(io)?);
            if !is_trusted {
                let place = place.display();
                let reason =
                    format!("others than root and our user may write {place} (`chmod go-w` and `chown` change that)");
                return Err(self.unusable(&reason));
            }
        }
        if let Some(expected) = &self.sha256 {
            let found = hash(&file).map_err(io)?;
            if !found.eq_ignore_ascii_case(expected) {
                return Err(BusError::WrongHash {
                    path: self.path.clone(),
                    expected: expected.clone(),
                    found,
                });
            }
        }
        Ok(file)
    }

    fn check_version(&self) -> Result<(), BusError> {
        let mut asked = self.command()?;
        let output = asked.arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| self.unusable(&error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.trim().rsplit(['v', ' ']).next().unwrap_or_default().to_owned();
        let mut numbers = found.split('.').map(str::parse::<u64>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return Err(self.unusable(&format!("--version answers {:?}", text.trim())));
        };
        if (major, minor) < REQUIRED {
            return Err(BusError::TooOld {
                path: self.path.clone(),
                found,
                required: REQUIRED_TEXT,
            });
        }
        Ok(())
    }

    fn unusable(&self, reason: &str) -> BusError {
        BusError::Unusable {
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Where a program that we run is looked for, in this order: absolute paths only.
pub(crate) fn places(name: &str) -> Vec<PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let beside = exe.parent().map(Path::to_owned);
    let packaged = beside
        .as_deref()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/platform-mixer"));
    let tools = exe.ancestors().skip(1).map(|folder| folder.join(".tools/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside
        .into_iter()
        .chain(packaged)
        .chain(tools)
        .chain(std::env::split_paths(&path));
    let absolute = folders.filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join(name)).collect()
}

/// Whether only root and our user may write this file, or add to and take from this folder.
fn is_written_by_us_only(place: &Metadata) -> bool {
    let (owner, mode) = (Uid::from_raw(place.uid()), place.mode());
    // In a sticky folder (/tmp) only its owner can replace what is ours.
    let is_sticky = place.is_dir() && mode & 0o1000 != 0;
    let is_group_safe = || mode & 0o020 == 0 || is_private(Gid::from_raw(place.gid()));
    (owner.is_root() || owner == Uid::effective()) && (is_sticky || mode & 0o002 == 0 && is_group_safe())
}

/// Whether a group has nobody in it but root or our user: many systems give each user one of the same name, which may write what the
/// user may.
fn is_private(group: Gid) -> bool {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    let group = Group::from_gid(group).ok().flatten();
    group.is_some_and(|group| {
        let is_us = |name: &str| name == "root" || user.as_ref().is_some_and(|user| user.name == name);
        is_us(&group.name) && group.mem.iter().all(|member| is_us(member))
    })
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok(model::hex::encode(&hasher.finalize()));
        }
        hasher.update(chunk.get(..read).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that leaves a file beside itself whenever it is run.
    fn leaves_a_trace(folder: &Path) -> PathBuf {
        let path = folder.join("nats-server");
        std::fs::write(&path, "#!/bin/sh\ntouch \"$0.ran\"\necho v2.15.1\n").unwrap();
        allow(&path, 0o755);
        path
    }

    fn was_run(program: &Path) -> bool {
        program.with_extension("ran").exists()
    }

    fn allow(place: &Path, mode: u32) {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_with_another_hash_than_the_pinned_one_is_never_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = leaves_a_trace(folder.path());
        let refused = ServerProgram::find(Some(&path), Some(&"0".repeat(64))).unwrap_err();
        let BusError::WrongHash { found, .. } = refused else {
            panic!("{refused}");
        };
        assert!(!was_run(&path), "not for its version either");
        let pinned = ServerProgram::find(Some(&path), Some(&found)).unwrap();
        assert!(was_run(&path));
        // What comes into its place later is not run either.
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let refused = pinned.command().unwrap_err();
        assert!(matches!(refused, BusError::WrongHash { .. }), "{refused}");
    }

    #[test]
    fn a_program_that_others_may_exchange_is_refused_and_never_run() {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        std::fs::create_dir(&tools).unwrap();
        let path = leaves_a_trace(&tools);
        let link = folder.path().join("nats-server");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (place, mode) in [(&path, 0o777), (&tools, 0o777)] {
            allow(place, mode);
            for named in [&path, &link] {
                let refused = ServerProgram::find(Some(named), None).unwrap_err().to_string();
                assert!(refused.contains(&format!("may write {}", place.display())), "{refused}");
            }
            allow(place, 0o755);
        }
        assert!(!was_run(&path));
        // In a sticky folder others cannot exchange what is ours.
        allow(&tools, 0o1777);
        ServerProgram::find(Some(&link), None).unwrap();
        assert!(was_run(&path));
    }

    #[test]
    fn a_program_is_looked_for_at_absolute_paths_only() {
        let here = std::env::current_dir().unwrap().join(".tools/bin/nats-server");
        for place in places("nats-server") {
            assert!(place.is_absolute() && place != here, "{}", place.display());
        }
        let refused = ServerProgram::find(Some(Path::new("nats-server")), None)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("snake.server_binary must be an absolute path"),
            "{refused}"
        );
    }
}
