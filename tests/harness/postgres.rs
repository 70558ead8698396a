//! A real PostgreSQL server on the loopback interface: one process, a folder of its own, nothing kept.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, geteuid};

use crate::process::{Process, run};
use crate::{Failure, eventually};

/// Who it runs as where the tests run as root, which it refuses.
const NOBODY: u32 = 65_534;

/// A running server. Dropped, it is killed.
#[derive(Debug)]
pub struct TestPostgres {
    process: Process,
    _folder: tempfile::TempDir,
    /// Where clients connect, as `postgres` and without a password.
    pub address: SocketAddr,
}

impl TestPostgres {
    /// Starts a server with a new database; texts are ordered by their bytes. `None`, and said loudly, if it is not installed.
    ///
    /// # Errors
    /// If it does not become ready; with its log.
    pub fn start() -> Result<Option<Self>, Failure> {
        let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/postgresql");
        if !installed.is_dir() {
            println!("LEFT OUT: there is no PostgreSQL server in .tools; make tools installs it on Debian 12");
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        // The project may be where nobody else may look.
        copy(&installed, &folder.path().join("server"))?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        if geteuid().is_root() {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
            chown(&data, Some(NOBODY), Some(NOBODY))?;
        }
        let libraries = folder.path().join("server/lib/x86_64-linux-gnu").display().to_string();
        let data = data.display().to_string();
        let args = [
            "-D",
            &data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ];
        let (program, args) = as_anybody(folder.path(), "initdb", &args);
        let made = run(
            &program,
            &strs(&args),
            folder.path(),
            &[("LD_LIBRARY_PATH", &libraries)],
        )?;
        if made.code != Some(0) {
            return Err(format!("initdb: {}{}", made.out, made.err).into());
        }
        let address = crate::free_address()?;
        let port = address.port().to_string();
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "TimeZone=UTC",
            "jit=off",
            "statement_timeout=60s",
        ];
        let args: Vec<&str> = ["-D", &data, "-p", &port]
            .into_iter()
            .chain(settings.iter().flat_map(|setting| ["-c", setting]))
            .collect();
        let (program, args) = as_anybody(folder.path(), "postgres", &args);
        let log = folder.path().join("postgres.log");
        let envs = [("LD_LIBRARY_PATH".to_owned(), libraries)];
        let process = Process::start_with(&program, &strs(&args), folder.path(), &log, &envs)?;
        let server = Self {
            process,
            _folder: folder,
            address,
        };
        eventually("a PostgreSQL server", Duration::from_secs(60), || {
            let log = server.process.log_tail();
            log.contains("ready to accept connections").then_some(())
        })
        .map_err(|error| format!("{error}:\n{}", server.process.log_tail()))?;
        Ok(Some(server))
    }
}

/// The command that starts a program of the server, not as root.
fn as_anybody(folder: &Path, name: &str, args: &[&str]) -> (PathBuf, Vec<String>) {
    let program = folder.join("server/lib/postgresql/15/bin").join(name);
    let args = args.iter().map(|arg| (*arg).to_owned());
    if !geteuid().is_root() {
        return (program, args.collect());
    }
    let nobody = Uid::from_raw(NOBODY);
    let before = [
        format!("--reuid={nobody}"),
        format!("--regid={nobody}"),
        "--clear-groups".to_owned(),
        program.display().to_string(),
    ];
    (PathBuf::from("setpriv"), before.into_iter().chain(args).collect())
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
