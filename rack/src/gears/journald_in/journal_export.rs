//! The export format of journals, as `journalctl --output=export` writes it.
//!
//! ```text
//! entry = field* "\n"
//! field = name "=" text "\n"  |  name "\n" length u64-le bytes "\n"
//! ```
//!
//! Source: <https://systemd.io/JOURNAL_EXPORT_FORMATS/>.
//!
//! # Invariants
//!
//! - What is held is one read, one entry, and of each of its fields at most [`MAX_FIELD`] bytes, whatever its length says.
//! - An entry without a cursor is none: its place could not be kept.

/// The most bytes that are kept of a field.
pub(super) const MAX_FIELD: usize = 64 << 10;

/// An entry, as far as it is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JournalEntry {
    /// Its place in the journal.
    pub(super) cursor: String,
    /// When it was received, in microseconds since the epoch.
    pub(super) micros: Option<i64>,
    pub(super) message: Vec<u8>,
    pub(super) is_truncated: bool,
    pub(super) priority: Option<u8>,
    pub(super) host: Option<String>,
    pub(super) identifier: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) pid: Option<i64>,
}

/// What is expected next.
#[derive(Debug)]
enum ReadState {
    Line,
    /// The rest of a line that is longer than what is kept.
    SkippedLine,
    /// The length of a field of this name.
    Length(String),
    /// So many bytes of a field.
    Data {
        name: String,
        left: u64,
        kept: Vec<u8>,
        is_truncated: bool,
    },
    /// The end of line behind a field's bytes.
    DataEnd,
}

/// Reads a stream of entries.
#[derive(Debug)]
pub(super) struct JournalExportReader {
    buffer: Vec<u8>,
    state: ReadState,
    entry: JournalEntry,
}

impl Default for JournalExportReader {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            state: ReadState::Line,
            entry: JournalEntry::default(),
        }
    }
}

impl JournalExportReader {
    /// Takes bytes; the entries that are whole with them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<JournalEntry>, String> {
        let mut held = std::mem::take(&mut self.buffer);
        held.extend_from_slice(bytes);
        let (mut rest, mut entries) = (&held[..], Vec::new());
        while let Some(behind) = self.step(rest, &mut entries)? {
            rest = behind;
        }
        self.buffer = rest.to_vec();
        Ok(entries)
    }

    /// What is behind the next piece; none if more bytes are needed.
    fn step<'b>(&mut self, rest: &'b [u8], entries: &mut Vec<JournalEntry>) -> Result<Option<&'b [u8]>, String> {
        match std::mem::replace(&mut self.state, ReadState::Line) {
            ReadState::Line => Ok(self.line(rest, entries)),
            ReadState::SkippedLine => {
                let end = rest.iter().position(|byte| *byte == b'\n');
                if end.is_none() {
                    self.state = ReadState::SkippedLine;
                }
                let behind = end.map_or(&[][..], |end| rest.get(end + 1..).unwrap_or_default());
                Ok((!rest.is_empty()).then_some(behind))
            }
            ReadState::Length(name) => {
                let Some((length, behind)) = rest.split_first_chunk() else {
                    self.state = ReadState::Length(name);
                    return Ok(None);
                };
                self.state = ReadState::Data {
                    name,
                    left: u64::from_le_bytes(*length),
                    kept: Vec::new(),
                    is_truncated: false,
                };
                Ok(Some(behind))
            }
            ReadState::Data {
                name,
                left,
                mut kept,
                mut is_truncated,
            } => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let (data, behind) = rest.split_at(here);
                let room = MAX_FIELD - kept.len();
                kept.extend_from_slice(data.get(..room).unwrap_or(data));
                is_truncated |= data.len() > room;
                let left = left - here as u64;
                if left == 0 {
                    self.set(&name, kept, is_truncated);
                    self.state = ReadState::DataEnd;
                    return Ok(Some(behind));
                }
                self.state = ReadState::Data {
                    name,
                    left,
                    kept,
                    is_truncated,
                };
                Ok((here > 0).then_some(behind))
            }
            ReadState::DataEnd => match rest.split_first() {
                Some((b'\n', behind)) => Ok(Some(behind)),
                Some(_) => Err("no end of line is behind a field".to_owned()),
                None => {
                    self.state = ReadState::DataEnd;
                    Ok(None)
                }
            },
        }
    }

    fn line<'b>(&mut self, rest: &'b [u8], entries: &mut Vec<JournalEntry>) -> Option<&'b [u8]> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, behind) = match end {
            Some(end) => (rest.get(..end)?, rest.get(end + 1..)?),
            None if rest.len() > MAX_FIELD => {
                self.state = ReadState::SkippedLine;
                (rest, &[][..])
            }
            None => return None,
        };
        if line.is_empty() {
            let entry = std::mem::take(&mut self.entry);
            entries.extend(Some(entry).filter(|entry| !entry.cursor.is_empty()));
            return Some(behind);
        }
        let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match line.iter().position(|byte| *byte == b'=') {
            Some(at) => {
                let value = line.get(at + 1..)?;
                let kept = value.get(..MAX_FIELD).unwrap_or(value);
                let is_truncated = kept.len() < value.len() || end.is_none();
                self.set(&name(line.get(..at)?), kept.to_vec(), is_truncated);
            }
            // The name of a field that is none of ours may be of any length.
            None if end.is_some() => self.state = ReadState::Length(name(line)),
            None => {}
        }
        Some(behind)
    }

    fn set(&mut self, name: &str, value: Vec<u8>, is_truncated: bool) {
        let entry = &mut self.entry;
        if name == "MESSAGE" {
            (entry.message, entry.is_truncated) = (value, is_truncated);
            return;
        }
        let Some(text) = String::from_utf8(value).ok().filter(|_| !is_truncated) else {
            return;
        };
        match name {
            "__CURSOR" => entry.cursor = text,
            "__REALTIME_TIMESTAMP" => entry.micros = text.parse().ok(),
            "PRIORITY" => entry.priority = text.parse().ok(),
            "_HOSTNAME" => entry.host = Some(text),
            "SYSLOG_IDENTIFIER" => entry.identifier = Some(text),
            "_SYSTEMD_UNIT" => entry.unit = Some(text),
            "_PID" => entry.pid = text.parse().ok(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What `journalctl` writes of three entries: text, text of two lines, and bytes that are no text.
    fn export() -> Vec<u8> {
        let head = |number: u8| {
            format!("__CURSOR=s=9f95;i={number}\n__REALTIME_TIMESTAMP=170000000000000{number}\n_BOOT_ID=01\n")
                .into_bytes()
        };
        let facts = b"PRIORITY=4\n_HOSTNAME=h\nSYSLOG_IDENTIFIER=app\n_SYSTEMD_UNIT=app.service\n_PID=7\n";
        let sized = |bytes: &[u8]| [&b"MESSAGE\n"[..], &(bytes.len() as u64).to_le_bytes()[..], bytes, b"\n"].concat();
        [
            &head(1)[..],
            b"MESSAGE=a=b\n",
            facts,
            b"\n",
            &head(2),
            facts,
            &sized(b"two\nlines"),
            b"\n",
            &head(3),
            &sized(b"\xff\0"),
            b"\n",
        ]
        .concat()
    }

    fn all(pieces: &[&[u8]]) -> Vec<JournalEntry> {
        let mut reader = JournalExportReader::default();
        pieces.iter().flat_map(|piece| reader.take(piece).unwrap()).collect()
    }

    #[test]
    fn entries_are_read_in_whatever_pieces_they_come() {
        let export = export();
        let entries = all(&[&export[..]]);
        let messages: Vec<&[u8]> = entries.iter().map(|entry| &entry.message[..]).collect();
        assert_eq!(messages, [&b"a=b"[..], b"two\nlines", b"\xff\0"]);
        let first = JournalEntry {
            cursor: "s=9f95;i=1".to_owned(),
            micros: Some(1_700_000_000_000_001),
            message: b"a=b".to_vec(),
            is_truncated: false,
            priority: Some(4),
            host: Some("h".to_owned()),
            identifier: Some("app".to_owned()),
            unit: Some("app.service".to_owned()),
            pid: Some(7),
        };
        assert_eq!(entries[0], first);
        assert_eq!((entries[2].priority, &entries[2].unit), (None, &None));
        for at in 0..=export.len() {
            assert_eq!(all(&[&export[..at], &export[at..]]), entries, "{at}");
        }
        let bytes: Vec<&[u8]> = export.chunks(1).collect();
        assert_eq!(all(&bytes), entries);
    }

    #[test]
    fn long_fields_are_cut_and_what_has_no_cursor_is_no_entry() {
        let long = vec![b'x'; 3 * MAX_FIELD];
        let text = [&b"__CURSOR=c\nMESSAGE="[..], &long[..], b"\nPRIORITY=3\n\n"].concat();
        let size = (long.len() as u64).to_le_bytes();
        let sized = [&b"__CURSOR=c\nMESSAGE\n"[..], &size[..], &long[..], b"\nPRIORITY=3\n\n"].concat();
        for export in [text, sized] {
            for pieces in [export.chunks(export.len()), export.chunks(1000)] {
                let entries = all(&pieces.collect::<Vec<_>>());
                assert_eq!(entries.len(), 1);
                assert_eq!((entries[0].is_truncated, entries[0].priority), (true, Some(3)));
                assert!(entries[0].message.len() <= MAX_FIELD && entries[0].message.len() > MAX_FIELD / 2);
            }
        }
        assert_eq!(all(&[&b"MESSAGE=x\n\n__CURSOR=c\n\n"[..]]).len(), 1);
        let mut reader = JournalExportReader::default();
        assert!(reader.take(b"MESSAGE\n\x01\0\0\0\0\0\0\0xy").is_err());
    }
}
