//! The errors of this crate, and the exit code of each.

use std::io;
use std::path::PathBuf;

use crate::ExitReason;
use crate::config_error::ConfigErrors;

/// A failure of the chassis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The configuration file cannot be watched.
    #[error("cannot watch {} for changes: {reason}", path.display())]
    Watch {
        /// The folder.
        path: PathBuf,
        /// The operating system's words.
        reason: String,
    },
    /// The log file cannot be written.
    #[error("cannot open the log file {}: {source}; set logging.filename to a file in a folder that can be written", path.display())]
    LogFile {
        /// The log file.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// Others may write a folder of ours.
    #[error("others may write the folder {} (mode {mode:04o}): make sure that nobody put files there, then run: chmod go-w {}", path.display(), path.display())]
    SharedFolder {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder of ours is somebody else's.
    #[error("the folder {} belongs to user {uid}, who may put files there: run this program as that user, or: chown {own} {}", path.display(), path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Who runs this program.
        own: u32,
    },
    /// A folder of ours cannot be looked at.
    #[error("cannot read the mode of the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// A thread of ours cannot be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// The operating system's words.
        source: io::Error,
    },
    /// Logging was started twice in this process.
    #[error("the log is already started in this process")]
    LogStarted,
    /// A signal handler cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// The bus cannot be reached.
    #[error("cannot reach the bus at {url}: {reason}; start the Mixer there or set snake.url to where it is")]
    BusUnreachable {
        /// Where, without credentials.
        url: String,
        /// The client's words.
        reason: String,
    },
    /// The bus refuses our credentials.
    #[error("the bus at {url} refuses our credentials; set PLATFORM_SNAKE_TOKEN to the token it expects")]
    BusDenied {
        /// Where, without credentials.
        url: String,
    },
    /// Whom to trust on the bus cannot be read.
    #[error("TLS to the bus: {0}")]
    BusTls(crate::tls_server::TlsFileError),
    /// The bus address does not parse.
    #[error("snake.url {url:?} is not a bus address: write it like nats://localhost:4222")]
    BusUrl {
        /// The address, without credentials.
        url: String,
    },
    /// The bus has no persistent streams at all.
    #[error("the bus at {url} has no persistent streams; enable JetStream there")]
    NoStreams {
        /// Where, without credentials.
        url: String,
    },
    /// The bus has persistent streams under another domain.
    #[error(
        "domain mismatch: snake.domain is {ours:?} here, but the bus at {url} serves {}; set snake.domain here to the Mixer's snake.domain",
        theirs.as_ref().map_or_else(|| "no domain".to_owned(), |name| format!("{name:?}"))
    )]
    DomainMismatch {
        /// Where, without credentials.
        url: String,
        /// What is configured here.
        ours: String,
        /// What the server says, where it says it.
        theirs: Option<String>,
    },
    /// The bus answered the first question with an error.
    #[error("the bus at {url} answers with an error: {reason}")]
    BusFault {
        /// Where, without credentials.
        url: String,
        /// Its words.
        reason: String,
    },
    /// The bus is away.
    #[error("cannot ask on {subject}: the bus is not connected")]
    NotConnected {
        /// The subject.
        subject: String,
    },
    /// Nobody listens on a subject.
    #[error("nobody answers on {subject}; is the Mixer running?")]
    NoResponder {
        /// The subject.
        subject: String,
    },
    /// No answer in time.
    #[error("no answer on {subject} within {within}")]
    NoReply {
        /// The subject.
        subject: String,
        /// The time given.
        within: model::HumanDuration,
    },
    /// A request could not be sent.
    #[error("cannot send a request on {subject}: {reason}")]
    Request {
        /// The subject.
        subject: String,
        /// The client's words.
        reason: String,
    },
    /// A task of ours panicked.
    #[error("the task {0} failed")]
    TaskDied(&'static str),
}

impl Error {
    /// The exit code of a process that ends with this.
    #[must_use]
    pub fn exit(&self) -> ExitReason {
        match self {
            Self::Config(_) | Self::BusTls(_) | Self::BusUrl { .. } | Self::DomainMismatch { .. } => ExitReason::Config,
            Self::BusDenied { .. } | Self::SharedFolder { .. } | Self::ForeignFolder { .. } => ExitReason::Denied,
            Self::BusUnreachable { .. }
            | Self::NoStreams { .. }
            | Self::BusFault { .. }
            | Self::NotConnected { .. }
            | Self::NoResponder { .. }
            | Self::NoReply { .. }
            | Self::Request { .. } => ExitReason::Unavailable,
            Self::Watch { .. }
            | Self::LogFile { .. }
            | Self::Folder { .. }
            | Self::Thread { .. }
            | Self::LogStarted
            | Self::Signals(_)
            | Self::TaskDied(_) => ExitReason::Io,
        }
    }
}
