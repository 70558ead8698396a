//! The Mixer as a whole: what is started in which order, and stopped in the reverse.
//!
//! ```text
//!  start: specs ─ engine ─ registry ─ bus server, streams ─ cluster ─ scenario ─ ingest ─ desk, courier, roll call ─ views ─
//!         dead-letter queue ─ API ─ PostgreSQL
//!  close: PostgreSQL ─ API ─ desk, courier, roll call, views, dead-letter queue ─ ingest drains ─ queries end ─ engine publishes and closes ─
//!         last views ─ bus server stops
//! ```
//!
//! # Invariants
//!
//! - A start that fails closes what it had started.
//! - A task that dies, or an engine that is poisoned, ends the Mixer with an error: [`Mixer::failed`].
//!
//! # Not here
//!
//! Command line, log files, signals (`main`).

mod error;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::Exit;
use engine::Engine;
use model::control::DurableFloor;
use model::{Clock, Context, Entropy};
use query::Querier;
use tokio::net::{TcpListener, TcpSocket};

use crate::api::{self, ApiParts, ApiServer};
use crate::bus_server::{Bus, BusServer};
use crate::cluster::Cluster;
use crate::config::MixerConfig;
use crate::control::Control;
use crate::desk::{Clerks, Desk, Elsewhere};
use crate::dlq::{Deliveries, Dlq, DlqParts};
use crate::enrollment::Enrollment;
use crate::events::Events;
use crate::heartbeat::Heartbeats;
use crate::issuer::Issuer;
use crate::outside::Views;
use crate::passes::Passes;
use crate::postgres::{self, PostgresServer};
use crate::presence::Presence;
use crate::refusals::Refusals;
use crate::registry::Registry;
use crate::roll_call::RollCall;
use crate::scenario::{self, Consumers, Convergence, Courier, CourierParts, ParsedScenario, ScenarioRef};
use crate::specs::SpecBook;
use crate::tasks::{Failures, Fatal, Task, failures};

pub use error::StartError;
pub(crate) use error::of_engine;

/// How often the ingest pipeline is asked whether it still runs.
const LOOK: Duration = Duration::from_millis(200);

/// A running Mixer.
#[derive(Debug)]
pub struct Mixer {
    parts: Parts,
    failures: Failures,
    control: Arc<Control>,
    addresses: Addresses,
}

/// Where a Mixer is asked.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    api: SocketAddr,
    postgres: Option<SocketAddr>,
}

/// Why a Mixer cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// What died.
    pub reason: String,
    /// The exit code.
    pub exit: Exit,
}

/// What was started, to be closed; all of it optional, so that a start that fails half-way closes the same way.
#[derive(Debug, Default)]
struct Parts {
    postgres: Option<PostgresServer>,
    api: Option<ApiServer>,
    desk: Option<Desk>,
    tasks: Vec<Task>,
    ingest: Option<ingest::Pipeline>,
    dlq: Option<Arc<Dlq>>,
    querier: Option<Arc<Querier>>,
    engine: Option<Arc<Engine>>,
    views: Option<Arc<Views>>,
    specs: Option<Arc<SpecBook>>,
    bus: Option<BusServer>,
}

impl Mixer {
    /// Starts everything. When it returns, Racks can enrol and the API answers.
    ///
    /// # Errors
    /// [`StartError`], after what had been started is closed again.
    pub async fn start(config: MixerConfig, clock: Clock, entropy: Entropy) -> Result<Self, StartError> {
        let unsupported = config.unsupported();
        if !unsupported.is_empty() {
            return Err(StartError::Unsupported(unsupported));
        }
        let (fatal, failures) = failures();
        let mut parts = Parts::default();
        match parts.start(config, clock, entropy, &fatal).await {
            Ok((control, addresses)) => Ok(Self {
                parts,
                failures,
                control,
                addresses,
            }),
            Err(error) => {
                parts.close().await;
                Err(error)
            }
        }
    }

    /// The control plane's handle.
    #[must_use]
    pub const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Where the REST API listens.
    #[must_use]
    pub const fn api_addr(&self) -> SocketAddr {
        self.addresses.api
    }

    /// Where PostgreSQL clients connect, if they may.
    #[must_use]
    pub const fn postgres_addr(&self) -> Option<SocketAddr> {
        self.addresses.postgres
    }

    /// The rooms that its API asks.
    #[cfg(test)]
    pub(crate) fn api_parts(&self) -> Option<ApiParts> {
        Some(ApiParts {
            querier: Arc::clone(self.parts.querier.as_ref()?),
            control: Arc::clone(&self.control),
            dlq: Arc::clone(self.parts.dlq.as_ref()?),
            engine: Arc::clone(self.parts.engine.as_ref()?),
            ingest: None,
            views: self.parts.views.as_ref()?.stats(),
            specs: Arc::clone(self.parts.specs.as_ref()?),
            reports_itself: true,
        })
    }

    /// Returns when telemetry that is sent is stored: at once where collection is off.
    pub fn ready(&self) -> impl Future<Output = ()> + use<> {
        let stats = self.parts.ingest.as_ref().map(ingest::Pipeline::live_stats);
        async move {
            if let Some(stats) = stats {
                stats.opened().await;
            }
        }
    }

    /// Returns when the Mixer cannot go on; then close it and exit.
    pub async fn failed(&mut self) -> Failure {
        let died = |reason| Failure { reason, exit: Exit::Io };
        let poisoned = async {
            match &self.parts.engine {
                Some(engine) => engine.poisoned().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = self.failures.first() => died(reason),
            reason = poisoned => died(format!("the storage engine failed: {reason}")),
            () = ended(self.parts.ingest.as_ref()) => died("the ingest pipeline ended by itself".to_owned()),
        }
    }

    /// Stops everything in order. What was acknowledged is on disk when it returns.
    pub async fn close(self) {
        self.parts.close().await;
    }
}

async fn ended(ingest: Option<&ingest::Pipeline>) {
    let Some(ingest) = ingest else {
        return std::future::pending().await;
    };
    while !ingest.is_finished() {
        tokio::time::sleep(LOOK).await;
    }
}

impl Parts {
    async fn start(
        &mut self,
        config: MixerConfig,
        clock: Clock,
        entropy: Entropy,
        fatal: &Fatal,
    ) -> Result<(Arc<Control>, Addresses), StartError> {
        let socket = reserve(&config)?;
        let postgres = reserve_postgres(&config)?;
        chassis::files::create_dir_durable(&config.store.dir)?;
        let specs = SpecBook::open(&config.store.specs_dir, &config.store.dir, clock.clone())?;
        let specs = Arc::clone(self.specs.insert(Arc::new(specs)));
        let store = engine::Settings {
            specs: specs.files(),
            ..settings::engine_and_bucket(&config)?
        };
        let engine = Engine::open(store, clock.clone(), entropy.clone()).await?;
        self.engine = Some(Arc::clone(&engine));
        let registry = Arc::new(Registry::open(&config.store.dir.join("registry.redb"))?);
        let (gate, passes) = settings::gate(&config, &registry, &entropy)?;
        let server = BusServer::start(settings::bus(&config, gate), fatal).await?;
        let bus = server.bus().clone();
        self.bus = Some(server);

        let ground = Ground::open(&config, (registry, passes), &bus, &clock, &entropy)?;
        let chosen = scenario::choose(
            config.mixer.startup_scenario.as_deref().unwrap_or_default(),
            &ground.registry,
            &clock,
        )?;

        let collected = self.collect(&config, &engine, &bus, (&ground, specs.specs()), &clock);
        let control = self
            .control_plane(&config, &ground, &bus, &engine, (clock.clone(), entropy.clone()), fatal)
            .await?;
        if let Some(chosen) = chosen {
            self.activate(&config, chosen, &ground, &clock, fatal).await?;
        }

        let querier = Arc::new(Querier::new(
            Arc::clone(&engine),
            settings::limits(&config),
            clock.clone(),
        )?);
        self.querier = Some(Arc::clone(&querier));
        specs.serve(Arc::clone(&engine), Arc::clone(&querier));
        let book = Arc::clone(&specs);
        self.tasks.push(Task::spawn("specs", fatal, |stop| book.run(stop)));
        let views = Arc::new(Views::new(Arc::clone(&engine), Arc::clone(&specs), &config.store.dir));
        self.views = Some(Arc::clone(&views));
        let stats = views.stats();
        self.tasks
            .push(Task::spawn("views for outside readers", fatal, |stop| views.run(stop)));
        let dlq = self.dead_letters(&ground, &bus, (&querier, &engine), (clock, &entropy), fatal)?;
        let parts = ApiParts {
            querier: Arc::clone(&querier),
            control: Arc::clone(&control),
            dlq,
            engine,
            ingest: collected,
            views: stats,
            specs,
            reports_itself: config.observability.self_telemetry,
        };
        let listener = listen(socket, &config)?;
        let server = api::serve(parts, listener).map_err(|source| api_address(&config, source))?;
        let api = server.addr();
        self.api = Some(server);
        if let Some(socket) = postgres {
            let served = socket
                .listen(1024)
                .and_then(|listener| postgres::serve(querier, listener, entropy));
            self.postgres = Some(served.map_err(|source| postgres_address(&config, source))?);
        }
        let postgres = self.postgres.as_ref().map(PostgresServer::addr);
        Ok((control, Addresses { api, postgres }))
    }

    /// Starts the way from the bus into the engine, unless collection is switched off.
    fn collect(
        &mut self,
        config: &MixerConfig,
        engine: &Arc<Engine>,
        bus: &Bus,
        (ground, specs): (&Ground, Arc<ingest::Specs>),
        clock: &Clock,
    ) -> Option<Arc<ingest::Stats>> {
        if !config.observability.enabled {
            tracing::warn!("observability.enabled is false: telemetry is not stored");
            return None;
        }
        if config.observability.embedded.read_only {
            tracing::info!("observability.embedded.storage.read_only is true: telemetry is read, none is taken in");
            return None;
        }
        let cluster = Arc::clone(&ground.cluster);
        let parts = ingest::Parts {
            js: bus.jetstream().clone(),
            client: bus.client().clone(),
            engine: Arc::clone(engine),
            clock: clock.clone(),
            sign_floor: Arc::new(move |floor: DurableFloor| {
                cluster.sign(&floor, Context::Command).map(bytes::Bytes::from).ok()
            }),
            vouch: ground.passes.are_kept().then(|| vouch(&ground.passes)),
            specs,
        };
        let pipeline = ingest::Pipeline::start(settings::ingest(config), parts);
        let stats = pipeline.live_stats();
        self.ingest = Some(pipeline);
        Some(stats)
    }

    /// Opens the dead-letter queue and starts what brings letters back.
    fn dead_letters(
        &mut self,
        ground: &Ground,
        bus: &Bus,
        (querier, engine): (&Arc<Querier>, &Arc<Engine>),
        (clock, entropy): (Clock, &Entropy),
        fatal: &Fatal,
    ) -> Result<Arc<Dlq>, StartError> {
        let parts = DlqParts {
            querier: Arc::clone(querier),
            engine: Arc::clone(engine),
            registry: Arc::clone(&ground.registry),
            cluster: Arc::clone(&ground.cluster),
            presence: Arc::clone(&ground.presence),
            bus: bus.clone(),
            clock,
        };
        let dlq = Dlq::open(parts, entropy)?;
        let deliveries = Deliveries::new(Arc::clone(&dlq));
        self.tasks
            .push(Task::spawn("letters back to gears", fatal, |stop| deliveries.run(stop)));
        let counted = Arc::clone(&dlq);
        self.tasks.push(Task::spawn("count of dead letters", fatal, |stop| {
            counted.keep_count(stop)
        }));
        self.dlq = Some(Arc::clone(&dlq));
        Ok(dlq)
    }

    /// Opens the desk for Racks and starts what serves them.
    async fn control_plane(
        &mut self,
        config: &MixerConfig,
        ground: &Ground,
        bus: &Bus,
        engine: &Arc<Engine>,
        ambient: (Clock, Entropy),
        fatal: &Fatal,
    ) -> Result<Arc<Control>, StartError> {
        let (clock, entropy) = ambient;
        let Ground {
            registry,
            cluster,
            presence,
            events,
            issuer,
            passes,
        } = ground;
        let parts = Arc::new(CourierParts {
            bus: bus.clone(),
            cluster: Arc::clone(cluster),
            registry: Arc::clone(registry),
            presence: Arc::clone(presence),
            issuer: Arc::clone(issuer),
            consumers: Consumers::new(config.snake.stream_name.to_string(), Arc::clone(registry)),
            parsed: ParsedScenario::default(),
        });
        self.tasks.push(Task::spawn("wire consumers", fatal, |stop| {
            scenario::keep_consumers(Arc::clone(&parts), stop)
        }));
        let (courier, deliveries) = Courier::new(parts, config.enrollment.push_delay);
        self.tasks
            .push(Task::spawn("scenario courier", fatal, |stop| deliveries.run(stop)));
        let behind = passes.clone();
        self.tasks.push(Task::spawn("list of the bus's users", fatal, |stop| {
            behind.catch_up(stop)
        }));
        let roll_call = RollCall {
            registry: Arc::clone(registry),
            presence: Arc::clone(presence),
            events: events.clone(),
            clock: clock.clone(),
        };
        self.tasks
            .push(Task::spawn("roll call", fatal, |stop| roll_call.run(stop)));
        let engine = Arc::clone(engine);
        let refusals = Arc::new(Refusals::default());
        let clerks = Clerks {
            enrollment: Enrollment::new(
                config.enrollment.auto_adopt,
                Arc::clone(cluster),
                Arc::clone(registry),
                clock.clone(),
                entropy,
            ),
            heartbeats: Heartbeats {
                cluster: Arc::clone(cluster),
                registry: Arc::clone(registry),
                presence: Arc::clone(presence),
                courier: courier.clone(),
                floor: Arc::new(move |entity, boot_epoch| engine.floor(entity, boot_epoch)),
                limits: settings::rack_limits(config),
                clock: clock.clone(),
                refusals: Arc::clone(&refusals),
            },
            presence: Arc::clone(presence),
            courier: courier.clone(),
            events: events.clone(),
            passes: passes.clone(),
            elsewhere: Elsewhere::default(),
            refusals: Arc::clone(&refusals),
        };
        let desk = Desk::start(bus.client().clone(), clerks, fatal).await;
        self.desk = Some(desk.map_err(StartError::Desk)?);
        Ok(Arc::new(Control {
            cluster: Arc::clone(cluster),
            registry: Arc::clone(registry),
            presence: Arc::clone(presence),
            bus: bus.clone(),
            courier,
            events: events.clone(),
            clock,
            issuer: Arc::clone(issuer),
            passes: passes.clone(),
            refusals,
            scenario_wait: config.mixer.scenario_wait_timeout,
        }))
    }

    /// Makes the startup scenario the active one; Racks get it as they appear, who does not is reported.
    async fn activate(
        &mut self,
        config: &MixerConfig,
        chosen: scenario::Chosen,
        ground: &Ground,
        clock: &Clock,
        fatal: &Fatal,
    ) -> Result<(), StartError> {
        let (active, news) = scenario::activate(&chosen, &ground.registry, clock).await?;
        tracing::info!(reference = %active.reference, hash = %active.hash, "scenario is active");
        if let Some(news) = news {
            ground.passes.refresh().await;
            ground.events.tell(&news).await;
        }
        let convergence = Convergence {
            registry: Arc::clone(&ground.registry),
            presence: Arc::clone(&ground.presence),
            wanted: ScenarioRef {
                reference: active.reference,
                hash: active.hash,
            },
            scenario: chosen.scenario,
            within: config.mixer.scenario_wait_timeout,
        };
        self.tasks.push(Task::spawn_once("scenario convergence", fatal, |stop| {
            convergence.report(stop)
        }));
        Ok(())
    }

    async fn close(mut self) {
        if let Some(postgres) = self.postgres.take() {
            postgres.close().await;
        }
        if let Some(api) = self.api.take() {
            api.close().await;
        }
        if let Some(desk) = self.desk.take() {
            desk.close().await;
        }
        for task in self.tasks.drain(..) {
            task.close().await;
        }
        if let Some(ingest) = self.ingest.take()
            && let Err(error) = ingest.close().await
        {
            tracing::error!(%error, "ingest had ended before; the bus keeps what was not stored");
        }
        if let Some(querier) = self.querier.take() {
            querier.close().await;
        }
        if let Some(engine) = self.engine.take()
            && let Err(error) = engine.close().await
        {
            tracing::error!(%error, "the last rows were not published; they are safe in the log");
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

/// The Rack that a name belongs to now: a name that nobody has any more may be that of older messages.
fn vouch(passes: &Passes) -> ingest::Vouch {
    let passes = passes.clone();
    Arc::new(move |name| passes.owner(name))
}

/// What the control plane stands on.
struct Ground {
    registry: Arc<Registry>,
    cluster: Arc<Cluster>,
    presence: Arc<Presence>,
    events: Events,
    issuer: Arc<Issuer>,
    passes: Passes,
}

impl Ground {
    fn open(
        config: &MixerConfig,
        (registry, passes): (Arc<Registry>, Passes),
        bus: &Bus,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<Self, StartError> {
        let cluster = Cluster::open(&registry, &config.store.cluster_key_file, clock, entropy)?;
        let rows = registry.racks()?;
        Ok(Self {
            presence: Arc::new(Presence::of_registry(&rows)),
            events: Events::new(bus.client().clone()),
            cluster: Arc::new(cluster),
            issuer: Arc::new(Issuer::open(Arc::clone(&registry), clock.clone())?),
            passes,
            registry,
        })
    }
}

/// Takes the API's address before anything else starts, without listening yet.
fn reserve(config: &MixerConfig) -> Result<TcpSocket, StartError> {
    let address = SocketAddr::new(config.api.host, config.api.port);
    bind(address).map_err(|source| api_address(config, source))
}

/// The same for PostgreSQL clients, if they may connect.
fn reserve_postgres(config: &MixerConfig) -> Result<Option<TcpSocket>, StartError> {
    if !config.postgres.enabled {
        return Ok(None);
    }
    let socket = bind(SocketAddr::new(config.postgres.host, config.postgres.port));
    socket.map(Some).map_err(|source| postgres_address(config, source))
}

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    socket.and_then(|socket| {
        // Connections of the last run linger; without this their address could not be taken for a minute.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    })
}

fn listen(socket: TcpSocket, config: &MixerConfig) -> Result<TcpListener, StartError> {
    socket.listen(1024).map_err(|source| api_address(config, source))
}

fn postgres_address(config: &MixerConfig, source: std::io::Error) -> StartError {
    StartError::PostgresAddress {
        host: config.postgres.host,
        port: config.postgres.port,
        source,
    }
}

fn api_address(config: &MixerConfig, source: std::io::Error) -> StartError {
    StartError::ApiAddress {
        host: config.api.host,
        port: config.api.port,
        source,
    }
}
