//! The views beside the log, after a power cut removed from each what was not yet on stable
//! storage.
//!
//! The log is on the simulated disk, the views on a real one. Both are kept as they were at several
//! moments under relaxed durability, and then combined: the log as a power cut at one moment leaves
//! it, each view as any earlier moment left it. A cut can do no more than that, since nothing comes
//! from the future; what a careless restore can do beyond it is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::sim::{Rng, SimFs};
use forebay_intake::documents::decide::Wish;
use forebay_intake::fsck::fsck;
use forebay_intake::{Condition, Intake, OpenError};

use crate::crash::Setup;
use crate::crash_oracle::Oracle;
use crate::requests::put_if;
use crate::support::{
    CATALOGUE, DOCUMENTS, block_on, copy, directory, findings, key, post, remove,
};

/// Everything as it was at one moment.
struct Moment {
    disk: SimFs,
    views: PathBuf,
    oracle: Oracle,
}

/// Copies a view that is not being written, its write-ahead log with it.
pub(crate) fn copy_view(view: &str, from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for suffix in ["", "-wal"] {
        let name = format!("{view}{suffix}");
        if from.join(&name).exists() {
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

/// Runs a workload and keeps what every few steps left.
fn moments(setup: &Setup, disk: &SimFs, seed: u64, kept: &Path) -> Vec<Moment> {
    let intake = setup.open(disk).unwrap();
    let (mut oracle, mut rng) = (Oracle::default(), Rng::new(seed));
    let mut moments = Vec::new();
    for at in 0..5 {
        block_on(async {
            oracle.run(&intake, &mut rng, 4).await;
            if at % 2 == 0 {
                // Both views catch up with the log. At the other moments they lag behind it.
                intake.totals().await.unwrap();
                oracle.counts(&intake).await;
            }
        });
        let views = kept.join(at.to_string());
        copy_view(CATALOGUE, &setup.options.dir, &views);
        copy_view(DOCUMENTS, &setup.options.dir, &views);
        moments.push(Moment { disk: disk.fork(), views, oracle: oracle.clone() });
    }
    intake.close().unwrap();
    moments
}

/// Opens a log with views of other moments.
fn open(
    setup: &Setup,
    log: &SimFs,
    catalogue: &Moment,
    documents: &Moment,
) -> Result<Intake, OpenError> {
    setup.lose_views();
    copy_view(CATALOGUE, &catalogue.views, &setup.options.dir);
    copy_view(DOCUMENTS, &documents.views, &setup.options.dir);
    setup.open(log)
}

#[test]
fn no_view_that_a_power_cut_leaves_shows_what_the_log_has_lost() {
    for (seed, durability) in [(30, "os"), (40, "interval:1h"), (50, "sync")] {
        let mut setup = Setup::new();
        setup.options.durability = durability.parse().unwrap();
        let kept = directory();
        let moments = moments(&setup, &SimFs::new(seed), seed, kept.path());
        let mut refused = 0;
        for (cut_at, cut) in moments.iter().enumerate() {
            for (c, catalogue) in moments.iter().enumerate() {
                for (d, documents) in moments.iter().enumerate() {
                    let round = (cut_at * 100 + c * 10 + d) as u64;
                    let log = cut.disk.fork().power_off(round);
                    match open(&setup, &log, catalogue, documents) {
                        Ok(intake) => {
                            block_on(cut.oracle.clone().judge_whole(&intake, round));
                            intake.close().unwrap();
                            drop(intake);
                            let report = fsck(&setup.options.dir, Arc::new(log), |_| {}).unwrap();
                            assert!(report.findings.is_empty(), "{durability} {round}: {report:?}");
                        }
                        Err(error) => {
                            let future = c > cut_at || d > cut_at;
                            assert!(future, "{durability} {round}: {error:?}");
                            let short =
                                matches!(error, OpenError::LogShort { .. } | OpenError::Log(_));
                            assert!(short, "{durability} {round}: {error:?}");
                            let report = fsck(&setup.options.dir, Arc::new(log), |_| {}).unwrap();
                            let reported =
                                report.findings.iter().any(|finding| finding.kind == "log");
                            assert!(reported, "{durability} {round}: {report:?}");
                            refused += 1;
                        }
                    }
                }
            }
        }
        assert!(refused > 0, "{durability}: an old log under newer views was taken");
    }
}

#[test]
fn views_of_another_directory_are_built_again_or_refused() {
    let dirs = [directory(), directory()];
    for (dir, text) in dirs.iter().zip(["one", "two"]) {
        let intake = crate::support::open(dir.path()).unwrap();
        block_on(async {
            let body = format!("{{\"text\":\"{text}\"}}");
            post(&intake, "t", Wish::Auto, &body).await;
            put_if(&intake, &key("n", text), text.as_bytes(), Condition::None).await.unwrap();
        });
        intake.close().unwrap();
    }
    let [own, other] = dirs.each_ref().map(|dir| dir.path());
    let copies = directory();
    let place = |name: &str| copies.path().join(name);
    for (name, views) in [
        ("catalogue", &[CATALOGUE][..]),
        ("documents", &[DOCUMENTS]),
        ("both", &[CATALOGUE, DOCUMENTS]),
    ] {
        std::fs::create_dir_all(place(name)).unwrap();
        copy(own, &place(name));
        for view in views {
            remove(&place(name), view);
            copy_view(view, other, &place(name));
        }
    }
    for name in ["documents", "both"] {
        let opened = crate::support::open(&place(name)).map(drop);
        assert!(matches!(opened, Err(OpenError::DocumentsForeign { .. })), "{name}: {opened:?}");
    }
    let intake = crate::support::open(&place("catalogue")).unwrap();
    block_on(async {
        assert!(intake.find(&key("n", "one")).await.unwrap().is_some());
        assert!(intake.find(&key("n", "two")).await.unwrap().is_none());
    });
    intake.close().unwrap();
    drop(intake);
    assert_eq!(findings(&place("catalogue")), Vec::<String>::new());
    // Without the other's database the own log fills a new one.
    remove(&place("documents"), DOCUMENTS);
    crate::support::open(&place("documents")).unwrap().close().unwrap();
    assert_eq!(findings(&place("documents")), Vec::<String>::new());
}
