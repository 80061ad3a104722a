//! A process that writes from several threads and takes snapshots continuously is killed
//! repeatedly: everything it reported as acknowledged is restored, each list without a gap.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::Durability;
use forebay_base::fs::RealFs;
use forebay_cache::persist::{Opened, PersistOptions, open, snapshot};
use forebay_cache::store::Keyspace;

use crate::crash_model::{Plain, Plainly, dump, execute, options};

/// Passes the data directory to the child.
const DIR_VARIABLE: &str = "FOREBAY_CACHE_KILL_TEST_DIR";
const DURABILITY_VARIABLE: &str = "FOREBAY_CACHE_KILL_TEST_DURABILITY";
const WRITERS: usize = 4;
const NOW_MS: u64 = 1_000;

fn open_real(dir: &Path, durability: Durability) -> Opened<Keyspace> {
    let options = PersistOptions { segment_size: 64 << 10, ..options(durability) };
    open(Arc::new(RealFs), dir, &options, &mut Plainly).unwrap()
}

/// How long each writer's list is; a list holds the numbers from 0 on.
fn lengths(keyspace: &Keyspace) -> [u64; WRITERS] {
    let state = dump(keyspace, NOW_MS);
    std::array::from_fn(|writer| {
        let key = (0, format!("writer:{writer}").into_bytes());
        let Some((Plain::List(list), _)) = state.get(&key) else { return 0 };
        for (number, element) in list.iter().enumerate() {
            let expected = format!("{number:04000}");
            assert!(expected.as_bytes() == element.as_slice(), "{writer} has a gap at {number}");
        }
        list.len() as u64
    })
}

fn write(opened: &Opened<Keyspace>, writer: usize, from: u64) {
    for number in from.. {
        let words = ["RPUSH".into(), format!("writer:{writer}"), format!("{number:04000}")];
        let op = (0, words.map(String::into_bytes).to_vec());
        let end = execute(&opened.store, &opened.journal, NOW_MS, &[op]).unwrap();
        opened.journal.commit(end).unwrap();
        // A closed reader ends the test.
        if writeln!(std::io::stdout(), "acknowledged {writer} {number}").is_err() {
            return;
        }
    }
}

/// The process that is killed; on its own, as one of the tests, it does nothing.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else { return };
    let durability = std::env::var(DURABILITY_VARIABLE).unwrap().parse().unwrap();
    let opened = open_real(Path::new(&dir), durability);
    let from = lengths(&opened.store);
    let _committer = opened.journal.log().start_committer();
    std::thread::scope(|scope| {
        for (writer, from) in from.into_iter().enumerate() {
            let opened = &opened;
            scope.spawn(move || write(opened, writer, from));
        }
        loop {
            let never = AtomicBool::new(false);
            snapshot(&opened.store, &opened.journal, NOW_MS, &never, &|_| ()).unwrap();
            if writeln!(std::io::stdout(), "snapshot").is_err() {
                return;
            }
        }
    });
}

/// Starts the child, waits for this many acknowledgements and a snapshot, and kills it.
fn run_and_kill(dir: &Path, durability: &str, acknowledgements: usize) -> [u64; WRITERS] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .env(DURABILITY_VARIABLE, durability)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = [0; WRITERS];
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    let mut hear = |line: String| {
        // The harness writes other lines, too.
        let mut words = line.split(' ');
        if words.next() != Some("acknowledged") {
            return;
        }
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        if let (Some(writer), Some(number)) = (number(), number()) {
            let writer = usize::try_from(writer).unwrap();
            acknowledged[writer] = acknowledged[writer].max(number + 1);
            count += 1;
        }
    };
    let (mut heard, mut snapshots) = (0, 0);
    while heard < acknowledgements || snapshots == 0 {
        let line = lines.next().unwrap().unwrap();
        heard += 1;
        snapshots += usize::from(line == "snapshot");
        hear(line);
    }
    child.kill().unwrap();
    // Its output before the kill counts as well; the last line may be torn.
    lines.map_while(Result::ok).for_each(&mut hear);
    child.wait().unwrap();
    assert!(count > acknowledgements / 2);
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_kills() {
    for durability in ["interval:50ms", "os", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let mut snapshots = 0;
        for round in 0..4 {
            let acknowledged = run_and_kill(dir.path(), durability, 150 + 37 * round);
            let opened = open_real(dir.path(), durability.parse().unwrap());
            let found = lengths(&opened.store);
            for (acknowledged, found) in acknowledged.into_iter().zip(found) {
                assert!(
                    found >= acknowledged,
                    "{durability}: {acknowledged} acknowledged, {found} there"
                );
            }
            snapshots = opened.recovered.snapshot.as_ref().map_or(snapshots, |info| info.number);
        }
        assert!(snapshots > 1, "snapshots were taken all the while");
    }
}
