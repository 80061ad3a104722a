//! A plain model of the data, a few commands to change it, and a seeded workload with snapshots;
//! used by every test of durability.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::Durability;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::Rng;
use forebay_cache::persist::{
    FLUSH, Journal, OpenError, Opened, Ops, PersistOptions, Restore, SnapshotError,
    SnapshotProgress, open, snapshot,
};
use forebay_cache::store::{
    At, DATABASES, Deadline, Held, Key, Keyspace, Object, Rules, SHARDS, Shard, Value,
};
use forebay_cache::types::{Hash, List, Set, ZSet};
use forebay_log::Lsn;

pub(crate) const DIR: &str = "/cache";

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plain {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    ZSet(BTreeMap<Vec<u8>, f64>),
}

/// All keys, by database, with their deadlines.
pub(crate) type State = BTreeMap<(usize, Vec<u8>), (Plain, Option<u64>)>;

/// An operation: its database and its words.
pub(crate) type Op = (usize, Vec<Vec<u8>>);

/// Stores keys in small pieces, so that everything is split often.
pub(crate) fn options(durability: Durability) -> PersistOptions {
    PersistOptions {
        durability,
        segment_size: 4 << 10,
        entry_size_max: 400,
        buffer_size_max: 4 << 10,
        snapshot_log_min: 2_000,
        piece_size: 150,
        large_size: 900,
        seed: Some(7),
    }
}

fn text(value: f64) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn number(word: &[u8]) -> f64 {
    std::str::from_utf8(word).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Runs an operation on the shard of its key.
pub(crate) fn apply(shard: &mut Shard, key: &Key<'_>, words: &[&[u8]]) -> Result<(), String> {
    let wrong = |_| String::from("WRONGTYPE");
    match words {
        [b"SET", _, value] => shard.put_string(key, value, Deadline::None),
        [b"SETAT", _, value, at] => {
            shard.put_string(key, value, Deadline::At(number(at) as u64));
        }
        [b"APPEND", _, tail] => {
            shard.append(key, tail).map_err(wrong)?;
        }
        [b"EXPIREAT", _, at] => {
            shard.set_deadline(key, Some(number(at) as u64));
        }
        [b"DEL", _] => {
            shard.remove(key);
        }
        [b"RPUSH", _, elements @ ..] => {
            let push = |list: &mut List| elements.iter().for_each(|word| list.push_back(word));
            shard.edit_or_new(key, push).map_err(wrong)?;
        }
        [b"HSET", _, field, value] => {
            shard.edit_or_new(key, |hash: &mut Hash| hash.set(field, value)).map_err(wrong)?;
        }
        [b"SADD", _, member] => {
            shard.edit_or_new(key, |set: &mut Set| set.insert(member)).map_err(wrong)?;
        }
        [b"ZINCR", _, member, by] => {
            let add = |zset: &mut ZSet| {
                zset.insert(member, zset.score(member).unwrap_or(0.0) + number(by));
            };
            shard.edit_or_new(key, add).map_err(wrong)?;
        }
        _ => return Err(String::from("unknown command")),
    }
    Ok(())
}

/// Applies the operation to the model.
fn apply_to_model(state: &mut State, now_ms: u64, (database, words): &Op) {
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    if words == [FLUSH] {
        state.retain(|(held, _), _| held != database);
        return;
    }
    let place = (*database, words[1].to_vec());
    if state.get(&place).is_some_and(|(_, at)| at.is_some_and(|at| at <= now_ms)) {
        state.remove(&place);
    }
    let held = state.remove(&place);
    let (value, mut deadline) = held.map_or((None, None), |(value, at)| (Some(value), at));
    let value = match (words.as_slice(), value) {
        ([b"SET", _, text], _) => {
            deadline = None;
            Some(Plain::Text(text.to_vec()))
        }
        ([b"SETAT", _, text, at], _) => {
            deadline = Some(number(at) as u64);
            Some(Plain::Text(text.to_vec()))
        }
        ([b"APPEND", _, tail], None) => Some(Plain::Text(tail.to_vec())),
        ([b"APPEND", _, tail], Some(Plain::Text(text))) => {
            Some(Plain::Text([&text, *tail].concat()))
        }
        ([b"EXPIREAT", _, at], Some(value)) => {
            deadline = Some(number(at) as u64);
            Some(value)
        }
        ([b"DEL" | b"EXPIREAT", ..], _) => None,
        ([b"RPUSH", _, elements @ ..], value) => {
            let Some(Plain::List(mut list)) = value.or(Some(Plain::List(Vec::new()))) else {
                panic!("the workload gives every key one type")
            };
            list.extend(elements.iter().map(|word| word.to_vec()));
            Some(Plain::List(list))
        }
        ([b"HSET", _, field, text], value) => {
            let Some(Plain::Hash(mut hash)) = value.or(Some(Plain::Hash(BTreeMap::new()))) else {
                panic!("the workload gives every key one type")
            };
            hash.insert(field.to_vec(), text.to_vec());
            Some(Plain::Hash(hash))
        }
        ([b"SADD", _, member], value) => {
            let Some(Plain::Set(mut set)) = value.or(Some(Plain::Set(BTreeSet::new()))) else {
                panic!("the workload gives every key one type")
            };
            set.insert(member.to_vec());
            Some(Plain::Set(set))
        }
        ([b"ZINCR", _, member, by], value) => {
            let Some(Plain::ZSet(mut zset)) = value.or(Some(Plain::ZSet(BTreeMap::new()))) else {
                panic!("the workload gives every key one type")
            };
            *zset.entry(member.to_vec()).or_insert(0.0) += number(by);
            Some(Plain::ZSet(zset))
        }
        other => panic!("no operation of the workload: {other:?}"),
    };
    if let Some(value) = value {
        state.insert(place, (value, deadline));
    }
}

fn plain(value: Value) -> Plain {
    match value {
        Value::String(text) => Plain::Text(text),
        Value::Text(text) => Plain::Text(text.text().plain().into_owned()),
        Value::Object(Object::List(list)) => Plain::List(list.iter().map(<[u8]>::to_vec).collect()),
        Value::Object(Object::Hash(hash)) => {
            Plain::Hash(hash.iter().map(|(field, text)| (field.to_vec(), text.to_vec())).collect())
        }
        Value::Object(Object::Set(set)) => {
            Plain::Set(set.iter().map(|member| member.to_vec()).collect())
        }
        Value::Object(Object::ZSet(zset)) => {
            Plain::ZSet(zset.iter().map(|(member, score)| (member.to_vec(), score)).collect())
        }
    }
}

/// Every key that has not expired.
pub(crate) fn dump(keyspace: &Keyspace, now_ms: u64) -> State {
    let mut state = State::new();
    for database in (0..DATABASES).filter(|&database| keyspace.is_made(database)) {
        for shard in 0..SHARDS {
            let mut shard = keyspace.lock(database, shard, now_ms);
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let mut next = Some(0);
            while let Some(from) = next {
                next = shard.visit_range(from, &mut |shard: &Shard, at: At| {
                    keys.push(shard.key(at).to_vec());
                });
            }
            for key in keys {
                let hashed = keyspace.key(&key);
                let Some(at) = shard.find(&hashed) else { continue };
                let deadline = shard.deadline_ms(at);
                let value = shard.value(&hashed).unwrap();
                let before = state.insert((database, key), (plain(value), deadline));
                assert!(before.is_none(), "a key is there once");
            }
        }
    }
    state
}

/// Recovers with the commands above.
pub(crate) struct Plainly;

impl Restore for Plainly {
    type Store = Keyspace;

    fn build(&mut self, seed: u64) -> Keyspace {
        Keyspace::new(Rules::new(seed))
    }

    fn replay(
        &mut self,
        keyspace: &Keyspace,
        now_ms: u64,
        database: usize,
        words: &[&[u8]],
    ) -> Result<(), String> {
        let key = keyspace.key(words[1]);
        apply(&mut keyspace.lock(database, key.shard(), now_ms), &key, words)
    }
}

pub(crate) fn reopen(
    fs: impl FileSystem + 'static,
    durability: Durability,
) -> Result<Opened<Keyspace>, OpenError> {
    reopen_with(fs, &options(durability))
}

pub(crate) fn reopen_with(
    fs: impl FileSystem + 'static,
    options: &PersistOptions,
) -> Result<Opened<Keyspace>, OpenError> {
    open(Arc::new(fs), Path::new(DIR), options, &mut Plainly)
}

/// Runs operations as one command would, and appends them; the locks are held until then.
pub(crate) fn execute(
    keyspace: &Keyspace,
    journal: &Journal,
    now_ms: u64,
    ops: &[Op],
) -> Result<Lsn, String> {
    let mut places = BTreeSet::new();
    for (database, words) in ops {
        match words.get(1) {
            Some(key) => {
                places.insert((*database, keyspace.key(key).shard()));
            }
            None => places.extend((0..SHARDS).map(|shard| (*database, shard))),
        }
    }
    let mut held: BTreeMap<(usize, usize), Held<'_>> =
        places.into_iter().map(|place| (place, keyspace.lock(place.0, place.1, now_ms))).collect();
    let mut logged = Ops::default();
    for (database, words) in ops {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        match words.get(1) {
            Some(key) => {
                let key = keyspace.key(key);
                apply(held.get_mut(&(*database, key.shard())).unwrap(), &key, &words)?;
            }
            None => {
                for shard in 0..SHARDS {
                    held.get_mut(&(*database, shard)).unwrap().clear();
                }
            }
        }
        logged.push(*database, &words);
    }
    journal.append(now_ms, &logged).map_err(|error| error.to_string())
}

/// What was done, and what was promised.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) now_ms: u64,
    /// The model after each append, the empty one first, and where the append ended.
    pub(crate) states: Vec<(Lsn, Arc<State>)>,
    /// How many appends were acknowledged, and how many are on stable storage.
    pub(crate) acknowledged: usize,
    pub(crate) synced: usize,
    /// Snapshots taken, large values restarted in them, and bytes of log they freed.
    pub(crate) snapshots: usize,
    pub(crate) abandoned: usize,
    pub(crate) freed: usize,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { now_ms: 1_000, states: vec![(Lsn(0), Arc::default())], ..Self::default() }
    }

    fn last(&self) -> &State {
        &self.states[self.states.len() - 1].1
    }

    /// Some operations, as one command or transaction.
    fn some_ops(rng: &mut Rng, now_ms: u64) -> Vec<Op> {
        let count = 1 + if rng.one_in(4) { rng.below(4) } else { 0 };
        (0..count).map(|_| Self::some_op(rng, now_ms)).collect()
    }

    fn some_op(rng: &mut Rng, now_ms: u64) -> Op {
        let database = if rng.one_in(5) { 3 } else { 0 };
        let filler = vec![b'a' + (rng.below(26) as u8); 1 + rng.below(40)];
        let long: Vec<u8> = (0..1_200 + rng.below(800)).map(|_| rng.next_u64() as u8).collect();
        let n = rng.below(6);
        let named = |kind: &str| format!("{kind}:{n}").into_bytes();
        let at = (now_ms + rng.below(40) as u64).to_string().into_bytes();
        let words: Vec<Vec<u8>> = match rng.below(40) {
            0 => vec![FLUSH.to_vec()],
            1..=6 => vec![b"SET".to_vec(), named("text"), filler],
            7..=9 => vec![b"SETAT".to_vec(), named("text"), filler, at],
            10..=15 => vec![b"APPEND".to_vec(), named("text"), filler],
            16..=17 => vec![b"SET".to_vec(), named("text"), long],
            // Long enough for a snapshot to take it in pieces.
            18..=19 => {
                let elements = long.chunks(200).map(<[u8]>::to_vec);
                [b"RPUSH".to_vec(), named("list")].into_iter().chain(elements).collect()
            }
            20 => vec![b"EXPIREAT".to_vec(), named("list"), at],
            21..=22 => vec![b"DEL".to_vec(), named(["text", "list", "hash", "set"][n % 4])],
            23..=30 => vec![b"RPUSH".to_vec(), named("list"), filler.clone(), filler],
            31..=33 => vec![b"HSET".to_vec(), named("hash"), text(rng.below(50) as f64), filler],
            34..=36 => vec![b"SADD".to_vec(), named("set"), text(rng.below(90) as f64)],
            _ => {
                vec![b"ZINCR".to_vec(), named("zset"), filler, text(rng.below(9) as f64 - 4.5)]
            }
        };
        (database, words)
    }

    /// Changes something; an error ends the run.
    pub(crate) fn change(
        &mut self,
        rng: &mut Rng,
        keyspace: &Keyspace,
        journal: &Journal,
    ) -> Result<(), String> {
        self.now_ms += rng.below(4) as u64;
        let ops = Self::some_ops(rng, self.now_ms);
        let mut state = State::clone(self.last());
        ops.iter().for_each(|op| apply_to_model(&mut state, self.now_ms, op));
        // Its end is known only if it was accepted; a part of it may be stored anyway.
        let appended = execute(keyspace, journal, self.now_ms, &ops);
        let end = appended.as_ref().copied().unwrap_or(Lsn(u64::MAX));
        self.states.push((end, Arc::new(state)));
        appended.map(|_| ())
    }

    fn note_synced(&mut self, journal: &Journal) {
        let synced = journal.log().synced();
        let count = self.states.iter().take_while(|(end, _)| *end <= synced).count() - 1;
        self.synced = self.synced.max(count);
    }

    /// Takes a snapshot during changes.
    fn snapshot(
        &mut self,
        rng: &mut Rng,
        keyspace: &Keyspace,
        journal: &Journal,
    ) -> Result<(), String> {
        let now_ms = self.now_ms;
        let before = std::cell::Cell::new(SnapshotProgress::default());
        let shared = std::cell::RefCell::new((self, rng, Ok(())));
        let taken = snapshot(keyspace, journal, now_ms, &AtomicBool::new(false), &|progress| {
            let (this, rng, result) = &mut *shared.borrow_mut();
            // No progress is reported between the pieces of a large value.
            let in_pieces = before.replace(*progress) == *progress;
            if result.is_ok() && rng.one_in(if in_pieces { 3 } else { 20 }) {
                *result = this.change(rng, keyspace, journal);
            }
        });
        let (this, _, result) = shared.into_inner();
        result?;
        match taken {
            Ok(report) => {
                assert!(report.info.lowest <= report.info.highest);
                this.snapshots += 1;
                this.abandoned += report.abandoned as usize;
                this.freed += report.log_freed as usize;
                this.note_synced(journal);
                Ok(())
            }
            // The disk failed, not the log: there is no snapshot, and work continues.
            Err(SnapshotError::Io(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn step(
        &mut self,
        rng: &mut Rng,
        keyspace: &Keyspace,
        journal: &Journal,
    ) -> Result<(), String> {
        match rng.below(24) {
            0..=13 => self.change(rng, keyspace, journal)?,
            14..=19 => {
                journal.commit(journal.end()).map_err(|error| error.to_string())?;
                self.acknowledged = self.states.len() - 1;
            }
            20 => {
                journal.log().sync().map_err(|error| error.to_string())?;
            }
            21 => {
                // What has expired may be swept at any time: this is not logged.
                let mut shard = keyspace.lock(0, rng.below(SHARDS), self.now_ms);
                shard.sweep(0);
            }
            _ => self.snapshot(rng, keyspace, journal)?,
        }
        self.note_synced(journal);
        Ok(())
    }

    /// Runs steps on the open store, until one fails.
    pub(crate) fn run(
        &mut self,
        rng: &mut Rng,
        opened: &Opened<Keyspace>,
        steps: usize,
    ) -> Result<(), String> {
        (0..steps).try_for_each(|_| self.step(rng, &opened.store, &opened.journal))
    }

    /// Checks what was recovered: all changes up to some moment, not earlier than promised.
    pub(crate) fn judge(&self, opened: &Opened<Keyspace>, least: usize) -> usize {
        let found = dump(&opened.store, self.now_ms);
        let now_ms = self.now_ms;
        let fits = |(_, state): &(Lsn, Arc<State>)| {
            let there = state.iter().filter(|(_, (_, at))| at.is_none_or(|at| at > now_ms));
            there.eq(found.iter())
        };
        let at = self.states.iter().rposition(fits);
        let Some(at) = at else {
            panic!("no state there ever was: {found:#?}\nlast: {:#?}", self.last())
        };
        // States may repeat: the last that fits is the one that counts.
        assert!(at >= least, "state {at} of {}, {least} were promised", self.states.len() - 1);
        at
    }
}
