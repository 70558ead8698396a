//! The tasks of an agent that speak with the Mixer: commands, telemetry, messages, the session.

use std::sync::Arc;
use std::time::Duration;

use chassis::bus::{AttemptHold, BusConnection};
use model::control::NameClaim;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::AgentParts;
use super::agent_status::AgentChannels;
use crate::command_listener::{CommandListener, LogLevelControl};
use crate::controller;
use crate::host::{self, BusHost};
use crate::message_limits::MessageLimits;
use crate::mixer_session::{
    ControllerLink, HeartbeatCounter, MixerSession, SessionHost, SessionOutputs, SessionSettings, SessionStores,
    SharedLimits,
};
use crate::outbox::{GuaranteedLane, MessageOutbox};
use crate::signed_rpc::RpcClient;
use crate::spool::SpoolHandle;
use crate::state_file::StateFile;
use crate::tap::{TapLeases, TapRegistry};
use crate::telemetry::{SelfMetrics, SpoolPublisher, SpoolPublisherParts, TelemetryCounters, TelemetryRecorder};

/// The floor of messages stands still this long before everything above it is sent again: a Mixer that starts again waits for what its bus may have lost.
const MESSAGE_FLOOR_STALL: Duration = Duration::from_secs(5);

/// The tasks that speak with the Mixer or about the Rack.
pub(super) struct MixerTasks<'a> {
    pub(super) parts: &'a AgentParts,
    pub(super) bus: &'a BusConnection,
    pub(super) spool: &'a SpoolHandle,
    pub(super) outbox: &'a Arc<MessageOutbox>,
    pub(super) recorder: &'a TelemetryRecorder,
    pub(super) counters: &'a Arc<TelemetryCounters>,
    pub(super) limits: MessageLimits,
    pub(super) taps: TapRegistry,
    pub(super) cancel: &'a CancellationToken,
}

impl MixerTasks<'_> {
    /// Starts them.
    pub(super) fn start(
        self,
        (state, held): (StateFile, Option<AttemptHold>),
        claim: NameClaim,
        orders: mpsc::Sender<controller::ControllerCommand>,
        channels: AgentChannels,
    ) -> Vec<JoinHandle<()>> {
        let config = &self.parts.config;
        let subscribed = channels.subscribed.subscribe();
        let commands = CommandListener {
            client: self.bus.client.clone(),
            address: channels.address.subscribe(),
            identity: channels.identity.subscribe(),
            subscribed: channels.subscribed,
            orders: orders.clone(),
            spool: self.spool.clone(),
            outbox: Arc::clone(self.outbox),
            changed: Arc::clone(&channels.changed),
            passed_over: None,
            level: LogLevelControl::new(self.parts.level.clone()),
            taps: TapLeases::new(self.taps, self.bus.client.clone()),
            cancel: self.cancel.clone(),
        };
        let lane = GuaranteedLane {
            outbox: Arc::clone(self.outbox),
            bus: self.bus.clone(),
            stream: config.snake.stream_name.to_string(),
        };
        let sender = |spool: &SpoolHandle, lane| SpoolPublisherParts {
            spool: spool.clone(),
            bus: self.bus.clone(),
            identity: channels.identity.subscribe(),
            counters: Arc::clone(self.counters),
            clock: self.parts.clock.clone(),
            stall: match lane {
                Some(_) => self.parts.floor_stall.min(MESSAGE_FLOOR_STALL),
                None => self.parts.floor_stall,
            },
            lane,
            cancel: self.cancel.clone(),
        };
        let messages = SpoolPublisher::new(sender(self.outbox.spool(), Some((lane, self.limits.clone()))));
        let mut tasks = vec![tokio::spawn(commands.run()), tokio::spawn(messages.run())];
        if config.observability.enabled {
            let rows = SpoolPublisher::new(sender(self.spool, None));
            tasks.push(tokio::spawn(rows.run()));
            let own = SelfMetrics {
                recorder: self.recorder.clone(),
                spool: self.spool.clone(),
                counters: Arc::clone(self.counters),
                cancel: self.cancel.clone(),
            };
            tasks.push(tokio::spawn(own.run()));
        }
        let is_answered = state.passport().is_some();
        let session = MixerSession {
            bus: self.bus.clone(),
            asker: RpcClient::new(Arc::clone(self.counters)),
            state,
            host: SessionHost {
                claim,
                ip: config.rack.ip,
                bus_host: BusHost::of(&self.bus.options().url),
                machine: host::HostProbe::new(config.base.state_dir.clone()),
            },
            settings: SessionSettings {
                enrollment_timeout: config.rack.enrollment_timeout,
                heartbeat_interval: config.rack.heartbeat_interval,
                stream: config.snake.stream_name.clone(),
            },
            heartbeats: HeartbeatCounter {
                sent: 0,
                clock: self.parts.clock.clone(),
            },
            is_answered,
            held,
            entropy: self.parts.entropy.clone(),
            stores: SessionStores {
                spool: self.spool.clone(),
                outbox: Arc::clone(self.outbox),
            },
            limits: SharedLimits {
                messages: self.limits,
                recorder: self.recorder.clone(),
            },
            outputs: SessionOutputs {
                identity: channels.identity,
                address: channels.address,
                pending: channels.pending,
            },
            controller: ControllerLink {
                subscribed,
                report: channels.report.subscribe(),
                orders,
                changed: channels.changed,
            },
            cancel: self.cancel.clone(),
        };
        tasks.push(tokio::spawn(session.run()));
        tasks
    }
}
