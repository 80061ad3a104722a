//! The power fails, or the process is killed, at every operation of freeing space.
//!
//! The log then has to serve views of several ages: the newest, those of the last time both were
//! certainly on stable storage, and a missing catalogue. Nothing that was deleted comes back,
//! nothing else is removed, and repeated requests get the same answers.

use std::path::Path;
use std::sync::Arc;

use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_intake::fsck::{FsckReport, fsck};
use forebay_intake::{Intake, NameKey};

use crate::crash::Setup;
use crate::requests::{self, bytes_of, documents, files};
use crate::support::{CATALOGUE, DOCUMENTS, block_on, directory, key, namespace, noise};
use crate::views::copy_view;

/// Small files, and how many of them have names at the end.
const SMALL: u64 = 60;
const BODY: &str = "{\"a\":1}\n{\"a\":2}\n";

/// Size of file `n`: some are kept in separate files.
fn content(n: u64) -> Vec<u8> {
    noise(n, if n.is_multiple_of(7) { 3_000 } else { 500 })
}

fn is_kept(n: u64) -> bool {
    n.is_multiple_of(5)
}

/// Files put with an idempotency key; the names of all of them are deleted.
fn is_keyed(n: u64) -> bool {
    n % 10 == 3
}

/// Late ones only, so that the earlier segments can lose all their documents.
fn is_posted_with_key(n: u64) -> bool {
    n.is_multiple_of(12) && n > SMALL / 2
}

fn is_given_twice(n: u64) -> bool {
    n.is_multiple_of(4)
}

/// A name as namespace and name.
fn of(name: &str) -> NameKey {
    let (namespace, name) = name.split_once('/').unwrap();
    key(namespace, name)
}

/// Puts file `n`; returns whether that was done before. `None` if it was refused.
async fn put(intake: &Intake, name: &str, n: u64) -> Option<bool> {
    let (key, bytes) = (of(name), content(n));
    if is_keyed(n) {
        let reply = requests::put_once(intake, &key, &bytes, &format!("put {name}")).await.ok()?;
        assert_eq!(reply.status, 201, "{reply:?}");
        return Some(reply.is_replay);
    }
    let put = requests::put(intake, &key, &bytes).await.ok()?;
    assert!(put.created, "{put:?}");
    Some(false)
}

async fn delete(intake: &Intake, name: &str) -> bool {
    matches!(requests::delete(intake, &of(name)).await, Ok(true))
}

/// Posts documents; returns whether that was done before.
async fn post(intake: &Intake, request: Option<&str>) -> bool {
    let reply = requests::post(intake, &namespace("n"), request, BODY).await.unwrap();
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.is_replay
}

/// Puts files under one name or two, deletes most names, and closes.
fn furnish(setup: &Setup, disk: &SimFs) {
    let intake = setup.open(disk).unwrap();
    block_on(async {
        for n in 0..SMALL {
            assert_eq!(put(&intake, &format!("a/{n}"), n).await, Some(false));
            if is_given_twice(n) {
                assert_eq!(put(&intake, &format!("b/{n}"), n).await, Some(false));
            }
            if n.is_multiple_of(6) {
                let key = format!("post {n}");
                let key = is_posted_with_key(n).then_some(key.as_str());
                assert!(!post(&intake, key).await, "{n}");
            }
        }
        for n in (0..SMALL).filter(|&n| !is_kept(n)) {
            assert!(delete(&intake, &format!("a/{n}")).await, "{n}");
        }
    });
    intake.close().unwrap();
}

/// The work that is cut: opening, freeing space, and a few requests between.
///
/// Returns whether the new name was acknowledged, and whether the old one's end was.
fn work(intake: &Intake) -> (bool, bool) {
    block_on(async {
        intake.reclaim().await.unwrap_or_default();
        // Bytes that have just been removed are stored again; others lose their last name.
        let put = put(intake, "c/new", 1).await.is_some();
        let deleted = delete(intake, "a/10").await;
        intake.reclaim().await.unwrap_or_default();
        (put, deleted)
    })
}

/// Checks everything that was acknowledged before the work, and what the work did.
async fn judge(intake: &Intake, (new, old_gone): (bool, bool), at: &str) {
    intake.ready().unwrap();
    let mut there = Vec::new();
    for (namespace, n) in [("a", 0..SMALL), ("b", 0..SMALL)]
        .into_iter()
        .flat_map(|(namespace, numbers)| numbers.map(move |n| (namespace, n)))
    {
        let name = format!("{namespace}/{n}");
        let found = bytes_of(intake, &of(&name)).await;
        let found = found.unwrap_or_else(|error| panic!("{at}: {name}: {error:?}"));
        let known = if namespace == "a" { is_kept(n) } else { is_given_twice(n) };
        let unsure = name == "a/10" && found.is_none();
        assert!(found.is_some() == known || unsure, "{at}: {name} is wrong");
        assert!(!(name == "a/10" && old_gone) || found.is_none(), "{at}: {name} came back");
        if let Some(bytes) = found {
            assert!(bytes == content(n), "{at}: {name} is altered");
            there.push(name);
        }
    }
    let found = bytes_of(intake, &of("c/new")).await.unwrap();
    assert!(found.is_some() || !new, "{at}: c/new is gone");
    if let Some(bytes) = found {
        assert!(bytes == content(1), "{at}: c/new is altered");
        there.push("c/new".into());
    }
    let listed = files(intake).await.unwrap().into_iter();
    let mut listed: Vec<String> =
        listed.map(|file| format!("{}/{}", file.namespace, file.name)).collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there, "{at}");
    judge_requests(intake, at).await;
}

/// Repeated requests get the same answers, and have no effect.
async fn judge_requests(intake: &Intake, at: &str) {
    for n in (0..SMALL).filter(|&n| is_keyed(n)) {
        let name = format!("a/{n}");
        assert_eq!(put(intake, &name, n).await, Some(true), "{at}: {name}");
        assert_eq!(bytes_of(intake, &of(&name)).await.unwrap(), None, "{at}: {name}");
    }
    for n in (0..SMALL).filter(|&n| is_posted_with_key(n)) {
        assert!(post(intake, Some(&format!("post {n}"))).await, "{at}: {n}");
    }
    let page = documents(intake, &namespace("n")).await.unwrap().unwrap();
    let ids: Vec<u64> = page.documents.iter().map(|found| found.id).collect();
    assert_eq!(ids, (1..=SMALL / 6 * 2).collect::<Vec<_>>(), "{at}");
}

fn check(setup: &Setup, disk: &SimFs, at: &str) -> FsckReport {
    let report = fsck(&setup.options.dir, Arc::new(disk.clone()), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{at}: {report:?}");
    report
}

/// Opens what is left, checks it, frees space again and checks that.
fn judge_left(setup: &Setup, disk: &SimFs, done: (bool, bool), at: &str) {
    let intake = setup.open(disk).unwrap_or_else(|error| panic!("{at}: {error:?}"));
    block_on(judge(&intake, done, at));
    block_on(intake.reclaim()).unwrap();
    block_on(judge(&intake, done, at));
    intake.close().unwrap();
    drop(intake);
    check(setup, disk, at);
    let blobs = files_below(disk, &setup.options.dir.join("blobs"));
    assert!(blobs <= 5, "{at}: {blobs} blob files are left");
}

fn files_below(disk: &SimFs, dir: &Path) -> usize {
    let entries = disk.list(dir).unwrap();
    let below = |entry: &forebay_base::fs::DirEntry| match entry.is_dir {
        true => files_below(disk, &dir.join(&entry.name)),
        false => 1,
    };
    entries.iter().map(below).sum()
}

#[test]
fn power_lost_while_space_is_given_back_loses_nothing_and_brings_nothing_back() {
    let setup = Setup::new();
    let disk = SimFs::new(900);
    furnish(&setup, &disk);
    let before = directory();
    for view in [CATALOGUE, DOCUMENTS] {
        copy_view(view, &setup.options.dir, before.path());
    }
    let written = check(&setup, &disk, "furnished").log_entries;
    let mut at = 0;
    loop {
        set_views(&setup, before.path(), Some(before.path()));
        let cut = disk.fork();
        cut.plan(at, Fault::Stop);
        let mut done = (false, false);
        if let Ok(intake) = setup.open(&cut) {
            done = work(&intake);
            // Closing syncs: its error on a broken disk is not tested here.
            intake.close().unwrap_or_default();
        }
        let newest = directory();
        for view in [CATALOGUE, DOCUMENTS] {
            copy_view(view, &setup.options.dir, newest.path());
        }
        let ended = cut.operations() <= at;
        judge_left(&setup, &cut.fork().kill(), done, &format!("killed at {at}"));
        let catalogues =
            [("newest", Some(newest.path())), ("old", Some(before.path())), ("no", None)];
        let documents = [("newest", newest.path()), ("old", before.path())];
        // Each operation with two of the six, each of the six with every third operation.
        for pair in [at, at + 3].map(|pair| usize::try_from(pair % 6).unwrap()) {
            let (catalogue_age, catalogue) = catalogues[pair % 3];
            let (documents_age, documents) = documents[pair / 3];
            set_views(&setup, documents, catalogue);
            let name =
                format!("power lost at {at}, {catalogue_age} catalogue, {documents_age} documents");
            judge_left(&setup, &cut.fork().power_off(at), done, &name);
        }
        if ended {
            break;
        }
        at += 1;
    }
    assert!(at > 30, "there were only {at} operations");
    let left = disk.fork();
    set_views(&setup, before.path(), Some(before.path()));
    let intake = setup.open(&left).unwrap();
    work(&intake);
    intake.close().unwrap();
    drop(intake);
    let kept = check(&setup, &left, "uncut").log_entries;
    assert!(kept + 20 < written, "of {written} entries {kept} are left");
}

/// Puts copies of the views in place; `None` for a missing catalogue.
fn set_views(setup: &Setup, documents: &Path, catalogue: Option<&Path>) {
    setup.lose_views();
    copy_view(DOCUMENTS, documents, &setup.options.dir);
    if let Some(catalogue) = catalogue {
        copy_view(CATALOGUE, catalogue, &setup.options.dir);
    }
}
