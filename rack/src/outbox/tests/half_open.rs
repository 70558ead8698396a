//! A half-open connection: what a Rack sent before it reconnected reaches the server after what it sent since.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};

use super::sending::{landed, landed_through, leave, once, send};
use super::*;

/// A proxy in front of the bus. Of its first connection it can hold back what the client sends, and cut the client off; the server
/// does not hear of that.
struct HalfOpenLink {
    port: u16,
    hold: watch::Sender<bool>,
    /// The server's side of the first connection, with what was held back.
    held: oneshot::Receiver<(OwnedWriteHalf, Vec<u8>)>,
    held_bytes: Arc<AtomicUsize>,
    cut: CancellationToken,
    task: JoinHandle<()>,
}

impl HalfOpenLink {
    async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (hold, holding) = watch::channel(false);
        let (give, held) = oneshot::channel();
        let cut = CancellationToken::new();
        let (cutting, held_bytes) = (cut.clone(), Arc::new(AtomicUsize::new(0)));
        let counting = Arc::clone(&held_bytes);
        let task = tokio::spawn(async move {
            let mut give = Some(give);
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                match give.take() {
                    Some(give) => drop(tokio::spawn(first(
                        client,
                        server,
                        (holding.clone(), Arc::clone(&counting)),
                        cutting.clone(),
                        give,
                    ))),
                    None => drop(tokio::spawn(async move {
                        let (mut client, mut server) = (client, server);
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    })),
                }
            }
        });
        Self {
            port,
            hold,
            held,
            held_bytes,
            cut,
            task,
        }
    }
}

impl Drop for HalfOpenLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn first(
    client: TcpStream,
    server: TcpStream,
    (holding, held_bytes): (watch::Receiver<bool>, Arc<AtomicUsize>),
    cut: CancellationToken,
    give: oneshot::Sender<(OwnedWriteHalf, Vec<u8>)>,
) {
    let ((mut from_client, to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
    let cutting = cut.clone();
    // The server is read to the end, so that it never waits.
    let down = tokio::spawn(async move {
        let (mut buffer, mut client) = (vec![0; 64 << 10], Some(to_client));
        loop {
            tokio::select! {
                count = from_server.read(&mut buffer) => match (count, &mut client) {
                    (Ok(count @ 1..), Some(client)) => drop(client.write_all(&buffer[..count]).await),
                    (Ok(1..), None) => {}
                    _ => break,
                },
                () = cutting.cancelled(), if client.is_some() => client = None,
            }
        }
    });
    let (mut held, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let count = tokio::select! {
            count = from_client.read(&mut buffer) => count.unwrap_or(0),
            () = cut.cancelled() => 0,
        };
        if count == 0 {
            break;
        }
        if *holding.borrow() {
            held.extend_from_slice(&buffer[..count]);
            held_bytes.fetch_add(count, Relaxed);
        } else {
            to_server.write_all(&buffer[..count]).await.unwrap();
        }
    }
    drop(from_client);
    let _ = give.send((to_server, held));
    down.await.unwrap();
}

#[tokio::test]
async fn what_an_old_connection_delivers_late_comes_neither_twice_nor_out_of_order() {
    let (server, dir, there) = (
        BusServer::start().await,
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let direct = server.connect().await;
    make(&direct, -1).await;
    let mut link = HalfOpenLink::start(server.port).await;
    let bus = connect(link.port).await;
    let cancel = CancellationToken::new();
    let (outbox, _, _thread) = send(dir.path(), &bus, &cancel);
    let receiver = Receiver::start(there.path(), &direct);
    let leave_some = async |count: usize| {
        for _ in 0..count {
            leave(&outbox, 100).await;
        }
    };
    leave_some(50).await;
    landed(&direct, 50).await;
    link.hold.send(true).unwrap();
    leave_some(200).await;
    outbox.flush().await.unwrap();
    until("much is held back", async || {
        (link.held_bytes.load(Relaxed) > 10_000).then_some(())
    })
    .await;
    link.cut.cancel();
    leave_some(100).await;
    landed(&direct, 350).await;
    let (mut old, held) = (&mut link.held).await.unwrap();
    old.write_all(&held).await.unwrap();
    old.write_all(b"PING\r\n").await.unwrap();
    leave_some(50).await;
    let all = landed_through(&direct, 400).await;
    assert_eq!(once(&all), (1..=400).collect::<Vec<_>>(), "{all:?}");
    for number in 1..=400 {
        let (_, receipt) = receiver.next().await;
        assert_eq!(receipt.taken.place.number, number);
        receiver.take(receipt).await;
    }
    receiver.end().await;
    cancel.cancel();
}
