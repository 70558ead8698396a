//! A spool that a later version of the program wrote.

use super::*;

/// Changes the digit of a segment's version, with the checksum that a program of that version writes or without.
fn set_version(path: &Path, digit: u8, is_whole: bool) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"FLUXSPL1");
    bytes[7] = digit;
    if is_whole {
        let crc = crc32c::crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn a_segment_of_a_later_version_stops_the_start_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3u8 {
        let (mut spool, _) = SpoolLog::open(dir.path(), roomy(), clock_at(1), SpoolKind::Messages).unwrap();
        spool.append(&[batch(&[n; 200], None)]).map_err(|_| "append").unwrap();
    }
    let files = segments(dir.path());
    let (first, last) = (&files[0], &files[files.len() - 1]);
    // The first one has a torn end, which a start cuts off.
    let torn = [fs::read(first).unwrap(), vec![1, 2, 3]].concat();
    fs::write(first, &torn).unwrap();
    let whole = set_version(last, b'2', true);
    let refused = SpoolLog::open(dir.path(), roomy(), clock_at(2), SpoolKind::Messages);
    match refused.err().unwrap() {
        error @ SpoolError::Newer { found: 2, .. } => {
            let text = error.to_string();
            assert!(text.contains(&last.display().to_string()), "{text}");
            assert!(text.contains("has format 2, this program knows 1"), "{text}");
        }
        other => panic!("{other}"),
    }
    assert_eq!((segments(dir.path()), fs::read(first).unwrap()), (files.clone(), torn));
    assert_eq!(fs::read(last).unwrap(), whole);

    // A flipped bit is damage, as the torn end of a segment that is not the newest: it keeps nobody from starting.
    fs::write(last, [&b"FLUXSPL1"[..], &whole[8..]].concat()).unwrap();
    set_version(last, b'3', false);
    let (_, found) = SpoolLog::open(dir.path(), roomy(), clock_at(2), SpoolKind::Messages).unwrap();
    assert_eq!(found.damaged.len(), 2, "{found:?}");
}
