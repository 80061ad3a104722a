//! Compiled components: what is kept is used, and nothing else is.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use forebay_wasm::Host;
use forebay_wasm::cache::Loaded;

use crate::components::component;

/// The entries of a cache: machine code.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "cwasm")).collect()
}

#[test]
fn a_component_is_compiled_once_and_an_entry_that_was_changed_is_compiled_again() {
    let Some(bytes) = component("trials") else { return };
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let load = || Host::new(cache.clone()).unwrap().load(&bytes).unwrap().1;
    assert_eq!(load(), Loaded::Compiled);
    assert_eq!(load(), Loaded::Kept);
    let entry = entries(&cache).remove(0);
    assert_eq!(std::fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);

    // A byte in the middle, and one at the end.
    for back in [1, 2] {
        let mut damaged = std::fs::read(&entry).unwrap();
        let at = damaged.len() / back - 1;
        damaged[at] ^= 1;
        std::fs::write(&entry, &damaged).unwrap();
        assert_eq!(load(), Loaded::Compiled);
        assert_eq!(load(), Loaded::Kept);
    }
    // Cut, without a checksum, and of nothing.
    let whole = std::fs::read(&entry).unwrap();
    std::fs::write(&entry, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(load(), Loaded::Compiled);
    std::fs::remove_file(entry.with_extension("sum")).unwrap();
    assert_eq!(load(), Loaded::Compiled);
    std::fs::write(&entry, b"").unwrap();
    assert_eq!(load(), Loaded::Compiled);
    assert_eq!(load(), Loaded::Kept);
}

#[test]
fn an_entry_that_others_could_have_written_is_not_run() {
    let Some(bytes) = component("trials") else { return };
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let load = || Host::new(cache.clone()).unwrap().load(&bytes).unwrap().1;
    assert_eq!(load(), Loaded::Compiled);
    let entry = entries(&cache).remove(0);
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&entry, 0o666);
    assert_eq!(load(), Loaded::Compiled);
    assert_eq!(load(), Loaded::Kept, "it was replaced by one of our own");
    open(&cache, 0o777);
    assert_eq!(load(), Loaded::Compiled);
    assert_eq!(load(), Loaded::Compiled, "nothing is kept there");
    open(&cache, 0o700);
    // A link to a file of ours elsewhere.
    let aside = dir.path().join("aside");
    std::fs::rename(&entry, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &entry).unwrap();
    assert_eq!(load(), Loaded::Compiled);
}

#[test]
fn what_is_not_a_component_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path().join("cache")).unwrap();
    // A core module is none either.
    for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0", b"not wasm at all"] {
        assert!(host.load(bytes).is_err(), "{bytes:?}");
    }
}
