//! Zone map: the range of ids of a segment, kept in memory beside the head of its sidecar.
//!
//! ```text
//! ranges u32 | range*: kind of the ids' section u16 | 0 u16 | least 16 | greatest 16
//! ```
//!
//! Of ids the first 16 bytes count, shorter ones end in zeros: an id of 16 bytes is itself, the range of texts is a little wider than
//! they are. Where there is no id at all the least is above the greatest.
//!
//! # Invariants
//!
//! - Every id of the column lies within its range.

use super::sidecar_format::{SectionKind, bytes_at};

const RANGE: usize = 36;

/// The first bytes of an id.
type IdPrefix = [u8; 16];

/// Between which ids the ids of a column lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdRange {
    least: IdPrefix,
    greatest: IdPrefix,
}

impl Default for IdRange {
    fn default() -> Self {
        Self {
            least: [0xff; 16],
            greatest: [0; 16],
        }
    }
}

impl IdRange {
    pub(super) fn add(&mut self, id: &[u8]) {
        let prefix = prefix(id);
        self.least = self.least.min(prefix);
        self.greatest = self.greatest.max(prefix);
    }

    /// Whether an id can be among them.
    pub(super) fn may_hold(&self, id: &[u8]) -> bool {
        (self.least..=self.greatest).contains(&prefix(id))
    }
}

fn prefix(id: &[u8]) -> IdPrefix {
    let mut prefix = IdPrefix::default();
    prefix.iter_mut().zip(id).for_each(|(to, from)| *to = *from);
    prefix
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ZoneMap(Box<[(u16, IdRange)]>);

impl ZoneMap {
    pub(super) fn new(ranges: &[(SectionKind, IdRange)]) -> Self {
        Self(ranges.iter().map(|(kind, range)| (*kind as u16, *range)).collect())
    }

    /// Between which ids those of a section lie, if that is known.
    pub(super) fn range(&self, kind: SectionKind) -> Option<IdRange> {
        let mut ranges = self.0.iter();
        ranges.find(|(of, _)| *of == kind as u16).map(|(_, range)| *range)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + RANGE * self.0.len());
        out.extend_from_slice(&u32::try_from(self.0.len()).unwrap_or(0).to_le_bytes());
        for (kind, range) in &self.0 {
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&range.least);
            out.extend_from_slice(&range.greatest);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let count = u32::from_le_bytes(bytes_at(bytes, 0)?) as usize;
        let ranges = bytes.get(4..)?;
        if count.checked_mul(RANGE)? != ranges.len() {
            return None;
        }
        let ranges = ranges.chunks_exact(RANGE).map(|range| {
            let kind = u16::from_le_bytes(bytes_at(range, 0)?);
            let (least, greatest) = (bytes_at(range, 4)?, bytes_at(range, 20)?);
            Some((kind, IdRange { least, greatest }))
        });
        ranges.collect::<Option<_>>().map(Self)
    }
}
