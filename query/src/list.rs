//! Lists of rows: which one is asked for, and whether an answer that somebody kept is still the answer.
//!
//! # Tags
//!
//! An answer has a tag if its window ended before now and no row in it is only in memory: it then comes from data files alone,
//! and the tag is a hash of the question and of the versions of all files that meet the window. A row that arrives late is in
//! memory first and in a file of another version after that; one outside the window changes no tag, if it comes into other
//! files. Versions change without their rows when a file is sealed: a tag may change where the answer does not, never the
//! other way round.

use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::logical_expr::Expr;
use engine::ReadView;
use model::filter::{
    DeadLetterFilter, FluxFilter, LetterFilter, LogFilter, MessageFilter, MetricFilter, TraceFilter, When,
};
use model::{FluxId, Table};
use serde_json::Value;

use crate::answer::{List, Page};
use crate::cursor::fingerprint;
use crate::filter;
use crate::metrics::{self, Summary};
use crate::querier::RowQuery;
use crate::window::Window;
use crate::{Error, Querier};

/// Which rows are asked for.
#[derive(Debug, Clone)]
pub enum ListQuery {
    /// Log records.
    Logs(LogFilter),
    /// Spans.
    Traces(TraceFilter),
    /// Metric points, or what they come to.
    Metrics(MetricFilter),
    /// Business messages.
    Messages(MessageFilter),
    /// Telemetry that could not be decoded.
    DeadLetters(DeadLetterFilter),
    /// One business signal: its messages, spans and log records, the oldest first.
    Flux(FluxId, FluxFilter),
    /// The rows that letters of the dead-letter queue can be among: what the filter says of their state is not met here.
    Letters(LetterFilter),
}

impl ListQuery {
    fn row_query(&self) -> Result<RowQuery, Error> {
        match self {
            Self::Logs(filter) => Ok(RowQuery {
                order: filter.order.unwrap_or_default(),
                flux_id: filter.flux_id,
                ..RowQuery::new(
                    (Table::Logs, fingerprint(filter)),
                    (filter.since, filter.until),
                    (filter.limit, filter.offset, filter.cursor.as_ref()),
                )?
            }),
            Self::Traces(filter) => Ok(RowQuery {
                order: filter.order.unwrap_or_default(),
                flux_id: filter.flux_id,
                ..RowQuery::new(
                    (Table::Traces, fingerprint(filter)),
                    (filter.since, filter.until),
                    (filter.limit, filter.offset, filter.cursor.as_ref()),
                )?
            }),
            Self::Metrics(filter) => RowQuery::new(
                (Table::Metrics, fingerprint(filter)),
                (filter.since, filter.until),
                (filter.limit, filter.offset, filter.cursor.as_ref()),
            ),
            Self::Messages(filter) => Ok(RowQuery {
                order: filter.order.unwrap_or_default(),
                flux_id: filter.flux_id,
                raw: filter.raw.unwrap_or_default(),
                ..RowQuery::new(
                    (Table::Messages, fingerprint(filter)),
                    (filter.since, filter.until),
                    (filter.limit, filter.offset, filter.cursor.as_ref()),
                )?
            }),
            Self::DeadLetters(filter) => RowQuery::new(
                (Table::DeadLetters, fingerprint(filter)),
                (filter.since, filter.until),
                (filter.limit, filter.offset, filter.cursor.as_ref()),
            ),
            Self::Flux(id, filter) => Ok(RowQuery {
                also: &[Table::Traces, Table::Logs],
                raw: filter.raw.unwrap_or_default(),
                ..RowQuery::new(
                    (Table::Messages, fingerprint(filter) ^ fingerprint(id)),
                    (Some(filter.since.unwrap_or(When::EVER)), filter.until),
                    (filter.limit, None, filter.cursor.as_ref()),
                )?
            }),
            Self::Letters(filter) => RowQuery::new(
                (Table::DeadLetters, fingerprint(filter)),
                (Some(filter.since.unwrap_or(When::EVER)), filter.until),
                (filter.limit, None, filter.cursor.as_ref()),
            ),
        }
    }

    fn conditions(&self) -> Vec<Expr> {
        match self {
            Self::Logs(filter) => filter::logs(filter),
            Self::Traces(filter) => filter::traces(filter),
            Self::Metrics(filter) => filter::metrics(filter),
            Self::Messages(filter) => filter::messages(filter),
            Self::DeadLetters(_) => Vec::new(),
            Self::Flux(id, _) => vec![filter::flux(*id)],
            Self::Letters(filter) => filter::letters(filter),
        }
    }
}

impl Querier {
    /// A list of rows, newest first unless it is asked for otherwise.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, query: &ListQuery) -> Result<List, Error> {
        let asked = query.row_query()?;
        if let ListQuery::Metrics(filter) = query
            && let Some(summary) = Summary::of(filter)?
        {
            return self.summed_up(asked, &summary, query.conditions()).await;
        }
        if let ListQuery::Flux(id, _) = query {
            return self.flux(*id, asked).await;
        }
        self.rows(asked, query.conditions()).await
    }

    /// The tag that the answer would have now; `None` if it would have none or if there is no answer.
    #[must_use]
    pub fn tag(&self, query: &ListQuery) -> Option<u64> {
        let asked = query.row_query().ok()?;
        let (window, _) = self.begin::<Value>(&asked).ok()?;
        self.tag_of(&asked, window, &self.engine.view())
    }

    /// The tag of the answer from a view.
    pub(crate) fn tag_of(&self, asked: &RowQuery, window: Window, view: &ReadView) -> Option<u64> {
        let is_past = asked.until.is_some() && window.until <= self.now();
        let tables = || std::iter::once(&asked.table).chain(asked.also);
        let mut hot = tables().flat_map(|table| view.hot(*table));
        if !is_past || hot.any(|hot| window.meets(hot.min_ts, hot.max_ts)) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        (asked.table, asked.fingerprint, asked.paging.limit, asked.paging.offset).hash(&mut hasher);
        (&asked.cursor, window.since, window.until, view.partial()).hash(&mut hasher);
        let files = tables().flat_map(|table| view.files(*table));
        for file in files.filter(|file| window.meets(file.min_ts, file.max_ts)) {
            (file.id, file.version, file.rows, file.size, file.min_ts, file.max_ts).hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    async fn summed_up(&self, asked: RowQuery, summary: &Summary, conditions: Vec<Expr>) -> Result<List, Error> {
        let (window, after) = self.begin(&asked)?;
        let (paging, fingerprint) = (asked.paging, asked.fingerprint);
        self.run(|| {
            let scan = self.scan(Table::Metrics, window, conditions.clone());
            let tag = self.tag_of(&asked, window, scan.view());
            let (summary, after, now) = (summary.clone(), after.clone(), self.now());
            async move {
                let list = metrics::page(&scan, &summary, paging, after, fingerprint, now).await?;
                Ok(list.with_tag(tag))
            }
        })
        .await
    }

    async fn rows(&self, asked: RowQuery, conditions: Vec<Expr>) -> Result<List, Error> {
        let (window, from) = self.begin(&asked)?;
        let (paging, fingerprint, raw) = (asked.paging, asked.fingerprint, asked.raw);
        self.run(|| {
            let mut scan = self.scan(asked.table, window, conditions.clone());
            scan.order = asked.order;
            let tag = self.tag_of(&asked, window, scan.view());
            async move {
                let list = crate::rows::list(&scan, paging, from, fingerprint, raw).await?;
                Ok(list.with_tag(tag))
            }
        })
        .await
    }

    /// The log records that a filter lets through, as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn logs(&self, filter: &LogFilter) -> Result<Page, Error> {
        Ok(self.list(&ListQuery::Logs(filter.clone())).await?.into())
    }

    /// The spans that a filter lets through, as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn traces(&self, filter: &TraceFilter) -> Result<Page, Error> {
        Ok(self.list(&ListQuery::Traces(filter.clone())).await?.into())
    }

    /// The metric points that a filter lets through, or what they come to, as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn metrics(&self, filter: &MetricFilter) -> Result<Page, Error> {
        Ok(self.list(&ListQuery::Metrics(filter.clone())).await?.into())
    }

    /// The business messages that a filter lets through, as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn messages(&self, filter: &MessageFilter) -> Result<Page, Error> {
        Ok(self.list(&ListQuery::Messages(filter.clone())).await?.into())
    }

    /// Telemetry that could not be decoded, as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dead_letters(&self, filter: &DeadLetterFilter) -> Result<Page, Error> {
        Ok(self.list(&ListQuery::DeadLetters(filter.clone())).await?.into())
    }
}
