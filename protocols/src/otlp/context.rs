//! What the records of a scope have in common: whose they are, and the attributes of their resource and scope.
//!
//! # Invariants
//!
//! - Resource attributes are stored as `resource.` and their key, those of scopes as `otel.scope.` and theirs: a record's own
//!   cannot be taken for one.
//! - An entity's id is `platform.entity_id` if that is a UUID, else it follows from the name as everywhere. Where no attributes name
//!   entities, neither does that.

use std::ops::Range;

use model::telemetry_codec::{AttributeBuffer, MAX_ENTITY_NAME, PublisherIdentity};
use model::{EntityId, FluxId, Timestamp};

use super::any_value::{TypedValue, key_value, set_attribute};
use super::signal_walker::SignalWalker;
use crate::protobuf::FieldReader;
use crate::sender::SenderSettings;

/// The attribute that names an entity by its id.
pub(super) const ENTITY_ID: &str = "platform.entity_id";
/// The attribute that names the signal a record belongs to.
pub(super) const FLUX_ID: &str = "flux_id";

/// A resource and a scope together have at most so many bytes: every row repeats them.
const MOST_SHARED: usize = 4 << 20;

/// The present scope's.
#[derive(Debug)]
pub(super) struct ScopeContext {
    pub(super) settings: SenderSettings,
    pub(super) attributes: AttributeBuffer,
    pub(super) entity: PublisherIdentity,
    flux_id: Option<FluxId>,
    /// The scope it was read of, and what is wrong with it.
    scope_number: u64,
    fault: Option<String>,
}

impl ScopeContext {
    pub(super) fn new(settings: SenderSettings) -> Self {
        Self {
            entity: settings.fallback.clone(),
            settings,
            attributes: AttributeBuffer::default(),
            flux_id: None,
            scope_number: 0,
            fault: None,
        }
    }

    /// Begins a record: only what its scope has is left.
    pub(super) fn start_row(&mut self, body: &[u8], walker: &SignalWalker) -> Result<Option<FluxId>, String> {
        if self.scope_number != walker.scope_number {
            self.scope_number = walker.scope_number;
            self.fault = self.read(body, walker).err();
        }
        self.attributes.start_row();
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.flux_id),
        }
    }

    fn read(&mut self, body: &[u8], walker: &SignalWalker) -> Result<(), String> {
        self.attributes.clear();
        self.flux_id = None;
        self.entity.clone_from(&self.settings.fallback);
        let shared = walker.shared_bytes();
        if shared > MOST_SHARED {
            return Err(format!(
                "the resource and the scope have {shared} bytes, more than {MOST_SHARED}"
            ));
        }
        self.resource(body, &walker.resource.itself)?;
        // What the scope's attributes may become is measured by the scope alone.
        self.attributes.share();
        self.scope(body, &walker.scope.itself)?;
        for (key, range) in [
            ("otel.schema_url", &walker.resource.schema_url),
            ("otel.scope.schema_url", &walker.scope.schema_url),
        ] {
            let url = body.get(range.clone()).unwrap_or_default();
            if !url.is_empty() {
                let url = std::str::from_utf8(url).map_err(|_| format!("{key} is not UTF-8"))?;
                self.attributes.set("", key, url);
            }
        }
        self.attributes.share();
        Ok(())
    }

    fn resource(&mut self, body: &[u8], range: &Range<usize>) -> Result<(), String> {
        let mut reader = FieldReader::new(body, range.clone());
        let (mut id, mut name, mut dropped) = (None, None::<(usize, String)>, 0);
        while let Some(field) = reader.next()? {
            match field.number {
                1 => {
                    let (key, value) = key_value(body, &field)?;
                    if self.take_flux_id(key, &value) {
                        continue;
                    }
                    if let TypedValue::Text(value) = value
                        && !value.is_empty()
                    {
                        if key == ENTITY_ID && !self.settings.entity.is_empty() {
                            id = value.parse::<EntityId>().ok();
                        }
                        let rank = self.settings.entity.iter().position(|name| name == key);
                        if let Some(rank) = rank.filter(|rank| name.as_ref().is_none_or(|(other, _)| rank <= other)) {
                            name = Some((rank, value.to_owned()));
                        }
                    }
                    set_attribute(&mut self.attributes, body, ("resource.", key), &value, range.len())?;
                }
                2 => dropped = field.varint()?,
                _ => {}
            }
        }
        set_count(&mut self.attributes, "otel.resource.dropped_attributes_count", dropped);
        if let Some((_, name)) = name {
            if name.len() > MAX_ENTITY_NAME {
                return Err(format!(
                    "the entity's name has {} bytes, more than {MAX_ENTITY_NAME}",
                    name.len()
                ));
            }
            self.entity = PublisherIdentity {
                entity_id: EntityId::for_name(&name),
                entity_name: name,
            };
        }
        if let Some(id) = id {
            self.entity.entity_id = id;
        }
        Ok(())
    }

    fn scope(&mut self, body: &[u8], range: &Range<usize>) -> Result<(), String> {
        let mut reader = FieldReader::new(body, range.clone());
        let (mut name, mut version, mut dropped) = ("", "", 0);
        while let Some(field) = reader.next()? {
            match field.number {
                1 => name = field.text(body)?,
                2 => version = field.text(body)?,
                3 => {
                    let (key, value) = key_value(body, &field)?;
                    if !self.take_flux_id(key, &value) {
                        set_attribute(&mut self.attributes, body, ("otel.scope.", key), &value, range.len())?;
                    }
                }
                4 => dropped = field.varint()?,
                _ => {}
            }
        }
        for (key, text) in [("otel.scope.name", name), ("otel.scope.version", version)] {
            if !text.is_empty() {
                self.attributes.set("", key, text);
            }
        }
        set_count(&mut self.attributes, "otel.scope.dropped_attributes_count", dropped);
        Ok(())
    }

    /// Takes the signal that all records of a resource or scope belong to.
    fn take_flux_id(&mut self, key: &str, value: &TypedValue<'_>) -> bool {
        let id = flux_id(key, value);
        self.flux_id = id.or(self.flux_id);
        id.is_some()
    }
}

/// The signal that an attribute names; one that is no UUID stays an attribute.
pub(super) fn flux_id(key: &str, value: &TypedValue<'_>) -> Option<FluxId> {
    match value {
        TypedValue::Text(text) if key == FLUX_ID => text.parse().ok(),
        _ => None,
    }
}

/// Sets a count; one of 0 is as good as none, and some senders write it.
pub(super) fn set_count(to: &mut AttributeBuffer, key: &str, count: u64) {
    if count > 0 {
        to.set("", key, &count);
    }
}

/// A time of OTLP, in nanoseconds; none if it is 0. What is below a microsecond is cut off.
pub(super) fn time(nanos: u64) -> Option<Timestamp> {
    let micros = i64::try_from(nanos / 1_000).unwrap_or(i64::MAX);
    (nanos > 0).then_some(Timestamp::from_micros(micros))
}

/// A time as RFC 3339 with nanoseconds.
pub(super) fn nanos_text(nanos: u64) -> String {
    let text = time(nanos).unwrap_or_default().to_string();
    format!("{}{:03}Z", text.trim_end_matches('Z'), nanos % 1_000)
}
