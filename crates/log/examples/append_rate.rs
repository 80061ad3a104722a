//! Measures durable appends per second, compared with what the machine does one at a time.
//!
//! ```text
//! cargo run --release -p forebay-log --example append_rate [directory] [seconds] [waiters] [bytes]
//! ```
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people at a terminal")]

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use forebay_base::{
    Durability,
    fs::{FileSystem, RealFs},
};
use forebay_log::{Log, Options};

/// A task of a thread: ready when its wait has ended.
struct Task {
    ready: AtomicBool,
    thread: Thread,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs `tasks` endless append-and-wait loops on this thread, as an async server would, until
/// `until`; returns the number of acknowledged entries.
fn run_tasks(log: &Log, tasks: u32, payload: &[u8], until: Instant) -> u32 {
    let start = || log.committed(log.append(&[payload]).unwrap().end);
    let mut running: Vec<_> = (0..tasks)
        .map(|_| {
            let (ready, thread) = (AtomicBool::new(true), std::thread::current());
            let task = Arc::new(Task { ready, thread });
            (Waker::from(Arc::clone(&task)), task, start())
        })
        .collect();
    let mut count = 0;
    while Instant::now() < until {
        let mut idle = true;
        for (waker, task, committed) in &mut running {
            if !task.ready.swap(false, Ordering::AcqRel) {
                continue;
            }
            idle = false;
            let mut cx = Context::from_waker(waker);
            while let Poll::Ready(result) = Pin::new(&mut *committed).poll(&mut cx) {
                result.unwrap();
                count += 1;
                *committed = start();
            }
        }
        if idle {
            std::thread::park();
        }
    }
    count
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
    let until = started + time;
    let threads = waiters.min(2);
    let total: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|at| {
                let log = log.clone();
                let tasks = waiters / threads + u32::from(at < waiters % threads);
                scope.spawn(move || run_tasks(&log, tasks, &vec![7; bytes], until))
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
    println!("{waiters} waiters on {} threads, {bytes} bytes an entry", waiters.min(2));
    let floor = serial(&dir, time, bytes);
    println!("{:>14} {floor:>9.0}/s", "serial");
    for durability in ["sync", "interval:50ms", "os"] {
        let rate = grouped(&dir, time, waiters, bytes, durability.parse().unwrap());
        println!("{:>14} {:>9.1}x the serial rate", "", rate / floor);
    }
}
