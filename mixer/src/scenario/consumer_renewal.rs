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
            if let Err(reason) = self.renew_one((&stream, &infos), &name, left).await {
                tracing::warn!(
                    name,
                    reason,
                    "the consumer of a wire that its Rack has left is not made anew yet; retrying"
                );
                is_done = false;
            }
        }
        Ok(is_done)
    }

    async fn renew_one(
        &self,
        (stream, infos): (&Stream, &BTreeMap<String, Info>),
        name: &str,
        left: Timestamp,
    ) -> Result<(), String> {
        let wire = || self.registry.wire(name).map_err(text);
        let Some(row) = wire()?.filter(|row| row.left == Some(left)) else {
            return Ok(());
        };
        // Of another wire by now, or an older program's: it cannot be made again, and ends by itself.
        if row.ends || row.filter.is_empty() {
            return Ok(());
        }
        if !row.is_paused {
            self.recreate((stream, infos), name, &row).await?;
        }
        let name = name.to_owned();
        let renewed = move |change: &RegistryTransaction<'_>| change.consumer_renewed(&name, left);
        self.registry.commit::<_, RegistryError>(renewed).await.map_err(text)
    }

    async fn recreate(
        &self,
        (stream, infos): (&Stream, &BTreeMap<String, Info>),
        name: &str,
        row: &WireRow,
    ) -> Result<(), String> {
        let consumer = row.consumer(name).to_owned();
        if let Some(info) = infos.get(&consumer) {
            let (wire, known) = (name.to_owned(), (row.stream, consumer.clone()));
            let next = info.ack_floor.stream_sequence + 1;
            let put = move |change: &RegistryTransaction<'_>| change.move_wire(&wire, &known, next);
            if !self.registry.commit::<_, RegistryError>(put).await.map_err(text)? {
                return Err("the wire changed meanwhile".to_owned());
            }
            stream.delete_consumer(&consumer).await.map_err(text)?;
        }
        // It may have been moved on meanwhile.
        let row = self.registry.wire(name).map_err(text)?;
        let row = row.ok_or_else(|| "the wire is gone".to_owned())?;
        stream.create_consumer(config(name, &row)).await.map(drop).map_err(text)
    }
}
