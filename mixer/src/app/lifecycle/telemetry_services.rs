//! The services of telemetry: from the bus into the engine, questions and views, the dead-letter queue, the Mixer's own spans, export, the
//! Iceberg catalogue.

use std::sync::Arc;

use engine::{Engine, SideObjects};
use iceberg::CatalogPublisher;
use model::control::DurableFloor;
use model::{Clock, Entropy, SigningContext};
use query::QueryEngine;
use tokio_util::sync::CancellationToken;

use super::MixerComponents;
use super::core_services::{CoreServices, rack_directory};
use crate::app::settings;
use crate::bus_server::MixerBus;
use crate::config::MixerConfig;
use crate::dlq::{DeadLetterQueue, DlqParts, LetterReplayer};
use crate::duckdb::{ViewFileStats, ViewFileWriter};
use crate::export::{self, ExportParts, ExportStatus};
use crate::iceberg_catalog::{CatalogService, PublisherThread};
use crate::self_tracing::{SpanRecorder, SpanWriter};
use crate::specs::SpecRegistry;
use crate::start_error::StartError;
use crate::tasks::{FailureReporter, SupervisedTask};

impl MixerComponents {
    /// Starts the way from the bus into the engine, unless collection is switched off.
    pub(super) fn collect(
        &mut self,
        config: &MixerConfig,
        (engine, floors): (&Arc<Engine>, &Arc<ingest::DurableFloorTracker>),
        bus: &MixerBus,
        (ground, specs): (&CoreServices, Arc<ingest::SpecMatcher>),
        clock: &Clock,
    ) -> Option<Arc<ingest::IngestStats>> {
        if !config.observability.enabled {
            tracing::warn!("observability.enabled is false: telemetry is not stored");
            return None;
        }
        if config.storage.read_only {
            tracing::info!("observability.embedded.storage.read_only is true: telemetry is read but not ingested");
            return None;
        }
        let cluster = Arc::clone(&ground.cluster);
        let parts = ingest::PipelineParts {
            js: bus.jetstream().clone(),
            client: bus.client().clone(),
            engine: Arc::clone(engine),
            clock: clock.clone(),
            floors: Arc::clone(floors),
            sign_floor: Arc::new(move |floor: DurableFloor| {
                cluster
                    .sign(&floor, SigningContext::Command)
                    .map(bytes::Bytes::from)
                    .ok()
            }),
            directory: ground.acl.is_enforced().then(|| rack_directory(ground)),
            specs,
        };
        let pipeline = ingest::IngestPipeline::start(settings::ingest(config), parts);
        let stats = pipeline.live_stats();
        self.ingest = Some(pipeline);
        Some(stats)
    }

    /// Starts what answers questions, what keeps the tables of specs, and what writes the views for DuckDB.
    pub(super) fn questions(
        &mut self,
        config: &MixerConfig,
        (engine, specs): (&Arc<Engine>, &Arc<SpecRegistry>),
        clock: &Clock,
        fatal: &FailureReporter,
    ) -> Result<(Arc<QueryEngine>, Arc<ViewFileStats>), StartError> {
        let querier = Arc::new(QueryEngine::new(
            Arc::clone(engine),
            settings::limits(config),
            clock.clone(),
        )?);
        self.querier = Some(Arc::clone(&querier));
        specs.serve(Arc::clone(engine), Arc::clone(&querier));
        let book = Arc::clone(specs);
        self.tasks
            .push(SupervisedTask::spawn("specs", fatal, |stop| book.run(stop)));
        let views = Arc::new(ViewFileWriter::new(
            Arc::clone(engine),
            Arc::clone(specs),
            &config.store.dir,
        ));
        self.views = Some(Arc::clone(&views));
        let stats = views.stats();
        self.tasks
            .push(SupervisedTask::spawn("DuckDB views", fatal, |stop| views.run(stop)));
        Ok((querier, stats))
    }

    /// Opens the dead-letter queue and starts what brings letters back.
    pub(super) fn dead_letters(
        &mut self,
        ground: &CoreServices,
        bus: &MixerBus,
        (querier, engine): (&Arc<QueryEngine>, &Arc<Engine>),
        (clock, entropy): (Clock, &Entropy),
        fatal: &FailureReporter,
    ) -> Result<Arc<DeadLetterQueue>, StartError> {
        let parts = DlqParts {
            querier: Arc::clone(querier),
            engine: Arc::clone(engine),
            registry: Arc::clone(&ground.registry),
            cluster: Arc::clone(&ground.cluster),
            liveness: Arc::clone(&ground.liveness),
            bus: bus.clone(),
            events: ground.events.clone(),
            clock,
        };
        let dlq = DeadLetterQueue::open(parts, entropy)?;
        let deliveries = LetterReplayer::new(Arc::clone(&dlq));
        self.tasks
            .push(SupervisedTask::spawn("dead-letter replayer", fatal, |stop| {
                deliveries.run(stop)
            }));
        let counted = Arc::clone(&dlq);
        self.tasks
            .push(SupervisedTask::spawn("dead-letter counter", fatal, |stop| {
                counted.keep_count(stop)
            }));
        self.dlq = Some(Arc::clone(&dlq));
        Ok(dlq)
    }

    /// Starts what stores the Mixer's own spans, if it shall make any.
    pub(super) fn self_tracing(
        &mut self,
        config: &MixerConfig,
        engine: &Arc<Engine>,
        (clock, entropy): (&Clock, &Entropy),
        fatal: &FailureReporter,
    ) -> SpanRecorder {
        let observability = &config.observability;
        let is_stored = observability.enabled && !config.storage.read_only;
        if !is_stored || !observability.self_tracing || config.switches.disable_telemetry {
            return SpanRecorder::default();
        }
        let (recorder, spans) = SpanRecorder::new(
            &config.base.name,
            (clock.clone(), entropy.clone()),
            observability.sampling_rate,
        );
        let writer = SpanWriter {
            engine: Arc::clone(engine),
            recorder: recorder.clone(),
            spans,
        };
        self.tasks
            .push(SupervisedTask::spawn("own spans", fatal, |stop| writer.run(stop)));
        recorder
    }

    /// Starts what sends telemetry to a collector, if it is sent anywhere.
    pub(super) fn export(
        &mut self,
        config: &MixerConfig,
        engine: &Arc<Engine>,
        (clock, entropy): (&Clock, &Entropy),
        fatal: &FailureReporter,
    ) -> Result<Option<Arc<ExportStatus>>, StartError> {
        let Some(settings) = settings::export(config)? else {
            return Ok(None);
        };
        let parts = ExportParts {
            engine: Arc::clone(engine),
            clock: clock.clone(),
            entropy: entropy.clone(),
        };
        let (status, tasks) = export::start(settings, &parts, fatal).map_err(StartError::Export)?;
        self.tasks.extend(tasks);
        self.exported = Some(Arc::clone(&status));
        Ok(Some(status))
    }

    /// Starts what publishes the Iceberg catalogue, or opens what another Mixer publishes, unless it is switched off.
    pub(super) fn iceberg(
        &mut self,
        config: &MixerConfig,
        engine: &Arc<Engine>,
        clock: &Clock,
        fatal: &FailureReporter,
    ) -> Option<Arc<CatalogService>> {
        let is_linked = config.iceberg.enabled && config.storage.url.is_none();
        // What was published in this folder before keeps space until then.
        if !is_linked && let Err(error) = engine.unpin_all() {
            tracing::warn!(%error, "could not remove the links of an earlier Iceberg catalogue; the next start tries it again");
        }
        if !config.iceberg.enabled {
            if !config.storage.read_only {
                let objects = engine.side_objects();
                let task =
                    SupervisedTask::spawn_once("Iceberg catalogue", fatal, |stop| withdraw_catalog(objects, stop));
                self.tasks.push(task);
            }
            return None;
        }
        let service = if config.storage.read_only {
            CatalogService::of_reader(engine)
        } else {
            let settings = settings::catalog(config);
            let (thread, service) = PublisherThread::new(engine, settings, (clock.clone(), config.iceberg.interval));
            let task = SupervisedTask::spawn("Iceberg catalogue", fatal, |stop| thread.run(stop));
            self.tasks.push(task);
            service
        };
        self.catalog = Some(Arc::clone(&service));
        Some(service)
    }
}

/// Takes back the list of tables of a catalogue that was published before it was switched off: Mixers that only read serve none then,
/// whose files are not kept for it any more.
async fn withdraw_catalog(objects: SideObjects, stop: CancellationToken) {
    let withdrawn = tokio::task::spawn_blocking(move || CatalogPublisher::withdraw(&objects));
    tokio::select! {
        // An object store that does not answer is left to itself.
        () = stop.cancelled() => {}
        ended = withdrawn => {
            let reason = match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            tracing::warn!(reason, "could not withdraw an earlier Iceberg catalogue; the next start tries it again");
        }
    }
}
