//! Publisher identity: rejects messages whose content claims another identity than the subject they were published on belongs to.
//! Applies only where the bus knows each Rack by its key.
//!
//! # Invariants
//!
//! - A message that claims another entity becomes a dead letter and moves no watermark: only a Rack itself moves its durable floor.
//!   A Rack that was removed and enrolled again under its name may still send as its former entity, because the batches that
//!   wait in its folders carry that entity, and wait until its floor is past them.
//! - One exception: if a Rack was removed and nobody has its name, its batches move its own floor whoever sends them. So a Rack that
//!   starts over under another name is not left with them for ever. Their content becomes dead letters, once.
//! - A row is stored under the name in its message's subject, whatever name it carries: the Rack's former one, from before it was
//!   renamed, or that of another Rack. The result depends on nothing but the message, so a message that comes twice is
//!   stored with the same content.
//!
//! # Not here
//!
//! Who may publish on which subject (the bus); the state of Racks (`mixer`).

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{RecordBatch, StringArray};
use async_nats::HeaderMap;
use model::{EntityId, Token, subject, telemetry_codec};

use crate::decode::{DecodedBatch, entity};

/// The entity of the Rack with this name; none if anybody may publish under the name.
pub type CurrentIdentityLookup = Arc<dyn Fn(&Token) -> Option<EntityId> + Send + Sync>;
/// How another entity is related to the Rack with this name.
pub type FormerIdentityLookup = Arc<dyn Fn(&Token, EntityId) -> FormerIdentity + Send + Sync>;

/// How another entity is related to a Rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormerIdentity {
    /// The same Rack, before it was removed and enrolled again under its name.
    Own,
    /// A Rack that was removed and whose name nobody has.
    Removed,
    /// A different Rack.
    Other,
}

/// Why a message is not from the Rack that its subject belongs to.
#[derive(Debug)]
pub(crate) struct PublisherMismatch {
    pub(crate) reason: String,
    /// Whether it claims to be from a Rack that was removed.
    pub(crate) is_of_removed: bool,
}

/// Looks up which entity a Rack is, and which entities it was before.
#[derive(Clone)]
pub struct RackDirectory {
    /// Asked for each message.
    pub is: CurrentIdentityLookup,
    /// Asked for a message that claims another entity.
    pub was: FormerIdentityLookup,
}

impl std::fmt::Debug for RackDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RackDirectory").finish_non_exhaustive()
    }
}

/// The Rack that a message's subject belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubjectOwner {
    pub(crate) id: EntityId,
    /// The entity that it was when it made the message.
    pub(crate) was: EntityId,
    pub(crate) name: Token,
}

/// The Rack that a message on this subject must come from; none if anybody may send it.
///
/// # Errors
/// If the headers claim an entity that is not the owner's.
pub(crate) fn verify_publisher(
    directory: Option<&RackDirectory>,
    published_on: &str,
    headers: &HeaderMap,
) -> Result<Option<SubjectOwner>, PublisherMismatch> {
    let rack = subject::parse_telemetry(published_on).map(|(_, rack)| rack);
    let rack = rack.or_else(|| subject::parse_message(published_on).map(|(rack, ..)| rack));
    let name = rack.or_else(|| subject::parse_gear(published_on).map(|(rack, _)| rack));
    let Some((directory, name)) = directory.zip(name) else {
        return Ok(None);
    };
    let Some(id) = (directory.is)(&name) else {
        return Ok(None);
    };
    let was = entity(headers).ok().flatten().unwrap_or(id);
    let former = if was == id {
        FormerIdentity::Own
    } else {
        (directory.was)(&name, was)
    };
    if former != FormerIdentity::Own {
        return Err(PublisherMismatch {
            reason: format!("the message says that it is of entity {was}, its subject belongs to {id}"),
            is_of_removed: former == FormerIdentity::Removed,
        });
    }
    Ok(Some(SubjectOwner { id, was, name }))
}

impl SubjectOwner {
    /// The reason, if a row belongs to an entity that is not the owner's.
    pub(crate) fn find_foreign_row(&self, rows: &[RecordBatch]) -> Option<String> {
        let own = [self.id, self.was];
        let is_foreign = |batch: &RecordBatch| {
            let ids = batch.column_by_name("entity_id")?.as_fixed_size_binary_opt()?;
            ids.iter()
                .flatten()
                .find(|id| own.iter().all(|own| *id != own.as_bytes().as_slice()))
                .map(drop)
        };
        let id = self.id;
        rows.iter()
            .find_map(is_foreign)
            .map(|()| format!("a row says that it is of another entity than {id}, to whom its subject belongs"))
    }

    /// Puts the owner's name on rows that carry another one.
    ///
    /// # Errors
    /// Only if they cannot be encoded, a defect of `model`.
    pub(crate) fn set_entity_name(&self, decoded: &mut DecodedBatch) -> Result<(), String> {
        let batch = &mut decoded.batch;
        let mut changed = false;
        for rows in &mut batch.rows {
            if let Some(named) = self.with_entity_name(rows)? {
                *rows = named;
                changed = true;
            }
        }
        if changed {
            batch.payload = telemetry_codec::encode_arrow(&batch.rows)
                .map_err(|error| error.to_string())?
                .into();
        }
        Ok(())
    }

    /// The rows under the owner's name; none if they carry it already.
    fn with_entity_name(&self, rows: &RecordBatch) -> Result<Option<RecordBatch>, String> {
        let Some((at, _)) = rows.schema_ref().column_with_name("entity_name") else {
            return Ok(None);
        };
        let name = self.name.as_str();
        let mut columns = rows.columns().to_vec();
        let Some(column) = columns.get_mut(at) else {
            return Ok(None);
        };
        let names = column.as_string_opt::<i32>();
        if names.is_some_and(|names| names.iter().all(|found| found == Some(name))) {
            return Ok(None);
        }
        *column = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
            name,
            rows.num_rows(),
        )));
        let named = RecordBatch::try_new(rows.schema(), columns);
        named.map(Some).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use bytes::Bytes;
    use engine::BusPosition;
    use model::{Attributes, Level, LogRecord, TelemetryRecord as _, Timestamp};

    use super::*;
    use crate::decode::{InboundMessage, decode};

    const ON: &str = "flux.telemetry.logs.rack-a";

    fn rack_a() -> SubjectOwner {
        said(None).unwrap().unwrap()
    }

    fn id(of: &str) -> EntityId {
        EntityId::for_name(&format!("the id of {of}"))
    }

    /// The verified publisher of a message that claims this entity, on the subject of rack-a, which was removed and enrolled again.
    fn said(of: Option<EntityId>) -> Result<Option<SubjectOwner>, PublisherMismatch> {
        let directory = RackDirectory {
            is: Arc::new(|name| (name.as_str() == "rack-a").then(|| id("rack-a"))),
            was: Arc::new(|name, former| match former {
                _ if name.as_str() == "rack-a" && former == id("rack-a before") => FormerIdentity::Own,
                _ if former == id("rack-z, removed") => FormerIdentity::Removed,
                _ => FormerIdentity::Other,
            }),
        };
        let mut headers = HeaderMap::new();
        if let Some(of) = of {
            headers.insert(telemetry_codec::ENTITY_ID, of.to_string());
        }
        verify_publisher(Some(&directory), ON, &headers)
    }

    /// Rows of an entity.
    fn rows(of: EntityId) -> RecordBatch {
        let record = LogRecord {
            ts: Timestamp::from_micros(1),
            entity_id: of,
            entity_name: "rack-a".to_owned(),
            flux_id: None,
            level: Level::Info,
            message: "m".to_owned(),
            attributes: Attributes::new(),
        };
        LogRecord::to_batch(&[record]).unwrap()
    }

    #[test]
    fn a_rack_publishes_only_as_itself_and_as_its_removed_predecessor() {
        let (own, before, other) = (id("rack-a"), id("rack-a before"), id("rack-b"));
        let is_taken = |header, row| {
            let owner = said(header).ok().flatten();
            owner.is_some_and(|owner| owner.find_foreign_row(&[rows(row)]).is_none())
        };
        assert!(is_taken(Some(own), own) && is_taken(None, own) && is_taken(Some(before), before));
        assert!(!is_taken(Some(other), other) && !is_taken(Some(other), own));
        let is_of_removed = |of: &str| said(Some(id(of))).err().map(|not| not.is_of_removed);
        assert_eq!(
            [is_of_removed("rack-b"), is_of_removed("rack-z, removed")],
            [Some(false), Some(true)]
        );
        assert!(!is_taken(Some(own), other) && !is_taken(Some(before), other) && !is_taken(None, before));
    }

    /// A log record that brings a name, as Arrow rows.
    fn arrow(name: &str) -> Vec<u8> {
        let record = LogRecord {
            ts: Timestamp::from_micros(1),
            entity_id: rack_a().id,
            entity_name: name.to_owned(),
            flux_id: None,
            level: Level::Info,
            message: "m".to_owned(),
            attributes: Attributes::new(),
        };
        telemetry_codec::encode_arrow(&[LogRecord::to_batch(&[record]).unwrap()]).unwrap()
    }

    fn taken(content_type: &str, header: Option<&str>, body: Vec<u8>) -> DecodedBatch {
        let mut headers = HeaderMap::new();
        headers.insert(telemetry_codec::CONTENT_TYPE, content_type);
        headers.insert(telemetry_codec::ENTITY_ID, rack_a().id.to_string());
        if let Some(name) = header {
            headers.insert(telemetry_codec::ENTITY_NAME, name);
        }
        let incoming = InboundMessage {
            subject: ON,
            headers: &headers,
            payload: &Bytes::from(body),
            position: Some(BusPosition {
                stream: "flux-telemetry".into(),
                incarnation: 1,
                seq: 7,
                identity: 1,
            }),
        };
        let mut decoded = decode(&incoming, Timestamp::from_micros(2), 1 << 20).unwrap();
        assert_eq!(decoded.dead, None);
        assert_eq!(rack_a().find_foreign_row(&decoded.batch.rows), None);
        rack_a().set_entity_name(&mut decoded).unwrap();
        decoded
    }

    fn names(rows: &[RecordBatch]) -> Vec<String> {
        let column = |rows: &RecordBatch| rows.column_by_name("entity_name").unwrap().as_string::<i32>().clone();
        let columns: Vec<StringArray> = rows.iter().map(column).collect();
        columns.iter().flatten().map(|name| name.unwrap().to_owned()).collect()
    }

    #[test]
    fn rows_are_stored_under_the_name_in_the_subject_whatever_name_they_carry() {
        let (arrow_type, json) = (telemetry_codec::BatchEncoding::Arrow.content_type(), "application/json");
        let record = |name: &str| format!(r#"[{{"ts":"2026-11-21T10:00:00Z","level":"info","message":"m"{name}}}]"#);
        for (content_type, header, body) in [
            (arrow_type, None, arrow("rack-b")),
            (arrow_type, Some("rack-b"), arrow("rack-a-before-it-was-renamed")),
            (json, Some("rack-b"), record("").into_bytes()),
            (json, None, record(r#","entity_name":"rack-b""#).into_bytes()),
        ] {
            let (first, again) = (
                taken(content_type, header, body.clone()),
                taken(content_type, header, body),
            );
            assert_eq!(names(&first.batch.rows), ["rack-a"], "{content_type} {header:?}");
            let stored = telemetry_codec::decode_arrow(model::Table::Logs, &first.batch.payload).unwrap();
            assert_eq!(names(&stored), ["rack-a"], "{content_type} {header:?}");
            assert_eq!(first.batch.payload, again.batch.payload);
        }
        let own = arrow("rack-a");
        assert_eq!(
            taken(arrow_type, Some("rack-a"), own.clone()).batch.payload,
            own,
            "its own rows are kept as they came"
        );
    }
}
