//! The services of a Mixer, and the tasks between them: started and closed in the orders that [`super`] shows.

use std::sync::Arc;

use chassis::file_modes::require_unshared;
use chassis::tls_server::ServerTls;
use engine::Engine;
use model::control::{DurableFloor, RackState};
use model::{Clock, Entropy, SigningContext};
use query::QueryEngine;

use super::listeners::{
    ListenAddresses, OtlpAddresses, api_address, listen, listen_otlp, postgres_address, reserve, reserve_otlp,
    reserve_postgres,
};
use super::settings;
use crate::access::AuthMode;
use crate::agent_rpc::{AgentRpcServer, MisroutedReplies, RpcServices};
use crate::api::{self, ApiListeners, ApiParts, ApiServer};
use crate::audit_keeper::{AuditKeeper, RefusalReceiver, refusal_channel};
use crate::authentication::{ApiAuthenticator, TokenStore};
use crate::backup::BackupWriter;
use crate::bootstrap::{registry_file, require_registry};
use crate::bus_server::{BusServer, MixerBus};
use crate::cluster::Cluster;
use crate::command_clock::CommandClock;
use crate::config::MixerConfig;
use crate::control::{ControlLimits, ControlPlane, DualControl};
use crate::dlq::{DeadLetterQueue, DlqParts, LetterReplayer};
use crate::duckdb::ViewFileWriter;
use crate::enrollment::EnrollmentService;
use crate::events::EventPublisher;
use crate::export::{self, ExportParts, ExportStatus};
use crate::heartbeat::HeartbeatHandler;
use crate::liveness::LivenessTracker;
use crate::liveness_monitor::LivenessMonitor;
use crate::postgres::{self, PostgresServer};
use crate::registry::ClusterRegistry;
use crate::rejection_counters::RejectionCounters;
use crate::scenario::{
    self, BusAcl, ConvergenceMonitor, FlowControl, RolloutParts, ScenarioCache, ScenarioRef, ScenarioRollout,
    StreamExpiry, WireConsumerManager,
};
use crate::security_report;
use crate::self_tracing::{SpanRecorder, SpanWriter};
use crate::specs::SpecRegistry;
use crate::start_error::StartError;
use crate::tasks::{FailureReporter, SupervisedTask};

/// What was started, to be closed; all of it optional, so that a start that fails half-way closes the same way.
#[derive(Debug, Default)]
pub(super) struct MixerComponents {
    postgres: Option<PostgresServer>,
    api: Option<ApiServer>,
    agent_rpc: Option<AgentRpcServer>,
    tasks: Vec<SupervisedTask>,
    pub(super) ingest: Option<ingest::IngestPipeline>,
    pub(super) dlq: Option<Arc<DeadLetterQueue>>,
    pub(super) querier: Option<Arc<QueryEngine>>,
    pub(super) engine: Option<Arc<Engine>>,
    pub(super) views: Option<Arc<ViewFileWriter>>,
    pub(super) specs: Option<Arc<SpecRegistry>>,
    pub(super) authenticator: Option<Arc<ApiAuthenticator>>,
    pub(super) backups: Option<Arc<BackupWriter>>,
    pub(super) exported: Option<Arc<ExportStatus>>,
    bus: Option<BusServer>,
}

impl MixerComponents {
    #[allow(clippy::too_many_lines, reason = "one list of what is started, in its order")]
    pub(super) async fn start(
        &mut self,
        config: MixerConfig,
        clock: Clock,
        entropy: Entropy,
        fatal: &FailureReporter,
    ) -> Result<(Arc<ControlPlane>, ListenAddresses), StartError> {
        let socket = reserve(&config)?;
        let postgres = reserve_postgres(&config)?;
        let otlp = reserve_otlp(&config)?;
        let tls = config.api.tls_files().map(ServerTls::open).transpose()?.map(Arc::new);
        require_registry(&config)?;
        require_unshared(&config.store.dir)?;
        durable_fs::create_dirs(&config.store.dir)?;
        let specs = SpecRegistry::open(&config.store.specs_dir, &config.store.dir, clock.clone())?;
        let specs = Arc::clone(self.specs.insert(Arc::new(specs)));
        let store = engine::Settings {
            specs: specs.files(),
            ..settings::engine_and_bucket(&config)?
        };
        let engine = Engine::open(store, clock.clone(), entropy.clone()).await?;
        self.engine = Some(Arc::clone(&engine));
        let registry = ClusterRegistry::open(&registry_file(&config.store.dir))?;
        let registry = Arc::new(registry.keep_audit(config.audit.keep));
        let tokens = self.tokens(&config, &registry, (&clock, &entropy), fatal)?;
        let (reporter, refusals) = refusal_channel();
        let dual_control = DualControl::new(config.api.dual_control(), Arc::clone(&tokens));
        let authenticator = Arc::new(ApiAuthenticator::new(config.api.auth, tokens, reporter));
        self.authenticator = Some(Arc::clone(&authenticator));
        let (bus, acl) = settings::bus(&config, &registry, &clock, &entropy)?;
        let server = BusServer::start(bus, fatal).await?;
        let bus = server.bus().clone();
        self.bus = Some(server);

        let ground = CoreServices::open(&config, (registry, acl), &bus, &clock, &entropy)?;
        self.keep_audit(&ground, refusals, &clock, fatal);
        let chosen = scenario::choose(
            config.mixer.startup_scenario.as_deref().unwrap_or_default(),
            config.mixer.max_hops.into(),
            &ground.registry,
            &clock,
        )?;

        let collects = config.observability.enabled && !config.storage.read_only;
        let sync = self.bus.as_ref().and_then(BusServer::sync_messages);
        let synced_floors = sync.clone().filter(|_| collects);
        let floors = Arc::new(ingest::DurableFloorTracker::new(Arc::clone(&engine), synced_floors));
        let collected = self.collect(&config, (&engine, &floors), &bus, (&ground, specs.specs()), &clock);
        let control = self
            .control_plane(
                &config,
                &ground,
                &bus,
                (floors, collected.as_ref(), sync),
                (clock.clone(), entropy.clone(), dual_control),
                fatal,
            )
            .await?;
        if let Some(chosen) = chosen {
            self.activate(&config, chosen, &ground, &clock, fatal).await?;
        }

        let querier = Arc::new(QueryEngine::new(
            Arc::clone(&engine),
            settings::limits(&config),
            clock.clone(),
        )?);
        self.querier = Some(Arc::clone(&querier));
        specs.serve(Arc::clone(&engine), Arc::clone(&querier));
        let book = Arc::clone(&specs);
        self.tasks
            .push(SupervisedTask::spawn("specs", fatal, |stop| book.run(stop)));
        let views = Arc::new(ViewFileWriter::new(
            Arc::clone(&engine),
            Arc::clone(&specs),
            &config.store.dir,
        ));
        self.views = Some(Arc::clone(&views));
        let stats = views.stats();
        self.tasks
            .push(SupervisedTask::spawn("DuckDB views", fatal, |stop| views.run(stop)));
        let dlq = self.dead_letters(&ground, &bus, (&querier, &engine), (clock.clone(), &entropy), fatal)?;
        let spans = self.self_tracing(&config, &engine, (&clock, &entropy), fatal);
        let export = self.export(&config, &engine, (&clock, &entropy), fatal)?;
        let parts = ApiParts {
            export,
            querier: Arc::clone(&querier),
            control: Arc::clone(&control),
            dlq,
            engine,
            ingest: collected,
            views: stats,
            specs,
            authenticator: Arc::clone(&authenticator),
            backups: Arc::clone(self.backups.insert(backups(&config, &control))),
            security: security_report::of_config(&config).into(),
            senders: settings::senders(&config, clock),
            spans,
            reports_itself: !config.switches.disable_telemetry,
        };
        let (otlp_http, otlp_grpc) = otlp.map(|sockets| listen_otlp(sockets, &config)).transpose()?.unzip();
        let listeners = ApiListeners {
            api: listen(socket, &config)?,
            otlp_http,
            otlp_grpc,
        };
        let server = api::serve(parts, listeners, (config.api.hosts(), tls.clone()))
            .map_err(|source| api_address(&config, source))?;
        let api = server.addr();
        let otlp = match *server.others() {
            [http, grpc] => Some(OtlpAddresses { http, grpc }),
            _ => None,
        };
        self.api = Some(server);
        if let Some(socket) = postgres {
            let served = socket
                .listen(1024)
                .and_then(|listener| postgres::serve((querier, authenticator, tls), listener, entropy));
            self.postgres = Some(served.map_err(|source| postgres_address(&config, source))?);
        }
        let postgres = self.postgres.as_ref().map(PostgresServer::addr);
        Ok((control, ListenAddresses { api, postgres, otlp }))
    }

    /// Starts what stores the Mixer's own spans, if it shall make any.
    fn self_tracing(
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
    fn export(
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

    /// Reads the API tokens and starts what keeps them up to date.
    fn tokens(
        &mut self,
        config: &MixerConfig,
        registry: &Arc<ClusterRegistry>,
        (clock, entropy): (&Clock, &Entropy),
        fatal: &FailureReporter,
    ) -> Result<Arc<TokenStore>, StartError> {
        if config.api.auth == AuthMode::Off {
            tracing::warn!("api.auth is off: whoever reaches the API on this machine may do everything");
        }
        let (file, quotas) = (config.api.tokens_file.clone(), settings::quotas(config, clock));
        let tokens = TokenStore::open(Arc::clone(registry), file, quotas, (clock.clone(), entropy.clone()))?;
        let tokens = Arc::new(tokens);
        let kept = Arc::clone(&tokens);
        self.tasks
            .push(SupervisedTask::spawn("API tokens", fatal, |stop| kept.run(stop)));
        Ok(tokens)
    }

    /// Starts what tells the audit log of refused calls and signs its head.
    fn keep_audit(&mut self, ground: &CoreServices, refusals: RefusalReceiver, clock: &Clock, fatal: &FailureReporter) {
        let keeper = AuditKeeper {
            registry: Arc::clone(&ground.registry),
            cluster: Arc::clone(&ground.cluster),
            events: ground.events.clone(),
            clock: clock.clone(),
            refusals,
        };
        self.tasks
            .push(SupervisedTask::spawn("audit log", fatal, |stop| keeper.run(stop)));
    }

    /// Starts the way from the bus into the engine, unless collection is switched off.
    fn collect(
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

    /// Opens the dead-letter queue and starts what brings letters back.
    fn dead_letters(
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

    /// Starts what tells which Racks are offline.
    fn start_liveness_monitor(
        &mut self,
        ground: &CoreServices,
        rollout: &ScenarioRollout,
        clock: &Clock,
        fatal: &FailureReporter,
    ) {
        let monitor = LivenessMonitor {
            registry: Arc::clone(&ground.registry),
            liveness: Arc::clone(&ground.liveness),
            events: ground.events.clone(),
            clock: clock.clone(),
            rollout: rollout.clone(),
        };
        self.tasks
            .push(SupervisedTask::spawn("liveness monitor", fatal, |stop| {
                monitor.run(stop)
            }));
    }

    /// Serves the RPCs of Racks and starts what they need.
    async fn control_plane(
        &mut self,
        config: &MixerConfig,
        ground: &CoreServices,
        bus: &MixerBus,
        (floors, collected, sync): (
            Arc<ingest::DurableFloorTracker>,
            Option<&Arc<ingest::IngestStats>>,
            Option<ingest::SyncBus>,
        ),
        ambient: (Clock, Entropy, DualControl),
        fatal: &FailureReporter,
    ) -> Result<Arc<ControlPlane>, StartError> {
        let (clock, entropy, dual_control) = ambient;
        let CoreServices {
            registry,
            cluster,
            liveness,
            events,
            command_clock,
            acl,
        } = ground;
        let engine = self.engine.clone();
        let time = Box::new(move || engine.as_ref()?.relied_on());
        let flow_control = Arc::new(FlowControl::new(
            (bus.clone(), config.snake.stream_name.to_string()),
            (Arc::clone(registry), Arc::clone(command_clock)),
            Arc::clone(cluster),
            (collected.cloned(), sync),
        ));
        let expiry = StreamExpiry::new(time, config.snake.business_stream_max_age);
        let watch = Arc::clone(&flow_control);
        self.tasks.push(SupervisedTask::spawn("flow control", fatal, |stop| {
            watch.run(expiry, stop)
        }));
        let parts = Arc::new(RolloutParts {
            bus: bus.clone(),
            cluster: Arc::clone(cluster),
            registry: Arc::clone(registry),
            liveness: Arc::clone(liveness),
            command_clock: Arc::clone(command_clock),
            consumers: WireConsumerManager::new(config.snake.stream_name.to_string(), Arc::clone(registry)),
            flow_control: Arc::clone(&flow_control),
            scenarios: ScenarioCache::default(),
            acl: acl.clone(),
        });
        self.tasks.push(SupervisedTask::spawn("wire consumers", fatal, |stop| {
            scenario::keep_consumers(Arc::clone(&parts), stop)
        }));
        let (rollout, deliveries) = ScenarioRollout::new(parts, config.enrollment.push_delay);
        self.tasks
            .push(SupervisedTask::spawn("scenario rollout", fatal, |stop| {
                deliveries.run(stop)
            }));
        let behind = acl.clone();
        self.tasks
            .push(SupervisedTask::spawn("bus access control", fatal, |stop| {
                behind.retry_failed(stop)
            }));
        self.start_liveness_monitor(ground, &rollout, &clock, fatal);
        let rejections = Arc::new(RejectionCounters::default());
        let services = RpcServices {
            cluster: Arc::clone(cluster),
            enrollment: EnrollmentService::new(
                config.enrollment.auto_adopt,
                Arc::clone(cluster),
                Arc::clone(registry),
                clock.clone(),
                entropy.clone(),
            ),
            heartbeats: HeartbeatHandler {
                registry: Arc::clone(registry),
                liveness: Arc::clone(liveness),
                rollout: rollout.clone(),
                floor: Arc::new(move |entity, boot_epoch| floors.durable_floor(entity, boot_epoch)),
                flow_control: Arc::clone(&flow_control),
                bus: bus.clone(),
                limits: settings::rack_limits(config),
                clock: clock.clone(),
                rejections: Arc::clone(&rejections),
            },
            liveness: Arc::clone(liveness),
            rollout: rollout.clone(),
            events: events.clone(),
            acl: acl.clone(),
            bus: bus.clone(),
            elsewhere: MisroutedReplies::default(),
            rejections: Arc::clone(&rejections),
        };
        let agent_rpc = AgentRpcServer::start(bus.client().clone(), services, fatal).await;
        self.agent_rpc = Some(agent_rpc.map_err(StartError::AgentRpc)?);
        Ok(Arc::new(ControlPlane {
            cluster: Arc::clone(cluster),
            registry: Arc::clone(registry),
            liveness: Arc::clone(liveness),
            bus: bus.clone(),
            rollout,
            flow_control,
            events: events.clone(),
            clock,
            entropy,
            command_clock: Arc::clone(command_clock),
            acl: acl.clone(),
            rejections,
            dual_control: Arc::new(dual_control),
            limits: ControlLimits::of(config),
        }))
    }

    /// Makes the startup scenario the active one; Racks get it as they appear, who does not is reported.
    async fn activate(
        &mut self,
        config: &MixerConfig,
        chosen: scenario::StartupScenario,
        ground: &CoreServices,
        clock: &Clock,
        fatal: &FailureReporter,
    ) -> Result<(), StartError> {
        let (active, news) = scenario::activate(&chosen, &ground.registry, clock).await?;
        tracing::info!(reference = %active.reference, hash = %active.hash, "scenario is active");
        if !news.is_empty() {
            ground.acl.refresh().await;
        }
        for news in &news {
            ground.events.publish(news).await;
        }
        let convergence = ConvergenceMonitor {
            registry: Arc::clone(&ground.registry),
            liveness: Arc::clone(&ground.liveness),
            wanted: ScenarioRef {
                reference: active.reference,
                hash: active.hash,
            },
            scenario: chosen.scenario,
            within: config.mixer.scenario_wait_timeout,
        };
        self.tasks
            .push(SupervisedTask::spawn_once("scenario convergence", fatal, |stop| {
                convergence.report(stop)
            }));
        Ok(())
    }

    pub(super) async fn close(mut self) {
        if let Some(postgres) = self.postgres.take() {
            postgres.close().await;
        }
        if let Some(api) = self.api.take() {
            api.close().await;
        }
        if let Some(agent_rpc) = self.agent_rpc.take() {
            agent_rpc.close().await;
        }
        for task in self.tasks.drain(..) {
            task.close().await;
        }
        if let Some(ingest) = self.ingest.take()
            && let Err(error) = ingest.close().await
        {
            tracing::error!(%error, "ingest had already stopped; the bus keeps what was not stored");
        }
        if let Some(querier) = self.querier.take() {
            querier.close().await;
        }
        if let Some(engine) = self.engine.take()
            && let Err(error) = engine.close().await
        {
            tracing::error!(%error, "could not flush the last rows; they are safe in the log");
        }
        if let Some(views) = self.views.take() {
            // The last rows may have been a table's first.
            views.refresh().await;
        }
        if let Some(bus) = self.bus.take() {
            bus.close().await;
        }
    }
}

/// What makes backups of the registry and the keys.
fn backups(config: &MixerConfig, control: &ControlPlane) -> Arc<BackupWriter> {
    Arc::new(BackupWriter {
        registry: Arc::clone(&control.registry),
        cluster: Arc::clone(&control.cluster),
        store: config.store.dir.clone(),
        cluster_key: config.store.cluster_key_file.clone(),
        clock: control.clock.clone(),
        making: parking_lot::Mutex::default(),
    })
}

/// The Rack that a name belongs to now, and who had it before: a name that nobody has any more may be that of older messages.
fn rack_directory(ground: &CoreServices) -> ingest::RackDirectory {
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

/// What the control plane stands on.
struct CoreServices {
    registry: Arc<ClusterRegistry>,
    cluster: Arc<Cluster>,
    liveness: Arc<LivenessTracker>,
    events: EventPublisher,
    command_clock: Arc<CommandClock>,
    acl: BusAcl,
}

impl CoreServices {
    fn open(
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
