//! Backups and prunes that are cut at every step, as by a kill: what is listed afterwards is whole.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;

use super::keep::Keep;
use super::make::make;
use super::prune::{Order, Pruned, prune};
use super::source::Source;
use super::store::Store;
use super::target::{Directory, Hold, Purpose, Target};
use super::verify::verify;
use crate::interrupt::Interrupt;

/// A directory that takes a number of changes, and then does nothing any more.
#[derive(Debug)]
struct Cut {
    inner: Directory,
    left: Arc<AtomicUsize>,
}

impl Cut {
    fn change(&self) -> anyhow::Result<()> {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() { bail!("cut") } else { Ok(()) }
    }
}

impl Target for Cut {
    fn shown(&self, name: &str) -> String {
        self.inner.shown(name)
    }
    fn workers(&self) -> usize {
        1
    }
    fn is_checked(&self) -> bool {
        self.inner.is_checked()
    }
    fn is_empty(&self) -> anyhow::Result<bool> {
        self.inner.is_empty()
    }
    fn hold(&self, purpose: Purpose) -> anyhow::Result<Box<dyn Hold>> {
        self.inner.hold(purpose)
    }
    fn read(&self, name: &str, max: usize, from_device: bool) -> anyhow::Result<Option<Vec<u8>>> {
        self.inner.read(name, max, from_device)
    }
    fn open(&self, name: &str) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        self.inner.open(name)
    }
    fn size(&self, name: &str) -> anyhow::Result<Option<u64>> {
        self.inner.size(name)
    }
    fn list(
        &self,
        below: &str,
        each: &mut dyn FnMut(&str, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.inner.list(below, each)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.change()?;
        self.inner.write(name, bytes)
    }
    fn sync(&self) -> anyhow::Result<()> {
        self.change()
    }
    fn scratch(&self) -> anyhow::Result<File> {
        self.change()?;
        self.inner.scratch()
    }
    fn publish(&self, name: &str, file: File) -> anyhow::Result<()> {
        self.change()?;
        self.inner.publish(name, file)
    }
    fn remove(&self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            self.change()?;
            self.inner.remove(std::slice::from_ref(name))?;
        }
        Ok(())
    }
}

/// A data directory whose files have one chunk each, some that change with `round` and some that do not.
fn fill(data: &Path, round: usize) {
    let write = |name: String, text: String| {
        let path = data.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for number in 0..3 {
        write(format!("intake/log/{number}"), format!("round {round}, file {number}"));
        write(format!("events/same-{number}"), format!("file {number}"));
        write(format!("events/of-{round}-{number}"), format!("file {number} of round {round}"));
    }
}

fn store(dir: &Path) -> Store {
    Store::open_to_add(Box::new(Directory::new(dir))).unwrap()
}

fn back_up(store: &Store, data: &Path) -> anyhow::Result<String> {
    let source = Source::prepare(data, || bail!("not asked"))?;
    Ok(make(store, &source, &Interrupt::default(), &|_, _| ())?.id)
}

fn remove(store: &Store, keep: Option<Keep>, remove: &[String]) -> anyhow::Result<Pruned> {
    prune(store, &Order { keep, remove, is_dry: false }, &Interrupt::default(), &|_| ())
}

const TWO: Keep = Keep { last: 2, daily: 0, weekly: 0, monthly: 0 };

/// The backups that are listed, all of which are whole.
fn whole(dir: &Path) -> Vec<String> {
    let store = Store::open(Box::new(Directory::new(dir))).unwrap();
    let ids = store.ids().unwrap();
    if !ids.is_empty() {
        let verified = verify(&store, None, &Interrupt::default(), &|_| ()).unwrap();
        assert_eq!(verified.findings, [""; 0]);
    }
    ids
}

/// The chunks that exist, and those that a list names.
fn chunks(dir: &Path) -> (BTreeSet<[u8; 32]>, BTreeSet<[u8; 32]>) {
    let store = Store::open(Box::new(Directory::new(dir))).unwrap();
    let mut exist = BTreeSet::new();
    let gather = &mut |chunk, _| {
        exist.insert(chunk);
        Ok(())
    };
    store.chunks(gather).unwrap();
    let lists = store.ids().unwrap().into_iter().map(|id| store.list(Some(&id)).unwrap());
    (exist, lists.flat_map(|list| list.entries).flat_map(|entry| entry.chunks).collect())
}

#[test]
fn a_backup_that_is_cut_at_any_step_is_none_or_whole_and_harms_no_other() {
    let data = tempfile::tempdir().unwrap();
    let mut steps = 0;
    for cut in 0.. {
        let dir = tempfile::tempdir().unwrap();
        fill(data.path(), 0);
        let first = back_up(&store(dir.path()), data.path()).unwrap();
        fill(data.path(), 1);
        let target =
            Cut { inner: Directory::new(dir.path()), left: Arc::new(AtomicUsize::new(cut)) };
        let made = back_up(&Store::open_to_add(Box::new(target)).unwrap(), data.path());
        let listed = whole(dir.path());
        let is_made = made.is_ok();
        match made {
            Ok(second) => assert_eq!(listed, [first, second]),
            // Cut before its mark was on stable storage, it is whole.
            Err(error) if format!("{error:#}").contains("not marked") => {
                assert!(listed.len() == 2 && listed.starts_with(&[first]), "{listed:?}");
            }
            Err(_) => assert_eq!(listed, [first]),
        }
        // What remains is used or removed by the next.
        let third = back_up(&store(dir.path()), data.path()).unwrap();
        assert_eq!(whole(dir.path()).last(), Some(&third));
        if is_made {
            steps = cut;
            break;
        }
    }
    assert!(steps >= 6, "{steps}");
}

#[test]
fn a_prune_that_is_cut_at_any_step_leaves_whole_backups_and_the_next_ends_it() {
    let data = tempfile::tempdir().unwrap();
    let mut steps = 0;
    for cut in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = Vec::new();
        for round in 0..4 {
            fill(data.path(), round);
            if round > 0 {
                for number in 0..3 {
                    std::fs::remove_file(
                        data.path().join(format!("events/of-{}-{number}", round - 1)),
                    )
                    .unwrap();
                }
            }
            ids.push(back_up(&store(dir.path()), data.path()).unwrap());
        }
        for number in 0..3 {
            std::fs::remove_file(data.path().join(format!("events/of-3-{number}"))).unwrap();
        }
        let target =
            Cut { inner: Directory::new(dir.path()), left: Arc::new(AtomicUsize::new(cut)) };
        let pruned = remove(&Store::open_to_prune(Box::new(target)).unwrap(), Some(TWO), &[]);
        let listed = whole(dir.path());
        assert!(listed.ends_with(&ids[2..]), "{cut}: {listed:?}");
        if let Ok(pruned) = pruned {
            assert_eq!(pruned.removed, ids[..2]);
            steps = cut;
        } else {
            let again = Store::open_to_prune(Box::new(Directory::new(dir.path()))).unwrap();
            remove(&again, Some(TWO), &[]).unwrap();
        }
        assert_eq!(whole(dir.path()), ids[2..]);
        let (exist, named) = chunks(dir.path());
        assert_eq!(exist, named, "{cut}");
        if steps > 0 {
            break;
        }
    }
    assert!(steps >= 6, "{steps}");
}

#[test]
fn a_damaged_list_of_a_backup_that_stays_stops_a_prune_and_can_be_removed_by_its_id() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    for round in 0..3 {
        fill(data.path(), round);
        ids.push(back_up(&store(dir.path()), data.path()).unwrap());
    }
    let list = dir.path().join(format!("lists/{}.list", ids[1]));
    std::fs::write(&list, "damaged").unwrap();
    let open = || Store::open_to_prune(Box::new(Directory::new(dir.path()))).unwrap();
    let before = {
        let error = remove(&open(), Some(TWO), &[]).unwrap_err();
        assert!(format!("{error:#}").contains(&format!("--remove {}", ids[1])), "{error:#}");
        open().ids().unwrap()
    };
    assert_eq!(before, ids);
    assert!(remove(&open(), None, &["20260101T000000000Z-00000000".to_owned()]).is_err());
    let pruned = remove(&open(), None, &ids[1..2]).unwrap();
    assert_eq!((pruned.removed, pruned.kept.len()), (vec![ids[1].clone()], 2));
    assert_eq!(whole(dir.path()), [ids[0].clone(), ids[2].clone()]);
}

#[test]
fn a_backup_whose_list_is_missing_is_found_and_none_is_restored_in_its_place() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    for round in 0..3 {
        fill(data.path(), round);
        ids.push(back_up(&store(dir.path()), data.path()).unwrap());
    }
    let path = |id: &str| dir.path().join(format!("lists/{id}.list"));
    let reading = || Store::open(Box::new(Directory::new(dir.path()))).unwrap();
    for lost in [&ids[0], &ids[2]] {
        let list = std::fs::read(path(lost)).unwrap();
        std::fs::remove_file(path(lost)).unwrap();
        let verified = verify(&reading(), None, &Interrupt::default(), &|_| ()).unwrap();
        assert_eq!((verified.damaged, verified.backups), (1, 2));
        assert!(verified.findings[0].contains(lost.as_str()), "{:?}", verified.findings);
        // Its chunks stay, since the list may be brought back.
        let open = Store::open_to_prune(Box::new(Directory::new(dir.path()))).unwrap();
        let keep = Keep { last: 3, ..Keep::default() };
        assert!(remove(&open, Some(keep), &[]).is_err());
        std::fs::write(path(lost), list).unwrap();
        assert_eq!(whole(dir.path()), ids);
    }
    std::fs::remove_file(path(&ids[2])).unwrap();
    let error = format!("{:#}", reading().list(None).unwrap_err());
    assert!(error.contains("is missing") && error.contains(&ids[2]), "{error}");
    assert_eq!(reading().list(Some(&ids[1])).unwrap().header.id, ids[1]);
    let open = Store::open_to_prune(Box::new(Directory::new(dir.path()))).unwrap();
    assert_eq!(remove(&open, None, &ids[2..]).unwrap().removed, ids[2..]);
    drop(open);
    assert_eq!(whole(dir.path()), ids[..2]);
    // Backups of a version without marks get theirs with the next backup.
    std::fs::remove_dir_all(dir.path().join("marks")).unwrap();
    assert_eq!(whole(dir.path()), ids[..2]);
    back_up(&store(dir.path()), data.path()).unwrap();
    std::fs::remove_file(path(&ids[0])).unwrap();
    let verified = verify(&reading(), None, &Interrupt::default(), &|_| ()).unwrap();
    assert_eq!(verified.damaged, 1);
}

#[test]
fn a_dry_run_counts_what_the_prune_then_removes_and_other_files_stay() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for round in 0..3 {
        fill(data.path(), round);
        back_up(&store(dir.path()), data.path()).unwrap();
    }
    let mine = dir.path().join("chunks/mine.txt");
    std::fs::write(&mine, "mine").unwrap();
    let before = chunks(dir.path());
    let keep = Keep { last: 1, ..Keep::default() };
    let order = Order { keep: Some(keep), remove: &[], is_dry: true };
    let reading = Store::open(Box::new(Directory::new(dir.path()))).unwrap();
    let dry = prune(&reading, &order, &Interrupt::default(), &|_| ()).unwrap();
    assert_eq!((dry.dry_run, dry.removed.len(), whole(dir.path()).len()), (true, 2, 3));
    assert_eq!(chunks(dir.path()), before);
    // Nothing is removed from what is open for reading.
    assert!(remove(&reading, Some(keep), &[]).is_err());
    let store = Store::open_to_prune(Box::new(Directory::new(dir.path()))).unwrap();
    let wet = remove(&store, Some(keep), &[]).unwrap();
    assert_eq!((wet.chunks, wet.bytes, wet.removed), (dry.chunks, dry.bytes, dry.removed));
    assert!(wet.chunks > 0 && mine.exists());
}
