//! Walks through a request: resources, their scopes, their records. The three signals have the same numbers of fields down to there.
//!
//! # Invariants
//!
//! - A record's resource and scope are known before it, wherever their fields stand in their message.

use std::ops::Range;

pub(super) use crate::protobuf::step;
use crate::protobuf::{FieldReader, MalformedProtobuf};

/// Of a request: resources. Of a resource and a scope: what it is; its scopes and records; the schema of its attributes.
const RESOURCES: u32 = 1;
const SELF: u32 = 1;
const CHILDREN: u32 = 2;
const SCHEMA_URL: u32 = 3;

/// Where the walk is.
#[derive(Debug, Clone, Default)]
pub(super) struct SignalWalker {
    /// What is left of the request, of the resource, of the scope.
    resources: Range<usize>,
    scopes: Range<usize>,
    records: Range<usize>,
    pub(super) resource: NodeFields,
    pub(super) scope: NodeFields,
    /// Counts the scopes.
    pub(super) scope_number: u64,
}

/// What a resource or scope says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeFields {
    pub(super) itself: Range<usize>,
    pub(super) schema_url: Range<usize>,
}

impl SignalWalker {
    pub(super) fn new(body: &[u8]) -> Self {
        Self {
            resources: 0..body.len(),
            ..Self::default()
        }
    }

    /// The next record.
    pub(super) fn next(&mut self, body: &[u8]) -> Result<Option<Range<usize>>, MalformedProtobuf> {
        loop {
            if let Some(field) = step(body, &mut self.records)? {
                if field.number == CHILDREN {
                    return field.range().map(Some);
                }
            } else if let Some(field) = step(body, &mut self.scopes)? {
                if field.number == CHILDREN {
                    self.records = field.range()?;
                    self.scope = node(body, &self.records)?;
                    self.scope_number += 1;
                }
            } else if let Some(field) = step(body, &mut self.resources)? {
                if field.number == RESOURCES {
                    self.scopes = field.range()?;
                    self.resource = node(body, &self.scopes)?;
                }
            } else {
                return Ok(None);
            }
        }
    }

    /// The bytes of the records, each with its resource and scope; looks through them to the end.
    pub(super) fn expanded(mut self, body: &[u8]) -> Result<u64, MalformedProtobuf> {
        let mut bytes = 0u64;
        while let Some(record) = self.next(body)? {
            bytes = bytes.saturating_add((record.len() + self.shared_bytes()) as u64);
        }
        Ok(bytes)
    }

    /// Where the first record is; nowhere if there is none.
    pub(super) fn first(mut self, body: &[u8]) -> Result<Range<usize>, MalformedProtobuf> {
        Ok(self.next(body)?.unwrap_or_default())
    }

    /// The bytes of the present resource and scope.
    pub(super) fn shared_bytes(&self) -> usize {
        let node = |node: &NodeFields| node.itself.len() + node.schema_url.len();
        node(&self.resource) + node(&self.scope)
    }

    /// Where the first resource is; nowhere if there is none.
    pub(super) fn first_resource(mut self, body: &[u8]) -> Result<Range<usize>, MalformedProtobuf> {
        self.next(body)?;
        Ok(self.resource.itself)
    }
}

fn node(body: &[u8], range: &Range<usize>) -> Result<NodeFields, MalformedProtobuf> {
    let (mut reader, mut node) = (FieldReader::new(body, range.clone()), NodeFields::default());
    while let Some(field) = reader.next()? {
        match field.number {
            SELF => node.itself = field.range()?,
            SCHEMA_URL => node.schema_url = field.range()?,
            _ => {}
        }
    }
    Ok(node)
}
