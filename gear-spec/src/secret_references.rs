//! Values that may refer to the environment of the Rack, such as secrets.
//!
//! # Invariants
//!
//! - A secret never stands in a scenario: it is a `${NAME}` reference to the environment.
//! - The Rack's own settings (`PLATFORM_…`) are not given away.

use model::{EnvExpansion, expand_env};

/// Whether a value may stand in a scenario as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueSecrecy {
    /// It may.
    Plain,
    /// It is a secret: only a reference may.
    Secret,
}

/// The value of a key whose text may have `${NAME}` references. The error names the key.
///
/// # Errors
/// A secret that is no reference, a variable that is not set, or one of the Rack's own.
pub(crate) fn resolved(
    key: &str,
    text: &str,
    secrecy: ValueSecrecy,
    env: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut own = None;
    let found = expand_env(text, |variable| {
        if variable.starts_with("PLATFORM_") {
            own = Some(variable.to_owned());
        }
        env(variable)
    });
    if let Some(variable) = own {
        return Err(format!(
            "{key}: ${{{variable}}} is a setting of the Rack itself and is not given away; use another variable"
        ));
    }
    match found {
        EnvExpansion::Text(value) => Ok(value),
        EnvExpansion::Plain if secrecy == ValueSecrecy::Secret => Err(format!(
            "{key} is a secret and must not be in a scenario: write a reference such as \"${{API_TOKEN}}\" \
             and set that variable in the environment of the Rack"
        )),
        EnvExpansion::Plain => Ok(text.to_owned()),
        EnvExpansion::Unset(variable) => Err(format!(
            "{key} refers to ${{{variable}}}, which is not set in the environment of this Rack"
        )),
    }
}
