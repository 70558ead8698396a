//! What the control plane stands on: the registry, the cluster's keys, and who is there.

use std::sync::Arc;

use model::control::RackState;
use model::{Clock, Entropy};

use crate::bus_server::MixerBus;
use crate::cluster::Cluster;
use crate::command_clock::CommandClock;
use crate::config::MixerConfig;
use crate::events::EventPublisher;
use crate::liveness::LivenessTracker;
use crate::registry::ClusterRegistry;
use crate::scenario::BusAcl;
use crate::start_error::StartError;

/// What the control plane stands on.
pub(super) struct CoreServices {
    pub(super) registry: Arc<ClusterRegistry>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) liveness: Arc<LivenessTracker>,
    pub(super) events: EventPublisher,
    pub(super) command_clock: Arc<CommandClock>,
    pub(super) acl: BusAcl,
}

impl CoreServices {
    pub(super) fn open(
        config: &MixerConfig,
        (registry, acl): (Arc<ClusterRegistry>, BusAcl),
        bus: &MixerBus,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<Self, StartError> {
        let cluster = Cluster::open(&registry, &config.store.cluster_key_file, clock, entropy)?;
        let rows = registry.racks()?;
        Ok(Self {
            liveness: Arc::new(LivenessTracker::of_registry(&rows)),
            events: EventPublisher::new(bus.client().clone()),
            cluster: Arc::new(cluster),
            command_clock: Arc::new(CommandClock::open(Arc::clone(&registry), clock.clone())?),
            acl,
            registry,
        })
    }
}

/// The Rack that a name belongs to now, and who had it before: a name that nobody has any more may be that of older messages.
pub(super) fn rack_directory(ground: &CoreServices) -> ingest::RackDirectory {
    let (acl, registry) = (ground.acl.clone(), Arc::clone(&ground.registry));
    let owners = acl.clone();
    ingest::RackDirectory {
        is: Arc::new(move |name| acl.owner(name)),
        was: Arc::new(move |name, former| {
            let row = registry.rack(&former).ok().flatten();
            match row.filter(|row| row.state == RackState::Removed) {
                Some(row) if row.name == *name => ingest::FormerIdentity::Own,
                Some(row) if owners.owner(&row.name).is_none() => ingest::FormerIdentity::Removed,
                Some(_) | None => ingest::FormerIdentity::Other,
            }
        }),
    }
}
