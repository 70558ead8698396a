//! Finds and checks the `nats-server` binary.
//!
//! `snake.server_binary` alone if it is set; otherwise the first of: beside our executable, `.tools/bin` of the working
//! folder, `.tools/bin` of the executable's ancestors, `PATH`. One that is too old is passed over for a later one.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::BusError;

const NAME: &str = "nats-server";
/// The oldest version whose durability and settings are the ones we rely on.
const REQUIRED: (u64, u64) = (2, 15);
const REQUIRED_TEXT: &str = "2.15.0";

/// Finds the executable and makes sure of its version and, if pinned, of its hash.
pub(super) fn find(configured: Option<&Path>, sha256: Option<&str>) -> Result<PathBuf, BusError> {
    let path = match configured {
        Some(path) => {
            if !path.is_file() {
                return Err(BusError::Unusable {
                    path: path.to_owned(),
                    reason: "snake.server_binary names no file".to_owned(),
                });
            }
            check_version(path)?;
            path.to_owned()
        }
        None => first_usable(places(NAME))?,
    };
    check_hash(&path, sha256)?;
    Ok(path)
}

/// Where a program that we run is looked for, in this order.
pub(crate) fn places(name: &str) -> Vec<PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let beside = exe.parent().map(|folder| folder.join(name));
    let here = std::env::current_dir().ok();
    let tools = here.iter().map(PathBuf::as_path).chain(exe.ancestors().skip(1));
    let tools = tools.map(|folder| folder.join(".tools/bin").join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(name)).collect();
    beside.into_iter().chain(tools).chain(on_path).collect()
}

fn first_usable(candidates: Vec<PathBuf>) -> Result<PathBuf, BusError> {
    let mut refused = None;
    for path in candidates.iter().filter(|path| path.is_file()) {
        match check_version(path) {
            Ok(()) => return Ok(path.clone()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(BusError::NoBinary { searched: candidates }))
}

fn check_version(path: &Path) -> Result<(), BusError> {
    let unusable = |reason: String| BusError::Unusable {
        path: path.to_owned(),
        reason,
    };
    let output = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.trim().rsplit(['v', ' ']).next().unwrap_or_default().to_owned();
    let mut numbers = found.split('.').map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Err(unusable(format!("--version answers {:?}", text.trim())));
    };
    if (major, minor) < REQUIRED {
        return Err(BusError::TooOld {
            path: path.to_owned(),
            found,
            required: REQUIRED_TEXT,
        });
    }
    Ok(())
}

fn check_hash(path: &Path, expected: Option<&str>) -> Result<(), BusError> {
    let Some(expected) = expected else { return Ok(()) };
    let found = hash(path).map_err(|source| BusError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    if found.eq_ignore_ascii_case(expected) {
        Ok(())
    } else {
        Err(BusError::WrongHash {
            path: path.to_owned(),
            expected: expected.to_owned(),
            found,
        })
    }
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok(crate::hex::encode(&hasher.finalize()));
        }
        hasher.update(chunk.get(..read).unwrap_or_default());
    }
}
