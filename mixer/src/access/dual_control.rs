//! What may need a second person: the words of `api.second_person`.
//!
//! Not here: how a second person is waited for ([`crate::control`]).

use std::str::FromStr;

/// A kind of change that two callers must ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DualControlAction {
    /// Admitting Racks: approvals and invites.
    Approve,
    /// Having Racks run another scenario: activations and rollbacks.
    Activate,
}

impl DualControlAction {
    /// Its word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Activate => "activate",
        }
    }
}

impl FromStr for DualControlAction {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let known = [Self::Approve, Self::Activate];
        known.into_iter().find(|action| action.as_str() == word).ok_or(())
    }
}
