//! Pieces of an open file: the row groups that came behind a log position, as a file of their own, and such files put
//! together to an open file again.
//!
//! ```text
//! open     PAR1 │ group 0 │ footer 0 │ group 1 │ footer 1 │ group 2 │ footer 2
//! piece    PAR1 │ group 1 │ group 2 │ footer                  what came behind group 0's log position
//! joined   PAR1 │ group 0 │ group 1 │ group 2 │ footer        an open file that further publishes extend
//! ```
//!
//! Pages are copied as they are, neither decoded nor encoded again; a file of lines gives whole frames. A piece says of itself
//! what an open file says, under the open file's identity, with the log positions of its own groups.
//!
//! # Invariants
//!
//! - A piece has exactly the rows of the groups whose log position is behind the given one.
//! - Pieces of successive positions, joined in their order, have the rows of the open file they were taken from, each once.
//! - A joined file is durable under its name when it counts; before, it lies in staging, which a start empties.
//!
//! # Not here
//!
//! Where pieces go, and when they are taken: the uploader.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};

use super::file_format::FileFormat;
use super::file_prefix::{CHUNK, FilePrefix};
use super::footer::{
    FileBody, FileDescription, FileIdentity, FileVersion, FooterFacts, MAGIC, RowBounds, file_like, footer_bytes,
    group_lsns_pair, inspect_at, key_values, unwritable,
};
use super::ndjson::{self, FrameCopy};
use super::row_group::byte_range;
use super::row_width::RowWidths;
use super::schema::same_schema;
use super::sealed_file::{clean_on_error, complete, described};
use super::shadow_file;
use super::sorted_runs::{moved, run_of};
use crate::Error;

/// Writes what a version of the open file at `path` has behind the log position `after_lsn` as a file at `staged`; `None` if
/// that is nothing. It is not synced: what an object store takes is checked there.
///
/// # Errors
/// If the source is not a data file, or the disk refuses.
pub(crate) fn write_piece(
    source: &FilePrefix,
    path: &Path,
    after_lsn: u64,
    staged: &Path,
) -> Result<Option<FileVersion>, Error> {
    let found = inspect_at(source, path)?;
    let skipped = found.group_lsns.iter().filter(|lsn| **lsn <= after_lsn).count();
    if skipped == found.group_lsns.len() {
        return Ok(None);
    }
    let facts = FooterFacts {
        first_lsn: found.facts.first_lsn.max(after_lsn.saturating_add(1)),
        ..found.facts.clone()
    };
    let part = PieceSource {
        source: source.clone(),
        path: path.to_owned(),
        found,
        skipped,
    };
    clean_on_error(staged, || {
        let identity = part.found.identity;
        join(&[part], FileFormat::of_path(path), &identity, &facts, staged)?;
        described(staged).map(Some)
    })
}

/// Joins pieces, in their order, to an open file under the free name `path`, durably: [`super::resume()`] takes it up as any
/// other.
///
/// # Errors
/// If there are none, one is damaged or has other columns, the name is taken, or the disk refuses. Nothing has changed then,
/// except after [`Error::InDoubt`].
pub(crate) fn join_pieces(
    pieces: &[PathBuf],
    path: &Path,
    staged: &Path,
    identity: &FileIdentity,
    version: u32,
) -> Result<FileVersion, Error> {
    let parts = pieces.iter().map(|piece| PieceSource::whole(piece, identity));
    let parts = parts.collect::<Result<Vec<_>, Error>>()?;
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return Err(Error::rows(identity.table, "there are none"));
    };
    let facts = FooterFacts {
        version,
        first_lsn: first.found.facts.first_lsn,
        ..last.found.facts.clone()
    };
    let joined = clean_on_error(staged, || {
        let file = join(&parts, FileFormat::of_path(path), identity, &facts, staged)?;
        complete(&file, staged)
    })?;
    joined.install_new(path).map(|()| joined)
}

/// What is taken of a file: its groups, or frames, without the first `skipped`.
struct PieceSource {
    source: FilePrefix,
    path: PathBuf,
    found: FileDescription,
    skipped: usize,
}

impl PieceSource {
    fn whole(path: &Path, identity: &FileIdentity) -> Result<Self, Error> {
        let source = FilePrefix::open(path)?;
        let found = inspect_at(&source, path)?;
        if (found.identity.store, found.identity.table) != (identity.store, identity.table) {
            let reason = format!("it is {:?}, wanted is a piece of {identity:?}", found.identity);
            return Err(Error::damaged(path, reason));
        }
        Ok(Self {
            source,
            path: path.to_owned(),
            found,
            skipped: 0,
        })
    }

    fn lsns(&self) -> &[u64] {
        self.found.group_lsns.get(self.skipped..).unwrap_or_default()
    }

    fn pages(&self) -> Result<&ParquetMetaData, Error> {
        match &self.found.shape {
            FileBody::Parquet(metadata) => Ok(metadata),
            FileBody::Lines(_) => Err(Error::damaged(&self.path, "it is made of lines")),
        }
    }

    fn frames(&self, form: FileFormat) -> Result<Vec<FrameCopy<'_>>, Error> {
        match &self.found.shape {
            FileBody::Lines(starts) => ndjson::frames(&self.source, (starts, form), &self.path)
                .map(|frames| frames.into_iter().skip(self.skipped).collect()),
            FileBody::Parquet(_) => Err(Error::damaged(&self.path, "it is not made of lines")),
        }
    }
}

/// Writes the parts as one file at `staged`. It is not synced.
fn join(
    parts: &[PieceSource],
    form: FileFormat,
    identity: &FileIdentity,
    facts: &FooterFacts,
    staged: &Path,
) -> Result<File, Error> {
    let lsns: Vec<u64> = parts.iter().flat_map(PieceSource::lsns).copied().collect();
    let mut file = BufWriter::with_capacity(CHUNK, shadow_file::create(staged)?);
    if !form.is_parquet() {
        let mut frames = Vec::new();
        for part in parts {
            frames.extend(part.frames(form)?);
        }
        let joined = ndjson::join(&frames, &lsns, form, (identity, facts), &mut file);
        if !joined.map_err(Error::io("copy to", staged))? {
            return Err(Error::rows(identity.table, "there are none"));
        }
    } else {
        join_groups(parts, &lsns, (identity, facts), &mut file, staged)?;
    }
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
    file.map_err(Error::io("write", staged))
}

fn join_groups(
    parts: &[PieceSource],
    lsns: &[u64],
    (identity, facts): (&FileIdentity, &FooterFacts),
    to: &mut impl Write,
    staged: &Path,
) -> Result<(), Error> {
    let mut copied = CopiedGroups::default();
    to.write_all(MAGIC).map_err(Error::io("write", staged))?;
    let mut like: Option<&FileMetaData> = None;
    for part in parts {
        let metadata = part.pages()?;
        let file = metadata.file_metadata();
        let like = like.get_or_insert(file);
        if !same_schema(&like.schema_descr_ptr(), &file.schema_descr_ptr()) {
            return Err(Error::damaged(&part.path, "it has other columns than the piece before"));
        }
        let widths = RowWidths::of(metadata);
        for (at, group) in metadata.row_groups().iter().enumerate().skip(part.skipped) {
            copied.widths.push(widths.at(at).unwrap_or(0));
            copied.copy(group, part, to, staged)?;
        }
    }
    let (Some(like), Some(extent)) = (like, copied.extent) else {
        return Err(Error::rows(identity.table, "there are none"));
    };
    let mut pairs = key_values(identity, facts, &extent, false);
    pairs.extend([copied.widths.key_value(), group_lsns_pair(lsns)]);
    let footer = file_like(like, extent.rows, pairs).and_then(|file| footer_bytes(file, copied.groups));
    let footer = footer.map_err(unwritable(staged))?;
    to.write_all(&footer).map_err(Error::io("write", staged))
}

/// The row groups written so far.
struct CopiedGroups {
    groups: Vec<RowGroupMetaData>,
    widths: RowWidths,
    extent: Option<RowBounds>,
    /// Where the next one begins.
    end: u64,
}

impl Default for CopiedGroups {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            widths: RowWidths::default(),
            extent: None,
            end: MAGIC.len() as u64,
        }
    }
}

impl CopiedGroups {
    fn copy(
        &mut self,
        group: &RowGroupMetaData,
        part: &PieceSource,
        to: &mut impl Write,
        staged: &Path,
    ) -> Result<(), Error> {
        let unknown = || Error::damaged(&part.path, "a row group does not say where or when its rows are");
        let (start, end) = byte_range(group);
        let run = run_of(group).ok_or_else(unknown)?;
        let bytes = part.source.prefix(end).ok_or_else(unknown)?;
        let by = i64::try_from(i128::from(self.end) - i128::from(start)).map_err(|_| unknown())?;
        let moved = moved(group, self.groups.len(), by).map_err(unwritable(staged))?;
        bytes
            .for_each_chunk(start, |_, bytes| to.write_all(bytes))
            .map_err(Error::io("copy to", staged))?;
        let added = RowBounds {
            rows: run.rows,
            min_ts: run.min_ts,
            max_ts: run.max_ts,
        };
        self.extent = Some(self.extent.map_or(added, |extent| extent.and(added)));
        self.groups.push(moved);
        self.end += end.saturating_sub(start);
        Ok(())
    }
}
