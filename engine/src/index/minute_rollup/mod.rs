//! Minute roll-up: counts of rows per minute, which answer how many log records there were without reading the data file.
//!
//! ```text
//! section: first minute i64 │ levels: texts │ entities: texts │ number of groups │ group*
//! texts:   how many │ (bytes │ text)*
//! group:   level │ entity │ rows │ first minute, since that of the section │ last minute, since that │ bytes of its cells │ cell*
//! cell:    minutes since the cell before, or since the group's first │ rows less one
//! ```
//!
//! The first number is little endian, all others have seven bits a byte, least first. Minutes are whole ones since the epoch, UTC.
//! A group is a level, or a level and an entity; its rows, and how long it is, stand before its cells, so that who asks for neither
//! its minutes nor itself passes over them. There are two sections: one of levels, and a larger one of levels and entities.
//!
//! # Invariants
//!
//! - A section is read whole and believed only under its checksum, in its form, and if its rows are as many as the file's.
//! - Each row of the file is counted in one cell of each section.
//!
//! # Not here
//!
//! What a window cuts out of a minute, and what a query counts: `query`.

mod live_rollup;
pub(super) mod rollup_builder;
#[cfg(test)]
mod tests;
mod word_dictionary;

use std::sync::Arc;

pub(crate) use self::live_rollup::LiveRollup;
use super::SidecarIndex;
use super::sidecar_format::{SectionEntry, SectionKind, SidecarError, bytes_at};
use crate::datafile::FilePrefix;

/// Microseconds of a minute.
pub const MINUTE: i64 = 60_000_000;

/// A larger section is none.
const LARGEST: u64 = 1 << 20;

/// What rows are grouped by, beside their minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollupDimension {
    /// `level`.
    Level,
    /// `level` and `entity_name`.
    LevelAndEntity,
}

impl RollupDimension {
    pub(super) const ALL: [Self; 2] = [Self::Level, Self::LevelAndEntity];

    pub(super) const fn kind(self) -> SectionKind {
        match self {
            Self::Level => SectionKind::LevelCounts,
            Self::LevelAndEntity => SectionKind::EntityCounts,
        }
    }
}

/// How many rows of a segment there are of each level, or of each level and entity, minute by minute.
#[derive(Debug, Clone)]
pub struct MinuteRollup(Arc<[u8]>);

/// The rows of one level, or of one level and entity.
#[derive(Debug, Clone, Copy)]
pub struct RollupGroup<'a> {
    /// Their `level`.
    pub level: &'a str,
    /// Their `entity_name`, where rows are grouped by it.
    pub entity: Option<&'a str>,
    /// How many there are.
    pub rows: u64,
    /// The minute of the first of them.
    pub first: i64,
    /// The minute of the last.
    pub last: i64,
    cells: &'a [u8],
}

impl MinuteRollup {
    /// Believes a section that is as it should be, and of a file of so many rows.
    fn new(bytes: Arc<[u8]>, rows: u64) -> Option<Self> {
        let (mut of, mut counted, mut last) = (RollupReader::new(&bytes)?, 0u64, None);
        while of.left > 0 {
            let (key, group) = of.read()?;
            if last.is_some_and(|last| last >= key) {
                return None;
            }
            last = Some(key);
            group.check()?;
            counted = counted.checked_add(group.rows)?;
        }
        let is_whole = of.from.0.is_empty() && counted == rows;
        is_whole.then_some(Self(bytes))
    }

    /// All groups, each once, by their levels.
    pub fn groups(&self) -> impl Iterator<Item = RollupGroup<'_>> {
        let mut groups = RollupReader::new(&self.0);
        std::iter::from_fn(move || groups.as_mut()?.read().map(|(_, group)| group))
    }
}

impl<'a> RollupGroup<'a> {
    /// The minutes that have rows, in order, each with how many.
    pub fn minutes(&self) -> impl Iterator<Item = (i64, u64)> + use<'a> {
        let (mut from, mut minute) = (VarintReader(self.cells), self.first);
        std::iter::from_fn(move || {
            minute = minute.checked_add_unsigned(from.number()?)?;
            Some((minute, from.number()?.checked_add(1)?))
        })
    }

    /// Whether its cells are as it says.
    fn check(&self) -> Option<()> {
        let (mut from, mut minute, mut rows) = (VarintReader(self.cells), self.first, 0u64);
        let mut is_first = true;
        while !from.0.is_empty() {
            let step = from.number()?;
            if (step == 0) != is_first {
                return None;
            }
            minute = minute.checked_add_unsigned(step)?;
            rows = rows.checked_add(from.number()?)?.checked_add(1)?;
            is_first = false;
        }
        (minute == self.last && rows == self.rows && !is_first).then_some(())
    }
}

/// Reads a section group by group.
struct RollupReader<'a> {
    from: VarintReader<'a>,
    start: i64,
    levels: Vec<&'a str>,
    entities: Vec<&'a str>,
    left: u64,
}

impl<'a> RollupReader<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let start = i64::from_le_bytes(bytes_at(bytes, 0)?);
        let mut from = VarintReader(bytes.get(8..)?);
        let levels = from.texts()?;
        let entities = from.texts()?;
        Some(Self {
            left: from.number()?,
            from,
            start,
            levels,
            entities,
        })
    }

    /// The next one, and what it is ordered by.
    fn read(&mut self) -> Option<((usize, usize), RollupGroup<'a>)> {
        self.left = self.left.checked_sub(1)?;
        let (level, entity) = (self.from.length()?, self.from.length()?);
        let rows = self.from.number()?;
        let first = self.start.checked_add_unsigned(self.from.number()?)?;
        let last = first.checked_add_unsigned(self.from.number()?)?;
        let length = self.from.length()?;
        let group = RollupGroup {
            level: self.levels.get(level)?,
            entity: match self.entities.is_empty() {
                true if entity > 0 => return None,
                true => None,
                false => Some(self.entities.get(entity)?),
            },
            rows,
            first,
            last,
            cells: self.from.bytes(length)?,
        };
        Some(((level, entity), group))
    }
}

/// Numbers of seven bits a byte, and what they count.
struct VarintReader<'a>(&'a [u8]);

impl<'a> VarintReader<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn texts(&mut self) -> Option<Vec<&'a str>> {
        let count = self.length()?;
        // Each takes a byte at least: what a count claims is not believed.
        if count > self.0.len() {
            return None;
        }
        let mut text = || {
            let length = self.length()?;
            std::str::from_utf8(self.bytes(length)?).ok()
        };
        (0..count).map(|_| text()).collect()
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

impl SidecarIndex {
    /// How many rows the segment has in each minute, and how many bytes were read for that; `None` where the index does not say.
    /// May read from the disk.
    #[must_use]
    pub fn counts(&self, by: RollupDimension) -> Option<(MinuteRollup, u64)> {
        let kind = by.kind();
        let mut sections = self.counts.iter().flatten();
        let section = sections.find(|section| section.is(kind)).filter(|_| !self.is_bad())?;
        self.read_counts(kind, *section)
            .inspect_err(|error| self.mark_if_bad(error))
            .ok()
    }

    fn read_counts(&self, kind: SectionKind, section: SectionEntry) -> Result<(MinuteRollup, u64), SidecarError> {
        if let Some(kept) = self.memory.section(self.opening, kind) {
            return Ok((MinuteRollup(kept), 0));
        }
        if section.form != 0 || section.length > LARGEST {
            return Err(SidecarError::Form("its counts are of another form"));
        }
        let is_kept = self.memory.wants(section.length);
        let file = if is_kept {
            FilePrefix::new(self.open_anew().map_err(SidecarError::Shut)?, self.location.size)
        } else {
            self.file().map_err(SidecarError::Shut)?
        };
        let bytes: Arc<[u8]> = file.read(section.offset, section.length)?.into();
        if crc32c::crc32c(&bytes) != section.crc {
            return Err(SidecarError::Form("its counts are damaged"));
        }
        let counts =
            MinuteRollup::new(Arc::clone(&bytes), self.rows).ok_or(SidecarError::Form("its counts do not add up"))?;
        if is_kept {
            self.memory.keep(self.opening, kind, bytes);
        }
        Ok((counts, section.length))
    }
}
