//! What is remembered of a spec, and which changes it may go through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FieldType, Spec};

/// What the files of a spec may have, over all its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past(BTreeMap<String, FieldType>);

/// A spec as it was taken last, and its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// As it was taken last.
    pub spec: Spec,
    /// All fields that it ever had.
    pub past: Past,
}

impl Known {
    /// A spec that was not known before.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let past = Past::default().with(&spec);
        Self { spec, past }
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
        Ok(Self { spec: to, past })
    }
}

impl Past {
    /// With the fields of a spec.
    #[must_use]
    pub fn with(mut self, spec: &Spec) -> Self {
        let fields = spec.fields.iter().map(|field| (field.name.clone(), field.kind));
        self.0.extend(fields);
        self
    }
}
