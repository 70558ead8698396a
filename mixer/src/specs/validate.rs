//! Validates spec files against each other and against the specs in force.

use std::collections::{BTreeMap, BTreeSet};

use model::spec::{SourceDiagnostic, Spec, SpecHistory};
use model::{SpecName, Timestamp};

use super::folder_listing::FileContent;
use super::spec_set::{SpecEntry, SpecSet};

/// What becomes of the files of a folder.
pub(super) struct SpecValidation {
    /// What stands from now on.
    pub(super) spec_set: SpecSet,
    /// Files that are not in force, and why.
    pub(super) refused: BTreeMap<String, Vec<SourceDiagnostic>>,
    /// What became of which spec.
    pub(super) changed: Vec<(SpecName, String)>,
}

/// A fault of a file as a whole.
fn of_file(text: impl Into<String>) -> SourceDiagnostic {
    SourceDiagnostic {
        line: 1,
        column: 1,
        text: text.into(),
    }
}

/// What stands after the files were looked at.
pub(super) fn review(now: &SpecSet, files: Vec<FileContent>, at: Timestamp) -> SpecValidation {
    let mut refused = BTreeMap::new();
    let mut offered: BTreeMap<SpecName, Vec<(String, String, Spec)>> = BTreeMap::new();
    for (file, text) in files {
        let parsed = text.map_err(|reason| vec![of_file(reason)]).and_then(|text| {
            let spec = model::spec::parse(&text).map_err(|bad| bad.0)?;
            Ok((text, spec))
        });
        match parsed {
            Ok((text, spec)) => offered.entry(spec.name).or_default().push((file, text, spec)),
            Err(faults) => {
                refused.insert(file, faults);
            }
        }
    }
    let mut review = SpecValidation {
        spec_set: now.clone(),
        refused,
        changed: Vec::new(),
    };
    let mut taken = BTreeSet::new();
    for (name, files) in offered {
        if review.offer(name, files, at) {
            taken.insert(name);
        }
    }
    review.withdraw(&taken);
    review
}

impl SpecValidation {
    /// Of files that say they are one spec, the one it was read from stays it; else the first by name. Whether that one is taken. A name that
    /// differs from another in its capitals only is refused.
    fn offer(&mut self, name: SpecName, files: Vec<(String, String, Spec)>, at: Timestamp) -> bool {
        let of = self.spec_set.get(&name).filter(|entry| !entry.withdrawn);
        let of = of.map(|entry| entry.file.clone());
        let keeps = files
            .iter()
            .position(|(file, ..)| Some(file) == of.as_ref())
            .unwrap_or(0);
        let holder = files.get(keeps).map(|(file, ..)| file.clone()).unwrap_or_default();
        let mut taken = false;
        let known = self.spec_set.get(&name).is_some();
        let twin = self.spec_set.twin(&name).filter(|_| !known);
        let twin = twin.map(|twin| (twin.known.spec.name, twin.file.clone(), twin.withdrawn));
        for (place, (file, text, spec)) in files.into_iter().enumerate() {
            if let Some((other, of, withdrawn)) = &twin {
                let stands = if *withdrawn { "was" } else { "is" };
                let says = format!(
                    "{of} {stands} the spec {other}, and its table stays: DuckDB cannot distinguish messages_{name} \
                     from messages_{other}; rename this spec"
                );
                self.refused.insert(file, vec![of_file(says)]);
                continue;
            }
            if place != keeps {
                let says = format!("{holder} already defines the spec {name}: a name belongs to one file");
                self.refused.insert(file, vec![of_file(says)]);
                continue;
            }
            taken = self.take(name, file, text, spec, at);
        }
        taken
    }

    /// Puts a spec in force, unless what it was before forbids that. Whether its file is what it is read from.
    fn take(&mut self, name: SpecName, file: String, text: String, spec: Spec, at: Timestamp) -> bool {
        let before = self.spec_set.get(&name).cloned();
        let known = match &before {
            None => Ok(SpecHistory::new(spec)),
            Some(before) => before.known.changed(spec),
        };
        let known = match known {
            Ok(known) => known,
            Err(faults) => {
                self.refused.insert(file, faults.into_iter().map(of_file).collect());
                return false;
            }
        };
        let is_same = before.as_ref().is_some_and(|before| before.known == known);
        let what = match &before {
            None => Some(format!("version {} of {file} is in force", known.spec.version)),
            Some(before) if before.withdrawn => {
                Some(format!("version {} of {file} is in force again", known.spec.version))
            }
            Some(_) if !is_same => Some(format!("version {} of {file} is in force", known.spec.version)),
            Some(before) if before.file != file => Some(format!("is in {file} now")),
            Some(_) => None,
        };
        let Some(what) = what else { return true };
        let taken = before.filter(|_| is_same).map_or(at, |before| before.taken);
        self.changed.push((name, what));
        self.spec_set.put(SpecEntry {
            file,
            text,
            taken,
            withdrawn: false,
            known,
        });
        true
    }

    /// Specs whose files are gone, or are another spec now, take no more messages. A file that is refused changes nothing.
    fn withdraw(&mut self, taken: &BTreeSet<SpecName>) {
        let gone: Vec<SpecEntry> = self
            .spec_set
            .active()
            .filter(|entry| !taken.contains(&entry.known.spec.name) && !self.refused.contains_key(&entry.file))
            .cloned()
            .collect();
        for entry in gone {
            let what = format!("{} is gone, or another spec: it matches no more messages", entry.file);
            self.changed.push((entry.known.spec.name, what));
            self.spec_set.put(SpecEntry {
                withdrawn: true,
                ..entry
            });
        }
    }
}
