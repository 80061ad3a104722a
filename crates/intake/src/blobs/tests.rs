//! Files of this machine and the store in memory keep the promises of a place for blobs.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use futures_util::future::{Either, select};

use super::conformance::{Subject, check, has, put};
use super::memory::MemoryStorage;
use super::storage::ObjectStorage;
use super::unnamed::sweep;
use crate::digest::Digest;
use crate::{Intake, IntakeOptions, ObjectStorageOptions};

/// Runs the suite, each case with another object store or none.
fn keeps_the_promises(storage: fn() -> Option<Arc<MemoryStorage>>) {
    let dir = tempfile::tempdir().unwrap();
    let count = Cell::new(0);
    check(|| {
        count.set(count.get() + 1);
        let storage = storage().map(|storage| -> Arc<dyn ObjectStorage> { storage });
        Subject { dir: dir.path().join(count.get().to_string()), storage }
    });
}

#[test]
fn files_of_this_machine_keep_the_promises() {
    keeps_the_promises(|| None);
}

#[test]
fn an_object_store_keeps_the_promises() {
    keeps_the_promises(|| Some(Arc::default()));
}

#[test]
fn what_was_sent_for_a_client_that_has_left_is_counted_out_and_what_has_a_name_stays() {
    let (dir, storage) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStorage::default()));
    let mut options = IntakeOptions::new(dir.path().join("intake"));
    options.object_storage = Some(ObjectStorageOptions::new(Arc::clone(&storage) as _));
    let opened = Intake::open(options, Arc::new(RealFs), Arc::new(SystemClock::new()));
    let intake = opened.unwrap().0;
    let (shared, bytes) = (Arc::clone(&intake.inner.shared), vec![7; 20_000]);
    let remote = shared.blobs.written_remote().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        storage.hold_writes(true);
        {
            let put = pin!(put(&intake, "a", &bytes));
            let sent = pin!(async {
                while remote.waiting_bytes() == 0 {
                    tokio::task::yield_now().await;
                }
            });
            assert!(
                matches!(select(put, sent).await, Either::Right(_)),
                "the bucket has not answered"
            );
        }
        assert!(remote.unnamed.is_left());
        // Still on its way.
        sweep(&shared, Duration::ZERO).unwrap();
        storage.hold_writes(false);
        while remote.totals().unwrap().blobs == 0 {
            tokio::task::yield_now().await;
        }
        sweep(&shared, Duration::ZERO).unwrap();
        assert_eq!(remote.totals().unwrap().blobs, 0);
        assert!(!remote.unnamed.is_left());

        put(&intake, "a", &bytes).await.unwrap();
        remote.unnamed.note(Digest::of(&bytes));
        // It is noted again until its entry is in the catalogue.
        while remote.unnamed.is_left() {
            sweep(&shared, Duration::ZERO).unwrap();
            tokio::task::yield_now().await;
        }
        has(&intake, "a", &bytes).await.unwrap();
    });
    intake.close().unwrap();
}
