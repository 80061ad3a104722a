//! The power fails, or the process is killed, at the operations of erasing documents from the log.
//!
//! Whatever is left: a start with the views as they are, with the document database as it was on stable
//! storage before, or without the catalogue has every document, and the check finds nothing.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_intake::documents::decide::Wish;
use forebay_intake::fsck::fsck;
use forebay_intake::{Intake, OpenError};

use crate::support::{self, CATALOGUE, DOCUMENTS, block_on, directory, options, post};

/// Documents in all.
const COUNT: u64 = 1_800;

fn open(dir: &Path, disk: &SimFs) -> Result<Intake, OpenError> {
    let mut options = options(dir);
    options.segment_size = 64 << 10;
    let clock = Arc::new(ManualClock::new(1_767_323_045_000));
    Intake::open(options, Arc::new(disk.clone()), clock).map(|(intake, _)| intake)
}

/// Puts copies of the views in place of what is there.
fn set_views(dir: &Path, catalogue: Option<&Path>, documents: &Path) {
    for view in [CATALOGUE, DOCUMENTS] {
        support::remove(dir, view);
    }
    for (view, from) in [(CATALOGUE, catalogue), (DOCUMENTS, Some(documents))] {
        for suffix in ["", "-wal"] {
            let name = format!("{view}{suffix}");
            if let Some(from) = from
                && from.join(&name).exists()
            {
                std::fs::copy(from.join(&name), dir.join(&name)).unwrap();
            }
        }
    }
}

fn keep_views(dir: &Path) -> tempfile::TempDir {
    let kept = directory();
    set_views(kept.path(), Some(dir), dir);
    kept
}

/// Checks what is left; returns the number of entries in the log.
fn judge(dir: &Path, disk: &SimFs, at: &str) -> u64 {
    let intake = open(dir, disk).unwrap_or_else(|error| panic!("{at}: {error:?}"));
    for _ in 0..2 {
        let found = block_on(intake.namespaces()).unwrap();
        assert_eq!((found[0].row_count, found[0].last_id), (COUNT, Some(COUNT)), "{at}");
        // What was interrupted is done now.
        block_on(intake.reclaim()).unwrap();
    }
    intake.close().unwrap();
    drop(intake);
    let report = fsck(dir, Arc::new(disk.clone()), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{at}: {report:?}");
    assert_eq!(report.documents, COUNT, "{at}");
    report.log_entries
}

#[test]
fn power_lost_while_documents_leave_the_log_loses_none_and_accuses_no_one() {
    let place = directory();
    let dir = place.path();
    let disk = SimFs::new(77);
    let intake = open(dir, &disk).unwrap();
    for batch in 0..9 {
        let lines: Vec<String> =
            (0..200).map(|n| format!(r#"{{"n":{},"pad":"{n:0>90}"}}"#, batch * 200 + n)).collect();
        block_on(post(&intake, "many", Wish::Table, &lines.join("\n")));
    }
    intake.close().unwrap();
    drop(intake);
    let before = keep_views(dir);
    let (mut at, mut left) = (0, u64::MAX);
    loop {
        set_views(dir, Some(before.path()), before.path());
        let cut = disk.fork();
        cut.plan(at, Fault::Stop);
        if let Ok(intake) = open(dir, &cut) {
            // The error of a broken disk is not what is tested.
            block_on(intake.reclaim()).unwrap_or_default();
            intake.close().unwrap_or_default();
        }
        let newest = keep_views(dir);
        let ended = cut.operations() <= at;
        let name = |how| format!("{how} at {at}");
        left = left.min(judge(dir, &cut.fork().kill(), &name("killed")));
        let (old, new) = (before.path(), newest.path());
        let kinds =
            [(Some(new), new), (Some(new), old), (None, old), (None, new), (Some(old), old)];
        let (catalogue, documents) = kinds[usize::try_from(at % 5).unwrap()];
        set_views(dir, catalogue, documents);
        judge(dir, &cut.fork().power_off(at), &name("power lost"));
        if ended {
            break;
        }
        at += 3;
    }
    assert!(at > 30, "there were only {at} operations");
    assert!(left < 9, "{left} entries are left: no documents have left the log");
}
