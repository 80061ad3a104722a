//! A seeded workload that records what was appended and what was acknowledged, and checks what is
//! found afterwards.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use forebay_base::{
    Durability,
    fs::sim::{Rng, SimFs},
};
use forebay_log::{AppendError, CommitError, Log, Lsn, OpenError, Options, Recovery};

pub(crate) const DIR: &str = "/data/log";

#[derive(Debug, Clone)]
struct Appended {
    lsn: Lsn,
    end: Lsn,
    payload: Vec<u8>,
}

/// The effects of a run, as far as they were reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    appended: Vec<Appended>,
    /// Entries up to this position were acknowledged under the log's durability.
    acknowledged: Lsn,
    /// Entries up to this position were acknowledged by a sync.
    synced: Lsn,
    /// Truncation was requested up to this position, and may have happened.
    truncated: Lsn,
    /// Erasure was requested, and may have happened.
    doomed: BTreeSet<Lsn>,
    /// Erasure was confirmed.
    erased: BTreeSet<Lsn>,
}

pub(crate) fn options(durability: Durability) -> Options {
    Options {
        segment_size: 2048,
        entry_size_max: 4096,
        buffer_size_max: 3000,
        durability,
        ..Options::default()
    }
}

pub(crate) fn open(disk: &SimFs, durability: Durability) -> Result<(Log, Recovery), OpenError> {
    Log::open(Arc::new(disk.clone()), Path::new(DIR), options(durability))
}

pub(crate) fn read_all(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    let mut reader = log.reader(log.start());
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        assert!(entry.lsn < entry.next);
        entries.push((entry.lsn, entry.payload.to_vec()));
    }
    entries
}

impl History {
    fn append(&mut self, log: &Log, rng: &mut Rng) -> Result<(), AppendError> {
        let size = match rng.below(12) {
            0 => 0,
            1 => 2000 + rng.below(2000),
            2..5 => rng.below(900),
            _ => rng.below(200),
        };
        // Bytes that resemble frames: zeros, small numbers, and sometimes random bytes.
        let noise = 1 + rng.below(8) * 31;
        let payload: Vec<u8> = (0..size).map(|_| u8::try_from(rng.below(noise)).unwrap()).collect();
        let (head, tail) = payload.split_at(rng.below(size + 1));
        let appended = log.append(&[head, tail])?;
        self.appended.push(Appended { lsn: appended.lsn, end: appended.end, payload });
        Ok(())
    }

    fn acknowledge(&mut self, log: &Log, end: Lsn) {
        self.acknowledged = self.acknowledged.max(end);
        self.synced = self.synced.max(log.synced());
    }

    fn some_end(&self, rng: &mut Rng) -> Option<Lsn> {
        let at = rng.below(self.appended.len());
        self.appended.get(at).map(|entry| entry.end)
    }

    /// Runs the workload until it is done or the disk stops it.
    pub(crate) fn run(&mut self, disk: &SimFs, durability: Durability, seed: u64, steps: usize) {
        let mut rng = Rng::new(seed);
        let mut log = match open(disk, durability) {
            Ok((log, _)) => log,
            Err(_) => return,
        };
        for _ in 0..steps {
            match rng.below(20) {
                0..11 => {
                    if let Err(error) = self.append(&log, &mut rng) {
                        return self.expect_poisoned(&log, &error.to_string());
                    }
                }
                11..15 => {
                    let Some(end) = self.appended.last().map(|entry| entry.end) else { continue };
                    match log.commit(end) {
                        Ok(()) => self.acknowledge(&log, end),
                        Err(error) => return self.expect_poisoned(&log, &error.to_string()),
                    }
                }
                15 => match log.sync() {
                    Ok(end) => self.acknowledge(&log, end),
                    Err(error) => return self.expect_poisoned(&log, &error.to_string()),
                },
                16 => {
                    let Some(end) = self.some_end(&mut rng) else { continue };
                    self.truncated = self.truncated.max(end);
                    // The caller must repeat a failed call; the log continues to work.
                    log.truncate_before(end).ok();
                }
                17 | 18 => self.erase(&log, &mut rng),
                _ => {
                    drop(log);
                    log = match open(disk, durability) {
                        Ok((log, recovery)) => {
                            // What an opening reports has been made durable.
                            self.synced = self.synced.max(recovery.entries_end);
                            self.acknowledged = self.acknowledged.max(recovery.entries_end);
                            self.appended.retain(|entry| entry.lsn < recovery.entries_end);
                            log
                        }
                        Err(OpenError::Io(_)) => return,
                        Err(error) => panic!("reopen: {error}"),
                    };
                }
            }
        }
    }

    fn erase(&mut self, log: &Log, rng: &mut Rng) {
        let Ok(segments) = log.segments() else { return };
        let sealed: Vec<_> = segments.iter().filter(|segment| segment.sealed).collect();
        let Some(segment) = sealed.get(rng.below(sealed.len())) else { return };
        let mut asked = BTreeSet::new();
        let result = log.erase(segment.base, &mut |lsn| {
            let dead = rng.one_in(3);
            if dead {
                asked.insert(lsn);
            }
            dead
        });
        self.doomed.extend(&asked);
        if result.is_ok() {
            self.erased.extend(&asked);
        }
    }

    fn expect_poisoned(&self, log: &Log, error: &str) {
        let append = log.try_append(&[b"x"]);
        assert!(matches!(append, Err(AppendError::Poisoned { .. })), "{append:?} after {error}");
        let sync = log.sync();
        assert!(matches!(sync, Err(CommitError::Poisoned { .. })), "{sync:?} after {error}");
        match log.commit(log.end()) {
            Err(CommitError::Poisoned { .. }) => {}
            // What was acknowledged before the failure stays acknowledged.
            Ok(()) => assert!(log.written() == log.end() && log.synced() < log.end(), "{error}"),
            Err(other) => panic!("{other} after {error}"),
        }
    }

    /// Checks what is found: `power_lost` decides which acknowledgements count.
    pub(crate) fn judge(&self, found: &[(Lsn, Vec<u8>)], power_lost: bool) {
        let promised = if power_lost { self.synced } else { self.acknowledged };
        let mut found = found.iter().peekable();
        let mut begun = false;
        let mut ended = false;
        for entry in &self.appended {
            let is_found = found.next_if(|(lsn, _)| *lsn == entry.lsn);
            if let Some((lsn, payload)) = is_found {
                assert!(!ended, "{lsn} was found although an entry before it was not");
                assert!(payload == &entry.payload, "{lsn} is not what was appended");
                assert!(!self.erased.contains(lsn), "{lsn} was erased");
                begun = true;
                continue;
            }
            if self.doomed.contains(&entry.lsn) {
                continue;
            }
            if entry.end <= self.truncated && !begun {
                continue;
            }
            assert!(
                entry.end > promised,
                "{} was acknowledged (up to {promised}) and is gone",
                entry.lsn
            );
            ended = true;
        }
        let unknown = found.next();
        assert!(unknown.is_none(), "found something never appended: {unknown:?}");
    }

    /// The position below which none may be assigned again.
    pub(crate) fn acknowledged(&self) -> Lsn {
        self.acknowledged
    }
}
