//! The catalogue is altered under a running engine: nothing that was acknowledged is answered to be
//! missing.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_intake::catalogue::FileFilter;
use forebay_intake::{Condition, Intake, IntakeError};
use rusqlite::Connection;

use crate::support::{
    CATALOGUE, block_on, directory, findings, key, open, open_with, options, put, replace, settle,
};

const FILES: usize = 300;

fn name(n: usize) -> String {
    format!("the file number {n:03}")
}

/// Stores files and closes, so that the catalogue's own file has all of them.
fn fill(dir: &Path) {
    let intake = open(dir).unwrap();
    block_on(async {
        for n in 0..FILES {
            put(&intake, &key("notes", &name(n)), format!("bytes {n}").as_bytes(), false).await;
        }
    });
    intake.close().unwrap();
    drop(intake);
    settle(dir);
}

fn is_damage<T: std::fmt::Debug>(result: Result<T, IntakeError>) -> bool {
    matches!(result, Err(IntakeError::ViewDamaged { .. } | IntakeError::ViewStopped { .. }))
}

/// Waits until the intake says that it is not ready.
fn refusal(intake: &Intake) -> IntakeError {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match intake.ready() {
            Err(error) => return error,
            Ok(()) if Instant::now() < deadline => std::thread::yield_now(),
            Ok(()) => panic!("the change was not noticed"),
        }
    }
}

fn whole_after_restart(dir: &Path) {
    let intake = open(dir).unwrap();
    let listed = block_on(intake.list(FileFilter::default(), None, 2 * FILES)).unwrap();
    assert!(listed.len() >= FILES, "{}", listed.len());
    intake.ready().unwrap();
    intake.verify_catalogue().unwrap();
    intake.close().unwrap();
    drop(intake);
    assert_eq!(findings(dir), Vec::<String>::new());
}

#[test]
fn after_a_pass_has_found_damage_no_absence_is_answered_and_the_rest_works() {
    let dir = directory();
    let dir = dir.path();
    fill(dir);
    let intake = open(dir).unwrap();
    intake.verify_catalogue().unwrap();
    intake.ready().unwrap();
    let (old, gone) = (name(123), key("notes", &name(7)));
    block_on(async {
        // In the queue or applied: the name stays known to the filter of names.
        assert!(intake.delete(&gone, Condition::None, None).await.unwrap().is_some());
        intake.totals().await.unwrap();
        assert!(intake.find(&gone).await.unwrap().is_none());
    });
    replace(&dir.join(CATALOGUE), old.as_bytes(), b"the fine number 123");
    let found = intake.verify_catalogue().unwrap_err();
    assert!(found.to_string().contains("the fine number 123"), "{found}");
    assert!(found.to_string().contains("restart the server"), "{found}");
    assert!(is_damage(intake.ready()));
    block_on(async {
        // Deleted, but a damaged catalogue cannot know that.
        assert!(is_damage(intake.find(&gone).await));
        assert!(is_damage(intake.delete(&gone, Condition::None, None).await));
        let altered = intake.find(&key("notes", &old)).await;
        assert!(!matches!(altered, Ok(None)), "{altered:?}");
        assert!(is_damage(intake.list(FileFilter::default(), None, 1_000).await));
        assert!(is_damage(intake.totals().await));
        assert!(is_damage(intake.files_after(None, 10)));
        let other = intake.find(&key("notes", &name(200))).await.unwrap().unwrap();
        assert!(intake.read(&other).is_ok());
        // The log takes what is new.
        put(&intake, &key("other", "new"), b"new bytes", false).await;
        assert!(intake.find(&key("other", "new")).await.unwrap().is_some());
    });
    intake.close().unwrap_or_default();
    drop(intake);
    whole_after_restart(dir);
}

#[test]
fn a_pass_runs_on_schedule() {
    let dir = directory();
    let dir = dir.path();
    fill(dir);
    let intake =
        open_with(forebay_intake::IntakeOptions { verify_every: Duration::ZERO, ..options(dir) })
            .unwrap();
    replace(&dir.join(CATALOGUE), name(250).as_bytes(), b"the life number 250");
    let refused = refusal(&intake);
    assert!(matches!(refused, IntakeError::ViewDamaged { .. }), "{refused:?}");
    intake.close().unwrap_or_default();
    drop(intake);
    whole_after_restart(dir);
}

#[test]
fn what_another_program_changes_is_noticed_while_nothing_is_written() {
    for change in [
        "UPDATE files SET mime = 'text/html' WHERE name = 'the file number 100'",
        "UPDATE files SET name = 'other' WHERE name = 'the file number 100'",
        "DELETE FROM files WHERE name = 'the file number 100'",
        "DELETE FROM blobs",
    ] {
        let dir = directory();
        let dir = dir.path();
        fill(dir);
        let intake = open(dir).unwrap();
        Connection::open(dir.join(CATALOGUE)).unwrap().execute_batch(change).unwrap();
        let refused = refusal(&intake);
        assert!(refused.to_string().contains("another program"), "{change}: {refused}");
        let listed = block_on(intake.list(FileFilter::default(), None, 1_000));
        assert!(is_damage(listed), "{change}");
        intake.close().unwrap_or_default();
        drop(intake);
        whole_after_restart(dir);
    }
}
