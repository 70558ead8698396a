//! Scopes: which tables, entities and Racks a token is for. A part that is empty is not limited.
//!
//! # Invariants
//!
//! - A scope narrows what roles give, and never widens it.
//! - With [`AccessScope::racks`] a token acts on the Racks that have all of these labels, one at a time; what concerns the whole fleet
//!   (activations, labels, dead letters, tokens) is refused to it.
//!
//! Not here: how rows are kept from a scope (`query::DataScope`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Table, Token};
use query::{DataScope, QueryEngine};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::AccessRight;

/// The most entities that a scope may name.
const MOST_ENTITIES: usize = 256;
/// The longest name of an entity, in characters.
const LONGEST_ENTITY: usize = model::telemetry_codec::MAX_ENTITY_NAME;

/// What a token is limited to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessScope {
    /// The tables whose rows it reads or stores; all if there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(schema_with = "tables_schema")]
    pub tables: BTreeSet<Table>,
    /// The entities whose rows it reads or stores, by id or name; all if there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(schema_with = "entities_schema")]
    pub entities: BTreeSet<String>,
    /// The labels of the Racks that it acts on; all Racks if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels_schema")]
    pub racks: BTreeMap<Token, String>,
}

fn tables_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "enum": Table::ALL.map(Table::name) } })
}

fn entities_schema(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({ "type": "string", "minLength": 1, "maxLength": LONGEST_ENTITY });
    json_schema!({ "type": "array", "maxItems": MOST_ENTITIES, "items": name })
}

fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    let names = model::inline_schema::<Token>();
    json_schema!({ "type": "object", "propertyNames": names, "additionalProperties": { "type": "string" } })
}

impl AccessScope {
    /// Why it cannot be a token's.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.entities.len() > MOST_ENTITIES {
            let count = self.entities.len();
            return Err(format!(
                "scope.entities: it has {count} entries, {MOST_ENTITIES} at most"
            ));
        }
        let is_bad = |name: &&String| name.is_empty() || name.chars().count() > LONGEST_ENTITY;
        match self.entities.iter().find(is_bad) {
            Some(bad) => Err(format!(
                "scope.entities: {bad:?} has {} characters, not 1 to {LONGEST_ENTITY}",
                bad.chars().count()
            )),
            None => Ok(()),
        }
    }

    /// The queries that see its rows only.
    pub(crate) fn queries(&self, all: &Arc<QueryEngine>) -> Arc<QueryEngine> {
        if self.tables.is_empty() && self.entities.is_empty() {
            return Arc::clone(all);
        }
        Arc::new(all.with_scope(DataScope {
            tables: (!self.tables.is_empty()).then(|| self.tables.clone()),
            entities: (!self.entities.is_empty()).then(|| self.entities.clone()),
            ..DataScope::default()
        }))
    }

    /// Whether rows of a table may be read or stored.
    pub(crate) fn has_table(&self, table: Table) -> bool {
        self.tables.is_empty() || self.tables.contains(&table)
    }

    /// Whether rows of an entity may be read or stored.
    pub(crate) fn has_entity(&self, id: &str, name: &str) -> bool {
        self.entities.is_empty() || self.entities.contains(id) || self.entities.contains(name)
    }

    /// Whether a Rack with these labels may be acted on.
    pub(crate) fn has_rack(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): (&Token, &String)| labels.get(key.as_str()) == Some(value);
        self.racks.iter().all(has)
    }

    /// Whether a right can be used with it at all: what concerns the whole fleet cannot where Racks are limited.
    pub(crate) fn allows(&self, right: AccessRight) -> bool {
        let concerns_fleet = matches!(
            right,
            AccessRight::WriteScenarios
                | AccessRight::ActivateScenarios
                | AccessRight::InviteRacks
                | AccessRight::HandleRequests
                | AccessRight::LabelRacks
                | AccessRight::HandleLetters
                | AccessRight::ManageTokens
                | AccessRight::BackUp
        );
        let is_limited = !self.racks.is_empty()
            || (matches!(right, AccessRight::ManageTokens | AccessRight::BackUp)
                && (!self.tables.is_empty() || !self.entities.is_empty()));
        !(concerns_fleet && is_limited)
    }
}
