//! How many events a second the store takes, and that all of them are there: for profiling.
//!
//! `store_rate DIR EVENTS WRITERS BATCH PRESET sync|os merkle|plain`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use forebay_base::Durability;
use forebay_base::clock::SystemClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::store::verify;
use forebay_events::{Options, Store, load};

#[expect(clippy::unwrap_used, reason = "an example ends where something fails")]
#[expect(clippy::cast_possible_truncation, reason = "numbers that were typed")]
#[expect(clippy::print_stdout, reason = "an example prints what it measured")]
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, events, writers, batch, preset, sync, merkle] = words.as_slice() else {
        panic!("DIR EVENTS WRITERS BATCH PRESET sync|os merkle|plain");
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let (events, writers, batch) = (number(events), number(writers), number(batch));
    let mut options = Options::preset(preset).unwrap();
    options.durability = if sync == "sync" { Durability::Sync } else { Durability::Os };
    options.group_commit_delay = std::time::Duration::ZERO;
    options.merkle = merkle == "merkle";
    let path = std::path::Path::new(dir);
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let clock = Arc::new(SystemClock::new());
    let (store, recovered) = Store::open(Arc::clone(&fs), clock, path, options).unwrap();
    println!("{recovered:?}");
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(batch, Ordering::Relaxed);
                    if first >= events {
                        return;
                    }
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    let count = batch.min(events - first) as usize;
                    let batch = load::batch(first, count, now.as_nanos() as i64).unwrap();
                    store.append(batch).unwrap();
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{:.0} events/s", events as f64 / seconds);
    println!("{:?}", store.stats());
    let started = Instant::now();
    store.flush().unwrap();
    println!("flush {:.2} s", started.elapsed().as_secs_f64());
    store.close().unwrap();
    let started = Instant::now();
    let verified = verify(&fs, path, &[], None, &|_| {}).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "verified {} in {seconds:.2} s, {:.2} GB/s; {:?}",
        verified.events,
        verified.leaf_bytes as f64 / seconds / 1e9,
        verified.faults
    );
}
