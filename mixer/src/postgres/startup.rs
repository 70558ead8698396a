//! How a connection begins: encryption is refused, a client says who it is, or cancels a statement of another connection.

use bytes::BufMut;

use super::fault::Fault;
use super::rows::Stop;
use super::settings::Settings;
use super::wire::{Body, Incoming, Outgoing, put_text};

const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;
/// So many names a client may say.
const MOST_NAMES: usize = 64;

/// What a connection is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Statements.
    Session {
        /// What the client calls itself.
        application: Option<String>,
    },
    /// To end the statement of another connection.
    Cancel {
        /// That connection's number.
        number: i32,
        /// What only its client knows.
        secret: i32,
    },
    /// Nothing: it has gone.
    Nothing,
}

/// Reads what a connection is for.
pub(super) async fn purpose(incoming: &mut Incoming, out: &mut Outgoing) -> Result<Purpose, Stop> {
    // Each kind of encryption may be asked for once.
    for _ in 0..3 {
        let Some(mut body) = incoming.startup().await? else {
            return Ok(Purpose::Nothing);
        };
        match body.int()? {
            TLS | GSS => {
                out.byte(b'N');
                out.send().await?;
            }
            CANCEL => {
                return Ok(Purpose::Cancel {
                    number: body.int()?,
                    secret: body.int()?,
                });
            }
            version if version >> 16 == VERSION >> 16 => return session(version, &mut body, out),
            version => {
                let (major, minor) = (version >> 16, version & 0xffff);
                let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
                return Err(Fault::fatal("0A000", message).into());
            }
        }
    }
    Err(Fault::protocol("encryption is not offered here").into())
}

fn session(version: i32, body: &mut Body, out: &mut Outgoing) -> Result<Purpose, Stop> {
    let (mut application, mut unknown) = (None, Vec::new());
    for _ in 0..MOST_NAMES {
        let name = body.text()?;
        if name.is_empty() {
            if version != VERSION || !unknown.is_empty() {
                negotiate(out, &unknown);
            }
            return Ok(Purpose::Session { application });
        }
        let value = body.text()?;
        if name == "application_name" {
            application = Some(value);
        } else if name.starts_with("_pq_.") {
            unknown.push(name);
        }
    }
    Err(Fault::protocol("the first message has too many names").into())
}

/// Tells a client which version and options there are.
fn negotiate(out: &mut Outgoing, unknown: &[String]) {
    out.message(b'v', |out| {
        out.put_i32(VERSION);
        out.put_i32(i32::try_from(unknown.len()).unwrap_or(i32::MAX));
        for name in unknown {
            put_text(out, name);
        }
    });
}

/// Tells a client that it may begin, and how to cancel.
pub(super) async fn welcome(out: &mut Outgoing, number: i32, secret: i32) -> std::io::Result<()> {
    out.message(b'R', |out| out.put_i32(0));
    for (name, value) in Settings::reported() {
        out.message(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }
    out.message(b'K', |out| {
        out.put_i32(number);
        out.put_i32(secret);
    });
    out.message(b'Z', |out| out.put_u8(b'I'));
    out.send().await
}
