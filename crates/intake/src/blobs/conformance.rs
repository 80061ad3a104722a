//! What every place for blobs promises, as one suite: files of this machine, and every object store.
//!
//! Each [`Case`] gets an empty directory and, of an object store, an empty prefix. A case answers with a
//! [`Failure`] instead of panicking, so that it can run anywhere.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;

use super::storage::ObjectStorage;
use crate::classify::classify;
use crate::fsck::fsck_with;
use crate::names::{FileName, Namespace};
use crate::rules::Sender;
use crate::upload::{FileBytes, Source};
use crate::{
    Condition, Intake, IntakeError, IntakeOptions, NameKey, NewFile, ObjectStorageOptions,
};

/// Why a promise is not kept.
pub type Failure = Box<dyn Error + Send + Sync>;

/// An empty place.
#[derive(Debug)]
pub struct Subject {
    /// Directory of the intake; it does not exist.
    pub dir: PathBuf,
    /// The prefix, if blobs are in an object store.
    pub storage: Option<Arc<dyn ObjectStorage>>,
}

/// A promise, and how to find out whether it is kept.
pub struct Case {
    /// The promise.
    pub claim: &'static str,
    /// Tries it.
    pub run: fn(&Subject) -> Result<(), Failure>,
}

/// The promises.
pub const CASES: &[Case] = &[
    Case { claim: "files of every size are read back, whole and in parts", run: sizes },
    Case { claim: "the same bytes are stored once", run: once },
    Case { claim: "what was stored is there after closing and opening", run: reopened },
    Case { claim: "what no name refers to leaves the place, and can be stored again", run: freed },
    Case { claim: "many files that arrive at the same time are all stored", run: many },
];

/// Runs every case in a new place.
///
/// # Panics
/// With the claims that do not hold, and why.
pub fn check(make: impl Fn() -> Subject) {
    let mut failures = Vec::new();
    for case in CASES {
        let subject = make();
        if let Err(failure) = (case.run)(&subject).and_then(|()| sound(&subject)) {
            failures.push(format!("{}: {failure}", case.claim));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

impl Subject {
    /// Opens an intake there.
    fn open(&self) -> Result<Intake, Failure> {
        let mut options = IntakeOptions::new(&self.dir);
        options.segment_size = 1 << 20;
        options.search = false;
        options.object_storage = self.storage.clone().map(|storage| ObjectStorageOptions {
            inline_max: 100,
            keep: Duration::ZERO,
            cache_size: 8 << 20,
            ..ObjectStorageOptions::new(storage)
        });
        let opened = Intake::open(options, Arc::new(RealFs), Arc::new(SystemClock::new()));
        Ok(opened?.0)
    }

    /// Runs a future with an intake, which is closed afterwards.
    fn with<T>(&self, run: impl AsyncFnOnce(&Intake) -> Result<T, Failure>) -> Result<T, Failure> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let intake = self.open()?;
        let ran = runtime.block_on(run(&intake));
        intake.close()?;
        ran
    }

    /// Number of blobs or packs that are kept outside of the log.
    fn kept(&self) -> Result<usize, Failure> {
        let mut count = 0;
        for dir in std::fs::read_dir(self.dir.join("blobs"))? {
            count += std::fs::read_dir(dir?.path())?.count();
        }
        if let Some(storage) = &self.storage {
            // On another thread: it blocks, and the caller may be asynchronous.
            let list = || storage.list(super::pack::PACKS, &mut |_, _| count += 1);
            let listed = std::thread::scope(|scope| scope.spawn(list).join());
            listed.map_err(|_| "listing has panicked")??;
        }
        Ok(count)
    }
}

/// Checks that nothing is damaged.
fn sound(subject: &Subject) -> Result<(), Failure> {
    let report = fsck_with(&subject.dir, Arc::new(RealFs), subject.storage.clone(), |_| {})?;
    match report.findings.first() {
        None => Ok(()),
        Some(found) => Err(format!("fsck: {}", found.message).into()),
    }
}

/// Bytes that differ by a seed.
fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(size).collect()
}

/// Bytes that arrive in pieces.
struct Pieces(std::vec::IntoIter<Bytes>);

impl Source for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        Ok(self.0.next())
    }
}

fn key(name: &str) -> Result<NameKey, Failure> {
    Ok((Namespace::parse("conformance")?, FileName::parse(name)?))
}

/// Stores a file.
///
/// # Errors
/// Those of the intake.
pub async fn put(intake: &Intake, name: &str, bytes: &[u8]) -> Result<crate::Put, Failure> {
    let bytes = Bytes::copy_from_slice(bytes);
    let pieces: Vec<Bytes> = bytes.chunks(100_000).map(|piece| bytes.slice_ref(piece)).collect();
    let mut source = Pieces(pieces.into_iter());
    let upload = intake.receive(&mut source, Some(bytes.len() as u64)).await?;
    let key = key(name)?;
    let new = NewFile {
        classified: classify(upload.head(), &key.1),
        key,
        comment: String::new(),
        attributes: crate::attributes::Attributes::default(),
        condition: Condition::None,
        idempotency: None,
        is_routed: false,
        sender: Sender::default(),
    };
    Ok(intake.put(new, upload).await?)
}

/// Reads a range of a file; `None` if there is no such file.
///
/// # Errors
/// Those of the intake, and of reading.
pub async fn get(
    intake: &Intake,
    name: &str,
    range: std::ops::Range<u64>,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(file) = intake.find(&key(name)?).await? else { return Ok(None) };
    let (start, end) = (range.start.min(file.record.size), range.end.min(file.record.size));
    let to_size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    match intake.read(&file)? {
        FileBytes::Memory(bytes) => Ok(bytes.get(to_size(start)..to_size(end)).map(<[u8]>::to_vec)),
        FileBytes::File(reader) => {
            let read = forebay_base::blocking::spawn(move || {
                let mut bytes = Vec::new();
                while start + (bytes.len() as u64) < end {
                    bytes.extend_from_slice(&reader.read(start + bytes.len() as u64, end)?);
                }
                Ok::<_, std::io::Error>(bytes)
            });
            Ok(Some(read.await??))
        }
    }
}

/// Fails unless a file has exactly these bytes.
///
/// # Errors
/// It has others, or cannot be read.
pub async fn has(intake: &Intake, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    match get(intake, name, 0..u64::MAX).await? {
        Some(found) if found == bytes => Ok(()),
        Some(found) => Err(format!("{name} has {} other bytes", found.len()).into()),
        None => Err(format!("{name} does not exist").into()),
    }
}

/// Deletes a file.
///
/// # Errors
/// Those of the intake.
pub async fn delete(intake: &Intake, name: &str) -> Result<(), Failure> {
    let deleted = intake.delete(&key(name)?, Condition::None, None).await?;
    deleted.map(drop).ok_or_else(|| format!("{name} does not exist").into())
}

const SIZES: [usize; 14] = [
    0,
    1,
    100,
    101,
    65_535,
    65_536,
    65_537,
    131_072,
    524_288,
    1 << 20,
    (1 << 20) + 1,
    3 << 20,
    (8 << 20) + 12_345,
    20 << 20,
];

fn sizes(subject: &Subject) -> Result<(), Failure> {
    subject.with(async |intake| {
        for (seed, size) in (1..).zip(SIZES) {
            put(intake, &size.to_string(), &content(seed, size)).await?;
        }
        for (seed, size) in (1..).zip(SIZES) {
            let (name, bytes) = (size.to_string(), content(seed, size));
            has(intake, &name, &bytes).await?;
            for (start, end) in
                [(0, 1), (size / 2, size), (size.saturating_sub(1), size), (65_530, 65_550)]
            {
                let (start, end) = (start.min(size), end.min(size));
                let found = get(intake, &name, start as u64..end as u64).await?;
                if found.as_deref() != bytes.get(start..end) {
                    return Err(format!("bytes {start} to {end} of {size} differ").into());
                }
            }
        }
        Ok(())
    })
}

fn once(subject: &Subject) -> Result<(), Failure> {
    subject.with(async |intake| {
        for (seed, size) in [(1, 10_000), (2, 200_000), (3, 3 << 20)] {
            let bytes = content(seed, size);
            put(intake, &format!("first-{size}"), &bytes).await?;
            let kept = subject.kept()?;
            let again = put(intake, &format!("second-{size}"), &bytes).await?;
            if !again.duplicate || subject.kept()? != kept {
                return Err(format!("{size} bytes were stored twice").into());
            }
            delete(intake, &format!("first-{size}")).await?;
            intake.reclaim().await?;
            has(intake, &format!("second-{size}"), &bytes).await?;
        }
        Ok(())
    })
}

fn reopened(subject: &Subject) -> Result<(), Failure> {
    let sizes = [50, 5_000, 70_000, 2 << 20];
    subject.with(async |intake| {
        for size in sizes {
            put(intake, &size.to_string(), &content(7, size)).await?;
        }
        Ok(())
    })?;
    for _ in 0..2 {
        subject.with(async |intake| {
            for size in sizes {
                has(intake, &size.to_string(), &content(7, size)).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn freed(subject: &Subject) -> Result<(), Failure> {
    subject.with(async |intake| {
        for size in [70_000, 2 << 20] {
            let (name, bytes) = (size.to_string(), content(9, size));
            for _ in 0..3 {
                put(intake, &name, &bytes).await?;
                has(intake, &name, &bytes).await?;
                delete(intake, &name).await?;
                intake.reclaim().await?;
                let kept = subject.kept()?;
                if kept > 0 {
                    return Err(format!("{kept} of {size} bytes are left").into());
                }
            }
        }
        Ok(())
    })
}

fn many(subject: &Subject) -> Result<(), Failure> {
    const COUNT: u64 = 200;
    // Every third file has the bytes of another.
    let bytes =
        |number: u64| content(number / 3, 1_000 + usize::try_from(number / 3).unwrap_or(0) * 37);
    subject.with(async |intake| {
        let puts = (0..COUNT)
            .map(async |number| put(intake, &number.to_string(), &bytes(number)).await.map(drop));
        for stored in futures_util::future::join_all(puts).await {
            stored?;
        }
        for number in 0..COUNT {
            has(intake, &number.to_string(), &bytes(number)).await?;
        }
        Ok(())
    })?;
    subject.with(async |intake| {
        for number in 0..COUNT {
            has(intake, &number.to_string(), &bytes(number)).await?;
        }
        Ok(())
    })
}
