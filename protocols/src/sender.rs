//! What the formats of others have in common: how their requests become rows, and whose rows they are.

use std::sync::Arc;

use bytes::Bytes;
use model::telemetry_codec::{MAX_ENTITY_NAME, PublisherIdentity, RecordFormat};
use model::{EntityId, Timestamp};

/// How requests become rows.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// The labels, fields or resource attributes that name an entity, the first one that is there. Without any, all rows of OTLP are
    /// the fallback's, whatever their resource says.
    pub entity: Arc<[String]>,
    /// Whose rows are those that have none of them.
    pub fallback: PublisherIdentity,
    /// The time of what has none.
    pub now: Timestamp,
}

/// The records of a request become at most so many times its bytes, each with what it shares with others …
const EXPANDED: u64 = 256;
/// … or so many.
const EXPANDED_AT_LEAST: u64 = 16 << 20;
/// The most bytes of labels that the records of one stream or series share.
pub(crate) const MOST_LABELS: usize = 1 << 20;

/// More than a request may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the records with what they share become {expanded} bytes, more than {EXPANDED} times the {sent} sent: send fewer records \
     under so many labels"
)]
pub struct ExpandedTooFar {
    expanded: u64,
    sent: usize,
}

impl ExpandedTooFar {
    /// Refuses what would be hours of work by few bytes.
    pub(crate) const fn check(expanded: u64, sent: usize) -> Result<(), Self> {
        if expanded > EXPANDED.saturating_mul(sent as u64).saturating_add(EXPANDED_AT_LEAST) {
            return Err(Self { expanded, sent });
        }
        Ok(())
    }
}

/// That labels of so many bytes are not shared by records.
pub(crate) fn check_labels(bytes: usize) -> Result<(), String> {
    if bytes > MOST_LABELS {
        return Err(format!("the labels have {bytes} bytes, more than {MOST_LABELS}"));
    }
    Ok(())
}

/// A request that was looked through.
#[derive(Debug)]
pub struct OpenedRequest {
    /// Its records.
    pub records: Box<dyn RecordFormat>,
    /// The body that they are read from.
    pub body: Bytes,
    /// The bytes of its records, each with what it shares with others.
    pub expanded: u64,
    /// The bytes that are held beside what was sent.
    pub held: usize,
    /// Stands for who sends. None if the first record has no time: it gets that of the request, so the same bytes may be another one.
    pub sender: Option<u64>,
}

/// The label or field that says whose rows are.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntityField {
    /// Its place among the names; none if there is none yet.
    rank: Option<usize>,
    name: String,
}

impl EntityField {
    pub(crate) fn clear(&mut self) {
        self.rank = None;
    }

    /// Takes a label if it is the best so far.
    pub(crate) fn offer(&mut self, settings: &SenderSettings, key: &str, value: &str) {
        let rank = settings.entity.iter().position(|name| name == key);
        if let Some(rank) = rank
            && !value.is_empty()
            && self.rank.is_none_or(|best| rank < best)
        {
            self.rank = Some(rank);
            self.name.clear();
            self.name.push_str(value);
        }
    }

    /// Makes `entity` the one that was named: the publisher if none was, or if that is its name.
    pub(crate) fn resolve(&self, settings: &SenderSettings, entity: &mut PublisherIdentity) -> Result<(), String> {
        let name = self.rank.map(|_| self.name.as_str());
        match name.filter(|name| *name != settings.fallback.entity_name) {
            None if *entity == settings.fallback => {}
            None => entity.clone_from(&settings.fallback),
            Some(name) if name.len() > MAX_ENTITY_NAME => {
                let bytes = name.len();
                return Err(format!(
                    "the entity's name has {bytes} bytes, more than {MAX_ENTITY_NAME}"
                ));
            }
            Some(name) if entity.entity_name == name => {}
            Some(name) => {
                *entity = PublisherIdentity {
                    entity_id: EntityId::for_name(name),
                    entity_name: name.to_owned(),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
