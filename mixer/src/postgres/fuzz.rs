//! Fuzz targets of the PostgreSQL protocol: what a client sends before and after it is known.
//!
//! # Not here
//!
//! Statements (`query::fuzz`); what a login proves (`access::scram`).

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use model::fuzz::FuzzTarget;
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};

use super::bind_parameters::{self, BoundMemory, MOST_BOUND};
use super::copy_statement::CopyStatement;
use super::cursor_statement::{CursorDeclaration, CursorFetch};
use super::extended_query::forms;
use super::framing::{FrontendMessage, of_halves, put_text};
use super::pg_error::PgError;
use super::pg_types::PgType;
use super::session_settings::SessionSettings;
use super::startup::{PgEncryption, StartupRequest, purpose};
use super::utility_statement::UtilityStatement;

/// The types of parameters by their ids.
const OIDS: [u32; 17] = [
    16, 21, 23, 20, 700, 701, 1700, 25, 17, 2950, 1082, 1083, 1114, 1184, 1186, 1009, 1007,
];

/// The targets.
pub(crate) fn fuzz_targets() -> Vec<FuzzTarget> {
    vec![startup(), messages(), parameters(), session()]
}

/// A message with its length in front, behind its kind if it has one.
fn framed(kind: Option<u8>, body: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut fields = BytesMut::new();
    body(&mut fields);
    let length = u32::try_from(fields.len() + 4).unwrap_or_default().to_be_bytes();
    [kind.as_slice(), &length, &fields].concat()
}

/// Requests for encryption, then to begin or to cancel.
fn startup() -> FuzzTarget {
    let asked = |code: i32| framed(None, |out| out.put_i32(code));
    let begin = framed(None, |out| {
        out.put_i32(3 << 16);
        for text in [
            "user",
            "ci",
            "options",
            r"-c TimeZone=UTC --statement-timeout=5\ s",
            "_pq_.a",
            "b",
            "",
        ] {
            put_text(out, text);
        }
    });
    let cancel = framed(None, |out| {
        out.put_i32(80_877_102);
        out.put_u64(7);
    });
    let samples = vec![[asked(80_877_103), asked(80_877_104), begin].concat(), cancel];
    // What is sent has a deadline.
    let runtime = Builder::new_current_thread().enable_time().build();
    FuzzTarget::new("postgres.startup", samples, move |bytes| {
        let begin = |runtime: &Runtime| {
            let (mut incoming, mut out) = of_halves(bytes, tokio::io::sink());
            let read = runtime.block_on(purpose(&mut incoming, &mut out, PgEncryption::NotOffered));
            if let Ok(StartupRequest::Session { settings }) = &read {
                SessionSettings::new(settings);
            }
            read.is_ok_and(|read| read != StartupRequest::Nothing)
        };
        runtime.as_ref().is_ok_and(begin)
    })
}

/// Messages of a session, each read as its kind says.
fn messages() -> FuzzTarget {
    let parse = framed(Some(b'P'), |out| {
        put_text(out, "one");
        put_text(out, "SELECT $1");
        out.put_u16(1);
        out.put_u32(23);
    });
    let bind = framed(Some(b'B'), |out| {
        put_text(out, "");
        put_text(out, "one");
        out.put_slice(&[0, 2, 0, 1, 0, 0, 0, 2]);
        out.put_slice(b"\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0");
    });
    let execute = framed(Some(b'E'), |out| {
        put_text(out, "");
        out.put_i32(100);
    });
    let describe = framed(Some(b'D'), |out| out.put_slice(b"Sone\0"));
    let query = framed(Some(b'Q'), |out| put_text(out, "SELECT 1"));
    let login = framed(Some(b'p'), |out| out.put_slice(b"SCRAM-SHA-256\0\0\0\0\x05n,,r="));
    let sync = framed(Some(b'S'), |_| ());
    let samples = vec![[parse, bind, describe, execute, sync].concat(), [login, query].concat()];
    FuzzTarget::new("postgres.messages", samples, |bytes| {
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let (mut incoming, _) = of_halves(AsyncReadExt::chain(one, two), tokio::io::sink());
        let mut count = 0;
        loop {
            match incoming.next().now_or_never() {
                Some(Ok(Some(message))) => match fields(message) {
                    Ok(()) => count += 1,
                    Err(_) => return false,
                },
                Some(Ok(None)) => return count > 0,
                Some(Err(_)) | None => return false,
            }
        }
    })
}

/// Reads the fields that a message of its kind has.
fn fields(FrontendMessage { kind, mut body }: FrontendMessage) -> Result<(), PgError> {
    match kind {
        b'P' => {
            body.text()?;
            drop(query::split_statements(&body.text()?));
            for _ in 0..body.count()? {
                PgType::of_oid(u32::try_from(body.int()?).unwrap_or_default());
            }
        }
        b'B' => {
            drop((body.text()?, body.text()?));
            let (given, mut memory) = (forms(&mut body)?, BoundMemory::up_to(MOST_BOUND));
            for (index, oid) in (0..usize::from(body.count()?)).zip(OIDS.into_iter().cycle()) {
                let value = body.value()?;
                if let Some(kind) = PgType::of_oid(oid) {
                    bind_parameters::value(kind, given.of(index), value.as_ref(), index + 1, &mut memory).ok();
                }
            }
            forms(&mut body)?;
        }
        b'D' | b'C' => drop((body.byte()?, body.text()?)),
        b'E' => drop((body.text()?, body.int()?)),
        b'p' => drop((body.text()?, body.value()?)),
        _ => drop(body.rest()),
    }
    Ok(())
}

/// A value of a parameter: its type, its form, its bytes.
fn parameters() -> FuzzTarget {
    let binary: [&[u8]; 14] = [
        &[0, 1, 1],
        &[1, 1, 0x7f, 0xff],
        &[3, 1, 0, 0, 0, 0, 0, 0, 0, 7],
        &[5, 1, 0x40, 9, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18],
        &[6, 1, 0, 3, 0, 1, 0x40, 0, 0, 2, 0, 1, 9, 41, 26, 44],
        b"\x07\x01text",
        b"\x09\x010123456789abcdef",
        &[10, 1, 0, 0, 0x20, 0],
        &[12, 1, 0, 2, 0, 0, 0, 0, 0, 0],
        &[14, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3],
        b"\x0f\x00{a,\"b \\\\ c\",NULL}",
        b"\x10\x01\0\0\0\x01\0\0\0\x01\0\0\0\x17\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff",
        b"\x03\x00-9223372036854775808",
        b"\x05\x00 1.5e300 ",
    ];
    let samples = binary.iter().map(|sample| sample.to_vec()).collect();
    FuzzTarget::new("postgres.parameter", samples, |bytes| {
        let Some(([kind, form], value)) = bytes.split_first_chunk() else {
            return false;
        };
        let kind = OIDS.get(usize::from(*kind)).and_then(|oid| PgType::of_oid(*oid));
        let form = match form {
            0 => super::pg_types::FormatCode::Text,
            _ => super::pg_types::FormatCode::Binary,
        };
        let (value, mut memory) = (Bytes::copy_from_slice(value), BoundMemory::up_to(MOST_BOUND));
        kind.is_some_and(|kind| bind_parameters::value(kind, form, Some(&value), 1, &mut memory).is_ok())
    })
}

/// Statements about the session, as a client sends them unasked.
fn session() -> FuzzTarget {
    let samples = [
        "/* a */ SET LOCAL statement_timeout TO '1500ms';",
        "SELECT pg_catalog.set_config('Search_Path', '', false)",
        "SET SESSION TIME ZONE 'UTC'",
        "SHOW TimeZone",
        "DEALLOCATE PREPARE \"one\"",
        "start transaction read only",
        "COPY (SELECT 1) TO STDOUT WITH (FORMAT csv, DELIMITER ';', NULL 'x', HEADER)",
        "DECLARE \"c\" NO SCROLL CURSOR WITH HOLD FOR SELECT 1",
        "FETCH FORWARD 100 FROM \"c\"",
    ];
    FuzzTarget::of_text("postgres.session", &samples, |text| {
        let Some(statement) = UtilityStatement::of(text) else {
            return false;
        };
        statement.columns();
        CopyStatement::parse(text).ok();
        CursorDeclaration::parse(text).ok();
        CursorFetch::parse(text).ok();
        let (mut settings, _) = SessionSettings::new(&[]);
        settings.begin();
        match &statement {
            UtilityStatement::Set { name, value } => settings.set(name, value.as_deref()).ok(),
            UtilityStatement::SetLocal { name, value } => settings.set_local(name, value.as_deref()).ok(),
            UtilityStatement::SetConfig { name, value, .. } => settings.set(name, Some(value)).ok(),
            UtilityStatement::Show(name) => settings.get(name).map(drop),
            _ => None,
        };
        settings.statement_timeout();
        settings.roll_back();
        true
    })
}
