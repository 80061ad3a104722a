//! Events in order of time, out of segments and memory.
//!
//! Every segment and run is a source, sorted by itself. A source is opened when its earliest event may
//! be due, so memory holds a block of those only that overlap in time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::matching::Matcher;
use super::{Cursor, Order, Query};
use crate::format::leaf;
use crate::memory::Run;
use crate::segment::Block;
use crate::store::{Inner, ReadError, Record, Store, Stored, View};

/// Events that answer a query, one after another; see [`next`](Self::next).
///
/// It shows the store as it was when it began.
#[derive(Debug)]
pub struct Scan {
    inner: Arc<Inner>,
    matcher: Matcher,
    visible: u64,
    sources: Vec<Source>,
    /// By the least key a source may have next, in the order asked for.
    heap: BinaryHeap<Reverse<(Key, usize)>>,
}

/// A place in the order asked for: bits turned over where the newest come first.
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
        /// Blocks that may have an answer, in the order asked for, the next one last.
        blocks: Vec<u32>,
        open: Option<Arc<Block>>,
        /// Rows of the open block that are left, first and one past the last.
        rows: (usize, usize),
    },
    Run {
        run: Arc<Run>,
        places: (usize, usize),
    },
}

impl Store {
    /// Events that answer a query, in the order it asks for, as the store is now.
    #[must_use]
    pub fn scan(&self, query: Query) -> Scan {
        Scan::new(Arc::clone(self.inner()), query)
    }
}

impl Scan {
    fn new(inner: Arc<Inner>, mut query: Query) -> Self {
        if let Some(after) = query.after {
            // What lies behind the cursor need not be looked at.
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
        let mut scan =
            Self { inner, matcher, visible, sources: Vec::new(), heap: BinaryHeap::new() };
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
            let mut blocks: Vec<u32> = (0u32..)
                .zip(stored.segment.blocks())
                .filter(|(_, block)| self.matcher.overlaps(block.time_min_ns, block.time_max_ns))
                .filter(|(number, _)| {
                    // A filter that cannot be read rules nothing out.
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

    /// The next event, or `None` behind the last one.
    ///
    /// # Errors
    /// [`ReadError::Segment`]: a block that may have an answer is damaged. The scan is then at its end.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would go on after one"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        while let Some(Reverse((_, slot))) = self.heap.pop() {
            match self.step(slot) {
                Ok(Step::Found(record)) => {
                    // The source's next event comes behind this one.
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

    /// Goes on in one source: to its next answer, if it is the least of all.
    fn step(&mut self, slot: usize) -> Result<Step, ReadError> {
        let limit = self.heap.peek().map(|Reverse((key, _))| *key);
        let (matcher, visible, inner) = (&self.matcher, self.visible, &self.inner);
        let order = matcher.query().order;
        let Some(source) = self.sources.get_mut(slot) else { return Ok(Step::End) };
        loop {
            let Some((key, row)) = source.peek(inner, order)? else { return Ok(Step::End) };
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

/// Whether a key lies at or before the place an earlier answer ended at.
fn key_passed(after: Option<Cursor>, order: Order, key: Key) -> bool {
    after.is_some_and(|after| key <= Key::new(order, after.timestamp_ns, after.seq))
}

enum Step {
    Found(Record),
    /// Nothing before this key.
    Later(Key),
    End,
}

impl Source {
    /// The key and the row of the next event, opening the next block where that is needed.
    fn peek(&mut self, inner: &Inner, order: Order) -> Result<Option<(Key, usize)>, ReadError> {
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
                let block = inner.block(stored, number)?;
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

    /// Leaves the event behind that [`peek`](Self::peek) showed.
    fn advance(&mut self, order: Order) {
        let (Self::Segment { rows: left, .. } | Self::Run { places: left, .. }) = self;
        match order {
            Order::OldestFirst => left.0 += 1,
            Order::NewestFirst => left.1 -= 1,
        }
    }

    /// The event at a row, if it is one that was asked for.
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
                Ok(matcher.raw(record.event().raw).then_some(record))
            }
            Self::Run { run, .. } => {
                let seq = run.first_seq + row as u64;
                if seq >= visible {
                    return Ok(None);
                }
                let Ok(event) = leaf::decode(run.leaf(row)) else { return Ok(None) };
                let found = matcher.tags(&event.tags) && matcher.raw(event.raw);
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
