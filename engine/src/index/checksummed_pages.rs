//! Sections in checksummed pages: a lookup reads a few bytes of megabytes and checks only those.
//!
//! ```text
//! section:  directory: (pages + 1) × u32, where each page begins, from the section's beginning
//!           page*: CRC-32C u32 of its number and the rest │ the rest
//! ```
//!
//! # Invariants
//!
//! - A page is believed only under its checksum, which counts its number in: neither a flipped byte of it nor one of the
//!   directory makes look absent what it has. An empty page has a checksum too.

use super::sidecar_format::{SidecarError, bytes_at};

const CRC: usize = 4;

/// A section of about so many bytes, of whose pages `write` appends each.
pub(super) fn section(pages: usize, bytes: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    out.resize(directory(pages), 0);
    for number in 0..pages {
        let start = out.len();
        put(&mut out, number * 4, u32::try_from(start).unwrap_or(u32::MAX));
        out.resize(start + CRC, 0);
        write(number, &mut out);
        let crc = checksum(number as u64, out.get(start + CRC..).unwrap_or_default());
        put(&mut out, start, crc);
    }
    let end = u32::try_from(out.len()).unwrap_or(u32::MAX);
    put(&mut out, pages * 4, end);
    out
}

/// The bytes of a section of so many pages beside what is in them.
pub(super) const fn overhead(pages: usize) -> usize {
    directory(pages) + pages * CRC
}

const fn directory(pages: usize) -> usize {
    (pages + 1) * 4
}

fn put(out: &mut [u8], at: usize, number: u32) {
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn checksum(number: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), rest)
}

/// A page that is as it was written.
pub(super) struct ChecksummedPage(Vec<u8>);

impl ChecksummedPage {
    /// Reads the page `number` of `pages` of a section of so many bytes. `fits` says whether it can have so many.
    pub(super) fn read(
        (number, pages): (u64, usize),
        length: u64,
        fits: impl Fn(u64) -> bool,
        read: impl Fn(&mut [u8], u64) -> std::io::Result<()>,
    ) -> Result<Self, SidecarError> {
        let directory = directory(pages) as u64;
        if directory > length {
            return Err(SidecarError::Form("a section is cut short"));
        }
        let mut place = [0; 8];
        read(&mut place, number * 4)?;
        let [start, end] = [0, 4].map(|at| u64::from(bytes_at(&place, at).map_or(0, u32::from_le_bytes)));
        let inner = end.checked_sub(start + CRC as u64).filter(|inner| fits(*inner));
        if start < directory || end > length || inner.is_none() {
            return Err(SidecarError::Form("a directory is damaged"));
        }
        let mut page = Self(vec![0; usize::try_from(end - start).unwrap_or(0)]);
        read(&mut page.0, start)?;
        if bytes_at(&page.0, 0).map(u32::from_le_bytes) != Some(checksum(number, page.bytes())) {
            return Err(SidecarError::Form("a page is damaged"));
        }
        Ok(page)
    }

    /// What is in it.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.get(CRC..).unwrap_or_default()
    }

    /// How many bytes were read to have it.
    pub(super) const fn bytes_read(&self) -> u64 {
        8 + self.0.len() as u64
    }
}
