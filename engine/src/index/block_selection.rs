//! The answer of an index: a selection of blocks of a segment.

/// Blocks of a segment that can have what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockSelection {
    /// Every one.
    All,
    /// These, in order, each once.
    Some(Vec<u32>),
}

impl BlockSelection {
    /// No block at all.
    pub const NONE: Self = Self::Some(Vec::new());

    /// Whether no row of the segment can be meant.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, blocks) | (blocks, Self::All) => blocks,
            (Self::Some(mut blocks), Self::Some(other)) => {
                blocks.retain(|block| other.binary_search(block).is_ok());
                Self::Some(blocks)
            }
        }
    }

    /// Those that are in one of them.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Some(mut blocks), Self::Some(other)) => {
                blocks.extend(other);
                blocks.sort_unstable();
                blocks.dedup();
                Self::Some(blocks)
            }
        }
    }
}

/// What was found in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLookup {
    /// Where rows can be.
    pub blocks: BlockSelection,
    /// Bytes that were read from the disk for it; none where what is kept in memory says it.
    pub bytes: u64,
}

impl IndexLookup {
    pub(crate) const fn free(blocks: BlockSelection) -> Self {
        Self { blocks, bytes: 0 }
    }
}
