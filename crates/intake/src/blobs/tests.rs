//! Files of this machine and the store in memory keep the promises of a place for blobs.

use std::sync::Arc;

use super::conformance::{Subject, check};
use super::memory::MemoryStorage;

#[test]
fn files_of_this_machine_keep_the_promises() {
    let dir = tempfile::tempdir().unwrap();
    let mut number = 0;
    let number = std::cell::Cell::from_mut(&mut number);
    check(|| {
        number.set(number.get() + 1);
        Subject { dir: dir.path().join(number.get().to_string()), storage: None }
    });
}

#[test]
fn an_object_store_keeps_the_promises() {
    let dir = tempfile::tempdir().unwrap();
    let mut number = 0;
    let number = std::cell::Cell::from_mut(&mut number);
    check(|| {
        number.set(number.get() + 1);
        let storage = Some(Arc::new(MemoryStorage::default()) as _);
        Subject { dir: dir.path().join(number.get().to_string()), storage }
    });
}
