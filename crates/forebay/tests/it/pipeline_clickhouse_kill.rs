//! Runs into ClickHouse that are killed, and servers and answers that are lost, at moments that differ each time. Rows
//! are counted by SQL, outside of the program.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_testing::{ClickHouse, Fate, HttpProxy};

use super::pipeline_clickhouse::Trial;
use super::support::{forebay, run, run_ok, stderr};

/// Number of rows. With their pads they are more than 16 MiB, from where on a table is divided into units.
const ROWS: u64 = 60_000;
/// Number of hashes in a pad.
const HASHES: u64 = 12;
/// A run that is killed after its load has ended, and before it has itself, is not followed by another load.
const RUN: [&str; 5] = ["pipeline", "run", "p.yaml", "--once", "the-only-one"];
/// Maximum number of runs until one must have ended.
const RUNS_MAX: usize = 40;

/// Some 25 units of one block.
const SMALL_UNITS: &str =
    "resources: { checkpoint_interval_bytes: 1MiB, max_batch_bytes: 256KiB, parallelism: 2 }\n";

/// Numbers that look random, the same in each run of the test.
struct Moments {
    state: u64,
    first: Duration,
}

impl Moments {
    fn new(state: u64) -> Self {
        Self { state, first: Duration::from_millis(100) }
    }

    fn below(&mut self, ms: u64) -> Duration {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.state >> 33) % ms)
    }

    /// When a run is cut off: later and later, so that there are several cuts, however fast a run is, and one ends.
    fn next(&mut self) -> Duration {
        self.first += Duration::from_millis(40);
        self.first + self.below(250)
    }
}

/// Units of several blocks, which are collected in tables beside the target.
const LARGE_UNITS: &str =
    "resources: { checkpoint_interval_bytes: 3MiB, max_batch_bytes: 64KiB, parallelism: 2 }\n";

/// A source of many units, and the pipeline.
fn fill(trial: &Trial, port: u16, mode: &str, resources: &str) {
    trial.source(&format!(
        "create table t (id int primary key, pad text); \
         insert into t select g, repeat(md5(g::text), {HASHES}) from generate_series(1, {ROWS}) g; analyze t"
    ));
    trial.pipeline(port, "[{ name: public.t, partition_key: id }]", &format!("{mode}{resources}"));
}

fn begin(trial: &Trial) -> Child {
    let mut command = forebay(&trial.dir);
    command.args(RUN).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits for a time, or for the end of a run.
fn wait(running: &mut Child, time: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if running.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::yield_now();
    }
    running.try_wait().unwrap().is_some()
}

/// Each row is there once, with its value.
fn check(trial: &Trial, last: &str) {
    let sql =
        format!("SELECT count(), uniqExact(id), min(id), max(id), sum(length(pad)) FROM t {last}");
    let loads = "SELECT _forebay_load, count(), uniqExact(id) FROM t GROUP BY 1 ORDER BY 1";
    let expected = format!("{ROWS}\t{ROWS}\t1\t{ROWS}\t{}", ROWS * HASHES * 32);
    assert_eq!(trial.found(&sql), expected, "by load and unit: {}", trial.found(loads));
    let wrong = format!(
        "SELECT count() FROM t {last} WHERE pad != repeat(lower(hex(MD5(toString(id)))), {HASHES})"
    );
    assert_eq!(trial.found(&wrong), "0");
    let units =
        "SELECT uniqExact(_forebay_load), uniqExact(splitByChar('/', _forebay_load)[1]) FROM t";
    let units = trial.found(units);
    let (units, loads) = units.split_once('\t').unwrap();
    assert!(units.parse::<u64>().unwrap() > 5 && loads == "1", "{units} units of {loads} loads");
    drop(run_ok(&trial.dir, &["pipeline", "verify", "p.yaml"]));
    let left = "SELECT name FROM system.tables WHERE database = currentDatabase() AND match(name, '_forebay_(next|swap|stage)')";
    assert_eq!(trial.found(left), "");
}

/// Kills runs at different moments, until one ends.
fn kill_runs(mode: &str, last: &str, resources: &str) {
    let Some(trial) = Trial::new() else { return };
    fill(&trial, trial.clickhouse.port(), mode, resources);
    if resources == LARGE_UNITS {
        let path = trial.dir.path().join("p.yaml");
        let file = std::fs::read_to_string(&path).unwrap();
        std::fs::write(
            &path,
            file.replace("    database: ch", "    block_size: 1MiB\n    database: ch"),
        )
        .unwrap();
    }
    let (mut moments, mut kills) = (Moments::new(7), 0);
    for _ in 0..RUNS_MAX {
        let mut running = begin(&trial);
        if wait(&mut running, moments.next()) {
            assert!(running.wait().unwrap().success());
            break;
        }
        running.kill().unwrap();
        running.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 2, "the runs were too fast to be killed");
    drop(run_ok(&trial.dir, &RUN));
    check(&trial, last);
}

#[test]
fn runs_that_are_killed_append_each_row_once() {
    kill_runs("", "", SMALL_UNITS);
}

#[test]
fn runs_that_are_killed_replace_all_rows_once() {
    kill_runs("  write_mode: replace\n", "", SMALL_UNITS);
}

#[test]
fn runs_that_are_killed_update_all_rows() {
    kill_runs("  write_mode: upsert\n  primary_key: [id]\n", "FINAL", SMALL_UNITS);
}

#[test]
fn runs_that_are_killed_append_large_units_once() {
    kill_runs("", "", LARGE_UNITS);
}

#[test]
fn a_server_that_is_killed_has_each_row_once() {
    let Some(server) = ClickHouse::start() else { return };
    let Some(trial) = Trial::with(Arc::new(server)) else { return };
    fill(&trial, trial.clickhouse.port(), "", SMALL_UNITS);
    let (mut moments, mut kills) = (Moments::new(11), 0);
    for _ in 0..RUNS_MAX {
        let mut running = begin(&trial);
        let is_over = wait(&mut running, moments.next());
        if is_over && running.wait().unwrap().success() {
            break;
        }
        trial.clickhouse.kill();
        kills += 1;
        trial.clickhouse.resume();
        // It continues with the server that is there again, or fails.
        if wait(&mut running, moments.below(2_000)) && running.wait().unwrap().success() {
            break;
        }
        running.kill().unwrap();
        running.wait().unwrap();
    }
    assert!(kills > 2, "the runs were too fast for the server to be killed");
    drop(run_ok(&trial.dir, &RUN));
    check(&trial, "");
}

#[test]
fn answers_and_requests_that_are_lost_now_and_then_lose_and_double_nothing() {
    let Some(trial) = Trial::new() else { return };
    let count = Arc::new(AtomicU64::new(1));
    let counted = Arc::clone(&count);
    let proxy = HttpProxy::start(trial.clickhouse.port(), move |_, _| {
        match counted.fetch_add(1, Ordering::Relaxed) % 33 {
            11 => Fate::LoseAnswer,
            22 => Fate::CutBody,
            32 => Fate::Lose,
            _ => Fate::Pass,
        }
    });
    fill(&trial, proxy.port(), "", SMALL_UNITS);
    let mut runs = 0;
    loop {
        let output = run(&trial.dir, &RUN);
        runs += 1;
        if output.status.success() {
            break;
        }
        assert!(runs < RUNS_MAX, "{}", stderr(&output));
    }
    assert!(count.load(Ordering::Relaxed) > 66, "several of each were lost");
    trial.pipeline(trial.clickhouse.port(), "[{ name: public.t, partition_key: id }]", SMALL_UNITS);
    check(&trial, "");
}

#[test]
fn of_two_runs_at_once_one_copies_and_the_other_says_why_not() {
    let Some(trial) = Trial::new() else { return };
    fill(&trial, trial.clickhouse.port(), "", SMALL_UNITS);
    let start = || {
        let mut command = forebay(&trial.dir);
        command.args(RUN).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let outputs = [start(), start()].map(|child| child.wait_with_output().unwrap());
    let failed: Vec<String> =
        outputs.iter().filter(|output| !output.status.success()).map(stderr).collect();
    for text in &failed {
        assert!(text.contains("another run"), "{text}");
    }
    if failed.len() == 2 {
        drop(run_ok(&trial.dir, &RUN));
    }
    check(&trial, "");
}
