//! The memory of one reader: what it may hold, and what it holds.

use parking_lot::Mutex;

use crate::error::{Exceeded, What};

/// What a reader of several columns holds.
///
/// A column keeps its dictionary and its current page from one batch to the next. What it had before is
/// held on by the batch that is being made, as far as its values are views.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: u64,
    /// The columns of a batch, but for what texts take.
    columns: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What columns keep, all together.
    kept: u64,
    /// What only the batch that is being made holds.
    batch: u64,
    fault: Option<Exceeded>,
}

/// Where in a file something is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) row_group: usize,
    pub(crate) column: &'a str,
    pub(crate) page: usize,
}

impl Meter {
    pub(crate) fn new(limit: u64, columns: u64) -> Self {
        Self { limit, columns, state: Mutex::default() }
    }

    /// Begins a batch: those before are the caller's.
    pub(crate) fn begin(&self) {
        self.state.lock().batch = 0;
    }

    /// Checks that there is room for this many more bytes.
    ///
    /// # Errors
    /// There is none; this is kept as the fault.
    pub(crate) fn admit(&self, what: What, at: At<'_>, declared: u64) -> Result<(), Exceeded> {
        let mut state = self.state.lock();
        let held = self.columns.saturating_add(state.kept).saturating_add(state.batch);
        if held.saturating_add(declared) <= self.limit {
            return Ok(());
        }
        let exceeded = Exceeded {
            what,
            row_group: at.row_group,
            column: at.column.to_owned(),
            page: at.page,
            declared,
            held,
            limit: self.limit,
        };
        state.fault = Some(exceeded.clone());
        Err(exceeded)
    }

    /// A column keeps `now` instead of `before`, of which the batch still holds `held`, and `more`.
    pub(crate) fn keep(&self, before: u64, now: u64, held: u64, more: u64) {
        let mut state = self.state.lock();
        state.kept = state.kept.saturating_sub(before).saturating_add(now);
        state.batch = state.batch.saturating_add(held).saturating_add(more);
    }

    /// Why there was no room, if that is so.
    pub(crate) fn fault(&self) -> Option<Exceeded> {
        self.state.lock().fault.take()
    }
}
