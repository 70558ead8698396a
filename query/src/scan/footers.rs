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

use std::sync::Arc;
use std::time::Instant;

use arrow_schema::Schema;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, ParquetFileMetrics, RowGroupAccessPlanFilter};
use datafusion::physical_optimizer::pruning::PruningPredicate;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use engine::Segment;
use model::spec::SpecColumn;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;

use super::Scanner;
use super::workers::{self, Patience};
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
        let (patience, waiting) = Patience::new(Instant::now(), self.timeout);
        let (away, here): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_uploaded());
        let place = self.workers.enter().await?;
        let looking = workers::run(place, move || {
            let told = look(&asked, here, &patience);
            (asked, patience, told)
        });
        let (asked, patience, told) = looking.await.map_err(stopped)?;
        let mut told = told?;
        if !away.is_empty() {
            let looking = tokio::task::spawn_blocking(move || look(&asked, away, &patience));
            let more = looking.await.map_err(stopped)??;
            told.typed.extend(more.typed);
            told.untyped.extend(more.untyped);
        }
        drop(waiting);
        Ok(told)
    }
}

fn stopped(error: tokio::task::JoinError) -> Error {
    Error::Aborted(error.to_string())
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
            Some((schema, footer)) if may_meet(asked.predicate.as_ref(), &footer, &schema) => told.typed.push(segment),
            Some(_) => {}
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

/// Whether a row group of a file can have a row that meets a predicate.
fn may_meet(predicate: Option<&PruningPredicate>, file: &ParquetMetaData, stored: &Schema) -> bool {
    let Some(predicate) = predicate else {
        return true;
    };
    let mut groups = RowGroupAccessPlanFilter::new(ParquetAccessPlan::new_all(file.num_row_groups()));
    let columns = file.file_metadata().schema_descr();
    let metrics = ParquetFileMetrics::new(0, "footer", &ExecutionPlanMetricsSet::new());
    groups.prune_by_statistics(stored, columns, file.row_groups(), predicate, &metrics);
    groups.remaining_row_group_count() > 0
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
