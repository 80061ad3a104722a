//! The simulated disk loses exactly what a real one may lose.

use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

/// A disk with one synced directory `/d`.
fn disk() -> SimFs {
    let disk = SimFs::new(1);
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

fn contents(disk: &SimFs, name: &str) -> Option<Vec<u8>> {
    let file = match disk.open(&path(name), Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{error}"),
    };
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn synced_bytes_under_a_synced_name_survive_every_power_loss() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"lost?", 4).unwrap();
    for seed in 0..64 {
        let after = contents(&disk.power_off(seed), "f").unwrap();
        assert_eq!(&after[..4], b"kept", "seed {seed}");
    }
}

#[test]
fn unsynced_names_and_bytes_may_come_and_go_and_tear_at_any_byte() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    file.write_all_at(&[7; 200], 0).unwrap();
    let states: BTreeSet<Option<Vec<u8>>> =
        (0..256).map(|seed| contents(&disk.power_off(seed), "f")).collect();
    assert!(states.contains(&None) && states.contains(&Some(vec![])));
    assert!(states.contains(&Some(vec![7; 200])));
    let torn = states.iter().flatten().filter(|bytes| bytes.contains(&7) && bytes.contains(&0));
    assert!(torn.count() > 10, "torn in the middle");
    let short = states.iter().flatten().filter(|bytes| bytes.len() % 512 != 0 && bytes.len() < 200);
    assert!(short.count() > 10, "torn at the end");
}

#[test]
fn later_unsynced_writes_may_survive_without_earlier_ones() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    file.allocate(20).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"second", 10).unwrap();
    let reordered = (0..64).map(|seed| contents(&disk.power_off(seed), "f").unwrap());
    assert!(reordered.into_iter().any(|b| b[..5] == [0; 5] && &b[10..16] == b"second"));
}

#[test]
fn a_rename_is_durable_after_its_directory_is_synced_and_never_loses_both_names() {
    let disk = disk();
    let file = disk.create_new(&path("old")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.rename(&path("old"), &path("new")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..32 {
        let after = disk.power_off(seed);
        let names = (contents(&after, "old").is_some(), contents(&after, "new").is_some());
        assert!(names.0 != names.1, "{names:?}");
        seen.insert(names);
    }
    assert_eq!(seen.len(), 2);
    let disk = disk.kill();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert!((0..32).all(|seed| contents(&disk.power_off(seed), "new").is_some()));
}

#[test]
fn a_removed_file_may_come_back_until_its_directory_is_synced() {
    let disk = disk();
    disk.create_new(&path("f")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.remove_file(&path("f")).unwrap();
    assert!((0..32).any(|seed| contents(&disk.power_off(seed), "f").is_some()));
    let disk = disk.kill();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert!((0..32).all(|seed| contents(&disk.power_off(seed), "f").is_none()));
}

#[test]
fn after_a_failed_sync_a_successful_one_proves_nothing() {
    let left: BTreeSet<Vec<u8>> = (0..32)
        .map(|seed| {
            let disk = SimFs::new(seed);
            disk.create_dir_all(Path::new("/d")).unwrap();
            let file = disk.create_new(&path("f")).unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_all_at(b"doubtful", 0).unwrap();
            disk.plan(disk.operations(), Fault::Io);
            file.sync_data().unwrap_err();
            file.sync_data().unwrap();
            assert_eq!(contents(&disk, "f").unwrap(), b"doubtful", "still to be read");
            let after = contents(&disk.power_off(0), "f").unwrap();
            let settled = (1..8).all(|seed| contents(&disk.power_off(seed), "f").unwrap() == after);
            assert!(settled, "what the failed sync left is settled, nothing is pending");
            after
        })
        .collect();
    assert!(left.contains(&vec![]) && left.contains(&b"doubtful"[..]) && left.len() > 4);
}

#[test]
fn writing_again_after_a_failed_sync_makes_it_durable() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"doubtful", 0).unwrap();
    disk.plan(disk.operations(), Fault::Io);
    file.sync_data().unwrap_err();
    file.write_all_at(b"doubtful", 0).unwrap();
    file.sync_data().unwrap();
    assert!((0..16).all(|seed| contents(&disk.power_off(seed), "f").unwrap() == b"doubtful"));
}

#[test]
fn nothing_works_after_a_stop_and_a_killed_process_leaves_what_it_wrote() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    disk.plan(disk.operations(), Fault::Stop);
    assert!(file.sync_all().is_err() && disk.stopped());
    assert!(file.write_all_at(b"x", 0).is_err() && disk.list(Path::new("/d")).is_err());
    assert_eq!(contents(&disk.kill(), "f").unwrap(), b"written");
}

#[test]
fn a_full_disk_refuses_and_recovers_when_space_is_freed() {
    let disk = disk();
    disk.set_capacity(Some(3 * 4096));
    let kept = disk.create_new(&path("kept")).unwrap();
    kept.allocate(8192).unwrap();
    let file = disk.create_new(&path("f")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    assert_eq!(file.write_all_at(&[1; 1], 4096).unwrap_err().kind(), io::ErrorKind::StorageFull);
    kept.write_all_at(&[2; 8192], 0).unwrap();
    kept.set_len(4096).unwrap();
    file.write_all_at(&[1; 1], 4096).unwrap();
}

#[test]
fn flipped_bits_stay_flipped() {
    let disk = disk();
    let file = disk.create_new(&path("f")).unwrap();
    file.write_all_at(&[0; 4], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.corrupt(&path("f"), 2, 0x10).unwrap();
    assert_eq!(contents(&disk.power_off(3), "f").unwrap(), [0, 0, 0x10, 0]);
    assert!(disk.corrupt(&path("f"), 4, 1).is_err());
}

#[test]
fn one_lock_at_a_time() {
    let disk = disk();
    let held = disk.lock_exclusive(&path("lock")).unwrap();
    let refused = disk.lock_exclusive(&path("lock")).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(held);
    disk.lock_exclusive(&path("lock")).unwrap();
}

#[test]
fn the_same_seeds_give_the_same_disk() {
    let run = || {
        let disk = disk();
        let file = disk.create_new(&path("f")).unwrap();
        for i in 0..20u8 {
            file.write_all_at(&[i; 50], u64::from(i) * 30).unwrap();
        }
        contents(&disk.power_off(9), "f")
    };
    assert_eq!(run(), run());
}
