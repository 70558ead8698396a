//! Renewal of consumers: those of wires whose Rack has left the name that they are for are made anew.
//!
//! The server goes on answering a pull that a Rack left open when its right to pull has gone with its name; with the consumer the pull ends.
//!
//! # Invariants
//!
//! - Only once the server follows the list without the former Rack's right; else it would pull anew.
//! - Where a wire stands is in the registry before its consumer goes, and the new one begins there. Meanwhile the wire is in force: what it is
//!   for stays.
//! - What fails, or is cut off by a crash, is owed still ([`WireRow::left`]) and done by the next look.
//!
//! Not here: consumers that are lost or begin ([`super::reconcile`]).

use std::collections::BTreeMap;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream::Stream;
use model::Timestamp;

use super::reconcile::{config, infos};
use super::text;
use super::wire_consumers::WireConsumerManager;
use crate::bus_server::MixerBus;
use crate::registry::{RegistryError, RegistryTransaction, WireRow};

impl WireConsumerManager {
    /// Makes the consumers of these wires anew, which Racks left at these times. False if something is owed still. Who calls holds the lock.
    pub(super) async fn renew(&self, bus: &MixerBus, left: BTreeMap<String, Timestamp>) -> Result<bool, String> {
        if left.is_empty() {
            return Ok(true);
        }
        let stream = self.stream(bus).await?;
        let infos = infos(&stream).await?;
        let mut is_done = true;
        for (name, left) in left {
            is_done &= self.renew_one((&stream, &infos), &name, left).await?;
        }
        Ok(is_done)
    }

    async fn renew_one(
        &self,
        (stream, infos): (&Stream, &BTreeMap<String, Info>),
        name: &str,
        left: Timestamp,
    ) -> Result<bool, String> {
        let row = self.registry.wire(name).map_err(text)?;
        let Some(row) = row.filter(|row| row.left == Some(left)) else {
            // Its consumer may be another wire's by now.
            return Ok(false);
        };
        if !row.is_paused && !self.recreate((stream, infos), name, &row).await? {
            return Ok(false);
        }
        let name = name.to_owned();
        let renewed = move |change: &RegistryTransaction<'_>| change.consumer_renewed(&name, left);
        let renewed = self.registry.commit::<_, RegistryError>(renewed).await;
        renewed.map(|()| true).map_err(text)
    }

    /// False if the wire changes meanwhile.
    async fn recreate(
        &self,
        (stream, infos): (&Stream, &BTreeMap<String, Info>),
        name: &str,
        row: &WireRow,
    ) -> Result<bool, String> {
        let state = stream.cached_info();
        if row.stream != WireRow::life(state.created.unix_timestamp_nanos()) {
            return Ok(false);
        }
        let consumer = row.consumer(name).to_owned();
        if let Some(info) = infos.get(&consumer) {
            let (wire, known) = (name.to_owned(), (row.stream, consumer.clone()));
            let next = info.ack_floor.stream_sequence.min(state.state.last_sequence) + 1;
            let put = move |change: &RegistryTransaction<'_>| change.move_wire(&wire, &known, next);
            if !self.registry.commit::<_, RegistryError>(put).await.map_err(text)? {
                return Ok(false);
            }
            stream.delete_consumer(&consumer).await.map_err(text)?;
        }
        // It may have been moved on meanwhile.
        let Some(row) = self.registry.wire(name).map_err(text)? else {
            return Ok(false);
        };
        let created = stream.create_consumer(config(name, &row)).await;
        created
            .map(|_| true)
            .map_err(|error| format!("consumer of {}: {error}", row.description))
    }
}
