//! What the integration tests stand on: the real binaries, a real bus, real files, DuckDB as the outside reader.
//!
//! # Invariants
//!
//! - Every process is started here, killed by its id, and gone when its handle drops; every folder is temporary.
//! - Ports are free ones of the loopback interface; after the first start a Mixer keeps its own, so that it can be
//!   killed and started again under its Racks.
//! - Waiting is for an event with a deadline ([`eventually`]), never for a time.
//!
//! # Not here
//!
//! Any part of the product: the harness sees it only from outside. Only [`store`] opens stores itself, to judge what is left
//! of them.

pub mod api;
pub mod browser_tab;
pub mod bus;
pub mod credentials;
pub mod disk;
pub mod duckdb;
pub mod external_bus;
pub mod faulty;
pub mod link;
pub mod mixer;
pub mod port;
pub mod postgres;
pub mod process;
pub mod psql;
pub mod rack;
pub mod random;
pub mod s3;
pub mod shell;
pub mod stepped_clock;
pub mod store;
pub mod strace;
pub mod tail;
pub mod twenty;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use api::Api;
pub use browser_tab::BrowserTab;
pub use bus::TestBus;
pub use link::Link;
pub use mixer::TestMixer;
pub use port::{free_address, free_port, outside_address};
pub use rack::{TestRack, gear_files};
pub use random::Random;
pub use s3::TestS3;
pub use shell::Shell;

/// Anything that goes wrong in a test's surroundings; tests return it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Asks again and again until there is an answer.
///
/// # Errors
/// What was waited for, after `within`.
pub fn eventually<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(format!("waited {within:?} in vain for {what}").into());
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// What the audit log says of changes that the tests ask for without a token.
#[must_use]
pub fn local_caller() -> String {
    let user = nix::unistd::geteuid();
    let name = nix::unistd::User::from_uid(user).ok().flatten().map(|user| user.name);
    format!("api 127.0.0.1 (user {})", name.unwrap_or_else(|| user.to_string()))
}

/// A program of ours, as built in the profile of the tests, or from the folder `PLATFORM_TEST_BIN_DIR`.
///
/// # Errors
/// If it was not built; says how.
pub fn binary(name: &str) -> Result<PathBuf, Failure> {
    let folder = match std::env::var_os("PLATFORM_TEST_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let test = std::env::current_exe()?;
            test.ancestors()
                .nth(2)
                .map(PathBuf::from)
                .ok_or("the test program lies nowhere")?
        }
    };
    let path = folder.join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("{} is missing: run make bins", path.display()).into())
    }
}

/// A helper program from `.tools/bin` of the project.
///
/// # Errors
/// If it was not installed; says how.
pub fn tool(name: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools/bin")
        .join(name);
    if path.is_file() {
        Ok(path.canonicalize()?)
    } else {
        Err(format!("{name} is missing: run make tools").into())
    }
}

/// A configuration file of dotted keys: the usual ones, overruled and completed by `keys`.
fn toml_of(usual: &[(&str, &str)], keys: &[(&str, &str)]) -> String {
    let merged: BTreeMap<_, _> = usual.iter().chain(keys).copied().collect();
    merged.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

fn owned(envs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    envs.iter().map(owned).collect()
}
