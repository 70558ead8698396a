//! `syslog_in`: takes syslog over UDP and TCP; each line becomes a message.
//!
//! # Invariants
//!
//! - A line that is in no known form is a message all the same, with `syslog.malformed: true`; so is what was read of one that did
//!   not end. The body is the line, byte for byte; what was understood of it is the message's data.
//! - Over TCP a full inbox behind `out` stops the reading of that socket. Over UDP the system drops what it cannot hold: nothing
//!   can keep such a sender waiting. It is counted as dropped.
//! - Lines that have arrived together leave together, with one sync of the outbox.
//!
//! # Not here
//!
//! What a line says ([`syslog_message`]), lines in a line_reader ([`line_reader`]), taking connections ([`super::tcp_listener`]).

mod datagram_receiver;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod line_reader;
mod syslog_message;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzz"))]
pub(super) use fuzz::fuzz_targets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::syslog_in::SyslogInConfig;
use model::{HumanDuration, Level, gear_manifest};

use super::tcp_connect::peer_facts;
use super::tcp_listener::{GearListener, IncomingStream, ListenerAddress, admit, announce};
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
use datagram_receiver::{DatagramBatch, DatagramReceiver};
use line_reader::{SyslogLineReader, SyslogStreamError, trimmed};
use syslog_message::SyslogMessage;

/// The pause after a datagram could not be read.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(SyslogReceiver {
        config: gear_manifest::config(config)?,
        udp: None,
        tcp: None,
    })))
}

struct SyslogReceiver {
    config: SyslogInConfig,
    udp: Option<DatagramReceiver>,
    tcp: Option<GearListener>,
}

impl ActiveGear for SyslogReceiver {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let address = self.config.listen;
            if self.config.tcp {
                let address = ListenerAddress {
                    listen: address,
                    tls: self.config.tls.as_ref(),
                    schemes: ["tcp", "tls"],
                    path: "",
                };
                self.tcp = Some(GearListener::bind(cx, address).await?);
            }
            if self.config.udp {
                admit(cx, address)?;
                let failed = |reason| GearError::Listen { address, reason };
                let socket = DatagramReceiver::bind(address).await.map_err(failed)?;
                announce(cx, socket.local_addr().map_err(failed)?, "udp", "");
                self.udp = Some(socket);
            }
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let (max, idle) = (self.config.max_message as usize, self.config.idle_timeout.get());
            let is_tls = self.config.tls.is_some();
            let serve = |incoming: IncomingStream| {
                let peer = SyslogPeer {
                    cx: Arc::clone(cx),
                    address: incoming.peer,
                    transport: "tcp",
                    is_tls,
                };
                peer.serve(incoming, SyslogLineReader::new(max), idle)
            };
            let tcp = async {
                if let Some(listener) = self.tcp.take() {
                    listener.serve(cx, self.config.max_connections as usize, serve).await;
                }
            };
            let udp = async {
                if let Some(socket) = self.udp.take() {
                    receive(cx, socket).await;
                }
            };
            tokio::join!(tcp, udp);
            Ok(())
        }
        .boxed()
    }
}

/// Passes on datagrams until the gear stops.
async fn receive(cx: &Arc<GearContext>, mut socket: DatagramReceiver) {
    loop {
        let received = tokio::select! {
            () = cx.stopping() => return,
            received = socket.receive() => received,
        };
        match received {
            Ok(DatagramBatch { datagrams, dropped }) => {
                if dropped > 0 {
                    cx.count_lost(
                        dropped.into(),
                        "the system dropped datagrams: its buffer was full, or they were damaged",
                    );
                }
                let pass_on = async {
                    for (datagram, address) in datagrams {
                        let peer = SyslogPeer {
                            cx: Arc::clone(cx),
                            address,
                            transport: "udp",
                            is_tls: false,
                        };
                        let line = trimmed(&datagram);
                        if !line.is_empty() {
                            peer.pass_on(line.to_vec(), false).await;
                        }
                    }
                };
                cx.commit_received("out", None, pass_on).await;
            }
            Err(error) => {
                cx.error(format!("cannot read a datagram: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Who sends.
struct SyslogPeer {
    cx: Arc<GearContext>,
    address: SocketAddr,
    transport: &'static str,
    is_tls: bool,
}

impl SyslogPeer {
    /// Reads one connection until it ends, is silent for too long, or the gear stops.
    async fn serve(self, incoming: IncomingStream, mut lines: SyslogLineReader, idle: Duration) {
        let stop = incoming.stop.clone();
        let Some(mut stream) = incoming.accept().await else {
            return;
        };
        let why = loop {
            let arrived = tokio::select! {
                biased;
                arrived = lines.read(&mut stream) => arrived,
                () = stop.cancelled() => break None,
                () = tokio::time::sleep(idle) => break Some(format!("no line came for {}", HumanDuration::from(idle))),
            };
            match arrived {
                // How a connection ends is its peer's affair.
                Err(SyslogStreamError::Io(_)) => break None,
                Ok(arrived) if arrived.is_empty() => break None,
                Ok(arrived) => {
                    let pass_on = async {
                        for line in arrived {
                            self.pass_on(line, false).await;
                        }
                    };
                    self.cx.commit_received("out", None, pass_on).await;
                }
                Err(broken) => break Some(broken.to_string()),
            }
        };
        if let Some(why) = why {
            let text = format!("the connection from {} is closed: {why}", self.address);
            self.cx.log(Level::Warn, text);
        }
        if let Some(rest) = lines.rest() {
            self.pass_on(rest, true).await;
        }
    }

    async fn pass_on(&self, raw: Vec<u8>, is_cut: bool) {
        let began = std::time::Instant::now();
        let mut meta = peer_facts(self.address).with("network.transport", self.transport);
        if self.is_tls {
            meta.set("tls.protocol.name", "tls");
        }
        let text = String::from_utf8_lossy(&raw);
        let line = SyslogMessage::of(&text);
        if let Some(format) = line.format {
            meta.set("syslog.format", format);
        }
        if line.malformed || is_cut {
            meta.set("syslog.malformed", true);
        }
        let data = line.data();
        drop(text);
        let mut message = self.cx.make(None, meta, raw);
        message.data = data;
        // A refusal has been counted and reported; the next line may pass.
        self.cx.emit("out", message, None, began).await.ok();
    }
}
