//! A row query, common to the lists of all tables: table, window, order and page.
//!
//! Not here: the filters of each table ([`crate::list_query`]), how a page is found ([`crate::keyset_pagination`]).

use model::filter::{
    DEFAULT_CONTEXT, DEFAULT_WINDOW, MAX_CONTEXT, RawForm, RowFilter, RowPosition, SortOrder, TimePoint,
};
use model::{FluxId, Table, Timestamp};

use crate::Error;
use crate::cell_cut::cell_size;
use crate::filter::PageBounds;
use crate::time_range::TimeRange;

/// A row, and how many before and after it are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RowContext {
    pub(crate) position: RowPosition,
    pub(crate) before: usize,
    pub(crate) after: usize,
}

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
    /// Whether each row says its position.
    pub(crate) positions: bool,
    /// Instead of a page.
    pub(crate) around: Option<RowContext>,
    /// Longer cells are cut.
    pub(crate) cells: Option<usize>,
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
            positions: false,
            around: None,
            cells: None,
        }
    }

    /// Shown as a request says it.
    pub(crate) fn shown_as(mut self, rows: &RowFilter) -> Result<Self, Error> {
        self.positions = rows.positions.unwrap_or_default();
        self.cells = cell_size(rows.cells)?;
        let Some(position) = rows.around else {
            let counts = [("before", rows.before.is_some()), ("after", rows.after.is_some())];
            refuse(counts, "it counts rows beside one: give its position as around")?;
            return Ok(self);
        };
        let paging = [
            ("limit", self.limit.is_some()),
            ("offset", self.offset.is_some()),
            ("cursor", self.cursor.is_some()),
        ];
        refuse(
            paging,
            "the rows around one have no pages: before and after say how many there are",
        )?;
        self.around = Some(RowContext {
            position,
            before: context_size("before", rows.before)?,
            after: context_size("after", rows.after)?,
        });
        Ok(self)
    }

    /// Where is looked. Around a row, that is a day before and after it on a side that the request does not bound.
    pub(crate) fn window(&self, now: Timestamp) -> Result<TimeRange, Error> {
        let window = TimeRange::resolve(self.since, self.until, self.flux_id, now)?;
        let Some(RowContext { position, .. }) = self.around else {
            return Ok(window);
        };
        let near = TimeRange {
            since: position.ts.minus(DEFAULT_WINDOW.get()),
            until: position.ts.plus(DEFAULT_WINDOW.get()),
        };
        Ok(self.bounded_or(window, near))
    }

    /// As a window, but everything that is stored on a side that the request does not bound.
    pub(crate) fn widest(&self, window: TimeRange) -> TimeRange {
        self.bounded_or(window, TimeRange::ALL)
    }

    fn bounded_or(&self, window: TimeRange, other: TimeRange) -> TimeRange {
        TimeRange {
            since: if self.since.is_some() {
                window.since
            } else {
                other.since
            },
            until: if self.until.is_some() {
                window.until
            } else {
                other.until
            },
        }
    }

    pub(crate) fn paging(&self) -> Result<PageBounds, Error> {
        PageBounds::check(self.limit, self.offset, self.cursor.as_deref())
    }
}

/// Refuses the first of some parameters that is given.
fn refuse<const N: usize>(given: [(&'static str, bool); N], reason: &str) -> Result<(), Error> {
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Error::parameter(name, reason)),
        None => Ok(()),
    }
}

fn context_size(name: &'static str, rows: Option<u32>) -> Result<usize, Error> {
    match rows.unwrap_or(DEFAULT_CONTEXT) {
        rows if rows > MAX_CONTEXT => Err(Error::parameter(name, format!("{rows} is more than {MAX_CONTEXT}"))),
        rows => Ok(rows as usize),
    }
}
