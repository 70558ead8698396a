//! Start-up errors of the Mixer, and the exit code of each.

use std::io;
use std::net::IpAddr;

use chassis::ExitReason;
use chassis::tls_server::TlsFileError;
use engine::ErrorKind;

use crate::authentication::{TokenFileError, TokenStoreError};
use crate::bucket::BucketError;
use crate::bus_server::BusError;
use crate::cluster::ClusterError;
use crate::registry::RegistryError;
use crate::scenario::ScenarioError;
use crate::specs::SpecSetError;

/// Why a Mixer does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The API cannot listen where it should.
    #[error("{}", api_address(host, *port, source))]
    ApiAddress {
        /// The address.
        host: IpAddr,
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// PostgreSQL clients cannot be listened to where they should.
    #[error("{}", postgres_address(host, *port, source))]
    PostgresAddress {
        /// The address.
        host: IpAddr,
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// OTLP cannot be received where it should.
    #[error("{}", otlp_address(host, *port, source))]
    OtlpAddress {
        /// The address.
        host: IpAddr,
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// The storage engine does not open.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The object store's URL or its variables.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// There is no bus.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The registry does not open.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The certificate of the API cannot be used.
    #[error("api.tls_cert: {0}")]
    Tls(#[from] TlsFileError),
    /// The API tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenStoreError),
    /// The cluster's identity cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The startup scenario cannot be activated.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Racks cannot be heard.
    #[error("{0}")]
    AgentRpc(String),
    /// Telemetry cannot be sent to the collector.
    #[error("observability.otlp: {0}")]
    Export(String),
    /// Queries cannot be run.
    #[error("queries cannot be run: {0}")]
    Query(#[from] query::Error),
    /// What stands of specs cannot be known.
    #[error(transparent)]
    Specs(#[from] SpecSetError),
    /// The store's folder is open to others.
    #[error(transparent)]
    SharedStore(#[from] chassis::Error),
    /// A folder cannot be made.
    #[error(transparent)]
    Folder(#[from] durable_fs::DurableFsError),
}

fn api_address(host: &IpAddr, port: u16, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} on {host} is taken (`ss -ltnp 'sport = :{port}'` shows by whom): stop that program, or set api.port \
             (0 takes any free one)"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("api.host = {host} is not an address of this machine: set one that is, or 127.0.0.1")
        }
        io::ErrorKind::PermissionDenied => {
            format!("the API may not listen on port {port} of {host}: set api.port to 1024 or above")
        }
        _ => format!("the API cannot listen on {host} (api.host), port {port} (api.port): {source}"),
    }
}

fn postgres_address(host: &IpAddr, port: u16, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} on {host} is taken (`ss -ltnp 'sport = :{port}'` shows by whom): stop that program, or set \
             postgres.port (0 takes any free one)"
        ),
        _ => format!(
            "cannot listen for PostgreSQL clients on {host} (postgres.host), port {port} (postgres.port): {source}"
        ),
    }
}

fn otlp_address(host: &IpAddr, port: u16, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} on {host} is taken (`ss -ltnp 'sport = :{port}'` shows by whom): stop that program, or set \
             otlp.grpc_port and otlp.http_port (0 takes any free one)"
        ),
        _ => format!("cannot receive OTLP on {host} (otlp.host), port {port}: {source}"),
    }
}

/// The exit code of an error of the engine, at a start as in the commands on a store.
pub(crate) const fn of_engine(kind: ErrorKind) -> ExitReason {
    match kind {
        ErrorKind::Setting => ExitReason::Config,
        ErrorKind::Locked | ErrorKind::Unavailable => ExitReason::Unavailable,
        ErrorKind::Denied => ExitReason::Denied,
        ErrorKind::Damage | ErrorKind::Input => ExitReason::Data,
        _ => ExitReason::Io,
    }
}

impl StartError {
    /// The exit code, after sysexits.
    #[must_use]
    pub fn exit_code(&self) -> ExitReason {
        match self {
            Self::ApiAddress { .. }
            | Self::PostgresAddress { .. }
            | Self::OtlpAddress { .. }
            | Self::Bucket(_)
            | Self::Export(_) => ExitReason::Config,
            Self::Engine(error) => of_engine(error.kind()),
            Self::Bus(error) => error.exit(),
            Self::Registry(error) => of_registry(error),
            Self::Tls(TlsFileError::Exposed { .. }) => ExitReason::Denied,
            Self::Tls(_) => ExitReason::Config,
            Self::Tokens(error) => match error {
                TokenStoreError::File(TokenFileError::Exposed { .. }) => ExitReason::Denied,
                TokenStoreError::File(_) => ExitReason::Config,
                TokenStoreError::Registry(error) => of_registry(error),
            },
            Self::Cluster(error) => match error {
                ClusterError::Exposed { .. } => ExitReason::Denied,
                ClusterError::Missing { .. }
                | ClusterError::NoRegistry { .. }
                | ClusterError::Founded { .. }
                | ClusterError::Foreign { .. }
                | ClusterError::Malformed { .. }
                | ClusterError::NotFounded { .. }
                | ClusterError::Linked { .. }
                | ClusterError::Succession(_) => ExitReason::Config,
                ClusterError::Registry(error) => of_registry(error),
                ClusterError::Unreadable { .. } | ClusterError::Unwritable(_) => ExitReason::Io,
            },
            Self::Scenario(error) => match error {
                ScenarioError::Invalid { .. } => ExitReason::Data,
                ScenarioError::Registry(error) => of_registry(error),
                ScenarioError::Unreadable { .. } | ScenarioError::TooLarge { .. } | ScenarioError::Unknown { .. } => {
                    ExitReason::Config
                }
            },
            Self::AgentRpc(_) => ExitReason::Unavailable,
            Self::Specs(error) => match error {
                SpecSetError::Unreadable { .. } => ExitReason::Io,
                SpecSetError::Damaged { .. } | SpecSetError::Format { .. } => ExitReason::Data,
            },
            Self::SharedStore(error) => error.exit(),
            Self::Query(_) | Self::Folder(_) => ExitReason::Io,
        }
    }
}

const fn of_registry(error: &RegistryError) -> ExitReason {
    match error {
        RegistryError::InUse { .. } => ExitReason::Unavailable,
        RegistryError::Format { .. } | RegistryError::Damaged { .. } => ExitReason::Data,
        RegistryError::Database(_) | RegistryError::Interrupted(_) => ExitReason::Io,
    }
}
