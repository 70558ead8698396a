//! A row query, common to the lists of all tables: table, window, order and page.
//!
//! Not here: the filters of each table ([`crate::list_query`]), how a page is found ([`crate::keyset_pagination`]).

use model::filter::{RawForm, SortOrder, TimePoint};
use model::{FluxId, Table};

use crate::Error;
use crate::filter::PageBounds;

/// What the lists of all tables have in common.
pub(crate) struct RowQuery {
    pub(crate) table: Table,
    /// Other tables whose rows are in the answer.
    pub(crate) also: &'static [Table],
    pub(crate) fingerprint: u64,
    pub(crate) since: Option<TimePoint>,
    pub(crate) until: Option<TimePoint>,
    pub(crate) limit: Option<u32>,
    pub(crate) offset: Option<u32>,
    pub(crate) cursor: Option<String>,
    pub(crate) order: Option<SortOrder>,
    pub(crate) flux_id: Option<FluxId>,
    /// How the bytes of messages are shown.
    pub(crate) raw: RawForm,
}

impl RowQuery {
    /// The rows of a table, by the fingerprint of a filter, its bounds of time, and its limit, offset and cursor.
    pub(crate) fn new(
        (table, fingerprint): (Table, u64),
        (since, until): (Option<TimePoint>, Option<TimePoint>),
        (limit, offset, cursor): (Option<u32>, Option<u32>, &Option<String>),
    ) -> Self {
        Self {
            table,
            also: &[],
            fingerprint,
            since,
            until,
            limit,
            offset,
            cursor: cursor.clone(),
            order: None,
            flux_id: None,
            raw: RawForm::default(),
        }
    }

    pub(crate) fn paging(&self) -> Result<PageBounds, Error> {
        PageBounds::check(self.limit, self.offset, self.cursor.as_deref())
    }
}
