//! A plain model of a store, a seeded workload that changes both, and their comparison: used by
//! every test of durability.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::Durability;
use forebay_base::clock::{Clock, ManualClock};
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_events::checkpoint::Checkpoint;
use forebay_events::format::system::SYSTEM_STREAM;
use forebay_events::merkle::{Hash, Tree, leaf_hash};
use forebay_events::query::{Order, Query};
use forebay_events::segment::{Compression, SegmentOptions};
use forebay_events::store::{Retention, verify};
use forebay_events::{AppendError, Batch, Draft, EventId, OpenError, Options, Store};

pub(crate) const DIR: &str = "/data/events";
/// When every test begins, in milliseconds.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
/// How long events of the short stream are kept.
const KEEP_NS: i64 = 500_000_000_000;

/// Everything small, so that everything happens often.
pub(crate) fn options(durability: Durability) -> Options {
    Options {
        durability,
        log_segment_size: 8 << 10,
        memory_table_events: 50,
        frozen_tables_max: 1,
        segment: SegmentOptions {
            compression: Compression::Lz4,
            block_size: 512,
            filter_bits_per_key: 10,
            text_filter: true,
        },
        segment_events_max: 400,
        retention: vec![Retention { stream: Some("short".to_owned()), keep_ns: KEEP_NS }],
        ..Options::balanced()
    }
}

pub(crate) fn durabilities() -> [Durability; 3] {
    ["sync", "interval:1h", "os"].map(|word| word.parse().unwrap())
}

/// Opens the store on a disk, without threads.
pub(crate) fn open(
    disk: &SimFs,
    clock: &Arc<ManualClock>,
    durability: Durability,
) -> Result<Store, OpenError> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    Store::open_quiet(fs, clock, Path::new(DIR), options(durability)).map(|(store, _)| store)
}

/// An event of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: EventId,
    pub(crate) timestamp_ns: i64,
    pub(crate) short: bool,
    /// When it was appended.
    pub(crate) received_ns: i64,
    pub(crate) leaf: Vec<u8>,
}

/// The expected contents of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) events: Vec<Kept>,
    /// Where batches end.
    pub(crate) ends: BTreeSet<usize>,
    pub(crate) acknowledged: usize,
    /// On stable storage whatever the durability.
    pub(crate) synced: usize,
    pub(crate) checkpoints: Vec<(u64, Hash, String)>,
    /// Events of the short stream that arrived before this may have been removed.
    pub(crate) horizon_ns: i64,
    /// All of those at positions below have been removed.
    pub(crate) pruned_below: usize,
    /// What was met.
    pub(crate) met: BTreeSet<&'static str>,
}

/// Some events in a batch, and the same for the model.
pub(crate) fn batch(rng: &mut Rng, count: usize, now_ns: i64) -> (Batch, Vec<Kept>) {
    let mut batch = Batch::new("main");
    let mut kept = Vec::new();
    for _ in 0..count {
        let short = rng.one_in(3);
        let id = match rng.below(8) {
            // Some ids come again and again.
            0 => EventId(1 + rng.below(9) as u128),
            1..5 => EventId(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())),
            _ => EventId((1 << 100) + rng.next_u64() as u128 % 100_000),
        };
        let timestamp_ns = now_ns - rng.below(5_000) as i64 * 1_000_000_000;
        let size = if rng.one_in(30) { rng.below(900) } else { rng.below(60) };
        let mut raw = format!("user{} did {} ", rng.below(9), rng.next_u64());
        raw.extend(std::iter::repeat_n('x', size));
        if rng.one_in(2) {
            let (one, two) = (rng.below(9), rng.below(3));
            raw.push_str(&format!(" 10.1.{two}.{one} 2001:db8:{two}::{one}"));
        }
        let draft = Draft {
            id: Some(id),
            timestamp_ns: Some(timestamp_ns),
            stream: Cow::Borrowed(if short { "short" } else { "" }),
            kind: Cow::Owned(format!("kind{}", rng.below(4))),
            host: Cow::Owned(format!("host{}", rng.below(5))),
            raw: Cow::Owned(raw.into_bytes()),
            ..Draft::default()
        };
        batch.push(&draft, now_ns).unwrap();
        kept.push((id, timestamp_ns, short));
    }
    let kept = kept
        .into_iter()
        .zip(batch.leaves())
        .map(|((id, timestamp_ns, short), leaf)| Kept {
            id,
            timestamp_ns,
            short,
            received_ns: now_ns,
            leaf: leaf.to_vec(),
        })
        .collect();
    (batch, kept)
}

pub(crate) fn now_ns(clock: &ManualClock) -> i64 {
    i64::try_from(clock.now_ms()).unwrap() * 1_000_000
}

impl Kept {
    /// Whether it matches a query, apart from its position.
    fn answers(&self, query: &Query) -> bool {
        let event = forebay_events::format::leaf::decode(&self.leaf).unwrap();
        let same = |wanted: &Option<String>, found| wanted.as_deref().is_none_or(|w| w == found);
        let has = |needle: &Vec<u8>| {
            needle.is_empty() || event.raw.windows(needle.len()).any(|found| found == needle)
        };
        query.from_ns.is_none_or(|from| event.timestamp_ns >= from)
            && query.to_ns.is_none_or(|to| event.timestamp_ns < to)
            && same(&query.stream, event.tags.stream)
            && same(&query.kind, event.tags.kind)
            && same(&query.host, event.tags.host)
            && query.ips.iter().all(|subnet| {
                let mut words = std::str::from_utf8(event.raw).unwrap().split(' ');
                words.any(|word| word.parse().is_ok_and(|ip| subnet.contains(ip)))
            })
            && query.severity_min.is_none_or(|least| {
                event.tags.severity >= least
                    && event.tags.severity != forebay_events::Severity::Other
            })
            && query.contains.iter().all(has)
            && query.words.iter().all(|words| crate::store_queries::has_words(words, event.raw))
            && query.regex.as_ref().is_none_or(|regex| regex.is_match(event.raw))
    }
}

impl Model {
    /// Records the result of a batch.
    pub(crate) fn append(
        &mut self,
        store: &Store,
        rng: &mut Rng,
        clock: &ManualClock,
        count: usize,
    ) -> Result<(), AppendError> {
        let (batch, kept) = batch(rng, count, now_ns(clock));
        let submitted = store.submit(batch)?;
        // What the log lost before was never acknowledged, and its positions are assigned again.
        let first = submitted.first_seq() as usize;
        self.absorb(store);
        assert!(first >= self.acknowledged && first <= self.events.len());
        assert!(first == 0 || self.ends.contains(&first), "{first}");
        self.cut(first);
        self.add(kept);
        let accepted = submitted.wait()?;
        assert_eq!(accepted.first_seq as usize, first);
        self.acknowledged = self.events.len();
        if store.options().durability == Durability::Sync {
            self.synced = self.acknowledged;
        }
        Ok(())
    }

    /// Takes over what the store itself appended. Called right after it, while that is in memory: a
    /// disk that stops later, at an operation whose failure is only logged, hides it.
    pub(crate) fn absorb(&mut self, store: &Store) {
        for seq in self.acknowledged.min(self.events.len())..store.len() as usize {
            let Ok(Some(record)) = store.at(seq as u64) else { continue };
            let event = record.event();
            let known = self.events.get(seq).is_some_and(|known| known.leaf == record.leaf());
            if event.tags.stream == SYSTEM_STREAM && !known && seq <= self.events.len() {
                self.cut(seq);
                let (id, timestamp_ns) = (event.id, event.timestamp_ns);
                let leaf = record.leaf().to_vec();
                self.add(vec![Kept { id, timestamp_ns, short: false, received_ns: 0, leaf }]);
            }
        }
    }

    fn add(&mut self, kept: Vec<Kept>) {
        self.events.extend(kept);
        self.ends.insert(self.events.len());
    }

    /// Removes what was never acknowledged and is not stored.
    pub(crate) fn cut(&mut self, len: usize) {
        self.events.truncate(len);
        self.ends.split_off(&(len + 1));
    }

    pub(crate) fn root(&self, size: usize) -> Hash {
        let mut tree = Tree::new();
        let hashes: Vec<Hash> = self.events[..size].iter().map(|e| leaf_hash(&e.leaf)).collect();
        tree.push(&hashes);
        tree.root()
    }

    pub(crate) fn expired(&self, seq: usize) -> bool {
        self.events[seq].short && self.events[seq].received_ns < self.horizon_ns
    }

    /// One step of the workload; an error ends it.
    fn step(
        &mut self,
        rng: &mut Rng,
        store: &Store,
        clock: &ManualClock,
    ) -> Result<(), Box<dyn std::error::Error>> {
        match rng.below(16) {
            0 => {
                store.flush()?;
                self.met.insert("flush");
            }
            1 => {
                self.horizon_ns = now_ns(clock) - KEEP_NS;
                store.compact()?;
                self.absorb(store);
                self.met.insert("compact");
            }
            2 => {
                clock.advance(Duration::from_secs(600));
                self.horizon_ns = now_ns(clock) - KEEP_NS;
                let pruned = store.prune()?;
                self.absorb(store);
                if pruned.events > 0 {
                    self.met.insert("prune");
                }
            }
            3 | 4 => {
                let note = store.checkpoint()?;
                self.signed(store, note);
                self.met.insert("checkpoint");
            }
            5 => {
                for _ in 0..12 {
                    self.append(store, rng, clock, 1)?;
                }
            }
            6 => self.append(store, rng, clock, 70)?,
            _ => {
                let count = 1 + rng.below(24);
                self.append(store, rng, clock, count)?;
            }
        }
        Ok(())
    }

    /// Has a checkpoint signed.
    pub(crate) fn checkpoint(&mut self, store: &Store) {
        let note = store.checkpoint().unwrap();
        self.signed(store, note);
    }

    /// Prunes what is expired now; with everything in segments, all of that is removed.
    pub(crate) fn prune(&mut self, store: &Store, clock: &ManualClock) -> u64 {
        self.horizon_ns = now_ns(clock) - KEEP_NS;
        let gone = store.prune().unwrap().events;
        self.absorb(store);
        self.pruned_below = self.events.len();
        gone
    }

    /// The remaining events if everything expired was removed by the last pruning.
    pub(crate) fn there(&self) -> Vec<usize> {
        let there = |seq: &usize| *seq >= self.pruned_below || !self.expired(*seq);
        (0..self.events.len()).filter(there).collect()
    }

    /// The remaining events that match a query, in its order.
    pub(crate) fn matching(&self, query: &Query) -> Vec<usize> {
        let key = |seq: usize| (self.events[seq].timestamp_ns, seq);
        let mut found: Vec<usize> = self
            .there()
            .into_iter()
            .filter(|&seq| self.events[seq].answers(query))
            .filter(|&seq| {
                query.after.is_none_or(|after| {
                    let after = (after.timestamp_ns, after.seq as usize);
                    match query.order {
                        Order::OldestFirst => key(seq) > after,
                        Order::NewestFirst => key(seq) < after,
                    }
                })
            })
            .collect();
        found.sort_by_key(|&seq| key(seq));
        if query.order == Order::NewestFirst {
            found.reverse();
        }
        found
    }

    fn signed(&mut self, store: &Store, note: String) {
        let key = store.verifier_key().unwrap();
        let checkpoint = Checkpoint::open(note.as_bytes(), &key).unwrap();
        self.absorb(store);
        // An append that was not acknowledged may be stored or not.
        assert!(checkpoint.size >= self.acknowledged as u64);
        self.cut(checkpoint.size as usize);
        assert_eq!(checkpoint.size, self.events.len() as u64);
        assert_eq!(checkpoint.root, self.root(self.events.len()));
        self.synced = self.events.len();
        self.acknowledged = self.acknowledged.max(self.synced);
        self.checkpoints.push((checkpoint.size, checkpoint.root, note));
    }

    /// Runs steps, closing and reopening sometimes, until one fails.
    pub(crate) fn run(
        &mut self,
        rng: &mut Rng,
        disk: &SimFs,
        clock: &Arc<ManualClock>,
        durability: Durability,
        steps: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut store = open(disk, clock, durability)?;
        for _ in 0..steps {
            if rng.one_in(14) {
                store.close()?;
                self.synced = self.events.len();
                store = open(disk, clock, durability)?;
                self.met.insert("reopen");
            }
            self.step(rng, &store, clock)?;
        }
        Ok(())
    }

    /// As [`run`](Self::run), but a failed step is followed by others, and reading continues
    /// meanwhile. Returns how many steps failed; an error only where the store could not be opened
    /// again.
    pub(crate) fn run_on(
        &mut self,
        rng: &mut Rng,
        disk: &SimFs,
        clock: &Arc<ManualClock>,
        durability: Durability,
        steps: usize,
    ) -> Result<usize, OpenError> {
        let mut failed = 0;
        let mut store = open(disk, clock, durability)?;
        for _ in 0..steps {
            if rng.one_in(14) {
                match store.close() {
                    Ok(()) => self.synced = self.acknowledged,
                    Err(_) => failed += 1,
                }
                if disk.stopped() {
                    return Ok(failed);
                }
                store = open(disk, clock, durability)?;
                self.judge(&store, self.acknowledged);
            }
            if self.step(rng, &store, clock).is_err() {
                failed += 1;
                if disk.stopped() {
                    return Ok(failed);
                }
                self.absorb(&store);
                for _ in 0..4 {
                    let seq = rng.below(store.len() as usize);
                    match store.at(seq as u64).unwrap() {
                        Some(found) => assert!(found.leaf() == self.events[seq].leaf),
                        None => assert!(store.is_empty() || self.expired(seq), "{seq}"),
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Compares a store with the model, which then takes over the store's contents.
    ///
    /// * `least`: minimum number of events.
    pub(crate) fn judge(&mut self, store: &Store, least: usize) {
        let len = store.len() as usize;
        self.absorb(store);
        assert!(len >= least, "{len} events, {least} were promised");
        assert!(len <= self.events.len() && (len == 0 || self.ends.contains(&len)), "{len}");
        self.cut(len);
        self.acknowledged = len;
        self.synced = self.synced.min(len);
        let mut there: Vec<usize> = Vec::new();
        for seq in 0..len {
            match store.at(seq as u64).unwrap() {
                Some(record) => {
                    assert_eq!(record.seq(), seq as u64);
                    assert!(record.leaf() == self.events[seq].leaf, "event {seq} is another");
                    there.push(seq);
                }
                None => assert!(self.expired(seq), "event {seq} is gone"),
            }
        }
        self.judge_scan(store, &there);
        for seq in (0..len).step_by(7).chain(len.checked_sub(1)) {
            let id = self.events[seq].id;
            let first = there.iter().find(|&&seq| self.events[seq].id == id);
            let found = store.get(id).unwrap().map(|record| record.seq() as usize);
            assert_eq!(found, first.copied());
        }
        for (size, root, _) in &self.checkpoints {
            assert_eq!(store.root_at(*size).unwrap(), *root, "the root of {size} events");
        }
    }

    fn judge_scan(&self, store: &Store, there: &[usize]) {
        let mut expected = there.to_vec();
        expected.sort_by_key(|&seq| (self.events[seq].timestamp_ns, seq));
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let mut scan = store.scan(Query { order, ..Query::default() });
            let mut found = Vec::new();
            while let Some(record) = scan.next().unwrap() {
                found.push(record.seq() as usize);
            }
            assert_eq!(found, expected, "{order:?}");
            expected.reverse();
        }
    }

    /// Verifies what is on a disk whose store is closed.
    pub(crate) fn verify(&self, disk: &SimFs) {
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let since: Vec<String> = self.checkpoints.iter().map(|(.., note)| note.clone()).collect();
        let verified = verify(&fs, Path::new(DIR), &since, None, &|_| ()).unwrap();
        let gone = (0..self.events.len()).filter(|&seq| self.expired(seq)).count() as u64;
        assert!(verified.faults.is_empty(), "{:?}", verified.faults);
        assert_eq!(verified.events + verified.pruned, self.events.len() as u64);
        assert!(verified.pruned <= gone);
        assert_eq!(verified.root, Some(self.root(self.events.len())));
    }
}
