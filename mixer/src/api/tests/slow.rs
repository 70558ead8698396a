//! Clients that take their answers slowly.

use std::time::Instant;

use tokio::net::TcpSocket;

use super::*;

/// Asks by a connection that takes little at once, and takes some of the answer every moment for so long.
async fn sip(addr: SocketAddr, path: &str, long: Duration) -> (TcpStream, Vec<u8>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut stream = socket.connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (began, mut taken, mut mouthful) = (Instant::now(), Vec::new(), vec![0; 32 << 10]);
    let mut moment = tokio::time::interval(Duration::from_millis(10));
    while began.elapsed() < long {
        moment.tick().await;
        let read = stream.read(&mut mouthful).await.unwrap_or(0);
        taken.extend_from_slice(&mouthful[..read]);
    }
    (stream, taken)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_a_list_too_slowly_on_the_whole_is_cut_off() {
    let patience = Patience {
        // Longer than a third of what the system holds for a socket takes: only then more can be written.
        silence: Duration::from_secs(2),
        byte_time: Duration::from_nanos(1),
    };
    let bench = Bench::with(patience).await;
    let rows: Vec<_> = (0..6_000)
        .map(|number| LogRecord {
            message: "x".repeat(5_000),
            ..log(number)
        })
        .collect();
    for rows in rows.chunks(500) {
        bench.append(rows).await;
    }
    let (addr, long) = (bench.api.addr(), Duration::from_secs(4));
    let (mut list, mut taken) = sip(addr, "/api/v1/telemetry/logs?limit=6000", long).await;
    // What is on the way comes, and then no proper end.
    let _ = list.read_to_end(&mut taken).await;
    assert!(taken.len() > 100_000, "{}", taken.len());
    assert!(!taken.ends_with(b"0\r\n\r\n"), "all {} bytes of it came", taken.len());
    bench.close().await;
}
