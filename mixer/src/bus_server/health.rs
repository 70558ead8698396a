//! Health check of the server: its monitor's `/healthz`, and the free space of its store.
//!
//! A full disk wedges a stream silently: publishers get neither acknowledgement nor error, and freeing space does not
//! help. `/healthz` says 503 then, and only a restart of the server cures it.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// With less room than this (or than a twentieth of a small disk) a restart would only fail again.
const ENOUGH: u64 = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(3);
/// A server that does not say for so long when it read its configuration is asked to read it all the same.
const SILENT: Duration = Duration::from_secs(10);
/// How often a server is asked whether it has read its configuration.
const LOOK: Duration = Duration::from_millis(2);

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerHealth {
    /// 200.
    Well,
    /// Any other answer: status code and body.
    Sick(String),
    /// No answer.
    Silent(String),
}

/// Asks the monitor on the loopback.
pub(super) async fn check(port: u16) -> ServerHealth {
    match tokio::time::timeout(TIMEOUT, ask(port, "/healthz")).await {
        Err(_) => ServerHealth::Silent("no answer in 3 s".to_owned()),
        Ok(Err(error)) => ServerHealth::Silent(error.to_string()),
        Ok(Ok(answer)) => match answer.split_once("\r\n") {
            Some((status, _)) if status.split(' ').nth(1) == Some("200") => ServerHealth::Well,
            Some((status, rest)) => {
                let body = rest.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                ServerHealth::Sick(format!("{status}: {}", body.trim()))
            }
            None => ServerHealth::Sick(answer),
        },
    }
}

/// Has the server read its configuration again: `ask` tells it to. Returns once it says that it did so after that; an earlier reading
/// that is `under_way` since the server said that it had read its configuration then does not count.
///
/// # Errors
/// When it had read it last, as far as it says so, where that is not heard in time: the reading is under way.
pub(super) async fn reread(
    monitor: u16,
    within: Duration,
    under_way: Option<&str>,
    ask: impl FnOnce(),
) -> Result<(), Option<String>> {
    let began = Instant::now();
    // Without the time of the last reading, that one would be taken for the one that is asked for.
    let mut last = loop {
        let last = config_read(monitor).await;
        if last.is_some() || began.elapsed() >= within.min(SILENT) {
            break last;
        }
        sleep(LOOK).await;
    };
    // Who is not on the list is to be cut off, whether the server can say so or not.
    ask();
    let mut missing = if last.is_some() && last.as_deref() == under_way {
        2
    } else {
        1
    };
    while last.is_some() && began.elapsed() < within {
        let read = config_read(monitor).await;
        if read.is_some() && read != last {
            (last, missing) = (read, missing - 1);
            if missing == 0 {
                return Ok(());
            }
        }
        sleep(LOOK).await;
    }
    Err(last)
}

/// When the server read its configuration, in its words; none if it does not say.
async fn config_read(port: u16) -> Option<String> {
    let answer = tokio::time::timeout(TIMEOUT, ask(port, "/varz")).await.ok()?.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let varz: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(varz.get("config_load_time")?.as_str()?.to_owned())
}

async fn ask(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream.take(16 << 10).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The room on the file system of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreDiskSpace {
    /// Bytes that an unprivileged process may still write.
    pub(super) free: u64,
    /// Bytes that must be free before a restart helps.
    pub(super) needed: u64,
}

impl StoreDiskSpace {
    /// The room at a path; none if the system does not say.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let stat = nix::sys::statvfs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        Some(Self {
            free: bytes(stat.blocks_available()),
            needed: ENOUGH.min(bytes(stat.blocks()) / 20),
        })
    }

    /// Whether a server that could not write for lack of room can do so again.
    pub(super) const fn is_enough(self) -> bool {
        self.free >= self.needed
    }
}
