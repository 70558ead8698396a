//! Schema evolution: what is remembered of a spec, and which changes it may go through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::columns::SpecColumn;
use super::{FieldType, Spec};

/// Fields that a spec may have had over all its versions: each is a column of its files for ever.
const MOST_EVER: usize = 200;

/// What the files of a spec may have, over all its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldHistory(BTreeMap<String, FieldType>);

/// A spec as it was taken last, and its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecHistory {
    /// As it was taken last.
    pub spec: Spec,
    /// All fields that it ever had.
    pub past: FieldHistory,
}

impl SpecHistory {
    /// A spec that was not known before.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let past = FieldHistory::default().with(&spec);
        Self { spec, past }
    }

    /// The columns of its files and of its table: its fields, then those that it had before, which have no values any more.
    #[must_use]
    pub fn columns(&self) -> Vec<SpecColumn> {
        let now = self.spec.fields.iter().map(SpecColumn::of);
        let has = |name: &str| self.spec.fields.iter().any(|field| field.name == name);
        let before = self.past.0.iter().filter(|(name, _)| !has(name));
        let before = before.map(|(name, kind)| SpecColumn {
            name: name.clone(),
            kind: *kind,
        });
        now.chain(before).collect()
    }

    /// The spec after a change.
    ///
    /// # Errors
    /// If it may not be changed so, in sentences.
    pub fn changed(&self, to: Spec) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let now = &self.spec;
        if to != *now && to.version <= now.version {
            faults.push(format!(
                "version {} says something else than version {} in force: give it version {}",
                to.version,
                now.version,
                now.version.saturating_add(1)
            ));
        }
        for field in &to.fields {
            let before = self.past.0.get(&field.name);
            if let Some(before) = before.filter(|before| !before.widens_to(field.kind)) {
                faults.push(format!(
                    "field {} was {} and cannot become {}: stored messages have it so; give the field a new name",
                    field.name,
                    before.as_str(),
                    field.kind.as_str()
                ));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let past = self.past.clone().with(&to);
        if past.0.len() > MOST_EVER {
            let count = past.0.len();
            let says = format!(
                "it would have had {count} fields over all its versions, {MOST_EVER} at most: begin another spec"
            );
            return Err(vec![says]);
        }
        Ok(Self { spec: to, past })
    }
}

impl FieldHistory {
    /// With the fields of a spec.
    #[must_use]
    pub fn with(mut self, spec: &Spec) -> Self {
        let fields = spec.fields.iter().map(|field| (field.name.clone(), field.kind));
        self.0.extend(fields);
        self
    }
}
