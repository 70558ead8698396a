//! The symbols of a request of version 2.0: each text once, named by its number.

use super::{WriteError, WriteVersion};
use crate::protobuf::FieldReader;

/// The most symbols of a request.
pub(super) const MAX_SYMBOLS: usize = 1 << 18;
const SYMBOLS: u32 = 4;

/// Where the symbols of a body are; none of version 1.0.
#[derive(Debug, Default)]
pub(super) struct SymbolTable(Vec<(u32, u32)>);

/// The most bytes of the table of a body.
pub(super) fn most_bytes(body: &[u8]) -> usize {
    MAX_SYMBOLS.min(body.len() / 2) * size_of::<(u32, u32)>()
}

impl SymbolTable {
    pub(super) fn read(body: &[u8], version: WriteVersion) -> Result<Self, WriteError> {
        let mut symbols = Vec::new();
        if version == WriteVersion::V2 {
            let mut reader = FieldReader::new(body, 0..body.len());
            while let Some(field) = reader.next()? {
                if field.number != SYMBOLS {
                    continue;
                }
                if symbols.len() == MAX_SYMBOLS {
                    return Err(WriteError::Symbols(MAX_SYMBOLS));
                }
                let range = field.range()?;
                symbols.push((place(range.start), place(range.end)));
            }
        }
        Ok(Self(symbols))
    }

    pub(super) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, u32)>()
    }

    /// The bytes of a symbol; none if there is no such one.
    pub(super) fn length(&self, number: u64) -> usize {
        let found = usize::try_from(number).ok().and_then(|at| self.0.get(at));
        found.map_or(0, |(start, end)| (end - start) as usize)
    }

    /// The symbol with a number.
    pub(super) fn text<'a>(&self, body: &'a [u8], number: u64) -> Result<&'a str, String> {
        let found = usize::try_from(number).ok().and_then(|at| self.0.get(at));
        let (start, end) = found.ok_or_else(|| format!("there is no symbol {number}, but {}", self.0.len()))?;
        let bytes = body.get(*start as usize..*end as usize).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| format!("the symbol {number} is not UTF-8"))
    }
}

/// A place in a body, which is smaller than 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
