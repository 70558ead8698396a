//! Startup of a connection: whether it is to be encrypted, reads the client's parameters, or a cancel request.

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite};

use super::framing::{BackendWriter, FrontendReader, MessageFields, put_text};
use super::pg_error::PgError;
use super::rows::PgReplyError;
use super::session_settings::SessionSettings;

const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;
/// So many names a client may say.
const MOST_NAMES: usize = 64;

/// What a connection is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartupRequest {
    /// Statements.
    Session {
        /// What the client sets from the beginning, names in small letters.
        settings: Vec<(String, String)>,
    },
    /// To end the statement of another connection.
    Cancel {
        /// That connection's number.
        number: i32,
        /// What only its client knows.
        secret: i32,
    },
    /// To be encrypted first; it was told that it is.
    Encryption,
    /// Nothing: it has gone.
    Nothing,
}

/// Whether a connection can be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PgEncryption {
    Offered,
    /// There is no certificate, or it is encrypted already.
    NotOffered,
}

/// Reads what a connection is for.
pub(super) async fn purpose<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    incoming: &mut FrontendReader<R>,
    out: &mut BackendWriter<W>,
    encryption: PgEncryption,
) -> Result<StartupRequest, PgReplyError> {
    // Each kind of encryption may be asked for once.
    for _ in 0..3 {
        let Some(mut body) = incoming.startup().await? else {
            return Ok(StartupRequest::Nothing);
        };
        match body.int()? {
            TLS if encryption == PgEncryption::Offered => {
                out.byte(b'S');
                out.send().await?;
                return Ok(StartupRequest::Encryption);
            }
            TLS | GSS => {
                out.byte(b'N');
                out.send().await?;
            }
            CANCEL => {
                return Ok(StartupRequest::Cancel {
                    number: body.int()?,
                    secret: body.int()?,
                });
            }
            version if version >> 16 == VERSION >> 16 => return session(version, &mut body, out),
            version => {
                let (major, minor) = (version >> 16, version & 0xffff);
                let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
                return Err(PgError::fatal("0A000", message).into());
            }
        }
    }
    Err(PgError::protocol("encryption is not supported here").into())
}

fn session<W: AsyncWrite + Unpin>(
    version: i32,
    body: &mut MessageFields,
    out: &mut BackendWriter<W>,
) -> Result<StartupRequest, PgReplyError> {
    let (mut settings, mut unknown) = (Vec::new(), Vec::new());
    for _ in 0..MOST_NAMES {
        let name = body.text()?;
        if name.is_empty() {
            if version != VERSION || !unknown.is_empty() {
                negotiate(out, &unknown);
            }
            return Ok(StartupRequest::Session { settings });
        }
        let value = body.text()?;
        if name.starts_with("_pq_.") {
            unknown.push(name);
        } else if name == "options" {
            settings.extend(options(&value));
        } else {
            settings.push((name.to_ascii_lowercase(), value));
        }
    }
    Err(PgError::protocol("the first message has too many names").into())
}

/// What `-c name=value` and `--name=value` set, `-` in a name being `_`. A backslash stands before a character of a value.
fn options(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, words.last_mut()) {
            ('\\', Some(word)) => word.extend(characters.next()),
            (blank, _) if blank.is_whitespace() => words.push(String::new()),
            (other, Some(word)) => word.push(other),
            (_, None) => {}
        }
    }
    let settings = words.iter().filter_map(|word| {
        let setting = word.strip_prefix("-c").or_else(|| word.strip_prefix("--"));
        let (name, value) = setting.unwrap_or(word).split_once('=')?;
        Some((name.to_ascii_lowercase().replace('-', "_"), value.to_owned()))
    });
    settings.collect()
}

/// Tells a client which version and options there are.
fn negotiate<W: AsyncWrite + Unpin>(out: &mut BackendWriter<W>, unknown: &[String]) {
    out.message(b'v', |out| {
        out.put_i32(VERSION);
        out.put_i32(i32::try_from(unknown.len()).unwrap_or(i32::MAX));
        for name in unknown {
            put_text(out, name);
        }
    });
}

/// Tells a client that it may begin, how to cancel, and what of its settings is not carried out.
pub(super) async fn welcome(
    out: &mut BackendWriter,
    (number, secret): (i32, i32),
    refused: &[PgError],
) -> std::io::Result<()> {
    out.message(b'R', |out| out.put_i32(0));
    for (name, value) in SessionSettings::reported() {
        out.message(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }
    out.message(b'K', |out| {
        out.put_i32(number);
        out.put_i32(secret);
    });
    for fault in refused {
        out.warning(fault.code, &fault.message);
    }
    out.message(b'Z', |out| out.put_u8(b'I'));
    out.send().await
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_read_as_postgresql_reads_them() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options(r"-c TimeZone=UTC --statement-timeout=5 -capplication_name=a\ b\\"),
            [
                set("timezone", "UTC"),
                set("statement_timeout", "5"),
                set("application_name", r"a b\")
            ]
        );
    }
}
