//! Request planning: values that lie side by side are read with one request; so are values written that follow each other.
//!
//! Reads go by address; writes keep their order.
//!
//! # Invariants
//!
//! - A request is never larger than the protocol allows, and never asks for an address that nobody named: a device may refuse it.

use gear_spec::modbus::{ModbusEntry, TableKind};

use super::register_value::ValueFormat;

/// The most registers, and bits, of a request that reads.
const READ_MOST: BlockLimit = BlockLimit {
    registers: 125,
    bits: 2_000,
};
/// The same of one that writes.
const WRITE_MOST: BlockLimit = BlockLimit {
    registers: 123,
    bits: 1_968,
};

/// How large a block may be.
#[derive(Debug, Clone, Copy)]
struct BlockLimit {
    registers: u32,
    bits: u32,
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedRange {
    pub(super) name: String,
    pub(super) kind: TableKind,
    pub(super) address: u16,
    pub(super) count: u16,
    pub(super) format: ValueFormat,
}

/// What one request is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestBlock {
    pub(super) kind: TableKind,
    pub(super) address: u16,
    pub(super) count: u16,
    pub(super) ranges: Vec<NamedRange>,
}

impl NamedRange {
    /// Where an entry of a configuration lies and what it means.
    pub(super) fn of(entry: &ModbusEntry) -> Self {
        Self {
            name: entry.name.clone(),
            kind: entry.kind,
            address: entry.address,
            count: entry.value_type().registers(),
            format: ValueFormat::of(entry),
        }
    }

    /// The address behind it.
    pub(super) fn end(&self) -> u32 {
        u32::from(self.address) + u32::from(self.count)
    }
}

impl RequestBlock {
    fn of(range: NamedRange) -> Self {
        Self {
            kind: range.kind,
            address: range.address,
            count: range.count,
            ranges: vec![range],
        }
    }

    /// Its size with one more value; none where that does not belong to it.
    fn with(&self, range: &NamedRange, most: BlockLimit) -> Option<u16> {
        let end = u32::from(self.address) + u32::from(self.count);
        let most = if self.kind.is_bits() { most.bits } else { most.registers };
        let size = range.end().max(end) - u32::from(self.address);
        let belongs =
            range.kind == self.kind && range.address >= self.address && u32::from(range.address) <= end && size <= most;
        belongs.then(|| u16::try_from(size).ok()).flatten()
    }

    /// What people call it.
    pub(super) fn shown(&self) -> String {
        let (kind, first) = (self.kind.name(), self.address);
        match u32::from(first) + u32::from(self.count) - 1 {
            last if last == u32::from(first) => format!("{kind} {first}"),
            last => format!("{kind} {first} to {last}"),
        }
    }
}

/// The requests that read values.
pub(super) fn read_blocks(mut ranges: Vec<NamedRange>) -> Vec<RequestBlock> {
    ranges.sort_by_key(|range| (range.kind, range.address));
    blocks(ranges, READ_MOST)
}

/// The requests that write values, in their order.
pub(super) fn write_blocks(ranges: Vec<NamedRange>) -> Vec<RequestBlock> {
    blocks(ranges, WRITE_MOST)
}

fn blocks(ranges: Vec<NamedRange>, most: BlockLimit) -> Vec<RequestBlock> {
    let mut blocks: Vec<RequestBlock> = Vec::new();
    for range in ranges {
        let last = blocks.last_mut();
        match last.and_then(|block| Some((block.with(&range, most)?, block))) {
            Some((count, block)) => {
                block.count = count;
                block.ranges.push(range);
            }
            None => blocks.push(RequestBlock::of(range)),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use gear_spec::modbus::{ValueType, WordOrder};

    use super::*;

    fn range(kind: TableKind, address: u16, value_type: ValueType) -> NamedRange {
        NamedRange {
            name: format!("{}-{address}", kind.name()),
            kind,
            address,
            count: value_type.registers(),
            format: ValueFormat {
                value_type,
                order: WordOrder::Big,
                scale: 1.0,
                offset: 0.0,
            },
        }
    }

    #[test]
    fn what_lies_side_by_side_is_one_request_and_a_gap_of_a_table_or_of_the_protocol_begins_another() {
        let holding = |address| range(TableKind::Holding, address, ValueType::U32);
        let mut ranges: Vec<NamedRange> = (0..70).map(|number| holding(number * 2)).collect();
        ranges.extend([
            holding(200),
            range(TableKind::Input, 202, ValueType::U16),
            range(TableKind::Coil, 9, ValueType::Bool),
        ]);
        ranges.reverse();
        let blocks: Vec<String> = read_blocks(ranges).iter().map(RequestBlock::shown).collect();
        let wanted = [
            "coil 9",
            "holding 0 to 123",
            "holding 124 to 139",
            "holding 200 to 201",
            "input 202",
        ];
        assert_eq!(blocks, wanted);
    }

    #[test]
    fn writes_keep_their_order_and_only_those_that_follow_each_other_are_one_request() {
        let holding = |address| range(TableKind::Holding, address, ValueType::U16);
        let coil = |address| range(TableKind::Coil, address, ValueType::Bool);
        let ranges = [
            holding(8),
            holding(9),
            holding(7),
            coil(3),
            holding(10),
            holding(11),
            coil(4),
        ];
        let blocks: Vec<String> = write_blocks(ranges.to_vec()).iter().map(RequestBlock::shown).collect();
        assert_eq!(
            blocks,
            ["holding 8 to 9", "holding 7", "coil 3", "holding 10 to 11", "coil 4"]
        );
    }

    proptest! {
        #[test]
        fn every_value_lies_whole_in_one_request_of_an_allowed_size(
            places in proptest::collection::vec((any::<bool>(), prop_oneof![0u16..400, 65_400u16..=65_532], 0usize..3), 0..100),
        ) {
            let ranges: Vec<NamedRange> = places
                .iter()
                .map(|(is_input, address, size)| {
                    let kind = if *is_input { TableKind::Input } else { TableKind::Holding };
                    range(kind, *address, [ValueType::U16, ValueType::F32, ValueType::U64][*size])
                })
                .collect();
            let blocks = read_blocks(ranges.clone());
            prop_assert_eq!(blocks.iter().map(|block| block.ranges.len()).sum::<usize>(), ranges.len());
            for block in &blocks {
                prop_assert!((1..=125).contains(&block.count));
                let end = u32::from(block.address) + u32::from(block.count);
                for range in &block.ranges {
                    prop_assert!(range.kind == block.kind && range.address >= block.address && range.end() <= end);
                }
                let named = |address: u32| block.ranges.iter().any(|range| (u32::from(range.address)..range.end()).contains(&address));
                prop_assert!((u32::from(block.address)..end).all(named), "it asks for what nobody named");
            }
        }
    }
}
