//! TCP connections that gears open: within a time, without Nagle's delay.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// Connects to `host:port`.
pub(super) async fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(timeout, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // Small frames shall not wait for the answer to the one before.
    stream.set_nodelay(true).ok();
    Ok(stream)
}

/// Says what is wrong with the address of a configuration.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        Ok(())
    } else {
        Err(format!(
            "address {address:?} is not host:port, such as collector.example:9000 or [::1]:9000"
        ))
    }
}
