//! What a snapshot of many keys costs under write load, and how fast recovery is.
//!
//! `cargo run --release -p forebay-cache --example persist_rate -- [keys] [directory]`

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::fs::RealFs;
use forebay_cache::persist::{Opened, Ops, PersistOptions, Restore, open, snapshot};
use forebay_cache::store::{Deadline, Keyspace, Rules};

const VALUE_SIZE: usize = 100;

struct Sets;

impl Restore for Sets {
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
        let [_, key, value] = words else { return Err("no SET".into()) };
        let key = keyspace.key(key);
        let mut shard = keyspace.lock(database, key.shard(), now_ms);
        shard.put_string(&key, value, Deadline::None);
        Ok(())
    }
}

/// Resident bytes of this process, and the most there ever were.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) * 1_024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn set(opened: &Opened<Keyspace>, ops: &mut Ops, number: u64, draw: u64) -> Result<(), String> {
    let name = format!("key:{number:012}");
    let mut value = [0; VALUE_SIZE];
    let mut state = draw | 1;
    for chunk in value.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let bytes = (state ^ state >> 29).to_le_bytes();
        chunk.copy_from_slice(bytes.get(..chunk.len()).unwrap_or_default());
    }
    ops.clear();
    ops.push(0, &[b"SET", name.as_bytes(), &value]);
    let key = opened.store.key(name.as_bytes());
    let mut shard = opened.store.lock(0, key.shard(), 1);
    shard.put_string(&key, &value, Deadline::None);
    opened.journal.append(1, ops).map_err(|error| error.to_string())?;
    Ok(())
}

fn reopen(dir: &Path) -> Result<Opened<Keyspace>, Box<dyn Error>> {
    Ok(open(Arc::new(RealFs), dir, &PersistOptions::default(), &mut Sets)?)
}

/// Writes to random keys until stopped; counts the writes, and records the slowest.
fn load(opened: &Opened<Keyspace>, keys: u64, stop: &AtomicBool, slowest_ns: &AtomicU64) -> u64 {
    let (mut ops, mut written, mut state) = (Ops::default(), 0, 7_u64);
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(3);
        let started = Instant::now();
        if set(opened, &mut ops, (state >> 20) % keys, state).is_err() {
            break;
        }
        let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        slowest_ns.fetch_max(took_ns, Ordering::Relaxed);
        written += 1;
        if written % 64 == 0 {
            opened.journal.commit(opened.journal.end()).ok();
        }
    }
    written
}

/// Writes for two seconds; returns how many writes there were, and the slowest.
fn without_snapshot(opened: &Opened<Keyspace>, keys: u64) -> (u64, u64) {
    let (stop, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load(opened, keys, &stop, &slowest));
        while started.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join()
    });
    (written.unwrap_or(0), slowest.into_inner())
}

/// Takes a snapshot while another thread writes.
fn with_snapshot(
    opened: &Opened<Keyspace>,
    keys: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let (stop, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = resident();
    let (taken, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load(opened, keys, &stop, &slowest));
        let never = AtomicBool::new(false);
        let report = snapshot(&opened.store, &opened.journal, 1, &never, &|_| ());
        stop.store(true, Ordering::Relaxed);
        (report, writer.join())
    });
    let (taken, written, after) = (taken?, written.unwrap_or(0), resident());
    writeln!(
        out,
        "snapshot: {} keys, {} MB, {:?}, {} ranges, longest pause {:?} of {:?}; {written} writes, slowest {} us",
        taken.info.keys,
        taken.info.bytes / 1_000_000,
        taken.took,
        taken.ranges,
        taken.longest_pause,
        taken.paused,
        slowest.load(Ordering::Relaxed) / 1_000,
    )?;
    writeln!(
        out,
        "resident: {} MB before, {} MB after, most {} MB (before {} MB)",
        before.0 / 1_000_000,
        after.0 / 1_000_000,
        after.1 / 1_000_000,
        before.1 / 1_000_000
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(2_000_000), |text| text.parse())?;
    let dir =
        arguments.next().map_or_else(|| std::env::temp_dir().join("persist_rate"), PathBuf::from);
    let mut out = std::io::stdout();
    let opened = reopen(&dir)?;
    let mut ops = Ops::default();
    for number in 0..keys {
        set(&opened, &mut ops, number, number)?;
    }
    opened.journal.log().sync()?;
    let committer = opened.journal.log().start_committer();
    let (written, slowest_ns) = without_snapshot(&opened, keys);
    writeln!(out, "without: {written} writes in 2 s, slowest {} us", slowest_ns / 1_000)?;
    with_snapshot(&opened, keys, &mut out)?;
    committer.stop()?;
    drop(opened);
    let started = Instant::now();
    let opened = reopen(&dir)?;
    let recovered = &opened.recovered;
    writeln!(
        out,
        "recovery: {:?}; snapshot {:?}, log {:?} with {} operations run and {} known",
        started.elapsed(),
        recovered.snapshot_took,
        recovered.log_took,
        recovered.operations,
        recovered.known
    )?;
    drop(opened);
    std::fs::remove_dir_all(dir.join("snapshots"))?;
    let started = Instant::now();
    let opened = reopen(&dir)?;
    let operations = opened.recovered.operations;
    writeln!(out, "from the log alone: {:?}, {operations} operations", started.elapsed())?;
    drop(opened);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
