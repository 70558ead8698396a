//! File templates: the name prefix and the columns of each spec's data files.
//!
//! # Invariants
//!
//! - A file keeps its name and its columns: after a change the next rows of the spec begin another file.
//! - Rows of a spec that nobody has declared are stored in its folder all the same, in files that have its name as prefix and the
//!   columns of `messages`.
//!
//! # Not here
//!
//! The list of specs: whoever opened the store declares it, before it appends rows and at every change.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::SpecName;

use crate::datafile::PromotedColumns;
use crate::settings::{AllSpecFiles, SpecFiles};

/// The same, as files are begun.
#[derive(Debug, Default)]
pub(crate) struct FileTemplates(BTreeMap<SpecName, FileTemplate>);

/// How a file is begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileTemplate {
    /// Where it is not the spec's name, or the table's.
    pub(crate) prefix: Option<SpecName>,
    pub(crate) promoted: Option<Arc<PromotedColumns>>,
}

impl From<&AllSpecFiles> for FileTemplates {
    fn from(all: &AllSpecFiles) -> Self {
        let form = |(name, files): (&SpecName, &SpecFiles)| {
            let form = FileTemplate {
                prefix: Some(files.prefix).filter(|prefix| prefix != name),
                promoted: PromotedColumns::new(&files.columns),
            };
            (*name, form)
        };
        Self(all.iter().map(form).collect())
    }
}

impl FileTemplates {
    pub(crate) fn of(&self, spec: SpecName) -> FileTemplate {
        self.0.get(&spec).cloned().unwrap_or_default()
    }
}
