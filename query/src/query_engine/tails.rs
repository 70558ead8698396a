//! Live tails of logs and of business messages.
//!
//! Not here: how they follow the store ([`crate::live_tail`]).

use model::filter::{LogFilter, MessageFilter};

use super::QueryEngine;
use crate::live_tail::LiveTail;
use crate::{Error, ListQuery};

impl QueryEngine {
    /// Follows the logs: rows that a filter lets through, as they become visible. With `since` or `limit` earlier rows come first, oldest first.
    /// `resume` is the `id` of the last event that the reader had, with the name of the parameter that said so; `cursor` says the same.
    ///
    /// # Errors
    /// [`Error::Parameter`], [`Error::TooManyFollowers`], [`Error::CallerFollows`], [`Error::NothingToFollow`], [`Error::Closed`].
    pub fn tail(&self, filter: &LogFilter, resume: Option<(&'static str, &str)>) -> Result<LiveTail, Error> {
        self.follow(&ListQuery::Logs(filter.clone()), resume)
    }

    /// Follows the business messages in the same way.
    ///
    /// # Errors
    /// Those of [`tail`](Self::tail).
    pub fn tail_messages(
        &self,
        filter: &MessageFilter,
        resume: Option<(&'static str, &str)>,
    ) -> Result<LiveTail, Error> {
        self.follow(&ListQuery::Messages(filter.clone()), resume)
    }

    fn follow(&self, query: &ListQuery, resume: Option<(&'static str, &str)>) -> Result<LiveTail, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        let follower = self.tails.open((&self.scope, self.caller.as_ref()), query, resume)?;
        follower.start(&self.threads, self.stop.clone())
    }
}
