//! Expansion of `${NAME}` references in values of configurations.
//!
//! # Not here
//!
//! The environment: the caller looks names up.

/// What a text comes to whose `${NAME}` references were replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvExpansion {
    /// All of them.
    Text(String),
    /// It has none.
    Plain,
    /// The variable of this name is not set.
    Unset(String),
}

/// Replaces every `${NAME}` of a text with what `env` says.
pub fn expand_env(text: &str, mut env: impl FnMut(&str) -> Option<String>) -> EnvExpansion {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else {
            break;
        };
        let Some(value) = env(name) else {
            return EnvExpansion::Unset(name.to_owned());
        };
        out.push_str(before);
        out.push_str(&value);
        (rest, found) = (tail, true);
    }
    if !found {
        return EnvExpansion::Plain;
    }
    out.push_str(rest);
    EnvExpansion::Text(out)
}
