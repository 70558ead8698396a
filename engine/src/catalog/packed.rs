//! The files in a checkpoint, packed: a store of 100,000 files reads them back in milliseconds, without a name in between.
//!
//! All numbers little endian.
//!
//! ```text
//! places u32 │ place │ place │ …          every partition that ever had a file, in order
//! place:  table u8 │ hour 0, day 1 u8 │ index i64 │ highest number given out u32 │ spec length u8 │ spec │ files u32 │ file │ …
//! file:   id u64 │ version u32 │ number u32 │ size u64 │ rows u64 │ min ts i64 │ max ts i64 │ crc u32 │ footer crc u32
//!         │ first u64 │ last u64 │ published i64 │ form u8 │ flags u8 │ runs u32 │ run │ … │ prefix, if it has one
//! flags:  1 sealed, 2 it has a prefix
//! prefix: length u8 │ name
//! run:    at u64 │ rows u64 │ min ts i64 │ max ts i64
//! ```
//!
//! # Invariants
//!
//! - What is read takes no more memory than a few times its bytes, whatever its counts claim.

use std::collections::BTreeMap;

use model::{Table, Timestamp};

use super::state::FileEntry;
use crate::hot::Place;
use crate::layout::Partition;
use crate::segment::{Form, Run};
use crate::{PartitionBy, SpecName};

/// A file's key among all: its place and its number there.
pub(super) type Key = (Place, u32);

const SEALED: u8 = 1;
const PREFIXED: u8 = 2;

/// About the bytes of a file.
const ABOUT: usize = 128;

/// Appends the files, and the highest number given out in each place: `numbers` has every place of `files`.
pub(super) fn write(numbers: &BTreeMap<Place, u32>, files: &BTreeMap<Key, FileEntry>, out: &mut Vec<u8>) {
    out.reserve(numbers.len() * 24 + files.len() * ABOUT);
    out.extend_from_slice(&count(numbers.len()));
    let mut files = files.values().peekable();
    for (place, highest) in numbers {
        write_place(*place, *highest, out);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut here = 0;
        while let Some(entry) = files.next_if(|entry| entry.place() == *place) {
            write_file(entry, out);
            here += 1;
        }
        if let Some(counted) = out.get_mut(at..at + 4) {
            counted.copy_from_slice(&count(here));
        }
    }
}

fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

fn write_place((table, partition): Place, highest: u32, out: &mut Vec<u8>) {
    let (index, by, spec) = partition.parts();
    out.extend_from_slice(&[table.number(), u8::from(by == PartitionBy::Day)]);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&highest.to_le_bytes());
    match &spec {
        Some(spec) => write_name(spec, out),
        None => out.push(0),
    }
}

fn write_file(entry: &FileEntry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.id.to_le_bytes());
    out.extend_from_slice(&entry.version.to_le_bytes());
    out.extend_from_slice(&entry.number.to_le_bytes());
    out.extend_from_slice(&entry.size.to_le_bytes());
    out.extend_from_slice(&entry.rows.to_le_bytes());
    out.extend_from_slice(&entry.min_ts.to_le_bytes());
    out.extend_from_slice(&entry.max_ts.to_le_bytes());
    out.extend_from_slice(&entry.crc.to_le_bytes());
    out.extend_from_slice(&entry.footer_crc.to_le_bytes());
    out.extend_from_slice(&entry.first.to_le_bytes());
    out.extend_from_slice(&entry.last.to_le_bytes());
    out.extend_from_slice(&entry.published.to_le_bytes());
    let flags = u8::from(entry.sealed) * SEALED + u8::from(entry.prefix.is_some()) * PREFIXED;
    out.extend_from_slice(&[entry.form.code(), flags]);
    out.extend_from_slice(&count(entry.runs.len()));
    for run in &entry.runs {
        out.extend_from_slice(&run.at.to_le_bytes());
        out.extend_from_slice(&run.rows.to_le_bytes());
        out.extend_from_slice(&run.min_ts.micros().to_le_bytes());
        out.extend_from_slice(&run.max_ts.micros().to_le_bytes());
    }
    if let Some(prefix) = &entry.prefix {
        write_name(prefix, out);
    }
}

fn write_name(name: &SpecName, out: &mut Vec<u8>) {
    out.push(u8::try_from(name.as_str().len()).unwrap_or(0));
    out.extend_from_slice(name.as_str().as_bytes());
}

/// What [`write()`] wrote: the highest numbers, and the files, both in order.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    pub(super) numbers: Vec<(Place, u32)>,
    pub(super) files: Vec<(Key, FileEntry)>,
}

/// Reads everything; `bytes` have nothing else.
pub(super) fn read(bytes: &[u8]) -> Result<Unpacked, String> {
    let mut from = Reader(bytes);
    let mut all = Unpacked::default();
    let places = from.u32()?;
    let likely = bytes.len() / ABOUT;
    all.files.reserve_exact(likely);
    all.numbers.reserve_exact(likely.min(places as usize));
    for _ in 0..places {
        let (place, highest) = read_place(&mut from)?;
        all.numbers.push((place, highest));
        for _ in 0..from.u32()? {
            let entry = read_file(&mut from, place)?;
            all.files.push(((place, entry.number), entry));
        }
    }
    if from.0.is_empty() {
        Ok(all)
    } else {
        Err(format!("{} bytes follow the last file", from.0.len()))
    }
}

fn read_place(from: &mut Reader<'_>) -> Result<(Place, u32), String> {
    let number = from.u8()?;
    let table = Table::from_number(number).ok_or_else(|| format!("a place names table {number}"))?;
    let by = match from.u8()? {
        0 => PartitionBy::Hour,
        1 => PartitionBy::Day,
        other => return Err(format!("a partition has length {other}")),
    };
    let index = from.i64()?;
    let highest = from.u32()?;
    let spec = read_name(from)?;
    Ok(((table, Partition::from_parts(index, by, spec)), highest))
}

fn read_name(from: &mut Reader<'_>) -> Result<Option<SpecName>, String> {
    let length = usize::from(from.u8()?);
    let name = std::str::from_utf8(from.bytes(length)?).map_err(|error| error.to_string())?;
    if name.is_empty() {
        return Ok(None);
    }
    let name = name.parse().map_err(|error: crate::BadSpecName| error.to_string())?;
    Ok(Some(name))
}

fn read_file(from: &mut Reader<'_>, (table, partition): Place) -> Result<FileEntry, String> {
    let mut entry = FileEntry {
        id: from.u64()?,
        version: from.u32()?,
        table,
        partition,
        number: from.u32()?,
        size: from.u64()?,
        rows: from.u64()?,
        min_ts: from.i64()?,
        max_ts: from.i64()?,
        crc: from.u32()?,
        footer_crc: from.u32()?,
        first: from.u64()?,
        last: from.u64()?,
        published: from.i64()?,
        form: Form::of_code(from.u8()?).ok_or("a file has an unknown form")?,
        sealed: false,
        runs: Vec::new(),
        prefix: None,
    };
    let flags = from.u8()?;
    if flags & !(SEALED | PREFIXED) != 0 {
        return Err(format!("a file has the flags {flags:#x}"));
    }
    entry.sealed = flags & SEALED != 0;
    for _ in 0..from.u32()? {
        entry.runs.push(Run {
            at: from.u64()?,
            rows: from.u64()?,
            min_ts: Timestamp::from_micros(from.i64()?),
            max_ts: Timestamp::from_micros(from.i64()?),
        });
    }
    if flags & PREFIXED != 0 {
        entry.prefix = read_name(from)?;
    }
    Ok(entry)
}

/// What is left of some bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it ends within a file")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it ends within a file")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn entry(number: u32, partition: Partition, runs: usize) -> FileEntry {
        let far = u64::from(number) << 40;
        let run = Run {
            at: 4,
            rows: far,
            min_ts: Timestamp::from_micros(i64::MIN),
            max_ts: Timestamp::from_micros(7),
        };
        FileEntry {
            id: far + 1,
            version: 3,
            table: Table::Messages,
            partition,
            number,
            form: Form::JsonZstd,
            prefix: number.is_multiple_of(3).then(|| "other-name".parse().unwrap()),
            size: far + 2,
            rows: far + 3,
            min_ts: -1,
            max_ts: i64::MAX,
            sealed: number.is_multiple_of(2),
            runs: vec![run; runs],
            crc: 5,
            footer_crc: u32::MAX,
            first: far + 6,
            last: far + 7,
            published: -8,
        }
    }

    fn sample() -> (BTreeMap<Place, u32>, BTreeMap<Key, FileEntry>) {
        let at = Timestamp::from_micros(-1);
        let hour = Partition::of(at, PartitionBy::Hour);
        let of_spec = Partition::of(at, PartitionBy::Day).of_spec(Some("order_paid".parse().unwrap()));
        let files = [entry(1, hour, 0), entry(3, hour, 2), entry(9, of_spec, 1)];
        let numbers = [
            (hour, 5),
            (of_spec, 9),
            (hour.of_spec(Some("gone".parse().unwrap())), 2),
        ];
        (
            numbers
                .map(|(partition, highest)| ((Table::Messages, partition), highest))
                .into(),
            files.map(|entry| ((entry.place(), entry.number), entry)).into(),
        )
    }

    #[test]
    fn what_is_packed_reads_back_and_anything_shorter_or_longer_is_refused() {
        let (numbers, files) = sample();
        let mut bytes = Vec::new();
        write(&numbers, &files, &mut bytes);
        let read_back = read(&bytes).unwrap();
        assert_eq!(read_back.numbers.into_iter().collect::<BTreeMap<_, _>>(), numbers);
        assert_eq!(read_back.files.into_iter().collect::<BTreeMap<_, _>>(), files);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes");
        }
        bytes.push(0);
        assert!(read(&bytes).unwrap_err().contains("follow"));
    }

    #[test]
    fn a_claim_of_more_than_there_is_takes_no_memory() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.extend([1, 0]);
        assert!(read(&bytes).is_err());
    }
}
