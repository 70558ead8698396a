//! The ingest pipeline: one task pulls from each stream, many store messages, one sends durable floors. `start` spawns them, `close`
//! drains and joins them.

use std::sync::Arc;

use async_nats::jetstream::Context;
use engine::Engine;
use model::Clock;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::consumer::IngestSource;
use crate::durable_floors::{DurableFloorSender, DurableFloorTracker, SignFloor};
use crate::error::Error;
use crate::message_processor::MessageProcessor;
use crate::publisher_identity::RackDirectory;
use crate::puller::StreamPuller;
use crate::settings::IngestSettings;
use crate::spec_matcher::SpecMatcher;
use crate::stats::IngestStats;

/// The services that the pipeline uses.
pub struct PipelineParts {
    /// The JetStream context of our domain.
    pub js: Context,
    /// The connection over which floors are sent.
    pub client: async_nats::Client,
    /// The engine that stores the rows.
    pub engine: Arc<Engine>,
    /// Gives dead letters their time.
    pub clock: Clock,
    /// The durable floors announced to Racks.
    pub floors: Arc<DurableFloorTracker>,
    /// Signs floors for Racks.
    pub sign_floor: SignFloor,
    /// Which subjects belong to which Rack; none if the bus does not know Racks by their keys.
    pub directory: Option<RackDirectory>,
    /// The specs by which business messages are stored.
    pub specs: Arc<SpecMatcher>,
}

impl std::fmt::Debug for PipelineParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ingest::PipelineParts")
    }
}

/// The running pipeline.
#[derive(Debug)]
pub struct IngestPipeline {
    stop: CancellationToken,
    puller: JoinHandle<Result<(), Error>>,
    archive: Option<JoinHandle<Result<(), Error>>>,
    floors: JoinHandle<()>,
    stats: Arc<IngestStats>,
}

impl IngestPipeline {
    /// Starts pulling. While the bus is unreachable or a stream is missing, it tries again.
    #[must_use]
    pub fn start(settings: IngestSettings, parts: PipelineParts) -> Self {
        let stop = CancellationToken::new();
        let stats = Arc::new(IngestStats::new(settings.racks));
        let (durable, on_durable) = mpsc::channel(4096);
        let floors = DurableFloorSender {
            floors: Arc::clone(&parts.floors),
            client: parts.client.clone(),
            sign: Arc::clone(&parts.sign_floor),
            stats: Arc::clone(&stats),
        };
        let permits = usize::try_from(settings.buffer_size.max(1)).unwrap_or(1);
        let messages = settings.messages.clone();
        let puller = StreamPuller {
            source: IngestSource::Telemetry,
            batches: Arc::new(Semaphore::new(permits)),
            incarnation: Arc::default(),
            processor: Arc::new(MessageProcessor {
                settings,
                engine: parts.engine,
                clock: parts.clock,
                specs: parts.specs,
                stats: Arc::clone(&stats),
                floors: parts.floors,
                durable,
                directory: parts.directory,
                stop: stop.clone(),
            }),
            js: parts.js,
        };
        let archive = messages.map(|messages| puller.for_source(IngestSource::Messages(messages)));
        Self {
            archive: archive.map(|puller| tokio::spawn(puller.run())),
            puller: tokio::spawn(puller.run()),
            floors: tokio::spawn(floors.run(on_durable)),
            stop,
            stats,
        }
    }

    /// The live counters, for a metrics page.
    #[must_use]
    pub fn live_stats(&self) -> Arc<IngestStats> {
        Arc::clone(&self.stats)
    }

    /// Whether the pipeline ended by itself, which happens only if the engine takes no more rows.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.puller.is_finished() || self.archive.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops pulling, waits until everything received is durable and acknowledged, joins the tasks.
    ///
    /// # Errors
    /// Why the pipeline ended, if it had ended before.
    pub async fn close(self) -> Result<(), Error> {
        self.stop.cancel();
        let mut ended = self.puller.await?;
        if let Some(archive) = self.archive {
            ended = ended.and(archive.await?);
        }
        self.floors.await?;
        ended
    }
}
