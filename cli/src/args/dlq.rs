//! The flags of the dead-letter queue.

use clap::{Args as ClapArgs, Subcommand};
use model::filter::{LetterFilter, LetterStateFilter};
use model::{HumanDuration, LetterId};

use super::shared::{ApiArgs, PageArgs, one_of, window};
use crate::error::Error;
use crate::time_args::TimeArg;

const STATES: &[&str] = &["open", "waiting", "replayed", "dropped", "all"];

#[derive(Debug, ClapArgs)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(crate) verb: DlqVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqVerb {
    /// List letters, the newest first: without --state those that are open or waiting
    List(Box<DlqListArgs>),
    /// Show one letter: where it came from, why it failed, its message and its bytes
    Show {
        /// The letter's id
        id: LetterId,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Replay letters to the gears that could not handle them; each is handled once, however often it is requested
    Replay(Box<DlqReplayArgs>),
    /// Mark letters as dropped; their rows stay until they expire
    Drop(Box<DlqDropArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LetterFilterArgs {
    /// Letters of this Rack
    #[arg(long)]
    pub(crate) rack: Option<String>,
    /// Letters of this gear
    #[arg(long)]
    pub(crate) gear: Option<String>,
    /// Letters with this subject, or whose message came by the wire with this subject
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Letters whose reason contains this, case-insensitive
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Letters in this state: open, waiting, replayed, dropped or all
    #[arg(long, hide_possible_values = true, value_parser = one_of::<LetterStateFilter>(STATES))]
    pub(crate) state: Option<LetterStateFilter>,
}

impl LetterFilterArgs {
    /// What the API is asked, the times apart.
    pub(crate) fn filter(&self) -> LetterFilter {
        LetterFilter {
            rack: self.rack.clone(),
            gear: self.gear.clone(),
            subject: self.subject.clone(),
            reason: self.reason.clone(),
            state: self.state,
            ..LetterFilter::default()
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DlqListArgs {
    #[command(flatten)]
    pub(crate) which: LetterFilterArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// Letters by their ids, or all that a filter lets through.
#[derive(Debug, ClapArgs)]
pub(crate) struct LetterSelectionArgs {
    /// The letters' ids; or select them by the flags
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<LetterId>,
    #[command(flatten)]
    pub(crate) which: LetterFilterArgs,
    /// Start: an age (90s, 1h, 7d) or a time
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<TimeArg>,
    /// End (exclusive): the same [default: now; letters that come later are left alone]
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<TimeArg>,
    /// All letters that are open or waiting, or in the state of --state
    #[arg(long)]
    pub(crate) all: bool,
    /// Only show what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl LetterSelectionArgs {
    /// The filter, where no ids are given.
    pub(crate) fn filter(&self) -> Result<Option<LetterFilter>, Error> {
        let (since, until) = window((self.since, self.until), self.api.zone())?;
        let filter = LetterFilter {
            since,
            until,
            ..self.which.filter()
        };
        let is_wrong = if self.ids.is_empty() {
            !self.all && !filter.is_narrow()
        } else {
            self.all || filter != LetterFilter::default()
        };
        if is_wrong {
            let reason = "select letters: give ids, filter flags (--rack, --gear, --subject, --reason, --since, \
                          --until), or --all";
            return Err(Error::Usage(reason.to_owned()));
        }
        Ok(self.ids.is_empty().then_some(filter))
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DlqReplayArgs {
    #[command(flatten)]
    pub(crate) many: LetterSelectionArgs,
    /// Also letters that were replayed or dropped before
    #[arg(long)]
    pub(crate) again: bool,
    /// How long to wait for the gears, at most 60s
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) wait: HumanDuration,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DlqDropArgs {
    #[command(flatten)]
    pub(crate) many: LetterSelectionArgs,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}
