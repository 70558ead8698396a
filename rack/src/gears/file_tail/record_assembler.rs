//! Bytes to lines, lines to records.
//!
//! # Invariants
//!
//! - Every byte of the file belongs to exactly one record or to a line end; [`RecordAssembler::resume_at`] is the first byte that no
//!   record given out covers.
//! - A line without its end waits for it, in memory at most `max` bytes: then it is given out, marked cut, and the bytes up
//!   to its end are passed over.
//! - `\r\n` ends a line like `\n`. Invalid UTF-8 is replaced and the record marked.
//!
//! # Not here
//!
//! Files ([`super::tailed_file`]).

use std::time::{Duration, Instant};

use regex::Regex;

/// How lines become records.
#[derive(Debug, Clone)]
pub(super) struct RecordRules {
    /// The most bytes of a record.
    pub(super) max: usize,
    /// What the first line of a record looks like; none for a record a line.
    pub(super) start: Option<Regex>,
    /// How long a record waits for more lines.
    pub(super) patience: Duration,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TailRecord {
    pub(super) text: String,
    /// The offset of its first byte.
    pub(super) offset: u64,
    pub(super) truncated: bool,
    pub(super) invalid_utf8: bool,
}

/// The bytes of one file on their way to records.
#[derive(Debug)]
pub(super) struct RecordAssembler {
    /// Room that is kept; what lies before `to` holds the file's bytes.
    bytes: Vec<u8>,
    /// The first byte in `bytes` that is not consumed.
    from: usize,
    /// The end of what was fed.
    to: usize,
    /// Up to where `bytes` holds no line end.
    scanned: usize,
    /// The file offset of `bytes[from]`.
    offset: u64,
    skipping: bool,
    /// A record that may get more lines, and since when it waits.
    open: Option<(TailRecord, Instant)>,
}

impl RecordAssembler {
    pub(super) fn new(offset: u64, skipping: bool) -> Self {
        Self {
            bytes: Vec::new(),
            from: 0,
            to: 0,
            scanned: 0,
            offset,
            skipping,
            open: None,
        }
    }

    /// The file offset behind everything that was fed.
    pub(super) fn fed_to(&self) -> u64 {
        self.offset + (self.to - self.from) as u64
    }

    /// Where to go on reading if nothing but the records given out is kept.
    pub(super) fn resume_at(&self) -> (u64, bool) {
        self.open
            .as_ref()
            .map_or((self.offset, self.skipping), |(record, _)| (record.offset, false))
    }

    /// Room for `size` more bytes of the file; [`fed`](Self::fed) takes what was filled.
    pub(super) fn room(&mut self, size: usize) -> &mut [u8] {
        self.bytes.copy_within(self.from..self.to, 0);
        self.scanned -= self.from;
        self.to -= self.from;
        self.from = 0;
        if self.bytes.len() < self.to + size {
            self.bytes.resize(self.to + size, 0);
        }
        &mut self.bytes[self.to..self.to + size]
    }

    /// Takes the first `count` bytes of the room.
    pub(super) fn fed(&mut self, count: usize) {
        self.to += count;
    }

    /// The next record that is complete.
    pub(super) fn next(&mut self, rules: &RecordRules, now: Instant) -> Option<TailRecord> {
        while let Some(line) = self.next_line(rules.max) {
            let Some(start) = &rules.start else { return Some(line) };
            match &mut self.open {
                Some((record, since)) if !start.is_match(&line.text) => {
                    append(record, &line, rules.max);
                    *since = now;
                }
                open => {
                    if let Some((done, _)) = open.replace((line, now)) {
                        return Some(done);
                    }
                }
            }
        }
        None
    }

    /// The open record, if it has waited long enough for more lines.
    pub(super) fn next_stale(&mut self, rules: &RecordRules, now: Instant) -> Option<TailRecord> {
        let (record, _) = self
            .open
            .take_if(|(_, since)| now.saturating_duration_since(*since) >= rules.patience)?;
        Some(record)
    }

    /// What is left when nothing more will come, one record a call. To be asked after [`next`](Self::next) gave none.
    pub(super) fn next_rest(&mut self, rules: &RecordRules) -> Option<TailRecord> {
        let tail = self.to - self.from;
        if tail == 0 || self.skipping {
            return self.open.take().map(|(record, _)| record);
        }
        let line = self.cut(tail, tail, rules.max);
        let Some((mut record, since)) = self.open.take() else {
            return Some(line);
        };
        if rules.start.as_ref().is_some_and(|start| start.is_match(&line.text)) {
            self.open = Some((line, since));
        } else {
            append(&mut record, &line, rules.max);
        }
        Some(record)
    }

    fn next_line(&mut self, max: usize) -> Option<TailRecord> {
        loop {
            let end = self.bytes[self.scanned..self.to].iter().position(|byte| *byte == b'\n');
            let waiting = self.to - self.from;
            match end {
                Some(end) if self.skipping => {
                    let end = self.scanned + end + 1;
                    self.consume(end - self.from);
                    self.skipping = false;
                }
                Some(end) => {
                    let length = self.scanned + end - self.from;
                    return Some(self.cut(length, length + 1, max));
                }
                None if self.skipping => {
                    self.consume(waiting);
                    return None;
                }
                // One byte more may be the \r of a line end.
                None if waiting > max + 1 => {
                    let line = self.cut(waiting, waiting, max);
                    self.skipping = true;
                    return Some(line);
                }
                None => {
                    self.scanned = self.to;
                    return None;
                }
            }
        }
    }

    /// Consumes `all` bytes, the first `length` of which are a line.
    fn cut(&mut self, length: usize, all: usize, max: usize) -> TailRecord {
        let line = &self.bytes[self.from..self.from + length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (kept, truncated) = line
            .get(..max)
            .map_or((line, false), |kept| (kept, kept.len() < line.len()));
        let (text, invalid_utf8) = match std::str::from_utf8(kept) {
            Ok(text) => (text.to_owned(), false),
            // A character that the cut went through is not invalid.
            Err(error) if truncated && error.error_len().is_none() => (
                String::from_utf8_lossy(&kept[..error.valid_up_to()]).into_owned(),
                false,
            ),
            Err(_) => (String::from_utf8_lossy(kept).into_owned(), true),
        };
        let mut record = TailRecord {
            text,
            offset: self.offset,
            truncated,
            invalid_utf8,
        };
        limit(&mut record, max);
        self.consume(all);
        record
    }

    fn consume(&mut self, count: usize) {
        self.from += count;
        self.scanned = self.from;
        self.offset += count as u64;
    }
}

/// Adds a line to a record.
fn append(record: &mut TailRecord, line: &TailRecord, max: usize) {
    if !record.truncated {
        record.text.push('\n');
        record.text.push_str(&line.text);
    }
    record.truncated |= line.truncated;
    record.invalid_utf8 |= line.invalid_utf8;
    limit(record, max);
}

/// Replaced characters are longer than what they replace, and lines add up.
fn limit(record: &mut TailRecord, max: usize) {
    if record.text.len() > max {
        record.text.truncate(record.text.floor_char_boundary(max));
        record.truncated = true;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rules(max: usize, start: Option<&str>) -> RecordRules {
        RecordRules {
            max,
            start: start.map(|start| Regex::new(start).unwrap()),
            patience: Duration::from_secs(1),
        }
    }

    fn feed(lines: &mut RecordAssembler, bytes: &[u8]) {
        lines.room(bytes.len() + 3)[..bytes.len()].copy_from_slice(bytes);
        lines.fed(bytes.len());
    }

    /// Every record of `bytes`, fed in pieces of `step`, and what is left at the end.
    fn all(bytes: &[u8], step: usize, rules: &RecordRules) -> Vec<TailRecord> {
        let mut lines = RecordAssembler::new(0, false);
        let mut records = Vec::new();
        for piece in bytes.chunks(step) {
            feed(&mut lines, piece);
            while let Some(record) = lines.next(rules, Instant::now()) {
                records.push(record);
            }
        }
        records.extend(std::iter::from_fn(|| lines.next_rest(rules)));
        records
    }

    fn texts(records: &[TailRecord]) -> Vec<&str> {
        records.iter().map(|record| record.text.as_str()).collect()
    }

    #[test]
    fn lines_are_the_same_whatever_the_pieces_they_come_in() {
        let bytes = b"one\n\ntwo\r\nthr\xffee\nlast without end";
        for step in 1..bytes.len() {
            let records = all(bytes, step, &rules(100, None));
            assert_eq!(texts(&records), ["one", "", "two", "thr\u{fffd}ee", "last without end"]);
            assert_eq!(records.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 4, 5, 10, 17]);
            assert_eq!(
                records.iter().map(|r| r.invalid_utf8).collect::<Vec<_>>(),
                [false, false, false, true, false]
            );
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_one_record_marked_cut() {
        for step in 1..40 {
            let records = all(
                "exactly10!\nthis is longer than ten\r\nexactly10!\r\nok\n".as_bytes(),
                step,
                &rules(10, None),
            );
            assert_eq!(
                texts(&records),
                ["exactly10!", "this is lo", "exactly10!", "ok"],
                "{step}"
            );
            assert_eq!(
                records.iter().map(|r| r.truncated).collect::<Vec<_>>(),
                [false, true, false, false]
            );
        }
        let records = all("ééééé\n".as_bytes(), 100, &rules(5, None));
        assert_eq!((records[0].text.as_str(), records[0].invalid_utf8), ("éé", false));
        let records = all(b"\xff\xff\xff\n", 100, &rules(5, None));
        assert_eq!((records[0].text.len(), records[0].truncated), (3, true));
    }

    #[test]
    fn a_half_line_waits_and_the_position_stays_before_it() {
        let (rules, mut lines) = (rules(10, None), RecordAssembler::new(100, false));
        feed(&mut lines, b"ab\ncd");
        assert_eq!(lines.next(&rules, Instant::now()).unwrap().text, "ab");
        assert_eq!(lines.next(&rules, Instant::now()), None);
        assert_eq!((lines.resume_at(), lines.fed_to()), ((103, false), 105));
        feed(&mut lines, b"\n");
        assert_eq!(lines.next(&rules, Instant::now()).unwrap().text, "cd");
        feed(&mut lines, &[b'x'; 12]);
        assert!(lines.next(&rules, Instant::now()).unwrap().truncated);
        assert_eq!(lines.resume_at(), (118, true));
        feed(&mut lines, b"xxx\nok\n");
        assert_eq!(lines.next(&rules, Instant::now()).unwrap().text, "ok");
        assert_eq!(lines.resume_at(), (125, false));
    }

    #[test]
    fn lines_that_do_not_start_a_record_belong_to_the_one_before() {
        let rules = rules(100, Some(r"^\d{4}"));
        let bytes = b"orphan\n2026 boom\n  at a\n  at b\n2027 ok\n2028 last\n  at c";
        for step in 1..bytes.len() {
            let records = all(bytes, step, &rules);
            assert_eq!(
                texts(&records),
                ["orphan", "2026 boom\n  at a\n  at b", "2027 ok", "2028 last\n  at c"]
            );
        }
        let (mut lines, start) = (RecordAssembler::new(0, false), Instant::now());
        feed(&mut lines, b"2026 boom\n  at a\n");
        assert_eq!(
            (lines.next(&rules, start), lines.next_stale(&rules, start)),
            (None, None)
        );
        assert_eq!(lines.resume_at(), (0, false));
        assert_eq!(
            lines.next_stale(&rules, start + rules.patience).unwrap().text,
            "2026 boom\n  at a"
        );
        assert_eq!(lines.resume_at(), (17, false));
    }

    #[test]
    fn a_record_of_many_lines_is_cut_as_a_whole() {
        let records = all(b"> a\nbbbb\ncccc\ndddd\n> e\n", 100, &rules(8, Some("^>")));
        assert_eq!(texts(&records), ["> a\nbbbb", "> e"]);
        assert_eq!(records.iter().map(|r| r.truncated).collect::<Vec<_>>(), [true, false]);
    }
}
