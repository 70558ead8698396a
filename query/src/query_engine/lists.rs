//! Lists of rows: a page of a table, of sums of metrics, or of what belongs to one flux, and whether an answer that somebody kept is
//! still the answer.
//!
//! # Tags
//!
//! An answer has a tag if its window ended before now and no row in it is only in memory: it then comes from data files alone,
//! and the tag is a hash of the question, of the scope of who asks, of the store's id and of the versions of all files that meet the window. A row that
//! arrives late is in memory first and in a file of another version after that; one outside the window changes no tag, if it
//! comes into other files. Versions change without their rows when a file is sealed: a tag may change where the answer does
//! not, never the other way round.

use std::hash::{DefaultHasher, Hash, Hasher};

use engine::ReadView;
use model::Table;
use model::filter::RowFilter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::QueryEngine;
use crate::ListQuery;
use crate::aggregation::metric_aggregation::{self, MetricAggregation};
use crate::cell_cut::cut_cells;
use crate::cursor::PageCursor;
use crate::flux::{self, FluxScan};
use crate::query_result::{JsonPage, ListAnswer};
use crate::query_scan::QueryScan;
use crate::row_query::RowQuery;
use crate::row_rendering::RowRendering;
use crate::time_range::TimeRange;
use crate::{Error, keyset_pagination, row_context};

impl QueryEngine {
    /// A list of rows, newest first unless it is asked for otherwise.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, query: &ListQuery) -> Result<ListAnswer, Error> {
        self.list_rows(query, &RowFilter::default()).await
    }

    /// As [`QueryEngine::list`], with its rows shown as a filter says it, or those around one of them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_rows(&self, query: &ListQuery, rows: &RowFilter) -> Result<ListAnswer, Error> {
        let asked = query.row_query().shown_as(rows)?;
        let (paging, fingerprint, raw) = (asked.paging()?, asked.fingerprint, asked.raw);
        if let ListQuery::Metrics(filter) = query
            && let Some(summary) = MetricAggregation::of(filter)?
        {
            let summed_up = |scan, after| {
                let (summary, now) = (summary.clone(), self.now());
                async move { metric_aggregation::aggregate_page(&scan, &summary, paging, after, fingerprint, now).await }
            };
            return self.run_list(&asked, query, summed_up).await;
        }
        if let ListQuery::Flux(id, _) = query {
            let limit = paging.limit;
            let signal = |messages, after| {
                let asked = flux::FluxRequest {
                    id: *id,
                    limit,
                    after,
                    fingerprint,
                    raw,
                };
                async move { FluxScan::new(messages, asked)?.page().await }
            };
            return self.run_list(&asked, query, signal).await;
        }
        let shown = RowRendering {
            raw,
            positions: asked.positions,
        };
        if let Some(context) = asked.around {
            let rows = |scan: QueryScan, _: Option<()>| {
                let widest = asked.widest(scan.window);
                row_context::rows_around(scan, context, widest, shown, self.limits.timeout)
            };
            return self.run_list(&asked, query, rows).await;
        }
        let rows = |scan, from| async move { keyset_pagination::list(&scan, paging, from, fingerprint, shown).await };
        self.run_list(&asked, query, rows).await
    }

    /// What a scan of the window gives, from a position on if one is given, with its tag.
    async fn run_list<P, W>(
        &self,
        asked: &RowQuery,
        query: &ListQuery,
        answer: impl Fn(QueryScan, Option<P>) -> W,
    ) -> Result<ListAnswer, Error>
    where
        P: Clone + Serialize + DeserializeOwned,
        W: Future<Output = Result<ListAnswer, Error>> + Send + 'static,
    {
        let (window, from) = self.resolve_start::<P>(asked)?;
        let (conditions, cells) = (query.conditions(), asked.cells);
        self.run(|| {
            let scan = self.scan(asked.table, window, conditions.clone());
            let begun = scan.map(|mut scan| {
                scan.order = asked.order.unwrap_or_default();
                let (tag, session) = (self.tag_of(asked, window, scan.view()), scan.session());
                (answer(scan, from.clone()), tag, session)
            });
            async move {
                let (list, tag, session) = begun?;
                let memory = session.memory("cells");
                let mut list = cut_cells(list.await?, cells, &memory).await?;
                list.tag = tag;
                list.reserve_memory(&session)
            }
        })
        .await
    }

    /// The window, and the position to go on from, of a first or a later page.
    fn resolve_start<P: Serialize + DeserializeOwned>(
        &self,
        asked: &RowQuery,
    ) -> Result<(TimeRange, Option<P>), Error> {
        match asked.cursor.as_deref() {
            Some(token) => {
                let cursor = PageCursor::parse(token, asked.fingerprint)?;
                Ok((cursor.window, Some(cursor.position)))
            }
            None => Ok((asked.window(self.now())?, None)),
        }
    }

    /// The tag that the answer of [`QueryEngine::list_rows`] would have now; `None` if it would have none or if there is no answer.
    #[must_use]
    pub fn tag(&self, query: &ListQuery, rows: &RowFilter) -> Option<u64> {
        let asked = query.row_query().shown_as(rows).ok()?;
        let (window, _) = self.resolve_start::<Value>(&asked).ok()?;
        self.tag_of(&asked, window, &self.engine.view())
    }

    /// The tag of the answer from a view.
    fn tag_of(&self, asked: &RowQuery, window: TimeRange, view: &ReadView) -> Option<u64> {
        let is_readable = |table: &Table| self.scope.conditions(*table).is_ok();
        // Around a row is looked beyond a window that the request does not have.
        let is_bounded = asked.until.is_some() && (asked.since.is_some() || asked.around.is_none());
        let is_past = is_bounded && window.until <= self.now();
        let tables = || std::iter::once(&asked.table).chain(asked.also);
        let mut hot = tables().flat_map(|table| view.hot(*table));
        if !is_past || !tables().all(is_readable) || hot.any(|hot| window.overlaps(hot.min_ts, hot.max_ts)) {
            return None;
        }
        let paging = asked.paging().ok()?;
        let mut hasher = DefaultHasher::new();
        (env!("CARGO_PKG_VERSION"), self.engine.store_id(), &*self.scope).hash(&mut hasher);
        (asked.table, asked.fingerprint, paging.limit, paging.offset).hash(&mut hasher);
        (&asked.cursor, window.since, window.until, view.partial()).hash(&mut hasher);
        (asked.positions, asked.around, asked.cells).hash(&mut hasher);
        let files = tables().flat_map(|table| view.files(*table));
        for file in files.filter(|file| window.overlaps(file.min_ts, file.max_ts)) {
            (file.id, file.version, file.rows, file.size, file.min_ts, file.max_ts).hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// As [`QueryEngine::list`], as objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn page(&self, query: ListQuery) -> Result<JsonPage, Error> {
        Ok(self.list(&query).await?.into())
    }
}
