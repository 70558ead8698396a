//! AccessRole-based access control: the rights that routes need, and the roles that give them.
//!
//! Invariant: a right says one thing that a caller may do. A role is a list of rights, a token has one role or several; what none of them gives is
//! refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a caller must be allowed for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessRight {
    /// Nothing: anybody may ask whether the process lives.
    Anybody,
    /// To be known: what a caller may hear about itself.
    Known,
    /// Health, version, metrics and the document of the API.
    Monitor,
    /// Rows of telemetry and messages.
    ReadRows,
    /// Racks, scenarios by name, wires, gear types, specs, storage.
    ReadFleet,
    /// The texts of scenarios, which may name addresses and accounts.
    ReadScenarios,
    /// The audit log.
    ReadAudit,
    /// Storing rows of telemetry.
    Ingest,
    /// Storing and deleting scenarios.
    WriteScenarios,
    /// Having Racks run a scenario.
    ActivateScenarios,
    /// Admitting a Rack.
    AdmitRacks,
    /// Making and revoking invites, by which Racks are admitted.
    InviteRacks,
    /// Suspending and resuming Racks; their log levels.
    OperateRacks,
    /// Seeing and withdrawing changes that wait for a second person.
    HandleRequests,
    /// Changing labels, by which scenarios choose Racks.
    LabelRacks,
    /// Revoking a Rack's identity.
    RemoveRacks,
    /// Replaying and dropping dead letters.
    HandleLetters,
    /// Making and revoking tokens.
    ManageTokens,
    /// Copying the registry and the keys, on the Mixer's machine.
    BackUp,
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessRole {
    /// Watches the Mixer: health and metrics.
    Monitor,
    /// Reads telemetry and messages, and what Racks there are.
    Reader,
    /// Stores telemetry, and does nothing else.
    Ingester,
    /// Writes scenarios; has nobody run them.
    Author,
    /// Admits and operates Racks, activates scenarios, handles dead letters.
    Operator,
    /// May do everything.
    Admin,
    /// Reads the audit log, and what Racks there are.
    Auditor,
}

impl AccessRole {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Monitor,
        Self::Reader,
        Self::Ingester,
        Self::Author,
        Self::Operator,
        Self::Admin,
        Self::Auditor,
    ];

    /// Its name in requests, files and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Monitor => "monitor",
            Self::Reader => "reader",
            Self::Ingester => "ingester",
            Self::Author => "author",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Auditor => "auditor",
        }
    }

    /// Whether it gives a right.
    #[must_use]
    pub fn has(self, right: AccessRight) -> bool {
        use AccessRight as R;
        let given: &[R] = match self {
            Self::Admin => return true,
            Self::Monitor => &[R::Monitor],
            Self::Reader => &[R::Monitor, R::ReadRows, R::ReadFleet],
            Self::Ingester => &[R::Ingest],
            Self::Author => &[R::Monitor, R::ReadFleet, R::ReadScenarios, R::WriteScenarios],
            Self::Operator => &[
                R::Monitor,
                R::ReadRows,
                R::ReadFleet,
                R::ReadScenarios,
                R::ActivateScenarios,
                R::AdmitRacks,
                R::InviteRacks,
                R::HandleRequests,
                R::OperateRacks,
                R::LabelRacks,
                R::HandleLetters,
            ],
            Self::Auditor => &[R::Monitor, R::ReadFleet, R::ReadAudit],
        };
        matches!(right, R::Anybody | R::Known) || given.contains(&right)
    }

    /// The roles that give a right, by name.
    pub(crate) fn names_with(right: AccessRight) -> Vec<&'static str> {
        Self::ALL
            .into_iter()
            .filter(|role| role.has(right))
            .map(Self::as_str)
            .collect()
    }
}

/// Roles as a sentence names them: `author and operator`.
pub(crate) fn role_list(roles: &[AccessRole]) -> String {
    let names: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    names.join(" and ")
}

impl std::fmt::Display for AccessRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
