//! Encodes a batch's origin and partition rule in the log, beside the payload.
//!
//! # Invariants
//!
//! - Everything that decides whether a replayed batch is a duplicate, and where its rows go, is in here or in the frame, never in the
//!   settings.

use bytes::Bytes;
use model::EntityId;
use model::telemetry_codec::BatchId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::partitioner::PartitionRule;
use crate::{BatchOrigin, BusPosition, RequestPart, SpecName};

#[derive(Serialize, Deserialize)]
struct FrameOrigin {
    rule: PartitionRule,
    /// Of each record batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    specs: Vec<Option<SpecName>>,
    /// Entity, boot epoch, sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    producer: Option<(EntityId, u64, u64)>,
    #[serde(default, skip_serializing_if = "is_zero")]
    settled: u64,
    /// Stream, incarnation, sequence, identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bus: Option<(String, i64, u64, i64)>,
    /// Id, sender, digest, from, to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<(Uuid, u64, u64, u64, u64)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The bytes for the log. `specs` has the spec of each record batch, or nothing.
pub(crate) fn encode(origin: &BatchOrigin, rule: PartitionRule, specs: Vec<Option<SpecName>>) -> Bytes {
    let stored = FrameOrigin {
        rule,
        specs,
        producer: origin.producer.map(|id| (id.entity, id.boot_epoch, id.seq)),
        settled: origin.settled,
        bus: origin
            .bus
            .as_ref()
            .map(|at| (at.stream.clone(), at.incarnation, at.seq, at.identity)),
        request: origin
            .request
            .map(|part| (part.id, part.sender, part.digest, part.from, part.to)),
    };
    let mut bytes = Vec::with_capacity(160);
    // Writing to memory does not fail; were it to, the empty origin is refused at replay, not misread.
    if ciborium::into_writer(&stored, &mut bytes).is_err() {
        bytes.clear();
    }
    bytes.into()
}

/// The origin, the rule and the specs from the log, or why they cannot be read.
pub(crate) fn decode(bytes: &[u8]) -> Result<(BatchOrigin, PartitionRule, Vec<Option<SpecName>>), String> {
    let stored: FrameOrigin = ciborium::from_reader(bytes).map_err(|error| error.to_string())?;
    let origin = BatchOrigin {
        producer: stored.producer.map(|(entity, boot_epoch, seq)| BatchId {
            entity,
            boot_epoch,
            seq,
        }),
        settled: stored.settled,
        bus: stored.bus.map(|(stream, incarnation, seq, identity)| BusPosition {
            stream,
            incarnation,
            seq,
            identity,
        }),
        request: stored.request.map(|(id, sender, digest, from, to)| RequestPart {
            id,
            sender,
            digest,
            from,
            to,
        }),
    };
    Ok((origin, stored.rule, stored.specs))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::PartitionBy;

    #[test]
    fn an_origin_comes_back_from_the_log_as_it_was() {
        let rule = PartitionRule {
            by: PartitionBy::Day,
            max_age: 7,
        };
        let full = BatchOrigin {
            producer: Some(BatchId {
                entity: EntityId::for_name("rack-a"),
                boot_epoch: u64::MAX,
                seq: 1,
            }),
            settled: 9,
            bus: Some(BusPosition {
                stream: "flux-telemetry".to_owned(),
                incarnation: i64::MIN,
                seq: u64::MAX,
                identity: i64::MAX,
            }),
            request: Some(RequestPart {
                id: Uuid::from_u128(u128::MAX),
                sender: u64::MAX,
                digest: u64::MAX,
                from: u64::MAX - 1,
                to: u64::MAX,
            }),
        };
        for (origin, specs) in [
            (BatchOrigin::default(), vec![]),
            (full, vec!["orders".parse().ok(), None]),
        ] {
            let bytes = encode(&origin, rule, specs.clone());
            assert_eq!(decode(&bytes).unwrap(), (origin, rule, specs));
        }
        assert!(decode(&[]).is_err());
    }
}
