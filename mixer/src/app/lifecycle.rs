//! The services of a Mixer, and the tasks between them: started and closed in the orders that [`super`] shows.

mod control_services;
mod core_services;
mod front_ends;
mod telemetry_services;

use std::sync::Arc;

use chassis::file_modes::require_unshared;
use chassis::tls_server::ServerTls;
use engine::Engine;
use model::{Clock, Entropy};
use query::QueryEngine;

use self::core_services::CoreServices;
use super::listeners::{ListenAddresses, ReservedSockets};
use super::settings;
use crate::access::AuthMode;
use crate::agent_rpc::AgentRpcServer;
use crate::api::{ApiParts, ApiServer};
use crate::audit_keeper::{AuditKeeper, RefusalReceiver, refusal_channel};
use crate::authentication::{ApiAuthenticator, TokenStore};
use crate::backup::BackupWriter;
use crate::bootstrap::{registry_file, require_registry};
use crate::bus_server::BusServer;
use crate::config::MixerConfig;
use crate::control::{ControlPlane, DualControl};
use crate::dlq::DeadLetterQueue;
use crate::duckdb::ViewFileWriter;
use crate::export::ExportStatus;
use crate::iceberg_catalog::CatalogService;
use crate::postgres::PostgresServer;
use crate::registry::ClusterRegistry;
use crate::scenario;
use crate::security_report;
use crate::specs::SpecRegistry;
use crate::start_error::StartError;
use crate::tasks::{FailureReporter, SupervisedTask};

/// What was started, to be closed; all of it optional, so that a start that fails half-way closes the same way.
#[derive(Debug, Default)]
pub(super) struct MixerComponents {
    postgres: Option<PostgresServer>,
    pub(super) api: Option<ApiServer>,
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
    pub(super) catalog: Option<Arc<CatalogService>>,
    bus: Option<BusServer>,
}

impl MixerComponents {
    pub(super) async fn start(
        &mut self,
        config: MixerConfig,
        clock: Clock,
        entropy: Entropy,
        fatal: &FailureReporter,
    ) -> Result<(Arc<ControlPlane>, ListenAddresses), StartError> {
        let sockets = ReservedSockets::of(&config)?;
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
            (
                config.mixer.startup_scenario.as_deref().unwrap_or_default(),
                config.mixer.first_scenario.as_deref(),
            ),
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

        let (querier, views) = self.questions(&config, (&engine, &specs), &clock, fatal)?;
        let dlq = self.dead_letters(&ground, &bus, (&querier, &engine), (clock.clone(), &entropy), fatal)?;
        let spans = self.self_tracing(&config, &engine, (&clock, &entropy), fatal);
        let export = self.export(&config, &engine, (&clock, &entropy), fatal)?;
        let catalog = self.iceberg(&config, &engine, &clock, fatal);
        let parts = ApiParts {
            export,
            catalog,
            tls: tls.clone(),
            querier,
            control: Arc::clone(&control),
            dlq,
            engine,
            ingest: collected,
            views,
            specs,
            authenticator,
            backups: Arc::clone(self.backups.insert(backups(&config, &control))),
            security: security_report::of_config(&config).into(),
            senders: settings::senders(&config, clock),
            spans,
            reports_itself: !config.switches.disable_telemetry,
        };
        let addresses = self.serve(&config, parts, sockets, (tls, entropy))?;
        Ok((control, addresses))
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
