//! The real file system keeps the promises of the traits.

use super::*;

#[test]
fn a_second_exclusive_lock_is_refused_until_the_first_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = RealFs.lock_exclusive(&path).unwrap();
    let refused = RealFs.lock_exclusive(&path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(held);
    RealFs.lock_exclusive(&path).unwrap();
}

#[test]
fn a_lock_is_released_though_a_process_being_started_still_holds_its_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let file = fs::File::create(&path).unwrap();
    file.try_lock().unwrap();
    // What fork leaves in a child before exec: one more descriptor of the same open file.
    let inherited = file.try_clone().unwrap();
    drop(RealLock(file));
    RealFs.lock_exclusive(&path).unwrap();
    drop(inherited);
}

#[test]
fn vectored_writes_land_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealFs.create_new(&dir.path().join("f")).unwrap();
    let parts: Vec<Vec<u8>> =
        (0..3000u32).map(|i| i.to_le_bytes()[..i as usize % 5].into()).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_vectored_at(&slices, 7).unwrap();
    let whole = parts.concat();
    let mut read = vec![0; whole.len()];
    file.read_exact_at(&mut read, 7).unwrap();
    assert_eq!(read, whole);
    assert_eq!(file.len().unwrap(), 7 + whole.len() as u64);
}

#[test]
fn allocated_space_reads_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealFs.create_new(&dir.path().join("f")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.allocate(8192).unwrap();
    assert_eq!(file.len().unwrap(), 8192);
    let mut read = [1; 8192];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read[0] == b'x' && read[1..].iter().all(|byte| *byte == 0));
}

#[test]
fn reading_past_the_end_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealFs.create_new(&dir.path().join("f")).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    let error = file.read_exact_at(&mut [0; 4], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn directories_are_made_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("a/b/c");
    RealFs.create_dir_all(&inner).unwrap();
    RealFs.create_dir_all(&inner).unwrap();
    RealFs.create_new(&inner.join("f")).unwrap().write_all_at(b"12", 0).unwrap();
    let listed = RealFs.list(&inner).unwrap();
    assert_eq!(listed, [DirEntry { name: "f".into(), is_dir: false, len: 2 }]);
    assert!(RealFs.create_new(&inner.join("f")).is_err());
    RealFs.rename(&inner.join("f"), &inner.join("g")).unwrap();
    RealFs.remove_file(&inner.join("g")).unwrap();
    RealFs.remove_dir(&inner).unwrap();
    assert!(!RealFs.exists(&inner).unwrap());
}

#[test]
fn a_private_file_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    RealFs.create_private(&path).unwrap().write_all_at(b"s", 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let taken = RealFs.create_private(&path).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
}
