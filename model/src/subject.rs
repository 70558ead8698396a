//! Bus subjects. Built from [`Token`]s and ids only, so nothing can be smuggled in.
//!
//! | subject | what | stream |
//! |---|---|---|
//! | `flux.msg.<rack>.<gear>.<port>` | business messages | primary |
//! | `flux.gear.<rack>.<gear>` | messages that a gear could not handle | primary |
//! | `flux.telemetry.<logs\|traces\|metrics>.<rack>` | telemetry batches | `flux-telemetry` |
//! | `platform.event.<kind>` | lifecycle events | `flux-events` |
//! | `flux.agent.hello`, `.enroll`, `.heartbeat` | request/reply, Rack → Mixer | none |
//! | `flux.agent.rack.<id>.<command>` | request/reply, Mixer → Rack | none |
//! | `flux.agent.answer.<id>.<request>` | the Rack's answers, where Racks are users of the bus | none |
//! | `flux.agent.answer.<id>.<session>` | what a tap shows | none |

use crate::{EntityId, Table, Token};

/// First step of enrolment, request/reply.
pub const HELLO: &str = "flux.agent.hello";
/// Second step of enrolment, request/reply.
pub const ENROLL: &str = "flux.agent.enroll";
/// Heartbeats, request/reply.
pub const HEARTBEAT: &str = "flux.agent.heartbeat";
/// The stream of telemetry batches.
pub const TELEMETRY_STREAM: &str = "flux-telemetry";
/// The stream of lifecycle events.
pub const EVENT_STREAM: &str = "flux-events";
/// Every business message.
pub const MESSAGES_ALL: &str = "flux.msg.>";
/// Every message that a gear could not handle.
pub const GEARS_ALL: &str = "flux.gear.>";
/// Everything the telemetry stream captures.
pub const TELEMETRY_ALL: &str = "flux.telemetry.>";

/// The user of the bus that a stranger is: it may only ask for admission.
pub const ENROLL_USER: &str = "enroll";

/// What the subjects of replies to a user of the bus begin with.
#[must_use]
pub fn inbox(user: &str) -> String {
    format!("_INBOX_{user}")
}

/// The user of the bus whose inbox a subject is in: empty for the inboxes of those that have no prefix of their own. None if
/// it is no subject in an inbox, or not one subject.
#[must_use]
pub fn inbox_user(subject: &str) -> Option<&str> {
    let (inbox, rest) = subject.split_once('.')?;
    let plain = |token: &str| !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || "*>".contains(c));
    if !rest.split('.').all(plain) {
        return None;
    }
    match inbox.strip_prefix("_INBOX")? {
        "" => Some(""),
        user => user.strip_prefix('_').filter(|user| plain(user)),
    }
}

/// A telemetry batch of one table; `None` for a table that nobody publishes.
#[must_use]
pub fn telemetry(table: Table, rack: &Token) -> Option<String> {
    table.is_telemetry().then(|| format!("flux.telemetry.{table}.{rack}"))
}

/// The table and publisher of a telemetry subject.
#[must_use]
pub fn parse_telemetry(subject: &str) -> Option<(Table, Token)> {
    let mut parts = subject.strip_prefix("flux.telemetry.")?.split('.');
    let table = parts
        .next()?
        .parse()
        .ok()
        .filter(|table: &Table| table.is_telemetry())?;
    let rack = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((table, rack))
}

/// A business message leaving a gear's port.
#[must_use]
pub fn message(rack: &Token, gear: &Token, port: &Token) -> String {
    format!("flux.msg.{rack}.{gear}.{port}")
}

/// The Rack, the gear and the port of a business message's subject.
#[must_use]
pub fn parse_message(subject: &str) -> Option<(Token, Token, Token)> {
    let mut parts = subject.strip_prefix("flux.msg.")?.split('.');
    let mut token = || parts.next()?.parse::<Token>().ok();
    let found = (token()?, token()?, token()?);
    parts.next().is_none().then_some(found)
}

/// A message that a gear could not handle.
#[must_use]
pub fn gear(rack: &Token, gear: &Token) -> String {
    format!("flux.gear.{rack}.{gear}")
}

/// The Rack and the gear of a dead letter's subject.
#[must_use]
pub fn parse_gear(subject: &str) -> Option<(Token, Token)> {
    let (rack, gear) = subject.strip_prefix("flux.gear.")?.split_once('.')?;
    Some((rack.parse().ok()?, gear.parse().ok()?))
}

/// A lifecycle event.
#[must_use]
pub fn event(kind: &Token) -> String {
    format!("platform.event.{kind}")
}

/// What the Mixer says to one Rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RackCommand {
    /// [`crate::control::ScenarioPush`], answered by [`crate::control::ScenarioPushAnswer`].
    Scenario,
    /// [`crate::control::StateChange`], answered by an empty body.
    State,
    /// [`crate::control::DurableFloor`], not answered.
    Floor,
    /// [`crate::control::PortCredits`], not answered.
    Credits,
    /// [`crate::control::LevelChange`], answered by an empty body.
    LogLevel,
    /// [`crate::control::ReplayCommand`], answered by [`crate::control::ReplayAnswer`].
    Replay,
    /// [`crate::tap::TapLease`], answered by [`crate::tap::TapAnswer`].
    Tap,
}

impl RackCommand {
    /// The last token of the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::State => "state",
            Self::Floor => "floor",
            Self::Credits => "credits",
            Self::LogLevel => "log-level",
            Self::Replay => "replay",
            Self::Tap => "tap",
        }
    }

    /// The command of a subject's last token.
    #[must_use]
    pub fn of_subject(subject: &str) -> Option<Self> {
        let last = subject.rsplit('.').next()?;
        let all = [
            Self::Scenario,
            Self::State,
            Self::Floor,
            Self::Credits,
            Self::LogLevel,
            Self::Replay,
            Self::Tap,
        ];
        all.into_iter().find(|command| command.as_str() == last)
    }
}

/// A command to one Rack.
#[must_use]
pub fn rack(id: &EntityId, command: RackCommand) -> String {
    format!("flux.agent.rack.{id}.{}", command.as_str())
}

/// Every command to one Rack.
#[must_use]
pub fn rack_all(id: &EntityId) -> String {
    format!("flux.agent.rack.{id}.*")
}

/// Every command to every Rack.
pub const RACKS_ALL: &str = "flux.agent.rack.>";

/// Where one Rack answers commands: below this.
#[must_use]
pub fn answers(id: &EntityId) -> String {
    format!("flux.agent.answer.{id}")
}

/// Where one Rack shows what a tap of this session sees.
#[must_use]
pub fn tap(id: &EntityId, session: &Token) -> String {
    format!("{}.{session}", answers(id))
}

/// Every answer of every Rack to a command.
pub const ANSWERS_ALL: &str = "flux.agent.answer.>";

/// What the subjects begin with that the server puts in the place of that for an answer, where a request crosses to another account.
/// It refuses clients that want an answer there.
pub const CROSSED: &str = "_R_.";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_inbox_is_somebodys_and_nothing_else_is_one() {
        assert_eq!(inbox_user("_INBOX.a.b"), Some(""));
        assert_eq!(inbox_user(&format!("{}.a.b", inbox("UKEY"))), Some("UKEY"));
        for other in [
            "",
            "_INBOX",
            "_INBOX.",
            "_INBOX_.a",
            "_INBOX_a",
            "_INBOXES.a",
            "_INBOX.>",
            "_INBOX_a.*.b",
            "_INBOX_>.a",
            "_INBOX.a..b",
            "$JS.API.STREAM.PURGE.flux-msg",
            "flux.msg._INBOX.a.b",
        ] {
            assert_eq!(inbox_user(other), None, "{other}");
        }
    }

    #[test]
    fn a_telemetry_subject_is_read_back_and_others_are_not() {
        let rack: Token = "rack-a".parse().unwrap();
        let subject = telemetry(Table::Logs, &rack).unwrap();
        assert_eq!(parse_telemetry(&subject), Some((Table::Logs, rack)));
        for bad in [
            "flux.telemetry.logs",
            "flux.telemetry.dead_letters.a",
            "flux.telemetry.logs.a.b",
            "flux.msg.a.b.c",
        ] {
            assert_eq!(parse_telemetry(bad), None, "{bad}");
        }
    }
}
