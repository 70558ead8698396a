//! Writes frames of open files, and sealed files.
//!
//! A seal packs the lines of an open file anew, in large frames and without the descriptions between them. It does not parse
//! them: that every line is there is counted, that every byte is right was checked against the file's CRC.

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use model::Table;

use super::super::file_format::FileFormat;
use super::super::file_prefix::{CHUNK, FilePrefix};
use super::super::footer::{FileIdentity, FileVersion, FooterFacts, RowBounds, line_pairs};
use super::super::open_file::{OpenDataFile, OpenFileVersion};
use super::super::row_group::{RowGroup, SortedBatches};
use super::super::schema::WriteOptions;
use super::super::sealed_file::complete;
use super::super::shadow_file;
use super::super::sort_order::FileSortOrder;
use super::frame_compressor::{FrameCompressor, unpack};
use super::row_writer::NdjsonRowWriter;
use super::skippable_footer::description;
use crate::Error;
use crate::io_pacing::IoPriority;

/// Lines in one frame of a sealed file, in bytes.
const FRAME: usize = 8 << 20;

/// Hands each row to `take` as a line without its newline.
fn each_line(
    table: Table,
    sorted: &SortedBatches,
    mut take: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut line = Vec::new();
    for chunk in sorted.chunks() {
        let chunk = chunk.map_err(Error::arrow("sort", table))?;
        let rows = NdjsonRowWriter::new(table, &chunk)?;
        for row in 0..chunk.num_rows() {
            line.clear();
            rows.write(row, &mut line);
            take(&line)?;
        }
    }
    Ok(())
}

/// Writes a line. A plain file or frame lacks its last newline: the description comes before it.
fn put_line(to: &mut impl Write, form: FileFormat, is_first: bool, line: &[u8]) -> std::io::Result<()> {
    if form == FileFormat::Json && !is_first {
        to.write_all(b"\n")?;
    }
    to.write_all(line)?;
    if form != FileFormat::Json {
        to.write_all(b"\n")?;
    }
    Ok(())
}

/// Rows as one frame, newest first.
pub(in super::super) fn frame(
    table: Table,
    batches: &[RecordBatch],
    options: &WriteOptions,
    haste: IoPriority,
) -> Result<RowGroup, Error> {
    let sorted = SortedBatches::new(&table.into(), FileSortOrder::Newest, batches)?;
    let failed = |error| Error::io("pack rows of", Path::new(table.name()))(error);
    let mut packer = FrameCompressor::new(options.form, options.zstd_level, Vec::new()).map_err(failed)?;
    let mut is_first = true;
    each_line(table, &sorted, |line| {
        put_line(&mut packer, options.form, std::mem::take(&mut is_first), line).map_err(failed)
    })?;
    let bytes = packer.finish().map_err(failed)?;
    Ok(RowGroup {
        table,
        bytes,
        metadata: None,
        extent: sorted.extent,
        widest: 0,
        haste,
    })
}

/// Packs the lines of an open file into a sealed one at `staged`.
pub(in super::super) fn seal(
    open: &OpenDataFile,
    present: &OpenFileVersion,
    source: &FilePrefix,
    staged: &Path,
    facts: &FooterFacts,
) -> Result<FileVersion, Error> {
    let form = open.options().form;
    let mut lines = unpack(form, source, 0).map_err(Error::io("read", open.path()))?;
    let mut output = SealedNdjsonWriter::create(staged, form, open.options().zstd_level)?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(Error::io("read", open.path()))? == 0 {
            break;
        }
        output.line(line.trim_ascii_end())?;
    }
    if output.lines != present.extent.rows {
        let reason = format!("it has {} lines instead of {}", output.lines, present.extent.rows);
        return Err(Error::damaged(open.path(), reason));
    }
    output.finish(open.identity(), facts, present.extent)
}

/// Sorts rows in memory into a sealed file at `staged`.
pub(in super::super) fn write_sealed(
    identity: &FileIdentity,
    batches: &[RecordBatch],
    facts: &FooterFacts,
    staged: &Path,
    options: &WriteOptions,
) -> Result<FileVersion, Error> {
    let table = identity.table;
    let sorted = SortedBatches::new(&table.into(), FileSortOrder::Newest, batches)?;
    let mut output = SealedNdjsonWriter::create(staged, options.form, options.zstd_level)?;
    each_line(table, &sorted, |line| output.line(line))?;
    output.finish(identity, facts, sorted.extent)
}

/// A sealed file being written.
struct SealedNdjsonWriter<'a> {
    path: &'a Path,
    form: FileFormat,
    level: i32,
    /// Always there but while a frame ends.
    packer: Option<FrameCompressor<BufWriter<File>>>,
    frame_bytes: usize,
    lines: u64,
}

impl<'a> SealedNdjsonWriter<'a> {
    fn create(path: &'a Path, form: FileFormat, level: i32) -> Result<Self, Error> {
        let file = BufWriter::with_capacity(CHUNK, shadow_file::create(path)?);
        let packer = FrameCompressor::new(form, level, file).map_err(Error::io("write", path))?;
        Ok(Self {
            path,
            form,
            level,
            packer: Some(packer),
            frame_bytes: 0,
            lines: 0,
        })
    }

    /// Adds a line, given without its newline.
    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.try_line(line).map_err(Error::io("write", self.path))
    }

    fn try_line(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.frame_bytes >= FRAME && self.form != FileFormat::Json {
            let file = self.end()?;
            self.packer = Some(FrameCompressor::new(self.form, self.level, file)?);
            self.frame_bytes = 0;
        }
        let packer = self.packer.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        put_line(packer, self.form, self.lines == 0, line)?;
        self.frame_bytes += line.len() + 1;
        self.lines += 1;
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<BufWriter<File>> {
        let packer = self.packer.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        packer.finish()
    }

    fn finish(mut self, identity: &FileIdentity, facts: &FooterFacts, extent: RowBounds) -> Result<FileVersion, Error> {
        let write = || -> std::io::Result<File> {
            let mut file = self.end()?;
            file.write_all(&description(
                self.form,
                &line_pairs(identity, facts, &extent, (&[0], &[facts.last_lsn]), true),
            )?)?;
            file.into_inner().map_err(std::io::IntoInnerError::into_error)
        };
        let file = { write }().map_err(Error::io("write", self.path))?;
        complete(&file, self.path)
    }
}
