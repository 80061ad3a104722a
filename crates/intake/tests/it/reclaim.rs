//! The space of deleted data is freed, and nothing that still has a name is removed with it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use forebay_intake::{Condition, Intake, IntakeOptions};

use crate::requests;
use crate::support::{
    CATALOGUE, block_on, directory, findings, key, noise, open_with, options, put, remove,
};

/// Size of a small file: several pages, since a file system frees only whole ones.
const SMALL: usize = 20_000;

/// Small segments, so that a few dozen files fill several.
fn open(dir: &Path) -> Intake {
    let mut options: IntakeOptions = options(dir);
    options.limits.packed_size_max = 32 << 10;
    open_with(options).unwrap()
}

pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// Bytes the log takes on the device.
fn log_size(dir: &Path) -> u64 {
    let files = files_below(&dir.join("log"));
    files.iter().map(|path| std::fs::metadata(path).unwrap().blocks() * 512).sum()
}

async fn bytes_of(intake: &Intake, namespace: &str, name: &str) -> Option<Vec<u8>> {
    requests::bytes_of(intake, &key(namespace, name)).await.unwrap()
}

async fn put_many(intake: &Intake, count: u64) {
    for n in 0..count {
        put(intake, &key("a", &n.to_string()), &noise(n, SMALL), false).await;
    }
}

async fn delete(intake: &Intake, namespace: &str, name: &str) {
    assert!(intake.delete(&key(namespace, name), Condition::None, None).await.unwrap().is_some());
}

async fn check_kept(intake: &Intake, kept: impl Iterator<Item = u64>) {
    for n in kept {
        let found = bytes_of(intake, "a", &n.to_string()).await;
        assert!(found == Some(noise(n, SMALL)), "{n}");
    }
}

#[test]
fn deleted_small_files_leave_the_log_and_the_others_stay() {
    let dir = directory();
    let dir = dir.path();
    let intake = open(dir);
    block_on(async {
        put_many(&intake, 100).await;
        let full = log_size(dir);
        for n in (0..100).filter(|n| n % 5 != 0) {
            delete(&intake, "a", &n.to_string()).await;
        }
        intake.reclaim().await.unwrap();
        let left = log_size(dir);
        // A fifth of the files, a page or so of each erased one, and the two segments ahead.
        assert!(left < full * 6 / 10, "{left} of {full} bytes are left");
        check_kept(&intake, (0..100).step_by(5)).await;
        assert_eq!(bytes_of(&intake, "a", "1").await, None);
        // What was erased can be stored again, and a start finds everything.
        put(&intake, &key("a", "1"), &noise(1, SMALL), false).await;
    });
    intake.close().unwrap();
    drop(intake);
    let intake = open(dir);
    block_on(check_kept(&intake, (0..100).step_by(5).chain([1])));
    intake.close().unwrap();
    drop(intake);
    assert_eq!(findings(dir), Vec::<String>::new());
}

#[test]
fn a_catalogue_lost_after_erasing_is_rebuilt_from_what_is_left() {
    let dir = directory();
    let dir = dir.path();
    let intake = open(dir);
    block_on(async {
        put_many(&intake, 60).await;
        // Names given to known bytes stay in the log although the bytes are removed.
        for n in 0..60 {
            put(&intake, &key("b", &n.to_string()), &noise(n, SMALL), false).await;
        }
        for n in (0..60).filter(|n| n % 4 != 0) {
            delete(&intake, "a", &n.to_string()).await;
            delete(&intake, "b", &n.to_string()).await;
        }
        intake.reclaim().await.unwrap();
    });
    intake.close().unwrap();
    drop(intake);
    remove(dir, CATALOGUE);
    let intake = open(dir);
    block_on(async {
        for n in 0..60 {
            for namespace in ["a", "b"] {
                let found = bytes_of(&intake, namespace, &n.to_string()).await;
                let expected = (n % 4 == 0).then(|| noise(n, SMALL));
                assert!(found == expected, "{namespace}/{n}");
            }
        }
    });
    intake.close().unwrap();
}

#[test]
fn a_blob_file_is_removed_with_its_last_name_and_not_before() {
    let dir = directory();
    let dir = dir.path();
    let intake = open(dir);
    let bytes = noise(7, 100_000);
    let blobs = || files_below(&dir.join("blobs")).len();
    block_on(async {
        put(&intake, &key("a", "one"), &bytes, false).await;
        put(&intake, &key("a", "two"), &bytes, false).await;
        delete(&intake, "a", "one").await;
        intake.reclaim().await.unwrap();
        assert_eq!(blobs(), 1);
        assert!(bytes_of(&intake, "a", "two").await.as_ref() == Some(&bytes));
        delete(&intake, "a", "two").await;
        intake.reclaim().await.unwrap();
        assert_eq!(blobs(), 0);
        put(&intake, &key("a", "three"), &bytes, false).await;
        assert!(bytes_of(&intake, "a", "three").await.as_ref() == Some(&bytes));
    });
    intake.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_and_go_while_space_is_given_back_are_never_without_bytes() {
    let dir = directory();
    let intake = open(dir.path());
    let clients: Vec<_> = (0..4u64)
        .map(|client| {
            let intake = intake.clone();
            tokio::spawn(async move {
                for round in 0..60u64 {
                    // Few contents shared by all: bytes lose their last name all the time.
                    let content = round % 3;
                    let size = if content == 0 { 100_000 } else { SMALL };
                    let name = client.to_string();
                    put(&intake, &key("a", &name), &noise(content, size), false).await;
                    let found = bytes_of(&intake, "a", &name).await;
                    assert!(found == Some(noise(content, size)), "client {client}, round {round}");
                    delete(&intake, "a", &name).await;
                }
            })
        })
        .collect();
    let cleaner = {
        let intake = intake.clone();
        tokio::spawn(async move {
            for _ in 0..60 {
                intake.reclaim().await.unwrap();
            }
        })
    };
    for client in clients {
        client.await.unwrap();
    }
    cleaner.await.unwrap();
    intake.reclaim().await.unwrap();
    assert!(files_below(&dir.path().join("blobs")).is_empty());
    intake.close().unwrap();
}
