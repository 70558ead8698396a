//! Name claims of Racks: what they ask for, and what they get.
//!
//! # Invariants
//!
//! - No two Racks that are not removed have one name, and no name is an id: a word means one Rack.
//! - A number of a prefix is given once to Racks that are adopted. Until then it is only held, and nothing of it stays: whoever asks
//!   for admission under many prefixes leaves none of them behind.

use model::control::{NameClaim, RefusalCode};
use model::{EntityId, Token};

use super::{AdmissionError, no};
use crate::registry::{RackRow, RegistryError, RegistryTransaction};

/// The claim as it is remembered: a prefix ends in `*`, which no name does.
pub(super) fn claimed(claim: &NameClaim) -> String {
    match claim {
        NameClaim::Name(name) => name.to_string(),
        NameClaim::Prefix(prefix) => format!("{prefix}*"),
    }
}

/// Whether a name would mean an id.
pub(crate) fn is_id(name: &Token) -> bool {
    name.as_str().parse::<EntityId>().is_ok()
}

/// The name for a claim, if nobody else has it.
pub(super) fn free_name(
    change: &RegistryTransaction<'_>,
    claim: &NameClaim,
    own: Option<&EntityId>,
) -> Result<Token, AdmissionError> {
    match claim {
        NameClaim::Name(name) if is_id(name) => {
            let reason = format!("the name {name} looks like an id and could mean another Rack: set another base.name");
            Err(no(RefusalCode::Malformed, reason))
        }
        NameClaim::Name(name) => match change.holder(name)? {
            Some(holder) if Some(&holder) != own => {
                let reason = format!(
                    "the name {name} belongs to Rack {holder}: set another base.name, or remove that Rack with \
                     `platform racks remove {name}` if this one replaces it"
                );
                Err(no(RefusalCode::NameTaken, reason))
            }
            _ => Ok(name.clone()),
        },
        NameClaim::Prefix(prefix) => {
            let mut number = change.last_number(prefix)?;
            loop {
                number = number.saturating_add(1);
                let name = numbered(prefix.as_str(), number).parse::<Token>();
                let name = name.map_err(|error| no(RefusalCode::Malformed, error.to_string()))?;
                if !is_id(&name) && change.holder(&name)?.is_none() {
                    return Ok(name);
                }
            }
        }
    }
}

/// The number of an adopted Rack's name is its own for ever, if it has the name by its prefix.
pub(crate) fn reserve_number(change: &RegistryTransaction<'_>, row: &RackRow) -> Result<(), RegistryError> {
    let Some(prefix) = row.claimed.strip_suffix('*') else {
        return Ok(());
    };
    match number_of(prefix, row.name.as_str()) {
        Some(number) => change.keep_number(prefix, number),
        None => Ok(()),
    }
}

/// The name of a prefix and a number: where both are too long, the prefix is cut.
fn numbered(prefix: &str, number: u64) -> String {
    let number = number.to_string();
    let keep = Token::MAX_LEN - number.len().min(Token::MAX_LEN);
    format!("{}{number}", prefix.get(..keep).unwrap_or(prefix))
}

/// The number by which a prefix makes this name.
fn number_of(prefix: &str, name: &str) -> Option<u64> {
    let numbers = (1..=name.len()).filter_map(|digits| {
        let number = name.get(name.len() - digits..)?.parse().ok()?;
        (numbered(prefix, number) == name).then_some(number)
    });
    numbers.max()
}
