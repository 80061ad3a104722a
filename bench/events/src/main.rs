//! Writes the load of `forebay bench events` into another engine, reads it back, and prints what that
//! took as one JSON object.
//!
//! Usage: `events-peers ENGINE DIR EVENTS WRITERS BATCH SYNCED MEMORY`. Keys are the events' ids,
//! values their canonical bytes: what Forebay stores, of which the peer looks at nothing.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use forebay_events::{Batch, load};
use rocksdb::{DB, DBCompressionType, WriteBatch, WriteOptions};

trait Engine: Sync {
    fn write(&self, batch: &Batch, synced: bool) -> anyhow::Result<()>;
    /// Every event that is there, counted by reading it.
    fn count(&self) -> anyhow::Result<u64>;
}

struct Rocks(DB);

impl Rocks {
    fn open(dir: &Path, memory: usize) -> anyhow::Result<Self> {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        // The budget of Forebay's memory tables, divided as RocksDB likes it.
        options.set_write_buffer_size(memory / 4);
        options.set_max_write_buffer_number(4);
        options.set_db_write_buffer_size(memory);
        options.increase_parallelism(2);
        options.set_compression_type(DBCompressionType::None);
        options.set_unordered_write(false);
        options.set_enable_pipelined_write(true);
        Ok(Self(DB::open(&options, dir)?))
    }
}

impl Engine for Rocks {
    fn write(&self, batch: &Batch, synced: bool) -> anyhow::Result<()> {
        let mut writes = WriteBatch::default();
        for (id, leaf) in batch.ids().iter().zip(batch.leaves()) {
            writes.put(id.0.to_be_bytes(), leaf);
        }
        let mut options = WriteOptions::default();
        options.set_sync(synced);
        Ok(self.0.write_opt(writes, &options)?)
    }

    fn count(&self) -> anyhow::Result<u64> {
        let mut count = 0;
        for item in self.0.iterator(rocksdb::IteratorMode::Start) {
            let (_, value) = item?;
            ensure!(value.len() > load::RAW_SIZE, "a value was cut");
            count += 1;
        }
        Ok(count)
    }
}

struct Fjall {
    database: Database,
    events: Keyspace,
}

impl Fjall {
    fn open(dir: &Path, memory: usize) -> anyhow::Result<Self> {
        let database = Database::builder(dir)
            .max_write_buffer_size(Some(memory as u64))
            .max_journaling_size(4 << 30)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memory as u64 / 4);
        let events = database.keyspace("events", options)?;
        Ok(Self { database, events })
    }
}

impl Engine for Fjall {
    fn write(&self, batch: &Batch, synced: bool) -> anyhow::Result<()> {
        let mode = if synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut writes = self.database.batch().durability(Some(mode));
        for (id, leaf) in batch.ids().iter().zip(batch.leaves()) {
            writes.insert(&self.events, id.0.to_be_bytes(), leaf);
        }
        Ok(writes.commit()?)
    }

    fn count(&self) -> anyhow::Result<u64> {
        let mut count = 0;
        for item in self.events.iter() {
            let (_, value) = item.into_inner()?;
            ensure!(value.len() > load::RAW_SIZE, "a value was cut");
            count += 1;
        }
        Ok(count)
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [engine, dir, events, writers, batch, synced, memory] = words.as_slice() else {
        bail!("usage: events-peers rocksdb|fjall DIR EVENTS WRITERS BATCH SYNCED MEMORY");
    };
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text} is no number"));
    let (events, writers, batch) = (number(events)?, number(writers)?, number(batch)?);
    let synced: bool = synced.parse().context("SYNCED is true or false")?;
    let memory = usize::try_from(number(memory)?)?;
    let dir = Path::new(dir);
    let engine: Box<dyn Engine> = match engine.as_str() {
        "rocksdb" => Box::new(Rocks::open(dir, memory)?),
        "fjall" => Box::new(Fjall::open(dir, memory)?),
        other => bail!("{other} is no engine known here"),
    };
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let threads: Vec<_> = (0..writers)
            .map(|_| scope.spawn(|| write_all(&*engine, &next, events, batch, synced)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let found = engine.count()?;
    ensure!(found == events, "{events} events were written and {found} read back");
    println!("{}", serde_json::json!({ "seconds": seconds, "read_back": found }));
    Ok(())
}

/// Takes batches until all events are written.
fn write_all(
    engine: &dyn Engine,
    next: &AtomicU64,
    events: u64,
    batch: u64,
    synced: bool,
) -> anyhow::Result<()> {
    loop {
        let first = next.fetch_add(batch, Ordering::Relaxed);
        if first >= events {
            return Ok(());
        }
        let count = usize::try_from(batch.min(events - first))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let batch = load::batch(first, count, i64::try_from(now.as_nanos())?)?;
        engine.write(&batch, synced)?;
    }
}
