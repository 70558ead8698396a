//! The control plane: the RPCs of Racks, rollout, liveness, flow control, the startup scenario.

use std::sync::Arc;

use model::{Clock, Entropy};

use super::MixerComponents;
use super::core_services::CoreServices;
use crate::agent_rpc::{AgentRpcServer, MisroutedReplies, RpcServices};
use crate::app::settings;
use crate::bus_server::MixerBus;
use crate::config::MixerConfig;
use crate::control::{ControlLimits, ControlPlane, DualControl};
use crate::enrollment::EnrollmentService;
use crate::heartbeat::HeartbeatHandler;
use crate::liveness_monitor::LivenessMonitor;
use crate::rejection_counters::RejectionCounters;
use crate::scenario::{
    self, ConvergenceMonitor, FlowControl, RolloutParts, ScenarioCache, ScenarioRef, ScenarioRollout, StreamExpiry,
    WireConsumerManager,
};
use crate::start_error::StartError;
use crate::tasks::{FailureReporter, SupervisedTask};

impl MixerComponents {
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
    pub(super) async fn control_plane(
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
    pub(super) async fn activate(
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
}
