//! Bytes that no client sends: they harm nobody.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use harness::process::memory_of;
use harness::{Failure, Random, TestMixer};

use super::{connect, fill, mixer, run, told};

/// A connection that says nothing by itself.
pub(crate) fn open(mixer: &TestMixer) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(mixer.postgres.ok_or("no port")?)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// A connection that may ask.
pub(super) fn begun(mixer: &TestMixer) -> Result<TcpStream, Failure> {
    Ok(begun_with(mixer, b"")?.0)
}

/// The kind of a message, and what follows.
pub(crate) type WireMessage = (u8, Vec<u8>);

/// A connection that may ask and set this at first, and what it was told.
fn begun_with(mixer: &TestMixer, settings: &[u8]) -> Result<(TcpStream, Vec<WireMessage>), Failure> {
    let mut stream = open(mixer)?;
    send_startup(&mut stream, "a", settings)?;
    let mut said: Vec<WireMessage> = Vec::new();
    while said.last().is_none_or(|(kind, _)| *kind != b'Z') {
        said.push(message(&mut stream)?.ok_or("it hung up")?);
    }
    Ok((stream, said))
}

/// Says in clear text which user it is, and what it sets at first.
pub(crate) fn send_startup(stream: &mut TcpStream, user: &str, settings: &[u8]) -> Result<(), Failure> {
    let body = [&b"\x00\x03\x00\x00user\0"[..], user.as_bytes(), b"\0", settings, b"\0"].concat();
    stream.write_all(&(u32::try_from(body.len())? + 4).to_be_bytes())?;
    Ok(stream.write_all(&body)?)
}

/// The kinds of the messages up to one of a kind.
fn kinds_until(stream: &mut TcpStream, last: u8) -> Result<Vec<u8>, Failure> {
    let mut kinds: Vec<u8> = Vec::new();
    while kinds.last() != Some(&last) {
        let (kind, _) = message(stream)?.ok_or_else(|| format!("it hung up after {kinds:?}"))?;
        kinds.push(kind);
    }
    Ok(kinds)
}

pub(super) fn sent(stream: &mut TcpStream, kind: u8, body: &[u8]) -> Result<(), Failure> {
    stream.write_all(&[kind])?;
    stream.write_all(&(u32::try_from(body.len())? + 4).to_be_bytes())?;
    Ok(stream.write_all(body)?)
}

/// The next message; `None` at the end.
pub(crate) fn message(stream: &mut TcpStream) -> Result<Option<WireMessage>, Failure> {
    let mut head = [0; 5];
    if stream.read(&mut head[..1]).unwrap_or(0) == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..])?;
    let length = u32::from_be_bytes(head[1..].try_into()?) - 4;
    let mut body = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut body)?;
    Ok(Some((head[0], body)))
}

/// The class of the error that comes next.
fn class(stream: &mut TcpStream) -> Result<String, Failure> {
    loop {
        let (kind, body) = message(stream)?.ok_or("it hung up without a word")?;
        if kind == b'E' {
            let text = String::from_utf8_lossy(&body).into_owned();
            let code = text.split('\0').find_map(|field| field.strip_prefix('C'));
            return Ok(code.ok_or("an error without a class")?.to_owned());
        }
    }
}

fn answers(mixer: &TestMixer) -> Result<(), Failure> {
    run(async {
        connect(mixer).await?.simple_query("SELECT 1").await?;
        Ok(())
    })
}

#[test]
fn garbage_and_half_messages_end_their_own_connection_alone() -> Result<(), Failure> {
    let mut mixer = mixer(&[])?;
    let steady = begun(&mixer)?;
    let mut http = open(&mixer)?;
    http.write_all(b"GET /api/v1/racks HTTP/1.1\r\nHost: x\r\n\r\n")?;
    assert_eq!(class(&mut http)?, "08P01");
    let mut halves = Vec::new();
    for length in [0, 1, 4, 7, 8, 20] {
        let mut half = open(&mixer)?;
        half.write_all(&b"\x00\x00\x00\x20\x00\x03\x00\x00user\0abcdefgh"[..length])?;
        halves.push(half);
    }
    let mut random = Random::for_test("garbage_and_half_messages_end_their_own_connection_alone");
    for round in 0..300 {
        let mut stream = if round % 2 == 0 { open(&mixer)? } else { begun(&mixer)? };
        let length = random.below(200);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256).to_le_bytes()[0]).collect();
        // It may be closed before all of it is there.
        let _ = stream.write_all(&bytes);
        let kinds = b"QPBDECHSXFdcfp";
        let kind = kinds[usize::try_from(random.below(kinds.len() as u64))?];
        if round % 3 == 0 {
            let mut framed = begun(&mixer)?;
            let _ = sent(&mut framed, kind, &bytes);
            let _ = sent(&mut framed, b'S', b"");
        }
    }
    answers(&mixer)?;
    let mut steady = steady;
    sent(&mut steady, b'Q', b"SELECT 1\0")?;
    assert_eq!(
        message(&mut steady)?.ok_or("it hung up")?.0,
        b'T',
        "who did nothing wrong goes on"
    );
    assert!(
        !mixer.process()?.log_tail().contains("panicked"),
        "{}",
        mixer.process()?.log_tail()
    );
    drop(halves);
    Ok(())
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_made_for_them() -> Result<(), Failure> {
    let mut mixer = mixer(&[])?;
    answers(&mixer)?;
    let pid = mixer.process()?.pid();
    let before = memory_of(pid, "VmRSS")?;
    let mut waiting = Vec::new();
    for length in [0_u32, 3, 0x7fff_ffff, 0xffff_ffff, 600 << 10] {
        let mut first = open(&mixer)?;
        first.write_all(&length.to_be_bytes())?;
        first.write_all(b"\x00\x03\x00\x00")?;
        assert_eq!(class(&mut first)?, "08P01", "{length} at first");
        let mut later = begun(&mixer)?;
        later.write_all(b"Q")?;
        later.write_all(&length.to_be_bytes())?;
        assert_eq!(class(&mut later)?, "08P01", "{length} later");
        assert_eq!(message(&mut later)?, None, "and it hangs up");
    }
    for _ in 0..40 {
        let mut stream = begun(&mixer)?;
        stream.write_all(b"Q")?;
        stream.write_all(&(512_u32 << 10).to_be_bytes())?;
        waiting.push(stream);
    }
    answers(&mixer)?;
    let grown = memory_of(pid, "VmRSS")?.saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for what never came");
    // Counts and values beyond the end of their message, each of which leaves the session as it is.
    sent(&mut waiting[0], b'S', b"")?;
    for (kind, body) in [
        (b'P', &b"\0SELECT 1\0\xff\xff"[..]),
        (b'P', b"no end"),
        (b'B', b"\0\0\xff\xff"),
        (b'B', b"\0"),
        (b'E', b"\0\0"),
        (b'D', b""),
        (b'Q', b"\xff\xfe"),
    ] {
        let mut stream = begun(&mixer)?;
        sent(&mut stream, kind, body)?;
        let class = class(&mut stream)?;
        assert!(
            ["08P01", "22021", "26000"].contains(&class.as_str()),
            "{kind} {body:?}: {class}"
        );
    }
    answers(&mixer)
}

#[test]
fn a_session_keeps_no_more_statements_and_portals_than_it_may() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    let filling = "x".repeat(60_000);
    for number in 0..100 {
        sent(
            &mut stream,
            b'P',
            format!("s{number}\0SELECT '{filling}'\0\0\0").as_bytes(),
        )?;
    }
    sent(&mut stream, b'S', b"")?;
    assert_eq!(class(&mut stream)?, "54000");
    let mut stream = begun(&mixer)?;
    sent(&mut stream, b'P', b"s\0SELECT 1\0\0\0")?;
    for number in 0..20 {
        sent(&mut stream, b'B', format!("p{number}\0s\0\0\0\0\0\0\0").as_bytes())?;
    }
    sent(&mut stream, b'S', b"")?;
    assert_eq!(class(&mut stream)?, "54000");
    Ok(())
}

#[test]
fn names_that_a_session_would_keep_are_as_long_as_those_of_postgresql() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    for length in [63, 64] {
        let name = "n".repeat(length);
        for (kind, body) in [
            (b'P', format!("{name}\0SELECT 1\0\0\0")),
            (b'B', format!("{name}\0\0\0\0\0\0\0\0")),
            (b'Q', format!("DECLARE {name} CURSOR WITH HOLD FOR SELECT 1\0")),
            (b'Q', format!("BEGIN; SAVEPOINT {name}\0")),
        ] {
            // The portal is of the statement without a name.
            sent(&mut stream, b'P', b"\0SELECT 1\0\0\0")?;
            sent(&mut stream, kind, body.as_bytes())?;
            if kind != b'Q' {
                sent(&mut stream, b'S', b"")?;
            }
            if length > 63 {
                assert_eq!(class(&mut stream)?, "42622", "{body:?}");
            }
            assert!(!kinds_until(&mut stream, b'Z')?.contains(&b'E'), "{body:?}");
            sent(&mut stream, b'Q', b"ROLLBACK\0")?;
            kinds_until(&mut stream, b'Z')?;
        }
    }
    Ok(())
}

#[test]
fn a_cursor_may_have_the_name_of_the_portal_that_declares_it() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    for portal in ["", "same"] {
        let declared = "\0DECLARE same CURSOR WITH HOLD FOR VALUES (1), (2)\0\0\0";
        sent(&mut stream, b'P', declared.as_bytes())?;
        sent(&mut stream, b'B', format!("{portal}\0\0\0\0\0\0\0\0").as_bytes())?;
        sent(&mut stream, b'E', format!("{portal}\0\0\0\0\0").as_bytes())?;
        sent(&mut stream, b'S', b"")?;
        assert!(!kinds_until(&mut stream, b'Z')?.contains(&b'E'), "{portal:?}");
        sent(&mut stream, b'Q', b"FETCH same\0")?;
        assert!(kinds_until(&mut stream, b'Z')?.contains(&b'D'), "{portal:?}");
        sent(&mut stream, b'Q', b"CLOSE same\0")?;
        assert!(!kinds_until(&mut stream, b'Z')?.contains(&b'E'), "{portal:?}");
    }
    Ok(())
}

#[test]
fn a_held_cursor_is_gone_if_what_came_with_it_failed() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    for (name, then, has_failed) in [
        ("one", "SELECT 1", false),
        ("two", "SELECT nothing", true),
        ("three", "SELECT 1", false),
    ] {
        let declared = format!("\0DECLARE {name} CURSOR WITH HOLD FOR VALUES (1), (2)\0\0\0");
        for text in [declared, format!("\0{then}\0\0\0")] {
            sent(&mut stream, b'P', text.as_bytes())?;
            sent(&mut stream, b'B', b"\0\0\0\0\0\0\0\0")?;
            sent(&mut stream, b'E', b"\0\0\0\0\0")?;
        }
        sent(&mut stream, b'S', b"")?;
        assert_eq!(kinds_until(&mut stream, b'Z')?.contains(&b'E'), has_failed, "{name}");
    }
    for (name, wanted) in [("one", b'D'), ("two", b'E'), ("three", b'D')] {
        sent(&mut stream, b'Q', format!("FETCH {name}\0").as_bytes())?;
        assert!(kinds_until(&mut stream, b'Z')?.contains(&wanted), "{name}");
    }
    Ok(())
}

#[test]
fn a_session_has_two_portals_with_rows_left_and_one_more_when_one_is_closed() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    for (closed, last) in [(None, b'E'), (Some("p1"), b'Z')] {
        sent(&mut stream, b'P', b"\0VALUES (1), (2), (3)\0\0\0")?;
        for portal in ["p1", "p2", "p3"] {
            sent(&mut stream, b'B', format!("{portal}\0\0\0\0\0\0\0\0").as_bytes())?;
        }
        for portal in ["p1", "p2", "p3"] {
            if let Some(closed) = closed.filter(|_| portal == "p3") {
                sent(&mut stream, b'C', format!("P{closed}\0").as_bytes())?;
            }
            sent(&mut stream, b'E', format!("{portal}\0\0\0\0\x01").as_bytes())?;
        }
        sent(&mut stream, b'S', b"")?;
        let kinds = kinds_until(&mut stream, last)?;
        let paused = kinds.iter().filter(|kind| **kind == b's').count();
        assert_eq!(paused, if closed.is_some() { 3 } else { 2 }, "{kinds:?}");
        if last == b'E' {
            kinds_until(&mut stream, b'Z')?;
        }
        assert!(closed.is_none() || !kinds.contains(&b'E'), "{kinds:?}");
    }
    Ok(())
}

#[test]
fn rows_of_a_portal_that_nobody_asks_for_are_given_up_when_its_time_is_over() -> Result<(), Failure> {
    let mixer = mixer(&[
        ("query.memory_limit_mb", "32"),
        ("query.max_concurrent", "32"),
        ("query.timeout", "\"2s\""),
    ])?;
    fill(&mixer, 200)?;
    let wide = "SELECT repeat(a.message, 20) FROM logs a, logs b";
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut stream = begun(&mixer)?;
        sent(&mut stream, b'Q', b"BEGIN\0")?;
        kinds_until(&mut stream, b'Z')?;
        sent(&mut stream, b'P', format!("\0{wide}\0\0\0").as_bytes())?;
        sent(&mut stream, b'B', b"p1\0\0\0\0\0\0\0\0")?;
        sent(&mut stream, b'E', b"p1\0\0\0\0\x01")?;
        sent(&mut stream, b'S', b"")?;
        let kinds = kinds_until(&mut stream, b'Z')?;
        assert!(kinds.contains(&b's') || !waiting.is_empty(), "{kinds:?}");
        waiting.push(stream);
    }
    let sorted = "SELECT count(*) FROM (SELECT a.message, b.message FROM logs a, logs b ORDER BY 2, 1 LIMIT 30000) q";
    run(async {
        let client = connect(&mixer).await?;
        let asked = Instant::now();
        while let Err(error) = client.simple_query(sorted).await {
            if asked.elapsed() > Duration::from_secs(20) {
                return Err(format!("{:?}", told(&error)).into());
            }
        }
        Ok(())
    })?;
    // Its client is told why there are no more.
    let mut stream = waiting.remove(0);
    let asked = Instant::now();
    let refused = loop {
        sent(&mut stream, b'E', b"p1\0\0\0\0\x01")?;
        sent(&mut stream, b'S', b"")?;
        let (mut kind, mut refused) = (0, None);
        while kind != b'Z' {
            let (next, body) = message(&mut stream)?.ok_or("it hung up")?;
            refused = refused.or_else(|| (next == b'E').then(|| String::from_utf8_lossy(&body).into_owned()));
            kind = next;
        }
        if let Some(refused) = refused {
            break refused;
        }
        assert!(asked.elapsed() < Duration::from_secs(20), "it still has rows");
    };
    assert!(
        refused.contains("C57014\0") && refused.contains("were discarded"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn portals_end_with_their_transaction_however_that_ends() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    for end in [&b"COMMIT\0"[..], b"ROLLBACK\0", b"COMMIT; BEGIN\0", b"COMMIT\0"] {
        sent(&mut stream, b'Q', b"BEGIN\0")?;
        kinds_until(&mut stream, b'Z')?;
        sent(&mut stream, b'P', b"\0VALUES (1), (2), (3)\0\0\0")?;
        sent(&mut stream, b'B', b"p\0\0\0\0\0\0\0\0")?;
        sent(&mut stream, b'E', b"p\0\0\0\0\x01")?;
        sent(&mut stream, b'S', b"")?;
        assert_eq!(kinds_until(&mut stream, b'Z')?, *b"12DsZ", "{end:?}");
        sent(&mut stream, b'Q', end)?;
        kinds_until(&mut stream, b'Z')?;
    }
    Ok(())
}

#[test]
fn a_client_that_closes_its_sending_half_gets_all_of_its_answers() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 100)?;
    let mut stream = begun(&mixer)?;
    for _ in 0..2 {
        sent(
            &mut stream,
            b'Q',
            b"SELECT count(*) FROM logs a, logs b, logs c WHERE a.message || b.message < c.message\0",
        )?;
    }
    stream.shutdown(Shutdown::Write)?;
    for _ in 0..2 {
        let kinds = kinds_until(&mut stream, b'Z')?;
        let answer: Vec<u8> = kinds.into_iter().filter(|kind| *kind != b'S').collect();
        assert_eq!(answer, *b"TDCZ");
    }
    while let Some((kind, _)) = message(&mut stream)? {
        assert_eq!(kind, b'S');
    }
    Ok(())
}

#[test]
fn a_client_that_connects_with_another_time_zone_comes_in_and_is_warned() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    for (settings, warnings) in [
        (&b"TimeZone\0Europe/Berlin\0"[..], 1),
        (b"options\0-c TimeZone=Asia/Tokyo --statement_timeout=soon\0", 2),
        (b"TimeZone\0Etc/UTC\0DateStyle\0ISO\0", 0),
    ] {
        let (mut stream, said) = begun_with(&mixer, settings)?;
        let told = said.iter().filter(|(kind, _)| *kind == b'N');
        let told: Vec<_> = told.map(|(_, body)| String::from_utf8_lossy(body)).collect();
        assert_eq!(told.len(), warnings, "{told:?}");
        assert!(told.iter().all(|text| text.contains("WARNING\0C22023\0")), "{told:?}");
        sent(&mut stream, b'Q', b"SHOW TimeZone\0")?;
        assert_eq!(kinds_until(&mut stream, b'Z')?, *b"TDCZ");
    }
    let (mut stream, _) = begun_with(&mixer, b"statement_timeout\x001h\0")?;
    sent(
        &mut stream,
        b'Q',
        b"SET statement_timeout = 1; RESET ALL; SHOW statement_timeout\0",
    )?;
    let row = loop {
        let (kind, body) = message(&mut stream)?.ok_or("it hung up")?;
        if kind == b'D' {
            break body;
        }
    };
    assert!(row.ends_with(b"1h"), "{row:?}");
    Ok(())
}

#[test]
fn who_cancels_with_a_wrong_key_waits() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = open(&mixer)?;
    let asked = Instant::now();
    stream.write_all(b"\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x01")?;
    assert_eq!(message(&mut stream)?, None);
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    answers(&mixer)
}
