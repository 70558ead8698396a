//! What the data files of each spec's messages are named and which columns they have.

use std::collections::BTreeMap;

use model::SpecName;
use model::spec::SpecColumn;

/// How the data files of a spec's messages are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFiles {
    /// What their names begin with.
    pub prefix: SpecName,
    /// Their columns behind those of `messages`: values are taken out of `promoted`.
    pub columns: Vec<SpecColumn>,
}

/// By the names of specs.
pub type AllSpecFiles = BTreeMap<SpecName, SpecFiles>;
