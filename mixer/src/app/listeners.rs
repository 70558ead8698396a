//! The Mixer's listeners: bound before anything else starts, served when the rest is there.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::config::MixerConfig;
use crate::start_error::StartError;

/// Where a Mixer is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListenAddresses {
    pub(super) api: SocketAddr,
    pub(super) postgres: Option<SocketAddr>,
    pub(super) otlp: Option<OtlpAddresses>,
}

/// Where OTLP is received at ports of its own.
#[derive(Debug, Clone, Copy)]
pub struct OtlpAddresses {
    /// Over HTTP.
    pub http: SocketAddr,
    /// Over gRPC.
    pub grpc: SocketAddr,
}

/// The addresses that are taken before anything else starts, without listening yet.
#[derive(Debug)]
pub(super) struct ReservedSockets {
    pub(super) api: TcpSocket,
    pub(super) postgres: Option<TcpSocket>,
    /// Over HTTP and over gRPC.
    pub(super) otlp: Option<(TcpSocket, TcpSocket)>,
}

impl ReservedSockets {
    pub(super) fn of(config: &MixerConfig) -> Result<Self, StartError> {
        Ok(Self {
            api: reserve(config)?,
            postgres: reserve_postgres(config)?,
            otlp: reserve_otlp(config)?,
        })
    }
}

/// Takes the API's address.
fn reserve(config: &MixerConfig) -> Result<TcpSocket, StartError> {
    let address = SocketAddr::new(config.api.host, config.api.port);
    bind(address).map_err(|source| api_address(config, source))
}

/// The same for PostgreSQL clients, if they may connect.
fn reserve_postgres(config: &MixerConfig) -> Result<Option<TcpSocket>, StartError> {
    if !config.postgres.enabled {
        return Ok(None);
    }
    let socket = bind(SocketAddr::new(config.postgres.host, config.postgres.port));
    socket.map(Some).map_err(|source| postgres_address(config, source))
}

/// The same for OTLP over HTTP and over gRPC, if it is received at ports of its own.
fn reserve_otlp(config: &MixerConfig) -> Result<Option<(TcpSocket, TcpSocket)>, StartError> {
    let otlp = &config.otlp_receiver;
    if !otlp.enabled {
        return Ok(None);
    }
    let reserve = |port| bind(SocketAddr::new(otlp.host, port)).map_err(|source| otlp_address(config, port, source));
    Ok(Some((reserve(otlp.http_port)?, reserve(otlp.grpc_port)?)))
}

/// Listens for OTLP where it was reserved.
pub(super) fn listen_otlp(
    (http, grpc): (TcpSocket, TcpSocket),
    config: &MixerConfig,
) -> Result<(TcpListener, TcpListener), StartError> {
    let otlp = &config.otlp_receiver;
    let listen = |socket: TcpSocket, port| socket.listen(1024).map_err(|source| otlp_address(config, port, source));
    Ok((listen(http, otlp.http_port)?, listen(grpc, otlp.grpc_port)?))
}

fn otlp_address(config: &MixerConfig, port: u16, source: std::io::Error) -> StartError {
    StartError::OtlpAddress {
        host: config.otlp_receiver.host,
        port,
        source,
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    socket.and_then(|socket| {
        // Connections of the last run linger; without this their address could not be taken for a minute.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    })
}

pub(super) fn listen(socket: TcpSocket, config: &MixerConfig) -> Result<TcpListener, StartError> {
    socket.listen(1024).map_err(|source| api_address(config, source))
}

pub(super) fn postgres_address(config: &MixerConfig, source: std::io::Error) -> StartError {
    StartError::PostgresAddress {
        host: config.postgres.host,
        port: config.postgres.port,
        source,
    }
}

pub(super) fn api_address(config: &MixerConfig, source: std::io::Error) -> StartError {
    StartError::ApiAddress {
        host: config.api.host,
        port: config.api.port,
        source,
    }
}
