//! Lifecycle events of Racks, scenarios and dead letters: the kinds of audit entries and of events.
//!
//! Not here: the entries, and how they are published (the Mixer's `registry::audit` and `events`).

/// The events, each by its name.
macro_rules! lifecycle_events {
    ($($event:ident => $name:literal,)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum LifecycleEvent {
            $($event,)*
        }

        impl LifecycleEvent {
            /// Their names, each the last token of a subject.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// The last token of the subject.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$event => $name,)*
                }
            }
        }
    };
}

lifecycle_events! {
    RackPending => "rack_pending",
    RackApproved => "rack_approved",
    RackAdopted => "rack_adopted",
    RackSuspended => "rack_suspended",
    RackResumed => "rack_resumed",
    RackRemoved => "rack_removed",
    RackRenamed => "rack_renamed",
    RackOffline => "rack_offline",
    RackOnline => "rack_online",
    RackLogLevel => "rack_log_level",
    RackLabels => "rack_labels",
    ScenarioImported => "scenario_imported",
    ScenarioActivated => "scenario_activated",
    ScenarioRolledBack => "scenario_rolled_back",
    ScenarioDeleted => "scenario_deleted",
    LettersReplayed => "letters_replayed",
    LettersDropped => "letters_dropped",
    TokenCreated => "token_created",
    TokenRevoked => "token_revoked",
    CallRefused => "call_refused",
    BackupMade => "backup_made",
    BackupRestored => "backup_restored",
    InviteCreated => "invite_created",
    InviteRevoked => "invite_revoked",
    InviteRefused => "invite_refused",
    ClusterKeyRotated => "cluster_key_rotated",
    BusAuthorityRotated => "bus_authority_rotated",
    ChangeRequested => "change_requested",
    RequestWithdrawn => "request_withdrawn",
}

impl LifecycleEvent {
    /// Whether nobody decided it: a Rack was not heard, or is heard again.
    #[must_use]
    pub fn is_sighting(kind: &str) -> bool {
        [Self::RackOffline, Self::RackOnline]
            .iter()
            .any(|event| event.as_str() == kind)
    }

    /// Whether a Rack's state is another one since then.
    #[must_use]
    pub fn is_transition(kind: &str) -> bool {
        let keeps_state = [Self::RackRenamed, Self::RackLogLevel, Self::RackLabels];
        kind.starts_with("rack_") && !keeps_state.iter().any(|event| event.as_str() == kind)
    }
}
