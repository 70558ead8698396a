//! Lifecycle events of Racks, scenarios and dead letters: the kinds of audit entries and of events.
//!
//! Not here: the entries (`registry::audit`) and how they are published (`events`).

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LifecycleEvent {
    RackPending,
    RackApproved,
    RackAdopted,
    RackSuspended,
    RackResumed,
    RackRemoved,
    RackRenamed,
    RackOffline,
    RackOnline,
    RackLogLevel,
    RackLabels,
    ScenarioImported,
    ScenarioActivated,
    ScenarioRolledBack,
    ScenarioDeleted,
    LettersReplayed,
    LettersDropped,
    TokenCreated,
    TokenRevoked,
    CallRefused,
    BackupMade,
    BackupRestored,
    InviteCreated,
    InviteRevoked,
    InviteRefused,
    ClusterKeyRotated,
    BusAuthorityRotated,
    ChangeRequested,
    RequestWithdrawn,
}

impl LifecycleEvent {
    /// The last token of the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RackPending => "rack_pending",
            Self::RackApproved => "rack_approved",
            Self::RackAdopted => "rack_adopted",
            Self::RackSuspended => "rack_suspended",
            Self::RackResumed => "rack_resumed",
            Self::RackRemoved => "rack_removed",
            Self::RackRenamed => "rack_renamed",
            Self::RackOffline => "rack_offline",
            Self::RackOnline => "rack_online",
            Self::RackLogLevel => "rack_log_level",
            Self::RackLabels => "rack_labels",
            Self::ScenarioImported => "scenario_imported",
            Self::ScenarioActivated => "scenario_activated",
            Self::ScenarioRolledBack => "scenario_rolled_back",
            Self::ScenarioDeleted => "scenario_deleted",
            Self::LettersReplayed => "letters_replayed",
            Self::LettersDropped => "letters_dropped",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::CallRefused => "call_refused",
            Self::BackupMade => "backup_made",
            Self::BackupRestored => "backup_restored",
            Self::InviteCreated => "invite_created",
            Self::InviteRevoked => "invite_revoked",
            Self::InviteRefused => "invite_refused",
            Self::ClusterKeyRotated => "cluster_key_rotated",
            Self::BusAuthorityRotated => "bus_authority_rotated",
            Self::ChangeRequested => "change_requested",
            Self::RequestWithdrawn => "request_withdrawn",
        }
    }

    /// Whether nobody decided it: a Rack was not heard, or is heard again.
    pub(crate) fn is_sighting(kind: &str) -> bool {
        [Self::RackOffline, Self::RackOnline]
            .iter()
            .any(|event| event.as_str() == kind)
    }

    /// Whether a Rack's state is another one since then.
    pub(crate) fn is_transition(kind: &str) -> bool {
        let keeps_state = [Self::RackRenamed, Self::RackLogLevel, Self::RackLabels];
        kind.starts_with("rack_") && !keeps_state.iter().any(|event| event.as_str() == kind)
    }
}
