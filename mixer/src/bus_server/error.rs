//! The errors of the bus server, each with the fix.

use std::path::PathBuf;
use std::time::Duration;

use chassis::ExitReason;

/// Where the pinned server comes from.
const INSTALL: &str = "run scripts/install-nats-server.sh (`make tools`), or set snake.server_binary, or use another's \
                       server with snake.server = \"external\" and snake.url";

/// Why there is no bus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// No executable anywhere.
    #[error("found no nats-server (looked for {}): {INSTALL}", list(searched))]
    NoBinary {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// The executable cannot be run.
    #[error("{} cannot be run as nats-server: {reason}; {INSTALL}", path.display())]
    Unusable {
        /// The executable.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The executable is too old.
    #[error("{} is nats-server {found}, at least {required} is needed: {INSTALL}", path.display())]
    TooOld {
        /// The executable.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The oldest version that knows our settings.
        required: &'static str,
    },
    /// The server of somebody else is too old.
    #[error("the bus server at {url} is nats-server {found}, at least {required} is needed: update it")]
    ServerTooOld {
        /// Its address, without credentials.
        url: String,
        /// Its version.
        found: String,
        /// The oldest version with fast batches and consumer resets.
        required: &'static str,
    },
    /// The executable is not the pinned one.
    #[error(
        "{} has SHA-256 {found}, but snake.server_sha256 is {expected}: it was replaced or updated; install the pinned \
         one or correct the key",
        path.display()
    )]
    WrongHash {
        /// The executable.
        path: PathBuf,
        /// The pinned hash.
        expected: String,
        /// Its own.
        found: String,
    },
    /// Another Mixer, or its orphaned server, holds the store.
    #[error(
        "the bus store {} is in use: another Mixer (or the bus server it left behind) runs on it; stop that one, or set \
         another store.dir or snake.store_dir",
        path.display()
    )]
    Locked {
        /// The store.
        path: PathBuf,
    },
    /// Its streams were made before there were accounts.
    #[error(
        "the bus store has streams in {} that belong to no account: a version before accounts made them, and what waits in them would          be lost from sight. Let that version deliver it, then move the folder away",
        path.display()
    )]
    StreamsOfNobody {
        /// The folder of the streams.
        path: PathBuf,
    },
    /// Somebody listens there already.
    #[error(
        "port {port} on {host} is taken (`ss -ltnp 'sport = :{port}'` shows by whom): stop that program, or set snake.port \
         (0 takes any free one) and snake.url"
    )]
    PortInUse {
        /// The address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The process ended before it was ready.
    #[error("nats-server exited with {status} before it was ready; its last output: {tail}")]
    Died {
        /// How it ended.
        status: String,
        /// The end of its log.
        tail: String,
    },
    /// The process is not ready in time.
    #[error("nats-server is not ready after {}s: {last}; its last output: {tail}", after.as_secs())]
    NotReady {
        /// How long it was waited for.
        after: Duration,
        /// The last failed probe.
        last: String,
        /// The end of its log.
        tail: String,
    },
    /// A subject of the configuration cannot be captured.
    #[error("snake.stream_subjects: {subject:?} {reason}")]
    Subject {
        /// The subject.
        subject: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A stream cannot be made as configured.
    #[error("stream {stream}: {reason}")]
    Stream {
        /// The stream.
        stream: String,
        /// What the server says.
        reason: String,
    },
    /// Half of the authority is gone.
    #[error(
        "{} is missing, but {} is there: put it back from a backup. Without one, move the other file away, start, and join \
         the Racks again (`platform racks invite`, `platform join`): they trust no other authority",
        path.display(),
        other.display()
    )]
    NoAuthority {
        /// What is missing.
        path: PathBuf,
        /// What is there.
        other: PathBuf,
    },
    /// There is no authority that another one could follow.
    #[error(
        "the bus has no certificate authority of its own in {}: it makes one at its first start with TLS (snake.tls); a certificate of yours \
         (snake.tls_cert), or of an external server, you replace yourself",
        path.display()
    )]
    NoOwnAuthority {
        /// Where its key would be.
        path: PathBuf,
    },
    /// A certificate or its key cannot be used.
    #[error("{}: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file of TLS cannot be used.
    #[error(transparent)]
    TlsFile(#[from] chassis::tls_server::TlsFileError),
    /// The key of the bus's operator cannot be used.
    #[error("{}: {reason}", path.display())]
    OperatorKey {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The server does not take the accounts of its operator.
    #[error(
        "the bus server does not take the accounts of its Racks: {0}; its configuration needs what `platform-mixer bus-operator` prints"
    )]
    Claims(String),
    /// A name that no certificate can have.
    #[error("snake.tls_names: {0}: write host names and addresses, such as \"mixer.example\"")]
    TlsNames(String),
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file or folder cannot be written or locked.
    #[error(transparent)]
    File(#[from] durable_fs::DurableFsError),
    /// The server cannot be reached or has another domain.
    #[error(transparent)]
    Chassis(#[from] chassis::Error),
    /// The machine does not give us a thread.
    #[error("cannot start the thread that owns the bus server: {0}")]
    Thread(std::io::Error),
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

impl BusError {
    /// The exit code of a Mixer that ends with this.
    #[must_use]
    pub fn exit(&self) -> ExitReason {
        match self {
            Self::NoBinary { .. }
            | Self::Unusable { .. }
            | Self::TooOld { .. }
            | Self::ServerTooOld { .. }
            | Self::WrongHash { .. }
            | Self::PortInUse { .. }
            | Self::NoAuthority { .. }
            | Self::NoOwnAuthority { .. }
            | Self::Certificate { .. }
            | Self::TlsFile(_)
            | Self::TlsNames(_)
            | Self::OperatorKey { .. }
            | Self::StreamsOfNobody { .. }
            | Self::Subject { .. } => ExitReason::Config,
            Self::Locked { .. } | Self::Died { .. } | Self::NotReady { .. } | Self::Stream { .. } | Self::Claims(_) => {
                ExitReason::Unavailable
            }
            Self::Chassis(error) => error.exit(),
            Self::Io { .. } | Self::File(_) | Self::Thread(_) => ExitReason::Io,
        }
    }
}
