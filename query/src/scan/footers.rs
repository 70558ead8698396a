//! What the footers of a spec's files say: which have the columns that are asked for, and which cannot have a row that is.
//!
//! A file has the columns that its spec had when the file was begun; files of lines have none. What a file lacks is read out of
//! `promoted`, which every file has.
//!
//! # Invariants
//!
//! - A file that is left out has no row that meets the predicate. One whose footer cannot be read stays, and is the reader's to
//!   complain about.
//! - What is only in an object store is fetched by a thread that none of the others waits for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, BooleanArray, UInt64Array};
use arrow_schema::Schema;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_optimizer::pruning::PruningPredicate;
use engine::Segment;
use model::spec::SpecColumn;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;

use super::Scanner;
use super::workers::Patience;
use crate::Error;

/// What is asked of a spec's files.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The promoted columns.
    pub(crate) columns: Vec<SpecColumn>,
    /// What rows must meet.
    pub(crate) predicate: Option<PruningPredicate>,
}

/// The files that can have rows.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// They have the columns.
    pub(crate) typed: Vec<Arc<Segment>>,
    /// Their columns are to be read out of `promoted`.
    pub(crate) untyped: Vec<Arc<Segment>>,
}

impl Scanner {
    /// Tells a spec's files apart.
    pub(crate) async fn told_apart(&self, asked: Asked, files: Vec<Arc<Segment>>) -> Result<Told, Error> {
        if asked.columns.is_empty() || files.is_empty() {
            return Ok(Told {
                typed: files,
                untyped: Vec::new(),
            });
        }
        let (away, here): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_uploaded());
        let asked = Arc::new(asked);
        let of_here = Arc::clone(&asked);
        let mut told = self.look(move |patience| look(&of_here, here, patience)).await?;
        if !away.is_empty() {
            let (patience, _waiting) = Patience::new(Instant::now(), self.timeout);
            let looking = tokio::task::spawn_blocking(move || look(&asked, away, &patience));
            let more = looking.await.map_err(|stopped| Error::Aborted(stopped.to_string()))??;
            told.typed.extend(more.typed);
            told.untyped.extend(more.untyped);
        }
        Ok(told)
    }
}

fn look(asked: &Asked, files: Vec<Arc<Segment>>, patience: &Patience) -> Result<Told, Error> {
    let mut told = Told::default();
    for segment in files {
        patience.check()?;
        if !segment.is_parquet() {
            told.untyped.push(segment);
            continue;
        }
        let footer = segment.metadata().ok();
        let described = footer.and_then(|footer| Some((arrow_schema(&footer)?, footer)));
        match described {
            None => told.typed.push(segment),
            Some((schema, _)) if !has_all(&schema, &asked.columns) => told.untyped.push(segment),
            Some((schema, footer)) => {
                let groups = Groups {
                    file: &footer,
                    stored: &schema,
                };
                if groups.may_meet(asked.predicate.as_ref()) {
                    told.typed.push(segment);
                }
            }
        }
    }
    Ok(told)
}

fn arrow_schema(footer: &ParquetMetaData) -> Option<Schema> {
    let file = footer.file_metadata();
    parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()).ok()
}

/// Whether a file has all the columns, or such whose values are also those of the columns.
fn has_all(schema: &Schema, columns: &[SpecColumn]) -> bool {
    columns.iter().all(|wanted| {
        let found = schema.field_with_name(&wanted.name).ok();
        let found = found.and_then(SpecColumn::of_arrow);
        found.is_some_and(|found| found.kind.widens_to(wanted.kind))
    })
}

/// The row groups of a file, as sets of rows with bounds.
struct Groups<'a> {
    file: &'a ParquetMetaData,
    stored: &'a Schema,
}

impl Groups<'_> {
    fn may_meet(&self, predicate: Option<&PruningPredicate>) -> bool {
        let met = predicate.map(|predicate| predicate.prune(self));
        match met {
            Some(Ok(met)) => met.into_iter().any(|may| may),
            Some(Err(error)) => {
                tracing::debug!(%error, "bounds of a file say nothing");
                true
            }
            None => true,
        }
    }

    fn of_column(
        &self,
        column: &Column,
        of: impl Fn(&StatisticsConverter<'_>) -> parquet::errors::Result<ArrayRef>,
    ) -> Option<ArrayRef> {
        let schema = self.file.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(&column.name, self.stored, schema).ok()?;
        of(&converter).ok()
    }
}

impl PruningStatistics for Groups<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of_column(column, |groups| groups.row_group_mins(self.file.row_groups()))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of_column(column, |groups| groups.row_group_maxes(self.file.row_groups()))
    }

    fn num_containers(&self) -> usize {
        self.file.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        self.of_column(column, |groups| {
            Ok(Arc::new(groups.row_group_null_counts(self.file.row_groups())?))
        })
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self
            .file
            .row_groups()
            .iter()
            .map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(rows.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use model::spec::FieldType;
    use model::spec::columns::schema;

    use super::*;

    #[test]
    fn a_file_has_a_column_if_every_value_of_it_is_one_of_the_column() {
        let column = |name: &str, kind| SpecColumn {
            name: name.to_owned(),
            kind,
        };
        let file = schema(&[column("amount", FieldType::Int), column("at", FieldType::Timestamp)]);
        for (wanted, has) in [
            (column("amount", FieldType::Int), true),
            (column("amount", FieldType::Float), true),
            (column("amount", FieldType::String), false),
            (column("at", FieldType::Timestamp), true),
            (column("coupon", FieldType::Bool), false),
        ] {
            assert_eq!(has_all(&file, std::slice::from_ref(&wanted)), has, "{wanted:?}");
        }
    }
}
