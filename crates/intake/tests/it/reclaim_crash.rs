//! The power fails, or the process is killed, at every operation of freeing space.
//!
//! The log then has to serve views of several ages: the newest, those of the last time both were
//! certainly on stable storage, and a missing catalogue. Nothing that was deleted comes back,
//! nothing else is removed, and repeated requests get the same answers.

use std::path::Path;
use std::sync::Arc;

use forebay_api::intake::router;
use forebay_base::fs::FileSystem as _;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_intake::Intake;
use forebay_intake::fsck::{FsckReport, fsck};

use super::crash::{Place, block_on};
use super::support::{noise, send, text};
use super::views::{CATALOGUE, DOCUMENTS, copy_view};

/// Small files, and how many of them have names at the end.
const SMALL: u64 = 60;
const BODY: &str = "{\"a\":1}\n{\"a\":2}\n";

/// Size of file `n`: some are kept in files of their own.
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

async fn put(intake: &Intake, name: &str, n: u64) -> (u16, bool) {
    let key = format!("put {name}");
    let keyed = [("idempotency-key", key.as_str())];
    let headers: &[(&str, &str)] = if is_keyed(n) { &keyed } else { &[] };
    let answer =
        send(router(intake), "PUT", &format!("/v1/files/{name}"), headers, content(n)).await;
    (answer.status, answer.header("idempotent-replay") == "true")
}

async fn delete(intake: &Intake, name: &str) -> u16 {
    send(router(intake), "DELETE", &format!("/v1/files/{name}"), &[], "").await.status
}

async fn post(intake: &Intake, key: Option<&str>) -> (u16, bool) {
    let headers: Vec<(&str, &str)> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
    let answer = send(router(intake), "POST", "/v1/documents/n", &headers, BODY).await;
    (answer.status, answer.header("idempotent-replay") == "true")
}

/// Puts files under one name or two, deletes most names, and closes.
fn furnish(place: &Place, disk: &SimFs) {
    let intake = place.open(disk).unwrap();
    block_on(async {
        for n in 0..SMALL {
            assert_eq!(put(&intake, &format!("a/{n}"), n).await, (201, false));
            if is_given_twice(n) {
                assert_eq!(put(&intake, &format!("b/{n}"), n).await, (201, false));
            }
            if n.is_multiple_of(6) {
                let key = format!("post {n}");
                let key = is_posted_with_key(n).then_some(key.as_str());
                assert_eq!(post(&intake, key).await, (201, false));
            }
        }
        for n in (0..SMALL).filter(|&n| !is_kept(n)) {
            assert_eq!(delete(&intake, &format!("a/{n}")).await, 204);
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
        let put = put(intake, "c/new", 1).await.0 == 201;
        let deleted = delete(intake, "a/10").await == 204;
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
        let answer = send(router(intake), "GET", &format!("/v1/files/{name}"), &[], "").await;
        let known = if namespace == "a" { is_kept(n) } else { is_given_twice(n) };
        let unsure = name == "a/10" && answer.status == 404;
        assert!((answer.status == 200) == known || unsure, "{at}: {name}: {answer:?}");
        assert!(!(name == "a/10" && old_gone) || answer.status == 404, "{at}: {name} came back");
        if answer.status == 200 {
            assert!(answer.body == content(n), "{at}: {name} is altered");
            there.push(name);
        }
    }
    let answer = send(router(intake), "GET", "/v1/files/c/new", &[], "").await;
    assert!(answer.status == 200 || !new, "{at}: {answer:?}");
    if answer.status == 200 {
        assert!(answer.body == content(1), "{at}");
        there.push("c/new".into());
    }
    let listed = send(router(intake), "GET", "/v1/files?limit=1000", &[], "").await.json();
    let mut listed: Vec<String> = listed["files"].as_array().unwrap().iter().map(named).collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there, "{at}");
    judge_requests(intake, at).await;
}

fn named(file: &serde_json::Value) -> String {
    format!("{}/{}", text(&file["namespace"]), text(&file["name"]))
}

/// Repeated requests get the same answers, and have no effect.
async fn judge_requests(intake: &Intake, at: &str) {
    for n in (0..SMALL).filter(|&n| is_keyed(n)) {
        let name = format!("a/{n}");
        assert_eq!(put(intake, &name, n).await, (201, true), "{at}: {name}");
        let answer = send(router(intake), "GET", &format!("/v1/files/{name}"), &[], "").await;
        assert_eq!(answer.status, 404, "{at}: {name}");
    }
    for n in (0..SMALL).filter(|&n| is_posted_with_key(n)) {
        assert_eq!(post(intake, Some(&format!("post {n}"))).await, (201, true), "{at}: {n}");
    }
    let page = send(router(intake), "GET", "/v1/documents/n?limit=1000", &[], "").await.json();
    let documents = page["documents"].as_array().unwrap();
    let ids: Vec<u64> = documents.iter().map(|found| found["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=SMALL / 6 * 2).collect::<Vec<_>>(), "{at}");
}

fn check(place: &Place, disk: &SimFs, at: &str) -> FsckReport {
    let report = fsck(&place.options.dir, Arc::new(disk.clone()), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{at}: {report:?}");
    report
}

/// Opens what is left, checks it, frees space again and checks that.
fn judge_left(place: &Place, disk: &SimFs, done: (bool, bool), at: &str) {
    let intake = place.open(disk).unwrap_or_else(|error| panic!("{at}: {error:?}"));
    block_on(judge(&intake, done, at));
    block_on(intake.reclaim()).unwrap();
    block_on(judge(&intake, done, at));
    intake.close().unwrap();
    drop(intake);
    check(place, disk, at);
    let blobs = files_below(disk, &place.options.dir.join("blobs"));
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
    let place = Place::new();
    let disk = SimFs::new(900);
    furnish(&place, &disk);
    let before = super::support::directory();
    for view in [CATALOGUE, DOCUMENTS] {
        copy_view(view, &place.options.dir, before.path());
    }
    let written = check(&place, &disk, "furnished").log_entries;
    let mut at = 0;
    loop {
        set_views(&place, before.path(), Some(before.path()));
        let cut = disk.fork();
        cut.plan(at, Fault::Stop);
        let mut done = (false, false);
        if let Ok(intake) = place.open(&cut) {
            done = work(&intake);
            // Closing syncs: its error on a broken disk is not tested here.
            intake.close().unwrap_or_default();
        }
        let newest = super::support::directory();
        for view in [CATALOGUE, DOCUMENTS] {
            copy_view(view, &place.options.dir, newest.path());
        }
        let ended = cut.operations() <= at;
        judge_left(&place, &cut.fork().kill(), done, &format!("killed at {at}"));
        let catalogues =
            [("newest", Some(newest.path())), ("old", Some(before.path())), ("no", None)];
        let documents = [("newest", newest.path()), ("old", before.path())];
        // Each operation with two of the six, each of the six with every third operation.
        for pair in [at, at + 3].map(|pair| usize::try_from(pair % 6).unwrap()) {
            let (catalogue_age, catalogue) = catalogues[pair % 3];
            let (documents_age, documents) = documents[pair / 3];
            set_views(&place, documents, catalogue);
            let name =
                format!("power lost at {at}, {catalogue_age} catalogue, {documents_age} documents");
            judge_left(&place, &cut.fork().power_off(at), done, &name);
        }
        if ended {
            break;
        }
        at += 1;
    }
    assert!(at > 30, "there were only {at} operations");
    let left = disk.fork();
    set_views(&place, before.path(), Some(before.path()));
    let intake = place.open(&left).unwrap();
    work(&intake);
    intake.close().unwrap();
    drop(intake);
    let kept = check(&place, &left, "uncut").log_entries;
    assert!(kept + 20 < written, "of {written} entries {kept} are left");
}

/// Puts copies of the views in place; `None` for a missing catalogue.
fn set_views(place: &Place, documents: &Path, catalogue: Option<&Path>) {
    place.lose_views();
    copy_view(DOCUMENTS, documents, &place.options.dir);
    if let Some(catalogue) = catalogue {
        copy_view(CATALOGUE, catalogue, &place.options.dir);
    }
}
