//! Splits the output of a program into lines of bounded length.
//!
//! # Invariants
//!
//! - What is held is never more than `max` bytes: the rest of a longer line is skipped, and the line is marked.
//! - The last line needs no line feed.

/// A line without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputLine {
    pub(super) bytes: Vec<u8>,
    /// Whether it was longer.
    pub(super) is_truncated: bool,
}

/// The lines of a stream that arrives in pieces.
#[derive(Debug)]
pub(super) struct LineSplitter {
    max: usize,
    held: Vec<u8>,
    is_truncated: bool,
}

impl LineSplitter {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            held: Vec::new(),
            is_truncated: false,
        }
    }

    /// The lines that this piece ends.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n");
            self.hold(text.unwrap_or(part));
            if text.is_some() {
                lines.push(self.take());
            }
        }
        lines
    }

    /// The line that the end of the stream ends.
    pub(super) fn end(&mut self) -> Option<OutputLine> {
        (!self.held.is_empty()).then(|| self.take())
    }

    fn hold(&mut self, part: &[u8]) {
        let fits = part.len().min(self.max - self.held.len());
        self.held.extend_from_slice(part.get(..fits).unwrap_or_default());
        self.is_truncated |= fits < part.len();
    }

    fn take(&mut self) -> OutputLine {
        OutputLine {
            bytes: std::mem::take(&mut self.held),
            is_truncated: std::mem::take(&mut self.is_truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_the_same_whatever_the_pieces_they_arrive_in(
            stream in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200), piece in 1usize..50, max in 1usize..30,
        ) {
            let mut splitter = LineSplitter::new(max);
            let mut lines: Vec<OutputLine> = stream.chunks(piece).flat_map(|piece| splitter.push(piece)).collect();
            lines.extend(splitter.end());
            let mut wanted: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
            wanted.pop_if(|last| last.is_empty());
            prop_assert_eq!(lines.len(), wanted.len());
            for (line, wanted) in lines.iter().zip(wanted) {
                prop_assert_eq!(&line.bytes[..], &wanted[..wanted.len().min(max)]);
                prop_assert_eq!(line.is_truncated, wanted.len() > max);
            }
        }
    }
}
