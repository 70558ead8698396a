//! `tcp_out`: keeps a TCP connection open and writes each message to it as a frame; frames that come back become messages.
//!
//! # Invariants
//!
//! - A message is done when all its bytes were given to the connection. When the connection breaks before that, the message is
//!   written again, whole, to the next one.
//! - A connection that takes nothing for `write_timeout` is broken; one that takes little at a time is not.
//! - While there is no connection, messages wait in the inbox.
//! - A frame that has come back whole becomes a message, whatever ends its connection, the gear's own end too.
//! - The pause before another attempt doubles from `reconnect_min` to `reconnect_max`; a connection that lived as long as the
//!   longest pause makes it short again.
//!
//! # Not here
//!
//! Frames ([`super::framing`]). What became of bytes that the system took and a broken connection lost: TCP does not say.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::tcp_out::TcpOutConfig;
use model::{HumanDuration, Level, gear_manifest};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::framing::{FrameFormat, FrameReader};
use super::tcp_connect::{DialedStream, DuplexStream, ReconnectBackoff, dial, peer_facts};
use super::tls::TlsTarget;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: TcpOutConfig = gear_manifest::config(config)?;
    let rule = FrameFormat::of(&config.framing)?;
    let (link, linked) = watch::channel(None);
    let writer = TcpFrameWriter {
        rule: rule.clone(),
        address: config.address.clone(),
        ends_with_word: config.tls.is_some(),
        linked,
    };
    Ok(Gear::Duplex(
        Box::new(TcpConnector {
            config,
            rule,
            link,
            tls: None,
        }),
        Box::new(writer),
    ))
}

/// The connection that is open now.
type TcpLink = Option<Arc<OpenTcpConnection>>;

struct OpenTcpConnection {
    write: Mutex<WriteHalf<Box<dyn DuplexStream>>>,
    /// Says that nothing more can be written.
    broken: CancellationToken,
}

/// The half that opens the connection and reads from it.
struct TcpConnector {
    config: TcpOutConfig,
    rule: FrameFormat,
    link: watch::Sender<TcpLink>,
    /// How the other side is known, once the gear begins.
    tls: Option<TlsTarget>,
}

impl ActiveGear for TcpConnector {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if let Some(tls) = self.config.tls.clone() {
                let (files, address) = (cx.policy().readable().clone(), self.config.address.clone());
                let target = tokio::task::spawn_blocking(move || TlsTarget::of(&files, "tls", &tls, &address)).await?;
                self.tls = Some(target.map_err(GearError::Config)?);
            }
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let mut backoff = ReconnectBackoff::new(self.config.reconnect_min.get(), self.config.reconnect_max.get());
            loop {
                let born = Instant::now();
                // What is open stays open for what the other half still has to write.
                let Some(ended) = self.connect_and_read(cx).await else {
                    return Ok(());
                };
                self.link.send_replace(None);
                let pause = backoff.after(born.elapsed());
                cx.error(format!("{ended}; trying again in {}", HumanDuration::from(pause)));
                tokio::select! {
                    () = cx.stopping() => return Ok(()),
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
        .boxed()
    }
}

impl TcpConnector {
    /// One connection from its beginning to its end, and what ended it; nothing where the gear shall stop.
    async fn connect_and_read(&self, cx: &GearContext) -> Option<String> {
        let address = &self.config.address;
        let timeouts = (self.config.connect_timeout.get(), self.config.write_timeout.get());
        let connected = tokio::select! {
            () = cx.stopping() => return None,
            connected = dial(cx.policy(), address, self.tls.as_ref(), timeouts) => connected,
        };
        let DialedStream { stream, peer } = match connected {
            Ok(dialed) => dialed,
            Err(error) => return Some(format!("cannot connect to {address}: {error}")),
        };
        cx.log(Level::Info, format!("connected to {address} ({peer})"));
        let (read, write) = tokio::io::split(stream);
        let broken = CancellationToken::new();
        self.link.send_replace(Some(Arc::new(OpenTcpConnection {
            write: write.into(),
            broken: broken.clone(),
        })));
        let mut frames = FrameReader::new(self.rule.clone(), self.config.max_frame as usize);
        let ended = self.read(cx, (&mut frames, read), (peer, &broken)).await;
        // What has arrived whole is passed on, whatever ended the connection.
        while let arrived = frames.buffered_frames()
            && !arrived.is_empty()
        {
            pass_on(cx, arrived, peer).await;
        }
        Some(format!("the connection to {address} {}", ended?))
    }

    /// Passes on frames until there are no more, and says why; nothing where the gear shall stop.
    async fn read(
        &self,
        cx: &GearContext,
        (frames, mut from): (&mut FrameReader, ReadHalf<Box<dyn DuplexStream>>),
        (peer, broken): (SocketAddr, &CancellationToken),
    ) -> Option<String> {
        loop {
            let arrived = tokio::select! {
                biased;
                () = cx.stopping() => return None,
                () = broken.cancelled() => return Some("takes no more".to_owned()),
                arrived = frames.read_all(&mut from) => arrived,
            };
            match arrived {
                Ok(arrived) if arrived.is_empty() => return Some("has ended: the other side closed it".to_owned()),
                Ok(arrived) => pass_on(cx, arrived, peer).await,
                Err(broken) => return Some(format!("has ended: {broken}")),
            }
        }
    }
}

/// Passes on frames that came back.
async fn pass_on(cx: &GearContext, frames: Vec<Vec<u8>>, peer: SocketAddr) {
    if !cx.is_wired("reply") {
        return;
    }
    let pass_on = async {
        for frame in frames {
            let began = std::time::Instant::now();
            let message = cx.make(None, peer_facts(peer), frame);
            // A refusal has been counted and reported; the next frame may pass.
            cx.emit("reply", message, None, began).await.ok();
        }
    };
    cx.commit_received("reply", None, pass_on).await;
}

/// The half that writes.
struct TcpFrameWriter {
    rule: FrameFormat,
    address: String,
    /// Whether the other side must be told of the end: with TLS, something could have been cut off otherwise.
    ends_with_word: bool,
    linked: watch::Receiver<TcpLink>,
}

impl PassiveGear for TcpFrameWriter {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let bytes = self
                .rule
                .encode(&delivery.message.body())
                .map_err(GearError::Rejected)?;
            loop {
                let open = tokio::select! {
                    biased;
                    open = self.open() => open?,
                    () = cx.stopping() => return Err(self.outside(io::ErrorKind::NotConnected.into())),
                };
                let mut write = open.write.lock().await;
                let written = async {
                    write.write_all(&bytes).await?;
                    write.flush().await
                };
                if written.await.is_ok() {
                    return Ok(());
                }
                open.broken.cancel();
            }
        }
        .boxed()
    }

    fn flush<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let open = self.linked.borrow().clone();
            if let Some(open) = open.filter(|_| self.ends_with_word && cx.is_draining()) {
                tokio::time::timeout(GOODBYE, async { open.write.lock().await.shutdown().await })
                    .await
                    .ok();
            }
            Ok(())
        }
        .boxed()
    }
}

/// How long the other side may take to hear of the end.
const GOODBYE: Duration = Duration::from_millis(300);

impl TcpFrameWriter {
    /// Waits for a connection that is not known to be broken.
    async fn open(&mut self) -> Result<Arc<OpenTcpConnection>, GearError> {
        let usable = |link: &TcpLink| link.as_ref().is_some_and(|open| !open.broken.is_cancelled());
        let open = self.linked.wait_for(usable).await.ok().and_then(|link| link.clone());
        open.ok_or_else(|| self.outside(io::ErrorKind::NotConnected.into()))
    }

    fn outside(&self, reason: io::Error) -> GearError {
        GearError::Outside {
            what: format!("write to {}", self.address),
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
