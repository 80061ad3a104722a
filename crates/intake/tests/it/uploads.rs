//! Unfinished uploads: what arrives in pieces is what is stored, whatever happens between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Fault, Rng, SimFs};
use forebay_base::fs::{FileSystem, RealFs};
use forebay_intake::attributes::Attributes;
use forebay_intake::fsck::{Finding, fsck};
use forebay_intake::rules::Sender;
use forebay_intake::upload::{FileBytes, Source, Upload};
use forebay_intake::uploads::{
    Checksum, ChecksumKind, NewUpload, UploadError, UploadId, UploadKind,
};
use forebay_intake::{Condition, Intake, IntakeError, IntakeOptions, NewFile};
use tokio::sync::mpsc;

use crate::requests::bytes_of;
use crate::support::{House, block_on, directory, key, noise, open_on, options};

const DAY_MS: u64 = 24 * 3_600_000;

fn new(kind: UploadKind, length: Option<u64>) -> NewUpload {
    let attributes = BTreeMap::from([("filename".to_owned(), "a.bin".to_owned())]);
    NewUpload { kind, length, kept_ms: DAY_MS, attributes }
}

fn resumable(length: usize) -> NewUpload {
    new(UploadKind::Resumable, Some(length as u64))
}

/// Pieces, and then perhaps an error.
struct Pieces {
    left: Vec<Bytes>,
    is_cut: bool,
}

impl Pieces {
    fn of(bytes: &[u8], size: usize) -> Self {
        let mut left: Vec<_> = bytes.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
        left.reverse();
        Self { left, is_cut: false }
    }
}

impl Source for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        match self.left.pop() {
            None if self.is_cut => {
                let message = "the connection was lost".to_owned();
                Err(IntakeError::Body { message, slow: false })
            }
            next => Ok(next),
        }
    }
}

/// Bytes that a test sends when it wants to.
struct Sent(mpsc::Receiver<Bytes>);

impl Source for Sent {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        Ok(self.0.recv().await)
    }
}

async fn append(
    intake: &Intake,
    id: UploadId,
    at: usize,
    bytes: &[u8],
) -> Result<u64, UploadError> {
    intake.uploads().append(id, at as u64, &mut Pieces::of(bytes, 1_000), None).await
}

fn checksum_of(bytes: &[u8]) -> Checksum {
    let value = forebay_intake::digest::Digest::of(bytes).0.to_vec();
    Checksum { kind: ChecksumKind::Sha256, value }
}

async fn content(upload: &Upload) -> Vec<u8> {
    match upload.content().unwrap() {
        FileBytes::Memory(bytes) => bytes.to_vec(),
        FileBytes::File(reader) => {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < upload.size() {
                bytes.extend(reader.read(bytes.len() as u64, upload.size()).unwrap());
            }
            bytes
        }
    }
}

async fn store(intake: &Intake, ids: &[UploadId], name: &str) -> Result<(), IntakeError> {
    let upload = intake.assemble(ids).await?;
    let key = key("files", name);
    let classified = upload.classify(&key.1).await;
    let comment = String::new();
    let (condition, attributes) = (Condition::None, Attributes::default());
    let (idempotency, is_routed) = (None, false);
    let sender = Sender::default();
    let new =
        NewFile { key, comment, attributes, classified, condition, idempotency, is_routed, sender };
    intake.put(new, upload).await.map(drop)
}

#[test]
fn pieces_become_the_file_also_over_a_restart() {
    let house = House::with(|_| ());
    let bytes = noise(1, 700_000);
    let id = block_on(house.intake.uploads().create(resumable(bytes.len()))).unwrap();
    block_on(async {
        assert_eq!(append(&house.intake, id, 0, &bytes[..300_000]).await.unwrap(), 300_000);
        let wrong = append(&house.intake, id, 299_999, &bytes[299_999..]).await.unwrap_err();
        assert!(matches!(wrong, UploadError::Offset { expected: 300_000, .. }), "{wrong}");
        let early = house.intake.assemble(&[id]).await.unwrap_err();
        assert!(matches!(early, IntakeError::Upload(UploadError::Incomplete { .. })), "{early}");
    });
    let house = house.reopen();
    block_on(async {
        let uploads = house.intake.uploads();
        let status = uploads.status(id).await.unwrap();
        assert_eq!((status.offset, status.length), (300_000, Some(700_000)));
        assert_eq!(status.new, resumable(bytes.len()));
        append(&house.intake, id, 300_000, &bytes[300_000..]).await.unwrap();
        assert_eq!(content(&house.intake.assemble(&[id]).await.unwrap()).await, bytes);
        store(&house.intake, &[id], "whole").await.unwrap();
        assert_eq!(&*uploads.finish(id, b"first").await.unwrap(), b"first");
        assert_eq!(&*uploads.finish(id, b"second").await.unwrap(), b"first");
    });
    let house = house.reopen();
    block_on(async {
        let status = house.intake.uploads().status(id).await.unwrap();
        assert_eq!(status.result.as_deref(), Some(&b"first"[..]));
        assert_eq!((status.offset, status.length), (700_000, Some(700_000)));
        let after = append(&house.intake, id, 700_000, b"x").await.unwrap_err();
        assert!(matches!(after, UploadError::Finished { .. }), "{after}");
        assert_eq!(bytes_of(&house.intake, &key("files", "whole")).await.unwrap(), Some(bytes));
    });
}

#[test]
fn several_uploads_are_put_together_in_the_order_asked_for() {
    let house = House::with(|_| ());
    block_on(async {
        let uploads = house.intake.uploads();
        let group = uploads.create(new(UploadKind::Multipart, None)).await.unwrap();
        let mut ids = Vec::new();
        let mut expected = Vec::new();
        for number in [3, 1, 2] {
            let bytes = noise(number.into(), 300_000 * usize::try_from(number).unwrap() + 1);
            let id = uploads.create(new(UploadKind::Part { group, number }, None)).await.unwrap();
            append(&house.intake, id, 0, &bytes).await.unwrap();
            uploads.set_length(id, bytes.len() as u64).await.unwrap();
            uploads.set_length(id, bytes.len() as u64).await.unwrap();
            let wrong = uploads.set_length(id, 5).await.unwrap_err();
            assert!(matches!(wrong, UploadError::Length { .. }), "{wrong}");
            ids.push(id);
            expected.extend(bytes);
        }
        assert_eq!(content(&house.intake.assemble(&ids).await.unwrap()).await, expected);
        let listed = uploads.parts(group, None, 10).await.unwrap();
        let numbers: Vec<_> = listed.iter().map(|part| part.new.kind).collect();
        assert_eq!(numbers, [1, 2, 3].map(|number| UploadKind::Part { group, number }));
        assert_eq!(uploads.parts(group, Some(2), 10).await.unwrap().len(), 1);
        let all = uploads.list(None, 10).await.unwrap();
        assert_eq!(all.iter().map(|found| found.id).collect::<Vec<_>>(), [group]);
        uploads.finish(group, b"done").await.unwrap();
        uploads.remove(group).await.unwrap();
        assert!(uploads.parts(group, None, 10).await.unwrap().is_empty());
        let gone = uploads.status(ids[0]).await.unwrap_err();
        assert!(matches!(gone, UploadError::NotFound { .. }), "{gone}");
    });
}

#[test]
fn bytes_that_do_not_match_their_checksum_are_thrown_away() {
    let house = House::with(|_| ());
    let bytes = noise(2, 600_000);
    block_on(async {
        let uploads = house.intake.uploads();
        let id = uploads.create(resumable(bytes.len())).await.unwrap();
        append(&house.intake, id, 0, &bytes[..100]).await.unwrap();
        let rest = &bytes[100..];
        let wrong = Some(checksum_of(b"others"));
        let refused =
            uploads.append(id, 100, &mut Pieces::of(rest, 9_999), wrong).await.unwrap_err();
        assert!(matches!(refused, UploadError::Checksum { algorithm: "sha256" }), "{refused}");
        // Of bytes that ended early it is not known what they are.
        let mut cut = Pieces::of(&rest[..400_000], 9_999);
        cut.is_cut = true;
        let ended = uploads.append(id, 100, &mut cut, Some(checksum_of(rest))).await.unwrap_err();
        assert!(matches!(ended, UploadError::Source { offset: 100, .. }), "{ended}");
        assert_eq!(uploads.status(id).await.unwrap().offset, 100);
        let mut whole = Pieces::of(rest, 9_999);
        uploads.append(id, 100, &mut whole, Some(checksum_of(rest))).await.unwrap();
        assert_eq!(content(&house.intake.assemble(&[id]).await.unwrap()).await, bytes);
    });
}

#[test]
fn a_cut_connection_and_a_dropped_request_keep_what_had_arrived() {
    let house = House::with(|_| ());
    let bytes = noise(3, 500_000);
    block_on(async {
        let uploads = house.intake.uploads().clone();
        let id = uploads.create(resumable(bytes.len())).await.unwrap();
        let mut cut = Pieces::of(&bytes[..123_456], 777);
        cut.is_cut = true;
        let ended = uploads.append(id, 0, &mut cut, None).await.unwrap_err();
        assert!(matches!(ended, UploadError::Source { offset: 123_456, .. }), "{ended}");

        let (send, receive) = mpsc::channel(1);
        let running = uploads.clone();
        let running =
            tokio::spawn(
                async move { running.append(id, 123_456, &mut Sent(receive), None).await },
            );
        for piece in bytes[123_456..400_000].chunks(1_000) {
            send.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        // The last piece was received once there is room for two more.
        send.send(Bytes::new()).await.unwrap();
        send.send(Bytes::new()).await.unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        let status = uploads.settle(id).await.unwrap();
        assert_eq!(status.offset, 400_000);
        append(&house.intake, id, 400_000, &bytes[400_000..]).await.unwrap();
        assert_eq!(content(&house.intake.assemble(&[id]).await.unwrap()).await, bytes);
    });
}

#[test]
fn a_newer_request_makes_the_running_one_store_what_it_has_and_end() {
    let house = House::with(|_| ());
    block_on(async {
        let uploads = house.intake.uploads().clone();
        let id = uploads.create(resumable(10)).await.unwrap();
        let (send, receive) = mpsc::channel(1);
        let running = uploads.clone();
        let running =
            tokio::spawn(async move { running.append(id, 0, &mut Sent(receive), None).await });
        for piece in [&b"abcd"[..], b"", b""] {
            send.send(Bytes::from_static(piece)).await.unwrap();
        }
        // Asking for the state disturbs no one.
        assert_eq!(uploads.status(id).await.unwrap().offset, 0);
        assert_eq!(uploads.settle(id).await.unwrap().offset, 4);
        let ended = running.await.unwrap().unwrap_err();
        assert!(matches!(ended, UploadError::Interrupted { offset: 4, .. }), "{ended}");
        append(&house.intake, id, 4, b"efghij").await.unwrap();
        let whole = house.intake.assemble(&[id]).await.unwrap();
        assert_eq!(content(&whole).await, b"abcdefghij");
    });
}

#[test]
fn more_bytes_than_the_length_and_more_uploads_than_the_limit_are_refused() {
    let house = House::with(|options| {
        options.uploads.open_max = 2;
        options.uploads.parts_max = 1;
        options.uploads.reserved_max = 100_000;
        options.limits.file_size_max = 90_000;
    });
    block_on(async {
        let uploads = house.intake.uploads();
        let refused = uploads.create(resumable(90_001)).await.unwrap_err();
        assert!(matches!(refused, UploadError::TooLarge { limit: 90_000 }), "{refused}");
        let first = uploads.create(resumable(60_000)).await.unwrap();
        let refused = uploads.create(resumable(40_001)).await.unwrap_err();
        assert!(matches!(refused, UploadError::NoRoom { limit: 100_000 }), "{refused}");
        let open = uploads.create(new(UploadKind::Resumable, None)).await.unwrap();
        let refused = uploads.create(resumable(0)).await.unwrap_err();
        assert!(matches!(refused, UploadError::TooMany { limit: 2, .. }), "{refused}");
        let part = new(UploadKind::Part { group: first, number: 1 }, Some(0));
        uploads.create(part.clone()).await.unwrap();
        let refused = uploads.create(part).await.unwrap_err();
        assert!(matches!(refused, UploadError::TooMany { limit: 1, .. }), "{refused}");

        let refused = append(&house.intake, open, 0, &noise(4, 80_000)).await.unwrap_err();
        assert!(matches!(refused, UploadError::NoRoom { .. }), "{refused}");
        let refused = append(&house.intake, first, 0, &noise(5, 60_001)).await.unwrap_err();
        assert!(matches!(refused, UploadError::TooLong { limit: 60_000, .. }), "{refused}");
        uploads.remove(first).await.unwrap();
        let offset = uploads.status(open).await.unwrap().offset;
        let offset = usize::try_from(offset).unwrap();
        append(&house.intake, open, offset, &noise(4, 80_000)[offset..]).await.unwrap();
        let refused = append(&house.intake, open, 80_000, &noise(6, 10_001)).await.unwrap_err();
        assert!(matches!(refused, UploadError::TooLarge { .. }), "{refused}");
        let mut large = resumable(0);
        large.attributes.insert("comment".to_owned(), "x".repeat(32 << 10));
        let refused = uploads.create(large).await.unwrap_err();
        assert!(matches!(refused, UploadError::Attributes { .. }), "{refused}");
    });
}

#[test]
fn an_upload_expires_after_its_last_change_and_its_space_is_free_again() {
    let dir = directory();
    let clock = Arc::new(ManualClock::new(1_000));
    let mut options = options(&dir.path().join("intake"));
    options.uploads.open_max = 1;
    let open = || Intake::open(options.clone(), Arc::new(RealFs), clock.clone()).unwrap().0;
    let intake = open();
    let id = block_on(intake.uploads().create(resumable(10))).unwrap();
    clock.advance(Duration::from_millis(DAY_MS - 1));
    block_on(append(&intake, id, 0, b"abc")).unwrap();
    clock.advance(Duration::from_millis(DAY_MS - 1));
    assert_eq!(intake.uploads().purge(), 0);
    intake.close().unwrap();
    drop(intake);
    let intake = open();
    assert_eq!(intake.uploads().purge(), 0, "the last change counts, not the creation");
    assert_eq!(block_on(intake.uploads().status(id)).unwrap().offset, 3);
    clock.advance(Duration::from_millis(1));
    let gone = block_on(intake.uploads().status(id)).unwrap_err();
    assert!(matches!(gone, UploadError::NotFound { .. }), "{gone}");
    assert_eq!(intake.uploads().purge(), 1);
    block_on(intake.uploads().create(resumable(10))).unwrap();
    assert_eq!(files_in(&RealFs, &options).len(), 1);
}

fn files_in(fs: &dyn FileSystem, options: &IntakeOptions) -> Vec<std::path::PathBuf> {
    let dir = options.dir.join("uploads");
    fs.list(&dir).unwrap().iter().map(|entry| dir.join(&entry.name)).collect()
}

/// What a workload was promised.
#[derive(Debug, Default, Clone)]
struct Promise {
    id: Option<UploadId>,
    /// An offset that was acknowledged.
    offset: u64,
    finished: bool,
}

const SIZE: usize = 3_000;

/// Creates, appends (some of it with checksums, right and wrong), stores and finishes.
async fn work(intake: &Intake, seed: u64, promise: &mut Promise) -> Result<(), IntakeError> {
    let bytes = noise(seed, SIZE);
    let uploads = intake.uploads();
    let deferred = seed.is_multiple_of(2);
    let length = (!deferred).then_some(SIZE as u64);
    let id = uploads.create(new(UploadKind::Resumable, length)).await?;
    promise.id = Some(id);
    for (step, at) in (0..SIZE).step_by(750).enumerate() {
        let piece = &bytes[at..at + 750];
        let checksum = (step % 2 == 1).then(|| checksum_of(piece));
        if step == 3 {
            let wrong = Some(checksum_of(b"others"));
            let refused = uploads.append(id, at as u64, &mut Pieces::of(piece, 200), wrong).await;
            if !matches!(refused, Err(UploadError::Checksum { .. })) {
                refused?;
            }
        }
        promise.offset =
            uploads.append(id, at as u64, &mut Pieces::of(piece, 200), checksum).await?;
    }
    if deferred {
        uploads.set_length(id, SIZE as u64).await?;
    }
    store(intake, &[id], "whole").await?;
    uploads.finish(id, b"result").await?;
    promise.finished = true;
    Ok(())
}

/// Checks what is left against what was promised, then completes the upload.
async fn judge(intake: &Intake, seed: u64, promise: &Promise, round: u64) {
    let Some(id) = promise.id else { return };
    let bytes = noise(seed, SIZE);
    let uploads = intake.uploads();
    let status = uploads.settle(id).await.unwrap_or_else(|error| panic!("{round}: {error:?}"));
    assert!(status.offset >= promise.offset, "{round}: {status:?}, {promise:?}");
    if promise.finished {
        assert_eq!(status.result.as_deref(), Some(&b"result"[..]), "{round}");
    }
    if status.result.is_none() {
        let at = usize::try_from(status.offset).unwrap();
        append(intake, id, at, &bytes[at..]).await.unwrap();
        uploads.set_length(id, SIZE as u64).await.unwrap();
        let whole = intake.assemble(&[id]).await.unwrap();
        assert_eq!(content(&whole).await, bytes, "{round}");
        drop(whole);
        store(intake, &[id], "whole").await.unwrap();
        uploads.finish(id, b"result").await.unwrap();
    }
    assert_eq!(bytes_of(intake, &key("files", "whole")).await.unwrap(), Some(bytes), "{round}");
}

/// Checks what is left before a start: what was acknowledged is not reported as lost.
fn check(options: &IntakeOptions, left: &SimFs, promise: &Promise, may_tear: bool) {
    std::fs::create_dir_all(&options.dir).unwrap();
    let report = fsck(&options.dir, Arc::new(left.clone()), |_| {}).unwrap();
    let is_stored = report.files == 1;
    assert!(report.upload_bytes >= promise.offset || is_stored, "{promise:?}: {report:?}");
    // A power cut can leave any bytes of what was not synced.
    let is_unsure = |found: &Finding| may_tear && found.message.contains("unless power was lost");
    assert!(report.findings.iter().all(is_unsure), "{promise:?}: {report:?}");
}

/// Runs the workload with a fault at each of its operations, and judges what `after` leaves.
fn fail_at_every_operation(
    seed: u64,
    fault: Fault,
    may_tear: bool,
    after: impl Fn(&SimFs, u64) -> SimFs,
) {
    let dir = directory();
    let mut options = IntakeOptions::new(dir.path().join("intake"));
    options.segment_size = 16 << 10;
    options.limits.packed_size_max = 600;
    let mut at = 0;
    loop {
        std::fs::remove_dir_all(&options.dir).unwrap_or_default();
        let disk = SimFs::new(seed);
        let mut promise = Promise::default();
        let (intake, _) = open_on(options.clone(), Arc::new(disk.clone())).unwrap();
        let begun = disk.operations();
        disk.plan(begun + at, fault);
        let done = block_on(work(&intake, seed, &mut promise));
        let is_past = disk.operations() <= begun + at;
        // Closing syncs: its error on a broken disk is not tested here.
        intake.close().unwrap_or_default();
        drop(intake);
        if is_past {
            done.unwrap();
            break;
        }
        std::fs::remove_dir_all(&options.dir).unwrap_or_default();
        let left = after(&disk, at);
        if at.is_multiple_of(3) {
            check(&options, &left, &promise, may_tear);
        }
        let opened = open_on(options.clone(), Arc::new(left.clone()));
        let (intake, _) = opened.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        block_on(judge(&intake, seed, &promise, at));
        intake.close().unwrap();
        drop(intake);
        let unfinished = files_in(&left, &options);
        assert!(unfinished.iter().all(|path| path.extension().is_none()), "{at}: {unfinished:?}");
        at += 1;
    }
    assert!(at > 30, "the workload has only {at} operations");
}

#[test]
fn power_lost_at_every_operation_keeps_acknowledged_offsets() {
    fail_at_every_operation(11, Fault::Stop, true, SimFs::power_off);
}

#[test]
fn killed_at_every_operation_keeps_acknowledged_offsets() {
    fail_at_every_operation(12, Fault::Stop, false, |disk, _| disk.kill());
}

#[test]
fn a_device_that_fails_at_any_operation_and_power_lost_then_keep_acknowledged_offsets() {
    fail_at_every_operation(14, Fault::Io, true, SimFs::power_off);
    fail_at_every_operation(15, Fault::Full, true, SimFs::power_off);
}

/// A workload of random pieces and failures on one disk, compared with what was sent.
#[test]
fn a_failed_write_or_sync_is_followed_by_a_correct_upload_in_the_same_process() {
    for seed in 20..30 {
        let dir = directory();
        let options = IntakeOptions::new(dir.path().join("intake"));
        let disk = SimFs::new(seed);
        let (intake, _) = open_on(options.clone(), Arc::new(disk.clone())).unwrap();
        let mut rng = Rng::new(seed);
        let bytes = noise(seed, SIZE);
        block_on(async {
            let uploads = intake.uploads();
            let id = uploads.create(resumable(SIZE)).await.unwrap();
            let mut acknowledged = 0;
            for attempt in 0.. {
                let offset = uploads.settle(id).await.unwrap().offset;
                assert!(offset >= acknowledged, "{seed}: {offset} < {acknowledged}");
                let at = usize::try_from(offset).unwrap();
                if at == SIZE {
                    break;
                }
                let fault = if rng.one_in(2) { Fault::Io } else { Fault::Full };
                if attempt % 3 < 2 {
                    disk.plan(disk.operations() + rng.below(3) as u64, fault);
                }
                let size = (1 + rng.below(900)).min(SIZE - at);
                let piece = &bytes[at..at + size];
                let checksum = rng.one_in(2).then(|| checksum_of(piece));
                let mut pieces = Pieces::of(piece, 100);
                if let Ok(offset) = uploads.append(id, offset, &mut pieces, checksum).await {
                    acknowledged = offset;
                }
            }
            assert_eq!(content(&intake.assemble(&[id]).await.unwrap()).await, bytes, "{seed}");
        });
    }
}
