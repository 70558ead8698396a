//! Avro object container files: what manifests and manifest lists are stored as.
//!
//! ```text
//! "Obj" 1 | map: avro.schema, avro.codec = null, … | marker (16) | rows (number, bytes, values) | marker (16)
//! ```
//!
//! Numbers are zigzag variable-length integers, texts and bytes have their length before them, an optional value has the number of
//! its branch before it: 0 is null. All rows are in one block; a file without rows has none.
//!
//! # Invariants
//!
//! - The schema stands in the file letter by letter as it is given, since Iceberg's readers need its `field-id`s.
//! - The marker is the first half of the SHA-256 of the header, the number of rows, and the rows: the same content gives the same
//!   bytes, and damage anywhere is found when the file is read.
//! - Only files with the expected schema are decoded: no schema from outside is interpreted.
//!
//! # Not here
//!
//! Compression, several blocks, and types that Iceberg's metadata does not have.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

const MAGIC: &[u8; 4] = b"Obj\x01";
const MARKER: usize = 16;
const SCHEMA_KEY: &str = "avro.schema";

/// Why bytes are not what was written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AvroDamage(pub(crate) &'static str);

/// Values in the order of their schema.
#[derive(Debug, Default)]
pub(crate) struct AvroEncoder {
    bytes: Vec<u8>,
}

impl AvroEncoder {
    /// An `int` or a `long`.
    pub(crate) fn long(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest >= 0x80 {
            self.bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, value: bool) {
        self.bytes.push(value.into());
    }

    /// A number that was counted here.
    pub(crate) fn count(&mut self, value: u64) {
        self.long(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.count(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A text.
    pub(crate) fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// That an optional value is there; the value follows.
    pub(crate) fn some(&mut self) {
        self.long(1);
    }

    /// That an optional value is not there.
    pub(crate) fn none(&mut self) {
        self.long(0);
    }

    /// An optional array: null if it is empty. `each` writes an item.
    pub(crate) fn array<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        if items.len() == 0 {
            self.none();
            return;
        }
        self.some();
        self.count(items.len() as u64);
        for item in items {
            each(self, item);
        }
        self.long(0);
    }

    /// A file of so many rows, which have been encoded one behind the other. `properties` are those of the header.
    pub(crate) fn into_file(self, schema: &str, properties: &[(&str, &str)], rows: usize) -> Vec<u8> {
        let mut file = Self { bytes: MAGIC.to_vec() };
        let own = [(SCHEMA_KEY, schema), ("avro.codec", "null")];
        file.count((own.len() + properties.len()) as u64);
        for (key, value) in own.iter().chain(properties) {
            file.text(key);
            file.text(value);
        }
        file.long(0);
        let marker = checksum(&file.bytes, rows as u64, &self.bytes);
        file.bytes.extend_from_slice(&marker);
        if rows > 0 {
            file.count(rows as u64);
            file.bytes(&self.bytes);
            file.bytes.extend_from_slice(&marker);
        }
        file.bytes
    }
}

fn checksum(header: &[u8], count: u64, rows: &[u8]) -> [u8; MARKER] {
    let digest = Sha256::new()
        .chain_update(header)
        .chain_update(count.to_le_bytes())
        .chain_update(rows)
        .finalize();
    digest.first_chunk().copied().unwrap_or_default()
}

/// Values out of bytes, in the order of their schema.
#[derive(Debug)]
pub(crate) struct AvroDecoder<'a> {
    rest: &'a [u8],
}

impl<'a> AvroDecoder<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], AvroDamage> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(AvroDamage("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A `long`.
    pub(crate) fn long(&mut self) -> Result<i64, AvroDamage> {
        let (bytes, mut value) = (self.rest, 0_u64);
        // Ten bytes of seven bits have more than 64: what is above is lost.
        for (at, byte) in bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.take(at + 1)?;
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(AvroDamage("a number has no end"))
    }

    /// True or false.
    pub(crate) fn boolean(&mut self) -> Result<bool, AvroDamage> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(AvroDamage("a boolean is neither")),
        }
    }

    /// An `int`.
    pub(crate) fn int(&mut self) -> Result<i32, AvroDamage> {
        i32::try_from(self.long()?).map_err(|_| AvroDamage("a number is too large"))
    }

    /// A number that cannot be negative.
    pub(crate) fn count(&mut self) -> Result<u64, AvroDamage> {
        u64::try_from(self.long()?).map_err(|_| AvroDamage("a count is negative"))
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], AvroDamage> {
        let length = usize::try_from(self.count()?).unwrap_or(usize::MAX);
        self.take(length)
    }

    /// A text.
    pub(crate) fn text(&mut self) -> Result<&'a str, AvroDamage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| AvroDamage("a text is not UTF-8"))
    }

    /// Whether an optional value is there.
    pub(crate) fn is_some(&mut self) -> Result<bool, AvroDamage> {
        match self.long()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(AvroDamage("an optional value has an unknown branch")),
        }
    }

    /// That an optional value, which was never left out, is there; the value follows.
    pub(crate) fn some(&mut self) -> Result<(), AvroDamage> {
        self.is_some()?.then_some(()).ok_or(AvroDamage("a value is not there"))
    }

    /// The items of an optional array, each read by `each`; none if it is null.
    pub(crate) fn array<T>(
        &mut self,
        each: impl FnMut(&mut Self) -> Result<T, AvroDamage>,
    ) -> Result<Vec<T>, AvroDamage> {
        if self.is_some()? {
            self.blocks(each)
        } else {
            Ok(Vec::new())
        }
    }

    /// Items up to an empty block. Memory grows with what is really there, whatever a block says of its size.
    fn blocks<T>(&mut self, mut each: impl FnMut(&mut Self) -> Result<T, AvroDamage>) -> Result<Vec<T>, AvroDamage> {
        let mut items = Vec::new();
        loop {
            match self.count()? {
                0 => return Ok(items),
                count => {
                    for _ in 0..count {
                        items.push(each(self)?);
                    }
                }
            }
        }
    }
}

/// A file of rows, whole as it was written.
#[derive(Debug)]
pub(crate) struct AvroFile<'a> {
    properties: BTreeMap<&'a str, &'a str>,
    count: u64,
    rows: &'a [u8],
}

impl<'a> AvroFile<'a> {
    /// A file that [`AvroEncoder::into_file`] made.
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, AvroDamage> {
        let mut decoder = AvroDecoder { rest: file };
        if decoder.take(MAGIC.len())? != MAGIC {
            return Err(AvroDamage("it is no Avro file"));
        }
        let properties = decoder.blocks(|header| Ok((header.text()?, header.text()?)))?;
        let header = file.strip_suffix(decoder.rest).unwrap_or(file);
        let begin = decoder.take(MARKER)?;
        let (mut count, mut rows, mut end): (u64, &[u8], &[u8]) = (0, &[], begin);
        if !decoder.rest.is_empty() {
            count = decoder.count()?;
            rows = decoder.bytes()?;
            end = decoder.take(MARKER)?;
        }
        if checksum(header, count, rows) != begin || begin != end || !decoder.rest.is_empty() {
            return Err(AvroDamage("its bytes are not those that were written"));
        }
        Ok(Self {
            properties: properties.into_iter().collect(),
            count,
            rows,
        })
    }

    /// A property of the header.
    pub(crate) fn property(&self, key: &str) -> Option<&'a str> {
        self.properties.get(key).copied()
    }

    /// The rows, which have this schema, each read by `each`.
    pub(crate) fn rows<T>(
        &self,
        schema: &str,
        mut each: impl FnMut(&mut AvroDecoder<'a>) -> Result<T, AvroDamage>,
    ) -> Result<Vec<T>, AvroDamage> {
        if self.property(SCHEMA_KEY) != Some(schema) {
            return Err(AvroDamage("its schema is not the one that this program writes"));
        }
        let mut decoder = AvroDecoder { rest: self.rows };
        let mut rows = Vec::new();
        for _ in 0..self.count {
            rows.push(each(&mut decoder)?);
        }
        if decoder.rest.is_empty() {
            Ok(rows)
        } else {
            Err(AvroDamage("there is something behind its last row"))
        }
    }
}

/// A file with the marker that its content has.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn with_own_marker(file: &[u8]) -> Result<Vec<u8>, AvroDamage> {
    let mut decoder = AvroDecoder { rest: file };
    decoder.take(MAGIC.len())?;
    decoder.blocks(|header| Ok((header.bytes()?, header.bytes()?)))?;
    let header = file.strip_suffix(decoder.rest).unwrap_or(file);
    decoder.take(MARKER)?;
    let (count, _) = (decoder.count()?, decoder.count()?);
    let rows = decoder.take(decoder.rest.len().saturating_sub(MARKER))?;
    let marker = checksum(header, count, rows);
    let mut marked = AvroEncoder {
        bytes: [header, &marker[..]].concat(),
    };
    marked.count(count);
    marked.bytes(rows);
    marked.bytes.extend_from_slice(&marker);
    Ok(marked.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut AvroEncoder)) -> Vec<u8> {
        let mut encoder = AvroEncoder::default();
        write(&mut encoder);
        encoder.bytes
    }

    #[test]
    fn numbers_are_zigzag_varints_as_avro_has_them() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01][..]),
            (1, &[0x02][..]),
            (-64, &[0x7f][..]),
            (64, &[0x80, 0x01][..]),
            (8192, &[0x80, 0x80, 0x01][..]),
            (
                i64::MAX,
                &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..],
            ),
            (
                i64::MIN,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..],
            ),
        ] {
            assert_eq!(encoded(|to| to.long(value)), bytes, "{value}");
            assert_eq!(AvroDecoder { rest: bytes }.long(), Ok(value));
        }
        let endless = AvroDecoder { rest: &[0xff; 11] }.long();
        assert_eq!(endless, Err(AvroDamage("a number has no end")));
        let large = encoded(|to| to.long(1 << 31));
        assert!(AvroDecoder { rest: &large }.int().is_err());
    }

    #[test]
    fn texts_and_arrays_are_as_avro_has_them() {
        assert_eq!(encoded(|to| to.text("foo")), [6, b'f', b'o', b'o']);
        assert_eq!(
            encoded(|to| to.array([3, 27].iter(), |to, item| to.long(*item))),
            [2, 4, 6, 54, 0]
        );
        assert_eq!(encoded(|to| to.array(std::iter::empty(), |to, ()| to.long(1))), [0]);
        let items = AvroDecoder {
            rest: &[2, 4, 6, 54, 0],
        }
        .array(AvroDecoder::long);
        assert_eq!(items, Ok(vec![3, 27]));
    }

    fn file(rows: &[i64]) -> Vec<u8> {
        let mut encoder = AvroEncoder::default();
        for row in rows {
            encoder.long(*row);
        }
        encoder.into_file(r#""long""#, &[("content", "data")], rows.len())
    }

    #[test]
    fn a_file_is_a_header_with_the_schema_as_it_was_given_and_one_block() {
        let whole = file(&[1, -1]);
        let header = b"Obj\x01\x06\x16avro.schema\x0c\"long\"\x14avro.codec\x08null\x0econtent\x08data\x00";
        let (found, rest) = whole.split_at(header.len());
        assert_eq!(found, header);
        let (begin, rest) = rest.split_at(16);
        assert_eq!(rest, [&[4, 4, 2, 1][..], begin].concat());
        assert_eq!(begin, checksum(header, 2, &[2, 1]));

        let open = AvroFile::open(&whole).unwrap();
        assert_eq!(open.property("content"), Some("data"));
        assert_eq!(open.rows(r#""long""#, AvroDecoder::long), Ok(vec![1, -1]));
        assert!(open.rows(r#""int""#, AvroDecoder::long).is_err());
        assert!(open.rows(r#""long""#, |_| Ok(())).is_err());

        let empty = file(&[]);
        assert_eq!(empty.len(), header.len() + 16);
        assert_eq!(
            AvroFile::open(&empty).unwrap().rows(r#""long""#, AvroDecoder::long),
            Ok(vec![])
        );
    }

    #[test]
    fn damage_at_any_byte_is_found() {
        let whole = file(&[1, 300, -7]);
        assert!(AvroFile::open(&whole).is_ok());
        for at in 0..whole.len() {
            assert!(AvroFile::open(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(AvroFile::open(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(AvroFile::open(&[&whole[..], &[0][..]].concat()).is_err());
    }

    #[test]
    fn sizes_that_are_not_there_take_no_memory() {
        let mut lie = b"Obj\x01".to_vec();
        lie.extend(encoded(|to| to.long(i64::MAX)));
        assert_eq!(AvroFile::open(&lie).unwrap_err(), AvroDamage("a number has no end"));
        lie.extend(encoded(|to| to.long(i64::MAX)));
        assert_eq!(AvroFile::open(&lie).unwrap_err(), AvroDamage("it ends too early"));
    }
}
