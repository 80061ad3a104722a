//! The space of deleted data is freed, and nothing that still has a name is removed with it.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use forebay_api::intake::router;
use forebay_base::fs::RealFs;
use forebay_intake::fsck::fsck;

use super::support::{House, noise, open};

/// Size of a small file: several pages, since a file system frees only whole ones.
const SMALL: usize = 20_000;

/// Small segments, so that a few dozen files fill several.
fn house() -> House {
    House::with(|options| {
        options.segment_size = 256 << 10;
        options.limits.packed_size_max = 32 << 10;
    })
}

/// Bytes the log takes on the device.
fn log_size(house: &House) -> u64 {
    let files = house.files_below("log");
    files.iter().map(|path| std::fs::metadata(path).unwrap().blocks() * 512).sum()
}

async fn put_many(house: &House, count: u64) {
    for n in 0..count {
        let answer = house.put(&format!("a/{n}"), noise(n, SMALL)).await;
        assert_eq!(answer.status, 201);
    }
}

async fn check_kept(house: &House, kept: impl Iterator<Item = u64>) {
    for n in kept {
        assert_eq!(house.get(&format!("/v1/files/a/{n}")).await.body, noise(n, SMALL), "{n}");
    }
}

#[tokio::test]
async fn deleted_small_files_leave_the_log_and_the_others_stay() {
    let house = house();
    put_many(&house, 100).await;
    let full = log_size(&house);
    for n in (0..100).filter(|n| n % 5 != 0) {
        assert_eq!(house.delete(&format!("a/{n}")).await.status, 204);
    }
    house.intake.reclaim().await.unwrap();
    let left = log_size(&house);
    // A fifth of the files, a page or so of each erased one, and the two segments ahead.
    assert!(left < full * 6 / 10, "{left} of {full} bytes are left");
    check_kept(&house, (0..100).step_by(5)).await;
    assert_eq!(house.get("/v1/files/a/1").await.status, 404);

    // What was erased can be stored again, and a start finds everything.
    assert_eq!(house.put("a/1", noise(1, SMALL)).await.json()["status"], "stored");
    let house = house.reopen();
    check_kept(&house, (0..100).step_by(5).chain([1])).await;
    let (options, _dir) = house.close();
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[tokio::test]
async fn a_catalogue_lost_after_erasing_is_rebuilt_from_what_is_left() {
    let house = house();
    put_many(&house, 60).await;
    // Names given to known bytes stay in the log although the bytes are removed.
    for n in 0..60 {
        house.put(&format!("b/{n}"), noise(n, SMALL)).await;
    }
    for n in (0..60).filter(|n| n % 4 != 0) {
        house.delete(&format!("a/{n}")).await;
        house.delete(&format!("b/{n}")).await;
    }
    house.intake.reclaim().await.unwrap();
    let (options, _dir) = house.close();
    for suffix in ["", "-wal", "-shm"] {
        let path = options.dir.join(format!("catalogue.sqlite{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (intake, report) = open(options, Arc::new(RealFs));
    assert!(report.catalogue_entries > 0);
    for n in 0..60 {
        for namespace in ["a", "b"] {
            let path = format!("/v1/files/{namespace}/{n}");
            let answer = super::support::send(router(&intake), "GET", &path, &[], "").await;
            if n % 4 == 0 {
                assert_eq!(answer.body, noise(n, SMALL), "{path}");
            } else {
                assert_eq!(answer.status, 404, "{path}");
            }
        }
    }
    intake.close().unwrap();
}

#[tokio::test]
async fn a_blob_file_is_removed_with_its_last_name_and_not_before() {
    let house = house();
    let bytes = noise(7, 100_000);
    house.put("a/one", bytes.clone()).await;
    house.put("a/two", bytes.clone()).await;
    house.delete("a/one").await;
    house.intake.reclaim().await.unwrap();
    assert_eq!(house.files_below("blobs").len(), 1);
    assert_eq!(house.get("/v1/files/a/two").await.body, bytes);
    house.delete("a/two").await;
    house.intake.reclaim().await.unwrap();
    assert!(house.files_below("blobs").is_empty());
    assert_eq!(house.put("a/three", bytes.clone()).await.json()["status"], "stored");
    assert_eq!(house.get("/v1/files/a/three").await.body, bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_and_go_while_space_is_given_back_are_never_without_bytes() {
    let house = Arc::new(house());
    let clients: Vec<_> = (0..4u64)
        .map(|client| {
            let house = house.clone();
            tokio::spawn(async move {
                for round in 0..60u64 {
                    // Few contents shared by all: bytes lose their last name all the time.
                    let content = round % 3;
                    let size = if content == 0 { 100_000 } else { SMALL };
                    let name = format!("a/{client}");
                    let answer = house.put(&name, noise(content, size)).await;
                    assert!(answer.status < 300, "{answer:?}");
                    let got = house.get(&format!("/v1/files/{name}")).await;
                    assert_eq!(got.status, 200, "{got:?}");
                    assert!(got.body == noise(content, size), "client {client}, round {round}");
                    assert_eq!(house.delete(&name).await.status, 204);
                }
            })
        })
        .collect();
    let cleaner = {
        let house = house.clone();
        tokio::spawn(async move {
            for _ in 0..60 {
                house.intake.reclaim().await.unwrap();
            }
        })
    };
    for client in clients {
        client.await.unwrap();
    }
    cleaner.await.unwrap();
    house.intake.reclaim().await.unwrap();
    assert!(house.files_below("blobs").is_empty());
}
