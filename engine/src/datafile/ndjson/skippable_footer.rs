//! Skippable footer: a file's metadata, in bytes that readers of its lines skip.
//!
//! | form | the description is |
//! |---|---|
//! | zstd | a skippable frame |
//! | snappy | chunks of a reserved skippable type |
//! | plain | blanks behind the last object: eight for a byte, tab for 1 and space for 0, highest bit first, then the newline |
//!
//! The content is the key-values as JSON, zstd-compressed, and a trailer: CRC-32C of it, length of the whole, magic.
//!
//! # Invariants
//!
//! - It is found from a file's end alone. Whatever else lies there is no description, never a panic.

use std::collections::BTreeMap;
use std::io;

use parquet::file::reader::Length;

use super::super::file_format::FileFormat;
use super::super::file_prefix::FilePrefix;

/// Keys and values.
pub(in super::super) type FooterPairs = BTreeMap<String, String>;

const MAGIC: &[u8; 4] = b"PLJ1";
/// CRC, length, magic.
const TRAILER: usize = 12;
/// A skippable frame of zstd; there are sixteen numbers for them.
const ZSTD_SKIPPABLE: u32 = 0x184D_2A5D;
const ZSTD_HEAD: usize = 8;
/// A chunk type that snappy's framing reserves for readers to skip.
const SNAPPY_SKIPPABLE: u8 = 0x9D;
const SNAPPY_HEAD: usize = 4;
/// Readers of snappy frames have room for chunks of about 64 KiB.
const SNAPPY_CHUNK: usize = 60_000;
/// A description unpacks to so many bytes at most.
const MOST: usize = 64 << 20;

/// The description as it stands in a file.
pub(in super::super) fn description(form: FileFormat, pairs: &FooterPairs) -> io::Result<Vec<u8>> {
    let mut content = zstd::bulk::compress(&serde_json::to_vec(pairs)?, 3)?;
    content.extend_from_slice(&crc32c::crc32c(&content).to_le_bytes());
    let length = match form {
        FileFormat::JsonZstd => ZSTD_HEAD + content.len() + 8,
        FileFormat::JsonSnappy => content.len() + 8 + SNAPPY_HEAD * (content.len() + 8).div_ceil(SNAPPY_CHUNK),
        FileFormat::Json | FileFormat::Parquet => (content.len() + 8) * 8 + 1,
    };
    let too_long = |_| io::Error::other("a description of 4 GiB");
    content.extend_from_slice(&u32::try_from(length).map_err(too_long)?.to_le_bytes());
    content.extend_from_slice(MAGIC);
    Ok(match form {
        FileFormat::JsonZstd => {
            let inner = u32::try_from(content.len()).map_err(too_long)?;
            [&ZSTD_SKIPPABLE.to_le_bytes()[..], &inner.to_le_bytes(), &content].concat()
        }
        FileFormat::JsonSnappy => {
            let mut chunks = Vec::with_capacity(length);
            for chunk in content.chunks(SNAPPY_CHUNK) {
                let inner = u32::try_from(chunk.len()).map_err(too_long)?.to_le_bytes();
                chunks.push(SNAPPY_SKIPPABLE);
                chunks.extend_from_slice(&inner[..3]);
                chunks.extend_from_slice(chunk);
            }
            chunks
        }
        FileFormat::Json | FileFormat::Parquet => {
            let mut blanks = Vec::with_capacity(length);
            for byte in content {
                blanks.extend((0..8).rev().map(|bit| if byte >> bit & 1 == 1 { b'\t' } else { b' ' }));
            }
            blanks.push(b'\n');
            blanks
        }
    })
}

/// The bytes of the description at the end of `file`, if one is there.
pub(in super::super) fn raw_description(file: &FilePrefix) -> io::Result<Option<Vec<u8>>> {
    let length = file.len().min(65);
    let end = file.read(file.len() - length, length)?;
    let tail = if let [blanks @ .., b'\n'] = end.as_slice() {
        unblank(blanks)
    } else {
        end.last_chunk::<8>().map(|tail| tail.to_vec())
    };
    let Some([a, b, c, d, magic @ ..]) = tail.as_deref() else {
        return Ok(None);
    };
    let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    if magic != MAGIC || length > file.len() || length < TRAILER as u64 {
        return Ok(None);
    }
    file.read(file.len() - length, length).map(Some)
}

/// The bytes that blanks stand for; `None` where something else is among them.
fn unblank(blanks: &[u8]) -> Option<Vec<u8>> {
    let byte = |eight: &[u8]| {
        eight.iter().try_fold(0u8, |byte, blank| match blank {
            b' ' => Some(byte << 1),
            b'\t' => Some(byte << 1 | 1),
            _ => None,
        })
    };
    let (eights, rest) = blanks.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    eights.iter().map(|eight| byte(eight)).collect()
}

/// The content of a description's bytes without head.
fn content(raw: &[u8]) -> Option<Vec<u8>> {
    if let [blanks @ .., b'\n'] = raw {
        return unblank(blanks);
    }
    if let Some(inner) = raw.strip_prefix(&ZSTD_SKIPPABLE.to_le_bytes()) {
        return inner.get(4..).map(<[u8]>::to_vec);
    }
    let mut content = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((head, behind)) = rest.split_first_chunk::<SNAPPY_HEAD>() {
        let [kind, a, b, c] = *head;
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        if kind != SNAPPY_SKIPPABLE || length > behind.len() {
            return None;
        }
        content.extend_from_slice(&behind[..length]);
        rest = &behind[length..];
    }
    rest.is_empty().then_some(content)
}

/// The key-values of a description's bytes, or what is wrong with them.
pub(in super::super) fn pairs_of(raw: &[u8]) -> Result<FooterPairs, String> {
    let content = content(raw).ok_or("its description has no right form")?;
    let Some((packed, trailer)) = content.split_last_chunk::<TRAILER>() else {
        return Err("its description is too short".to_owned());
    };
    let [a, b, c, d, ..] = *trailer;
    if crc32c::crc32c(packed) != u32::from_le_bytes([a, b, c, d]) {
        return Err("its description has a wrong checksum".to_owned());
    }
    let room = zstd::bulk::Decompressor::upper_bound(packed).unwrap_or(MOST).min(MOST);
    let json = zstd::bulk::decompress(packed, room).map_err(|error| format!("its description: {error}"))?;
    serde_json::from_slice(&json).map_err(|error| format!("its description: {error}"))
}
