//! Copies whole frames of open files into another file.

use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::Path;

use model::{Table, Timestamp};
use parquet::file::reader::Length;

use super::super::file_format::FileFormat;
use super::super::file_prefix::FilePrefix;
use super::super::footer::{FileIdentity, FooterFacts, RowBounds, line_pairs};
use super::frame_compressor::unpack;
use super::json_scan::members;
use super::skippable_footer::{description, raw_description};
use crate::Error;

/// A frame to copy, without what is behind it: its description, or in a joined file of plain lines the newline.
pub(in super::super) struct FrameCopy<'a> {
    source: &'a FilePrefix,
    range: Range<u64>,
}

/// The frames of a version of an open file, which begin at `starts`. Only the last one surely has a description.
pub(in super::super) fn frames<'a>(
    source: &'a FilePrefix,
    (starts, form): (&[u64], FileFormat),
    path: &Path,
) -> Result<Vec<FrameCopy<'a>>, Error> {
    let ends = starts.iter().skip(1).copied().chain([source.len()]);
    let frame = |(start, end): (&u64, u64)| {
        let no_end = || Error::damaged(path, format!("no frame ends at {end}"));
        let version = source.prefix(end).ok_or_else(no_end)?;
        let description = raw_description(&version).map_err(Error::io("read", path))?;
        let behind = description.map_or(u64::from(form == FileFormat::Json), |bytes| bytes.len() as u64);
        Ok(FrameCopy {
            source,
            range: *start..end.saturating_sub(behind),
        })
    };
    starts.iter().zip(ends).map(frame).collect()
}

impl FrameCopy<'_> {
    /// The bounds of its rows, by reading them.
    fn extent(&self, table: Table, form: FileFormat) -> io::Result<Option<RowBounds>> {
        let wrong = || io::Error::other("a line has no time");
        let mut lines = unpack(form, &self.version()?, self.range.start)?;
        let (mut times, mut line) = (Vec::new(), Vec::new());
        let ts = table.columns().first().map_or("", |column| column.name).as_bytes();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let mut time = None;
            members(&line, |key, value| {
                if key == ts {
                    time = serde_json::from_slice::<String>(value).ok();
                }
            });
            let time: Option<Timestamp> = time.and_then(|time| time.parse().ok());
            times.push(time.ok_or_else(wrong)?.micros());
            line.clear();
        }
        Ok(RowBounds::of(&times))
    }

    fn copy_to(&self, to: &mut impl Write) -> io::Result<()> {
        self.version()?
            .for_each_chunk(self.range.start, |_, bytes| to.write_all(bytes))
    }

    /// The source up to the frame's end.
    fn version(&self) -> io::Result<FilePrefix> {
        self.source
            .prefix(self.range.end)
            .ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Writes frames, one after another, and a description of them all. Whether there were any.
pub(in super::super) fn join(
    frames: &[FrameCopy<'_>],
    lsns: &[u64],
    form: FileFormat,
    (identity, facts): (&FileIdentity, &FooterFacts),
    to: &mut impl Write,
) -> io::Result<bool> {
    let (mut starts, mut end) = (Vec::with_capacity(frames.len()), 0);
    let mut extent: Option<RowBounds> = None;
    for frame in frames {
        let added = frame.extent(identity.table, form)?;
        extent = [extent, added].into_iter().flatten().reduce(RowBounds::and);
        // A plain frame lacks its last newline: a description would come before it.
        if form == FileFormat::Json && end > 0 {
            to.write_all(b"\n")?;
            end += 1;
        }
        starts.push(end);
        frame.copy_to(to)?;
        end += frame.range.end.saturating_sub(frame.range.start);
    }
    let Some(extent) = extent else {
        return Ok(false);
    };
    let pairs = line_pairs(identity, facts, &extent, (&starts, lsns), false);
    to.write_all(&description(form, &pairs)?)?;
    Ok(true)
}
