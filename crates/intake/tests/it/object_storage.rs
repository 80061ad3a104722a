//! Blobs in an object store that loses answers, is away, is damaged, or is used by two.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_intake::blobs::conformance::{delete, get, has, put};
use forebay_intake::blobs::memory::MemoryStorage;
use forebay_intake::fsck::fsck_with;
use forebay_intake::upload::FileBytes;
use forebay_intake::{
    Intake, IntakeError, IntakeOptions, ObjectStorageOptions, OpenError, Shortage,
};
use tempfile::TempDir;

use crate::support::{block_on, directory, key, noise};

const LARGE: usize = 3 << 20;
/// Larger than what stays in the log.
const SMALL: usize = 20_000;

/// An intake whose blobs are in an object store.
struct Remote {
    intake: Intake,
    storage: Arc<MemoryStorage>,
    dir: TempDir,
}

fn options(dir: &Path, storage: &Arc<MemoryStorage>) -> IntakeOptions {
    let mut options = IntakeOptions::new(dir.join("intake"));
    options.segment_size = 1 << 20;
    options.search = false;
    options.object_storage = Some(ObjectStorageOptions {
        keep: Duration::ZERO,
        pack_wait: Duration::ZERO,
        cache_size: 64 << 20,
        ..ObjectStorageOptions::new(Arc::clone(storage) as _)
    });
    options
}

fn open(options: IntakeOptions) -> Result<Intake, OpenError> {
    let opened = Intake::open(options, Arc::new(RealFs), Arc::new(SystemClock::new()));
    opened.map(|(intake, _)| intake)
}

/// What a kill at this moment would leave of a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match entry.is_dir() {
            true => copy(&entry, &to.join(name)),
            false => drop(std::fs::copy(&entry, to.join(name)).unwrap()),
        }
    }
}

impl Remote {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ObjectStorageOptions)) -> Self {
        let (dir, storage) = (directory(), Arc::new(MemoryStorage::default()));
        let mut options = options(dir.path(), &storage);
        change(options.object_storage.as_mut().unwrap());
        let intake = open(options).unwrap();
        Self { intake, storage, dir }
    }

    /// What a process finds that starts after this one was killed.
    async fn killed(&self) -> TempDir {
        // So that nothing is written while it is copied.
        self.intake.reclaim().await.unwrap();
        let left = directory();
        copy(&self.dir.path().join("intake"), &left.path().join("intake"));
        left
    }

    /// Lets writes continue as soon as this many bytes wait.
    async fn released(&self, bytes: usize) {
        while self.intake.blobs_waiting() < bytes {
            tokio::task::yield_now().await;
        }
        self.storage.hold_writes(false);
    }

    fn packs(&self) -> usize {
        self.storage.names().iter().filter(|name| name.starts_with("packs/")).count()
    }

    fn findings(&self, dir: &Path) -> Vec<String> {
        findings(dir, &self.storage)
    }
}

fn findings(dir: &Path, storage: &Arc<MemoryStorage>) -> Vec<String> {
    let storage = Some(Arc::clone(storage) as _);
    let report = fsck_with(&dir.join("intake"), Arc::new(RealFs), storage, |_| {}).unwrap();
    report.findings.into_iter().map(|found| found.message).collect()
}

/// Why a put failed, as a client sees it.
fn shortage(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<Shortage> {
    error.downcast_ref::<IntakeError>().and_then(IntakeError::shortage)
}

#[test]
fn small_files_share_packs_large_ones_have_their_own_and_nothing_is_kept_on_disk() {
    let remote = Remote::new();
    block_on(async {
        let puts = (0..100_u64)
            .map(async |n| put(&remote.intake, &n.to_string(), &noise(n, SMALL)).await.map(drop));
        remote.storage.hold_writes(true);
        let (stored, ()) =
            tokio::join!(futures_util::future::join_all(puts), remote.released(100 * SMALL));
        stored.into_iter().for_each(|stored| stored.unwrap());
        let packs = remote.packs();
        assert!(packs < 50, "{packs} packs for 100 files");
        put(&remote.intake, "large", &noise(1_000, LARGE)).await.unwrap();
        assert_eq!(remote.packs(), packs + 1);
        // What the log takes is not sent.
        put(&remote.intake, "tiny", &noise(1_001, 4_096)).await.unwrap();
        assert_eq!(remote.packs(), packs + 1);
        for n in 0..100 {
            has(&remote.intake, &n.to_string(), &noise(n, SMALL)).await.unwrap();
        }
        has(&remote.intake, "large", &noise(1_000, LARGE)).await.unwrap();
        has(&remote.intake, "tiny", &noise(1_001, 4_096)).await.unwrap();
    });
    let intake = remote.dir.path().join("intake");
    for dir in ["blobs", "staging"] {
        let files = crate::reclaim::files_below(&intake.join(dir));
        assert!(files.is_empty(), "{files:?}");
    }
    remote.intake.close().unwrap();
    drop(remote.intake);
    assert_eq!(findings(remote.dir.path(), &remote.storage), Vec::<String>::new());
}

#[test]
fn a_put_whose_answer_is_lost_is_refused_and_its_object_is_removed_later() {
    let remote = Remote::new();
    block_on(async {
        for (name, size) in [("small", SMALL), ("large", LARGE)] {
            remote.storage.lose_answers("packs/", 1);
            let error = put(&remote.intake, name, &noise(1, size)).await.unwrap_err();
            assert_eq!(shortage(&*error), Some(Shortage::Passing), "{error}");
            assert_eq!(get(&remote.intake, name, 0..1).await.unwrap(), None);
            assert_eq!(remote.packs(), 1, "it was written all the same");
            remote.intake.reclaim().await.unwrap();
            assert_eq!(remote.packs(), 0);
            put(&remote.intake, name, &noise(1, size)).await.unwrap();
            has(&remote.intake, name, &noise(1, size)).await.unwrap();
            delete(&remote.intake, name).await.unwrap();
            remote.intake.reclaim().await.unwrap();
        }
    });
    let mut names: Vec<_> = remote.storage.names();
    names.retain(|name| name.starts_with("packs/"));
    assert_eq!(names, Vec::<String>::new());
}

#[test]
fn what_was_sent_but_not_named_when_the_process_was_killed_is_counted_out_at_the_next_start() {
    let remote = Remote::new();
    block_on(put(&remote.intake, "kept", &noise(1, SMALL))).unwrap();
    // The process dies here; what follows in the bucket is what it had on its way.
    let left = block_on(remote.killed());
    block_on(async {
        put(&remote.intake, "lost", &noise(2, SMALL)).await.unwrap();
        put(&remote.intake, "lost-large", &noise(3, LARGE)).await.unwrap();
    });
    assert_eq!(remote.packs(), 3);
    let intake = open(options(left.path(), &remote.storage)).unwrap();
    block_on(async {
        has(&intake, "kept", &noise(1, SMALL)).await.unwrap();
        assert_eq!(get(&intake, "lost", 0..1).await.unwrap(), None);
        intake.reclaim().await.unwrap();
        assert_eq!(remote.packs(), 1, "{:?}", remote.storage.names());
        has(&intake, "kept", &noise(1, SMALL)).await.unwrap();
        // The same bytes get another key, whatever may still happen to the old one.
        put(&intake, "lost", &noise(2, SMALL)).await.unwrap();
        has(&intake, "lost", &noise(2, SMALL)).await.unwrap();
    });
    intake.close().unwrap();
    drop(intake);
    assert_eq!(remote.findings(left.path()), Vec::<String>::new());
}

#[test]
fn an_index_that_is_lost_or_older_than_the_log_is_made_from_the_packs() {
    let remote = Remote::new();
    let index = |dir: &Path| dir.join("intake/blobs.sqlite");
    block_on(async {
        put(&remote.intake, "first", &noise(1, SMALL)).await.unwrap();
        let before = remote.killed().await;
        put(&remote.intake, "second", &noise(2, SMALL)).await.unwrap();
        put(&remote.intake, "third", &noise(3, LARGE)).await.unwrap();
        delete(&remote.intake, "first").await.unwrap();
        put(&remote.intake, "again", &noise(1, SMALL)).await.unwrap();
        for is_lost in [true, false] {
            let left = remote.killed().await;
            for suffix in ["", "-wal", "-shm"] {
                let name = format!("blobs.sqlite{suffix}");
                let (old, new) = (before.path().join("intake"), left.path().join("intake"));
                drop(std::fs::remove_file(new.join(&name)));
                if !is_lost && old.join(&name).exists() {
                    std::fs::copy(old.join(&name), new.join(&name)).unwrap();
                }
            }
            assert_eq!(index(left.path()).exists(), !is_lost);
            let intake = open(options(left.path(), &remote.storage)).unwrap();
            has(&intake, "second", &noise(2, SMALL)).await.unwrap();
            has(&intake, "third", &noise(3, LARGE)).await.unwrap();
            has(&intake, "again", &noise(1, SMALL)).await.unwrap();
            assert_eq!(get(&intake, "first", 0..1).await.unwrap(), None);
            intake.close().unwrap();
            drop(intake);
            assert_eq!(remote.findings(left.path()), Vec::<String>::new());
        }
    });
}

#[test]
fn a_damaged_cache_is_read_again_from_the_bucket_and_a_damaged_object_is_never_returned() {
    let remote = Remote::new();
    let bytes = noise(1, LARGE);
    block_on(async {
        put(&remote.intake, "a", &bytes).await.unwrap();
        has(&remote.intake, "a", &bytes).await.unwrap();
        let requests = remote.storage.asked("GET", "packs/");
        has(&remote.intake, "a", &bytes).await.unwrap();
        assert_eq!(remote.storage.asked("GET", "packs/"), requests, "it was in the cache");
        let cache = remote.dir.path().join("intake/blob-cache");
        let mut altered = std::fs::read(&cache).unwrap();
        assert!(altered.len() <= 64 << 20);
        altered.iter_mut().step_by(50_000).for_each(|byte| *byte ^= 1);
        std::fs::write(&cache, altered).unwrap();
        has(&remote.intake, "a", &bytes).await.unwrap();
        assert!(remote.storage.asked("GET", "packs/") > requests);
    });
    remote.intake.close().unwrap();
    drop(remote.intake);
    let name = remote.storage.names().into_iter().find(|name| name.starts_with("packs/")).unwrap();
    let whole = remote.storage.object(&name).unwrap();
    for at in [16, 70_000, 16 + LARGE - 1, 16 + LARGE + 3] {
        let mut altered = whole.to_vec();
        altered[at] ^= 1;
        remote.storage.alter(&name, altered);
        let intake = open(options(remote.dir.path(), &remote.storage)).unwrap();
        let read = block_on(get(&intake, "a", 0..u64::MAX));
        assert!(read.is_err(), "byte {at}");
        intake.close().unwrap();
        drop(intake);
        let found = findings(remote.dir.path(), &remote.storage);
        assert!(found.len() == 1 && found[0].contains("does not match"), "byte {at}: {found:?}");
    }
    remote.storage.alter(&name, whole.to_vec());
    assert_eq!(findings(remote.dir.path(), &remote.storage), Vec::<String>::new());
}

#[test]
fn while_the_bucket_is_away_the_log_and_the_cache_serve_and_the_rest_is_refused() {
    let remote = Remote::new();
    block_on(async {
        put(&remote.intake, "cached", &noise(1, SMALL)).await.unwrap();
        put(&remote.intake, "large", &noise(2, LARGE)).await.unwrap();
        has(&remote.intake, "cached", &noise(1, SMALL)).await.unwrap();
        remote.storage.set_away(true);
        for (name, size) in [("small", SMALL), ("larger", LARGE)] {
            let error = put(&remote.intake, name, &noise(3, size)).await.unwrap_err();
            assert_eq!(shortage(&*error), Some(Shortage::Passing), "{error}");
        }
        assert!(remote.intake.blobs_trouble().unwrap().contains("no connection"));
        remote.intake.ready().unwrap();
        put(&remote.intake, "tiny", b"in the log").await.unwrap();
        has(&remote.intake, "tiny", b"in the log").await.unwrap();
        has(&remote.intake, "cached", &noise(1, SMALL)).await.unwrap();
        assert!(get(&remote.intake, "large", 0..u64::MAX).await.is_err());
        // A known content needs no bucket.
        put(&remote.intake, "duplicate", &noise(2, LARGE)).await.unwrap();
        remote.storage.set_away(false);
        has(&remote.intake, "large", &noise(2, LARGE)).await.unwrap();
        put(&remote.intake, "small", &noise(3, SMALL)).await.unwrap();
        assert_eq!(remote.intake.blobs_trouble(), None);
    });
}

#[test]
fn an_object_that_cannot_be_read_at_a_start_is_added_later_with_what_it_has() {
    let remote = Remote::new();
    block_on(async {
        put(&remote.intake, "a", &noise(1, SMALL)).await.unwrap();
        let left = remote.killed().await;
        drop(std::fs::remove_file(left.path().join("intake/blobs.sqlite")));
        let name = remote.storage.names().into_iter().find(|name| name.starts_with("packs/"));
        let name = name.unwrap();
        let whole = remote.storage.object(&name).unwrap();
        remote.storage.alter(&name, vec![0; whole.len()]);
        let intake = open(options(left.path(), &remote.storage)).unwrap();
        assert!(get(&intake, "a", 0..1).await.is_err());
        remote.storage.alter(&name, whole.to_vec());
        intake.keep_blobs_in_order(true).await.unwrap();
        has(&intake, "a", &noise(1, SMALL)).await.unwrap();
        intake.reclaim().await.unwrap();
        has(&intake, "a", &noise(1, SMALL)).await.unwrap();
        intake.close().unwrap();
    });
}

#[test]
fn a_start_without_the_claim_of_a_used_prefix_is_refused() {
    use forebay_intake::blobs::storage::ObjectStorage as _;
    let remote = Remote::new();
    block_on(put(&remote.intake, "a", &noise(1, SMALL))).unwrap();
    remote.intake.close().unwrap();
    remote.storage.remove("claim.json").unwrap();
    let dir = remote.dir.path().to_owned();
    drop(remote.intake);
    let refused = open(options(&dir, &remote.storage)).unwrap_err();
    let text = forebay_base::error_chain::chain(&refused).to_string();
    assert!(text.contains("has no claim.json"), "{text}");
    // As the message advises.
    std::fs::remove_file(dir.join("intake/blobs.sqlite")).unwrap();
    let intake = open(options(&dir, &remote.storage)).unwrap();
    block_on(has(&intake, "a", &noise(1, SMALL))).unwrap();
    intake.close().unwrap();
}

#[test]
fn a_process_that_has_lost_its_claim_stores_and_removes_nothing() {
    let remote = Remote::new();
    block_on(async {
        put(&remote.intake, "a", &noise(1, SMALL)).await.unwrap();
        put(&remote.intake, "b", &noise(2, SMALL)).await.unwrap();
        let copied = remote.killed().await;
        let second = open(options(copied.path(), &remote.storage)).unwrap();
        delete(&remote.intake, "a").await.unwrap();
        remote.intake.reclaim().await.unwrap();
        has(&second, "a", &noise(1, SMALL)).await.unwrap();
        assert_eq!(remote.storage.asked("DELETE", ""), 0);
        let error = put(&remote.intake, "c", &noise(3, SMALL)).await.unwrap_err();
        assert_eq!(shortage(&*error), Some(Shortage::Passing), "{error}");
        assert!(matches!(remote.intake.ready(), Err(IntakeError::Fenced { .. })));
        put(&second, "c", &noise(3, SMALL)).await.unwrap();
        second.ready().unwrap();
        second.close().unwrap();
    });
    let other = directory();
    let refused = open(options(other.path(), &remote.storage)).unwrap_err();
    let text = forebay_base::error_chain::chain(&refused).to_string();
    assert!(text.contains("files of another data directory"), "{text}");
    let mut forgetful = options(remote.dir.path(), &remote.storage);
    remote.intake.close().unwrap();
    drop(remote.intake);
    forgetful.object_storage = None;
    let refused = open(forgetful).unwrap_err();
    assert!(matches!(refused, OpenError::BlobsElsewhere { .. }), "{refused}");
}

#[test]
fn a_copy_whose_log_is_older_removes_nothing_that_the_newer_one_may_need() {
    let remote = Remote::new();
    block_on(async {
        put(&remote.intake, "old", &noise(1, SMALL)).await.unwrap();
        let copied = remote.killed().await;
        put(&remote.intake, "new", &noise(2, SMALL)).await.unwrap();
        put(&remote.intake, "new-large", &noise(3, LARGE)).await.unwrap();
        remote.intake.close().unwrap();
        let older = open(options(copied.path(), &remote.storage)).unwrap();
        assert_eq!(get(&older, "new", 0..1).await.unwrap(), None);
        delete(&older, "old").await.unwrap();
        put(&older, "own", &noise(4, SMALL)).await.unwrap();
        delete(&older, "own").await.unwrap();
        older.reclaim().await.unwrap();
        assert_eq!(remote.packs(), 3, "only what the copy itself had written");
        older.close().unwrap();
        drop(older);
        // It is started again after a kill.
        let again = open(options(copied.path(), &remote.storage)).unwrap();
        again.reclaim().await.unwrap();
        assert_eq!(remote.packs(), 3);
        again.close().unwrap();
    });
    drop(remote.intake);
    let newer = open(options(remote.dir.path(), &remote.storage)).unwrap();
    block_on(async {
        has(&newer, "old", &noise(1, SMALL)).await.unwrap();
        has(&newer, "new", &noise(2, SMALL)).await.unwrap();
        has(&newer, "new-large", &noise(3, LARGE)).await.unwrap();
    });
}

#[test]
fn a_pack_that_is_half_dead_is_written_again_and_one_that_is_read_stays() {
    let remote = Remote::with(|options| options.cache_size = 16 << 20);
    block_on(async {
        // One pack of ten files: they wait while the first one is on its way.
        remote.storage.hold_writes(true);
        let intake = remote.intake.clone();
        let first =
            tokio::spawn(async move { put(&intake, "first", &noise(99, SMALL)).await.map(drop) });
        let storage = Arc::clone(&remote.storage);
        tokio::task::spawn_blocking(move || storage.wait_for_writes(1)).await.unwrap();
        let puts = (0..10_u64)
            .map(async |n| put(&remote.intake, &n.to_string(), &noise(n, SMALL)).await.map(drop));
        let released = remote.released(11 * SMALL);
        let (stored, ()) = tokio::join!(futures_util::future::join_all(puts), released);
        stored.into_iter().for_each(|stored| stored.unwrap());
        first.await.unwrap().unwrap();
        assert_eq!(remote.packs(), 2);
        // Open, but nothing read yet.
        let file = remote.intake.find(&key("conformance", "1")).await.unwrap().unwrap();
        let FileBytes::File(reader) = remote.intake.read(&file).unwrap() else { panic!() };
        for n in 0..8 {
            delete(&remote.intake, &n.to_string()).await.unwrap();
        }
        remote.intake.reclaim().await.unwrap();
        remote.intake.reclaim().await.unwrap();
        assert_eq!(remote.packs(), 3, "the new one, and the old one because it is open");
        let read = tokio::task::spawn_blocking(move || reader.read(0, SMALL as u64).unwrap());
        assert!(read.await.unwrap() == noise(1, SMALL));
        remote.intake.reclaim().await.unwrap();
        assert_eq!(remote.packs(), 2);
        for n in 8..10 {
            has(&remote.intake, &n.to_string(), &noise(n, SMALL)).await.unwrap();
        }
        has(&remote.intake, "first", &noise(99, SMALL)).await.unwrap();
    });
    remote.intake.close().unwrap();
    drop(remote.intake);
    assert_eq!(findings(remote.dir.path(), &remote.storage), Vec::<String>::new());
    let left = options(remote.dir.path(), &remote.storage);
    let intake = open(left).unwrap();
    block_on(has(&intake, "9", &noise(9, SMALL))).unwrap();
}

/// Whether the intake has the files that are named after their sizes.
async fn has_all(intake: &Intake, sizes: &[usize]) {
    for size in sizes {
        has(intake, &size.to_string(), &noise(*size as u64, *size)).await.unwrap();
    }
}

fn end(intake: Intake) {
    intake.close().unwrap();
    drop(intake);
}

#[test]
fn blobs_move_to_a_bucket_and_back_while_they_are_read_stored_and_deleted() {
    let (dir, storage) = (directory(), Arc::new(MemoryStorage::default()));
    let local = || {
        let mut options = options(dir.path(), &storage);
        options.object_storage = None;
        options
    };
    let sizes = [70_000, 100_000, 1 << 20, LARGE, 9 << 20];
    let name = |size: usize| size.to_string();
    let intake = open(local()).unwrap();
    block_on(async {
        for size in sizes {
            put(&intake, &name(size), &noise(size as u64, size)).await.unwrap();
        }
        put(&intake, "in the log", &noise(5, 10_000)).await.unwrap();
        assert!(intake.move_blobs().await.is_ok_and(|moved| moved.moved == 0));
        assert!(intake.start_moving_blobs().is_err());
    });
    end(intake);

    let intake = open(options(dir.path(), &storage)).unwrap();
    block_on(async {
        has(&intake, &name(LARGE), &noise(LARGE as u64, LARGE)).await.unwrap();
        // Cut off in the middle, and continued.
        storage.set_away(true);
        assert!(intake.move_blobs().await.is_err());
        storage.set_away(false);
        let reads = async {
            for _ in 0..20 {
                has_all(&intake, &sizes).await;
                tokio::task::yield_now().await;
            }
        };
        let writes = async {
            for n in 0..20_u64 {
                put(&intake, "new", &noise(n, 80_000)).await.unwrap();
                delete(&intake, "new").await.unwrap();
            }
        };
        let (moved, (), ()) = tokio::join!(intake.move_blobs(), reads, writes);
        assert!(moved.unwrap().moved >= 1);
        let status = intake.blobs().await.unwrap();
        assert_eq!((&*status.place, status.moving.damaged), ("s3://memory/blobs", 0));
        has_all(&intake, &sizes).await;
        has(&intake, "in the log", &noise(5, 10_000)).await.unwrap();
    });
    let files = crate::reclaim::files_below(&dir.path().join("intake/blobs"));
    assert!(files.is_empty(), "{files:?}");
    end(intake);
    assert_eq!(findings(dir.path(), &storage), Vec::<String>::new());

    let mut back = options(dir.path(), &storage);
    back.object_storage.as_mut().unwrap().is_written = false;
    let intake = open(back).unwrap();
    block_on(async {
        put(&intake, "local", &noise(77, 90_000)).await.unwrap();
        has(&intake, &name(LARGE), &noise(LARGE as u64, LARGE)).await.unwrap();
        assert_eq!(intake.move_blobs().await.unwrap().moved, sizes.len() as u64);
        intake.reclaim().await.unwrap();
    });
    assert_eq!(storage.names(), ["claim.json"]);
    end(intake);
    let intake = open(local()).unwrap();
    block_on(async {
        has_all(&intake, &sizes).await;
        has(&intake, "local", &noise(77, 90_000)).await.unwrap();
    });
    end(intake);
    assert_eq!(crate::support::findings(&dir.path().join("intake")), Vec::<String>::new());
}
