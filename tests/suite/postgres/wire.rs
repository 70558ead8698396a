//! Bytes that no client sends: they harm nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use harness::{Failure, Random, TestMixer};

use super::{connect, mixer, run};

/// A connection that says nothing by itself.
fn open(mixer: &TestMixer) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(mixer.postgres.ok_or("no port")?)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// A connection that may ask.
fn begun(mixer: &TestMixer) -> Result<TcpStream, Failure> {
    let mut stream = open(mixer)?;
    let body = b"\x00\x03\x00\x00user\0a\0\0";
    stream.write_all(&(u32::try_from(body.len())? + 4).to_be_bytes())?;
    stream.write_all(body)?;
    while message(&mut stream)?.ok_or("it hung up")?.0 != b'Z' {}
    Ok(stream)
}

fn sent(stream: &mut TcpStream, kind: u8, body: &[u8]) -> Result<(), Failure> {
    stream.write_all(&[kind])?;
    stream.write_all(&(u32::try_from(body.len())? + 4).to_be_bytes())?;
    Ok(stream.write_all(body)?)
}

/// The next message; `None` at the end.
fn message(stream: &mut TcpStream) -> Result<Option<(u8, Vec<u8>)>, Failure> {
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

fn resident(mixer: &mut TestMixer) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", mixer.process()?.pid()))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
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
    let before = resident(&mut mixer)?;
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
    for _ in 0..60 {
        let mut stream = begun(&mixer)?;
        stream.write_all(b"Q")?;
        stream.write_all(&(512_u32 << 10).to_be_bytes())?;
        waiting.push(stream);
    }
    answers(&mixer)?;
    let grown = resident(&mut mixer)?.saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes for what never came");
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
