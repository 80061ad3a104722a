//! How many durable appends a second the log makes, next to what the machine does one at a time.
//!
//! ```text
//! cargo run --release -p forebay-log --example append_rate [directory] [seconds] [waiters] [bytes]
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people at a terminal")]

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use forebay_base::{
    Durability,
    fs::{FileSystem, RealFs},
};
use forebay_log::{Log, Options};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Appends one entry at a time to a plain growing file, each followed by a sync.
fn serial(dir: &Path, time: Duration, bytes: usize) -> f64 {
    let file = RealFs.create_new(&dir.join("serial")).unwrap();
    let payload = vec![7; bytes];
    let (started, mut count) = (Instant::now(), 0u32);
    while started.elapsed() < time {
        file.write_all_at(&payload, u64::from(count) * bytes as u64).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    RealFs.remove_file(&dir.join("serial")).unwrap();
    rate
}

fn grouped(dir: &Path, time: Duration, waiters: u32, bytes: usize, durability: Durability) -> f64 {
    let dir = dir.join(format!("log-{}", durability.to_string().replace(':', "-")));
    let options = Options { durability, ..Options::default() };
    let (log, _) = Log::open(Arc::new(RealFs), &dir, options).unwrap();
    let committer = log.start_committer();
    let started = Instant::now();
    let total: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..waiters)
            .map(|_| {
                let log = log.clone();
                scope.spawn(move || {
                    let payload = vec![7; bytes];
                    let mut count = 0;
                    while started.elapsed() < time {
                        let appended = log.append(&[&payload]).unwrap();
                        block_on(log.committed(appended.end)).unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let rate = f64::from(total) / started.elapsed().as_secs_f64();
    let stats = log.stats();
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    println!(
        "{:>14} {rate:>9.0}/s   {:>5.1} entries a group, {:>6.0} us a sync, {} rotations",
        durability.to_string(),
        mean(stats.appended_entries, stats.groups),
        mean(stats.sync_ns_total, stats.syncs) / 1e3,
        stats.rotations,
    );
    committer.stop().unwrap();
    drop(log);
    std::fs::remove_dir_all(dir).unwrap();
    rate
}

fn main() {
    let mut args = std::env::args().skip(1);
    let scratch = tempfile::tempdir().unwrap();
    let dir = args.next().map_or_else(|| scratch.path().to_path_buf(), PathBuf::from);
    let mut number = |default: u32| args.next().map_or(default, |arg| arg.parse().unwrap());
    let time = Duration::from_secs(number(3).into());
    let (waiters, bytes) = (number(32), number(4096) as usize);
    println!("{waiters} waiters, {bytes} bytes an entry");
    let floor = serial(&dir, time, bytes);
    println!("{:>14} {floor:>9.0}/s", "serial");
    for durability in ["sync", "interval:50ms", "os"] {
        let rate = grouped(&dir, time, waiters, bytes, durability.parse().unwrap());
        println!("{:>14} {:>9.1}x the serial rate", "", rate / floor);
    }
}
