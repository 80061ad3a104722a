//! Events in order of time, from segments and memory.
//!
//! Every segment and run is a sorted source. A source is opened when its earliest event may be due,
//! so memory holds one block each of only those sources that overlap in time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::matching::Matcher;
use super::{Cursor, Order, Query};
use crate::format::leaf;
use crate::memory::Run;
use crate::segment::Block;
use crate::store::{Inner, ReadError, Record, Store, Stored, View};

/// Number of skipped rows between two checks whether the caller still waits.
const LOOK_EVERY: u32 = 1_024;

/// The events that match a query, one after another; see [`next`](Self::next).
///
/// It shows the store as of its creation.
#[derive(Debug)]
pub struct Scan {
    inner: Arc<Inner>,
    /// What the scan shows: its segments, and what their events are compared with.
    view: Arc<View>,
    matcher: Matcher,
    visible: u64,
    sources: Vec<Source>,
    /// By the least key a source may have next, in the order asked for.
    heap: BinaryHeap<Reverse<(Key, usize)>>,
}

/// A position in the requested order: bits are inverted if the newest come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(i64, u64);

impl Key {
    fn new(order: Order, timestamp_ns: i64, seq: u64) -> Self {
        match order {
            Order::OldestFirst => Self(timestamp_ns, seq),
            Order::NewestFirst => Self(!timestamp_ns, !seq),
        }
    }

    /// The least key of an event with times in `min..=max`.
    fn least(order: Order, min_ns: i64, max_ns: i64) -> Self {
        match order {
            Order::OldestFirst => Self(min_ns, 0),
            Order::NewestFirst => Self(!max_ns, 0),
        }
    }
}

#[derive(Debug)]
enum Source {
    Segment {
        stored: Arc<Stored>,
        /// Blocks that may contain a match, in the requested order, the next one last.
        blocks: Vec<u32>,
        open: Option<Arc<Block>>,
        /// Remaining rows of the open block, first and one past the last.
        rows: (usize, usize),
    },
    Run {
        run: Arc<Run>,
        places: (usize, usize),
    },
}

impl Store {
    /// Returns the events that match a query, in its order, as the store is now.
    #[must_use]
    pub fn scan(&self, query: Query) -> Scan {
        Scan::new(Arc::clone(self.inner()), query)
    }
}

impl Scan {
    fn new(inner: Arc<Inner>, mut query: Query) -> Self {
        if let Some(after) = query.after {
            // Blocks after the cursor need not be checked.
            let time = after.timestamp_ns;
            match query.order {
                Order::OldestFirst => query.from_ns = query.from_ns.max(Some(time)),
                Order::NewestFirst => {
                    let end = time.saturating_add(1);
                    query.to_ns = Some(query.to_ns.map_or(end, |to| to.min(end)));
                }
            }
        }
        let visible = inner.visible();
        let view = inner.view();
        let matcher = Matcher::new(query);
        let mut scan = Self {
            inner,
            view: Arc::clone(&view),
            matcher,
            visible,
            sources: Vec::new(),
            heap: BinaryHeap::new(),
        };
        scan.add_segments(&view);
        for table in &view.tables {
            for run in table.runs() {
                scan.add_run(run);
            }
        }
        scan
    }

    fn order(&self) -> Order {
        self.matcher.query().order
    }

    fn add(&mut self, source: Source, min_ns: i64, max_ns: i64) {
        let key = Key::least(self.order(), min_ns, max_ns);
        self.sources.push(source);
        self.heap.push(Reverse((key, self.sources.len() - 1)));
    }

    fn add_segments(&mut self, view: &View) {
        for stored in &view.segments {
            let (min, max) = (stored.entry.time_min_ns, stored.entry.time_max_ns);
            if stored.entry.rows == 0 || !self.matcher.overlaps(min, max) {
                continue;
            }
            // Filters are read from the disk. The first step reports that the scan has ended.
            if self.matcher.query().gone.is_gone() {
                return;
            }
            let mut blocks: Vec<u32> = (0u32..)
                .zip(stored.segment.blocks())
                .filter(|(_, block)| self.matcher.overlaps(block.time_min_ns, block.time_max_ns))
                .filter(|(number, _)| {
                    // A filter that cannot be read excludes nothing.
                    stored.segment.may_match(*number, self.matcher.terms()).unwrap_or(true)
                })
                .map(|(number, _)| number)
                .collect();
            if blocks.is_empty() {
                continue;
            }
            if self.order() == Order::OldestFirst {
                blocks.reverse();
            }
            let stored = Arc::clone(stored);
            let source = Source::Segment { stored, blocks, open: None, rows: (0, 0) };
            self.add(source, min, max);
        }
    }

    fn add_run(&mut self, run: Arc<Run>) {
        let (min, max) = run.times_ns();
        if run.len() == 0 || !self.matcher.overlaps(min, max) {
            return;
        }
        let query = self.matcher.query();
        let first = query.from_ns.map_or(0, |from| run.places_before(from));
        let end = query.to_ns.map_or(run.len(), |to| run.places_before(to));
        self.add(Source::Run { run, places: (first, end) }, min, max);
    }

    /// Returns the next event, or `None` after the last one.
    ///
    /// # Errors
    /// [`ReadError::Segment`]: a block that may contain a match is damaged.
    /// [`ReadError::Changed`]: its events are not those that were signed. [`ReadError::Gone`]: the
    /// caller has left. The scan has then ended.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would go on after one"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        if self.matcher.query().gone.is_gone() {
            self.heap.clear();
            return Err(ReadError::Gone);
        }
        while let Some(Reverse((_, slot))) = self.heap.pop() {
            match self.step(slot) {
                Ok(Step::Found(record)) => {
                    // The source's next event comes after this one.
                    let key = self.key_of(&record);
                    self.heap.push(Reverse((key, slot)));
                    return Ok(Some(record));
                }
                Ok(Step::Later(key)) => self.heap.push(Reverse((key, slot))),
                Ok(Step::End) => {}
                Err(error) => {
                    self.heap.clear();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn key_of(&self, record: &Record) -> Key {
        Key::new(self.order(), record.event().timestamp_ns, record.seq())
    }

    /// Advances one source to its next match, if its key is the least of all.
    fn step(&mut self, slot: usize) -> Result<Step, ReadError> {
        let limit = self.heap.peek().map(|Reverse((key, _))| *key);
        let (matcher, visible, inner) = (&self.matcher, self.visible, &self.inner);
        let view = &self.view;
        let order = matcher.query().order;
        let Some(source) = self.sources.get_mut(slot) else { return Ok(Step::End) };
        let mut looked = 0_u32;
        loop {
            looked = looked.wrapping_add(1);
            if looked.is_multiple_of(LOOK_EVERY) && matcher.query().gone.is_gone() {
                return Err(ReadError::Gone);
            }
            let Some((key, row)) = source.peek(inner, view, matcher.query())? else {
                return Ok(Step::End);
            };
            if limit.is_some_and(|limit| key > limit) {
                return Ok(Step::Later(key));
            }
            source.advance(order);
            if key_passed(matcher.query().after, order, key) {
                continue;
            }
            if let Some(record) = source.take(inner, matcher, visible, row)? {
                return Ok(Step::Found(record));
            }
        }
    }
}

/// Whether a key lies at or before the end of an earlier result.
fn key_passed(after: Option<Cursor>, order: Order, key: Key) -> bool {
    after.is_some_and(|after| key <= Key::new(order, after.timestamp_ns, after.seq))
}

enum Step {
    Found(Record),
    /// Returns no event before this key.
    Later(Key),
    End,
}

impl Source {
    /// Returns the key and the row of the next event, opening the next block if necessary.
    fn peek(
        &mut self,
        inner: &Inner,
        view: &View,
        query: &Query,
    ) -> Result<Option<(Key, usize)>, ReadError> {
        let order = query.order;
        match self {
            Self::Segment { stored, blocks, open, rows } => loop {
                if let Some(block) = open
                    && rows.0 < rows.1
                {
                    let row = next_of(*rows, order);
                    return Ok(Some((
                        Key::new(order, block.timestamp_ns(row), block.seq(row)),
                        row,
                    )));
                }
                let Some(number) = blocks.pop() else {
                    *open = None;
                    return Ok(None);
                };
                if query.gone.is_gone() {
                    return Err(ReadError::Gone);
                }
                let block = inner.block(view, stored, number)?;
                *rows = (0, block.len());
                *open = Some(block);
            },
            Self::Run { run, places } => {
                if places.0 >= places.1 {
                    return Ok(None);
                }
                let place = next_of(*places, order);
                let index = run.by_time(place);
                let seq = run.first_seq + index as u64;
                Ok(Some((Key::new(order, run.timestamp_ns(index), seq), index)))
            }
        }
    }

    /// Skips the event that [`peek`](Self::peek) returned.
    fn advance(&mut self, order: Order) {
        let (Self::Segment { rows: left, .. } | Self::Run { places: left, .. }) = self;
        match order {
            Order::OldestFirst => left.0 += 1,
            Order::NewestFirst => left.1 -= 1,
        }
    }

    /// Returns the event at a row, if it matches.
    fn take(
        &self,
        inner: &Inner,
        matcher: &Matcher,
        visible: u64,
        row: usize,
    ) -> Result<Option<Record>, ReadError> {
        match self {
            Self::Segment { stored, open, .. } => {
                let Some(block) = open else { return Ok(None) };
                let time = block.timestamp_ns(row);
                if !matcher.overlaps(time, time) {
                    return Ok(None);
                }
                let damaged = || ReadError::Segment(stored.segment.no_event(block.seq(row)));
                let tags = leaf::tags(block.tags(row)).map_err(|_| damaged())?;
                if !matcher.tags(&tags) {
                    return Ok(None);
                }
                let record = inner.record_of(stored, block, row)?;
                Ok(matcher.rest(&record.event()).then_some(record))
            }
            Self::Run { run, .. } => {
                let seq = run.first_seq + row as u64;
                if seq >= visible {
                    return Ok(None);
                }
                let Ok(event) = leaf::decode(run.leaf(row)) else { return Ok(None) };
                inner.check_position(seq, event.tags.stream)?;
                let found = matcher.tags(&event.tags) && matcher.rest(&event);
                Ok(found.then(|| Record::new(seq, run.leaf(row).to_vec())).flatten())
            }
        }
    }
}

/// The next of the rows that are left, `left.0 < left.1`.
fn next_of(left: (usize, usize), order: Order) -> usize {
    match order {
        Order::OldestFirst => left.0,
        Order::NewestFirst => left.1 - 1,
    }
}
