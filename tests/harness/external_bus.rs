//! A bus server that no Mixer runs, for `snake.server = "external"`: it asks nobody who they are unless it is told to.
//!
//! Its limits are those of a Mixer's own server (`nats.conf` in its store), so that the two can be compared.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::process::Process;
use crate::{Failure, eventually, tool};

/// How long it may take until it listens.
const SOON: Duration = Duration::from_secs(20);

/// What the ports file of a bus server in this folder says; none until it is there.
fn ports(store: &Path) -> Option<Value> {
    let entries = std::fs::read_dir(store).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    let file = paths.find(|path| path.extension().is_some_and(|end| end == "ports"))?;
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// Starts one in a folder, with `store` bytes for all streams; and its URL.
///
/// # Errors
/// If it does not listen.
pub fn start(folder: &Path, store: &str) -> Result<(Process, String), Failure> {
    start_with(folder, store, "")
}

/// The same with more lines in its configuration.
///
/// # Errors
/// If it does not listen.
pub fn start_with(folder: &Path, store: &str, more: &str) -> Result<(Process, String), Failure> {
    let place = format!("{:?}", folder.display().to_string());
    let conf = format!(
        "port: -1\nhost: \"127.0.0.1\"\nports_file_dir: {place}\nlogtime: false\n\
         max_payload: 2162688\nmax_pending: 64MB\nwrite_deadline: \"10s\"\n\
         jetstream {{ store_dir: {place}, domain: flux, max_mem: 256MB, max_file_store: {store}, sync_interval: \"1s\" }}\n{more}"
    );
    std::fs::write(folder.join("nats.conf"), conf)?;
    let log = folder.join("log");
    let server = Process::start(&tool("nats-server")?, &["-c", "nats.conf"], folder, &log)?;
    let ports = eventually("its port", SOON, || ports(folder))?;
    let url = ports["nats"][0].as_str().ok_or("no client port")?.to_owned();
    Ok((server, url))
}
