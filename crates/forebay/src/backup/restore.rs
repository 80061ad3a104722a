//! Makes a data directory of a backup.
//!
//! Files are written to a directory beside the target and compared with the hashes of their chunks; the subsystems
//! then check what is theirs; only then the directory gets its name. On any failure it is removed.
//!
//! Invariants: nothing exists under the target's name before everything was checked; a target that has anything in
//! it is refused.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use forebay_base::clock::SystemClock;
use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_intake::fsck::fsck_with;
use forebay_intake::{Intake, IntakeOptions};
use forebay_jobs::{Options as JobOptions, Queue};
use serde::Serialize;

use super::check;
use super::list::{Entry, List};
use super::parallel::each;
use super::store::Store;
use crate::interrupt::Interrupt;
use crate::soundness::check_others;
use crate::{layout, out};

/// What the jobs of a restored copy say.
const JOBS_REASON: &str = "the data was restored from a backup, and the original may have run \
                           this job; to run it here: forebay jobs requeue";
/// What the webhooks of a restored copy say.
const HOOKS_REASON: &str = "the data was restored from a backup, and the original may still send the same \
                            events; to send them from here, enable the webhook";
/// Name of the file that says that a directory is being restored, and may be removed.
const MARKER: &str = "forebay-restoring";
/// Maximum number of findings that an error names.
const FINDINGS_SHOWN: usize = 20;

/// A data directory that was restored.
#[derive(Debug, Serialize)]
pub(crate) struct Restored {
    /// The backup.
    pub(crate) id: String,
    /// Where the data is now.
    pub(crate) data: String,
    /// Number of files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Jobs that would have run, and are failed instead.
    pub(crate) jobs_failed: usize,
    /// How long it took, in milliseconds.
    pub(crate) took_ms: u64,
}

/// How a backup is restored.
pub(crate) struct Order<'a> {
    /// Which backup: the newest without.
    pub(crate) id: Option<&'a str>,
    /// The target.
    pub(crate) data: &'a Path,
    /// Options of the intake, which is opened once.
    pub(crate) intake: IntakeOptions,
}

/// Restores a backup.
///
/// * `progress`: called with the bytes done and in total.
///
/// # Errors
/// The target is as it was.
pub(crate) fn restore(
    store: &Store,
    order: Order<'_>,
    interrupt: &Interrupt,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> anyhow::Result<Restored> {
    let begun = Instant::now();
    let list = store.list(order.id)?;
    let target = Target::prepare(order.data)?;
    let restored = target.fill(store, &list, interrupt, progress).and_then(|()| {
        let failed = check_all(&target.staging, order.intake, interrupt)?;
        target.publish()?;
        Ok(failed)
    });
    let jobs_failed = match restored {
        Ok(failed) => failed,
        Err(error) => {
            let removed = std::fs::remove_dir_all(&target.staging);
            return Err(match removed {
                Ok(()) => error,
                Err(also) => error
                    .context(format!("{} could not be removed: {also}", target.staging.display())),
            });
        }
    };
    Ok(Restored {
        id: list.header.id,
        data: target.data.display().to_string(),
        files: list.totals.files,
        bytes: list.totals.bytes,
        jobs_failed,
        took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Where the data will be, and where it is made.
struct Target {
    data: PathBuf,
    staging: PathBuf,
    parent: PathBuf,
}

impl Target {
    fn prepare(data: &Path) -> anyhow::Result<Self> {
        let data = std::path::absolute(data)?;
        let name = data.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} has no name", data.display()))?;
        let parent = data.parent().unwrap_or(Path::new("/")).to_path_buf();
        let failed = || format!("cannot use {}", data.display());
        let around = std::fs::metadata(&parent)
            .with_context(|| format!("the directory {} does not exist", parent.display()))?;
        match std::fs::read_dir(&data) {
            Ok(mut entries) => {
                ensure!(
                    entries.next().is_none(),
                    "{} is not empty; restore into a directory that does not exist, then exchange them",
                    data.display()
                );
                let found = std::fs::metadata(&data).with_context(failed)?;
                ensure!(
                    found.dev() == around.dev(),
                    "{} is a mount point and cannot be replaced; restore into a directory below it",
                    data.display()
                );
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(failed),
        }
        let staging = parent.join(format!(".{name}.restoring"));
        if staging.exists() {
            // Left by a restore that was killed; anything else stays.
            ensure!(
                staging.join(MARKER).exists(),
                "{} exists and is none of a restore; move it away",
                staging.display()
            );
            std::fs::remove_dir_all(&staging)
                .with_context(|| format!("cannot remove {}", staging.display()))?;
        }
        make_dir(&staging)?;
        let marker = staging.join(MARKER);
        File::create_new(&marker).with_context(|| format!("cannot create {}", marker.display()))?;
        Ok(Self { data, staging, parent })
    }

    /// Writes all files, on stable storage.
    fn fill(
        &self,
        store: &Store,
        list: &List,
        interrupt: &Interrupt,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> anyhow::Result<()> {
        let done = AtomicU64::new(0);
        let write = |entry: &Entry| {
            let written = self.write(store, entry, &|bytes| {
                let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                progress(done, list.totals.bytes);
                check(interrupt)
            });
            written.with_context(|| format!("cannot restore {:?}", entry.path))
        };
        each(store.workers(), write, |feed| {
            list.entries.iter().try_for_each(|entry| {
                check(interrupt)?;
                feed.send(entry)
            })
        })?;
        sync(&self.staging)
    }

    fn write(
        &self,
        store: &Store,
        entry: &Entry,
        done: &dyn Fn(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let path = self.staging.join(&entry.path);
        if let Some(parent) = path.parent() {
            make_dir(parent)?;
        }
        let failed = || format!("cannot write {}", path.display());
        // Twice the same path is damage, too.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = opened.with_context(failed)?;
        for (chunk, size) in entry.sized_chunks() {
            let bytes = store.read_chunk(&chunk, size, false)?;
            file.write_all(&bytes).with_context(failed)?;
            done(size as u64)?;
        }
        if entry.size > entry.bytes {
            file.set_len(entry.size).with_context(failed)?;
        }
        Ok(())
    }

    fn publish(&self) -> anyhow::Result<()> {
        sync(&self.staging)?;
        // Replaces a directory only if it is empty.
        std::fs::rename(&self.staging, &self.data).with_context(|| {
            format!("cannot rename {} to {}", self.staging.display(), self.data.display())
        })?;
        // From here on it is restored, whatever fails: the marker in it means nothing.
        let marker = self.data.join(MARKER);
        let ended = std::fs::remove_file(&marker).and_then(|()| RealFs.sync_dir(&self.parent));
        if let Err(error) = ended {
            out::note(format_args!("{} is restored, but: {error}", self.data.display()));
        }
        Ok(())
    }
}

fn make_dir(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// Puts the file system of a directory on stable storage.
fn sync(dir: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot sync {}", dir.display());
    let opened = File::open(dir).with_context(failed)?;
    rustix::fs::syncfs(&opened).map_err(std::io::Error::from).with_context(failed)
}

/// Has every subsystem check its data, and fails the jobs that would run. Returns how many those are.
fn check_all(data: &Path, intake: IntakeOptions, interrupt: &Interrupt) -> anyhow::Result<usize> {
    let mut findings = Vec::new();
    let dir = layout::intake(data);
    if dir.exists() {
        check_intake(&dir, intake, &mut findings)?;
    }
    check(interrupt)?;
    let others = check_others(data, &|| check(interrupt))?;
    let others = others.damages.iter();
    findings.extend(others.map(|damage| format!("{}: {}", damage.kind, damage.message)));
    if !findings.is_empty() {
        let count = findings.len();
        findings.truncate(FINDINGS_SHOWN);
        bail!(
            "the backup is whole, but the data in it was damaged when it was made ({count} \
             findings); choose an earlier one with --at:\n{}",
            findings.join("\n")
        );
    }
    forebay_webhooks::pause_all(&layout::webhooks(data), HOOKS_REASON)
        .context("cannot pause the restored webhooks")?;
    let dir = layout::jobs(data);
    if dir.exists() { fail_jobs(&dir) } else { Ok(0) }
}

/// Opens the intake once, which makes the catalogue, and checks everything against it.
fn check_intake(
    dir: &Path,
    options: IntakeOptions,
    findings: &mut Vec<String>,
) -> anyhow::Result<()> {
    // No claim is taken: the original may be running.
    let storage = options.object_storage.as_ref().map(|options| Arc::clone(&options.storage));
    let (forward, object_storage) = (None, None);
    // Texts of files in a bucket could not be read here; the first start of the server reads them.
    let search = options.search && storage.is_none();
    let dir_path = dir.to_path_buf();
    let options = IntakeOptions { dir: dir_path, forward, object_storage, search, ..options };
    let opened = Intake::open(options, Arc::new(RealFs), Arc::new(SystemClock::new()));
    let (intake, _) = opened.context("cannot open the restored intake")?;
    intake.close().context("cannot close the restored intake")?;
    drop(intake);
    let report = fsck_with(dir, Arc::new(RealFs), storage, |_| {});
    let report = report.context("cannot check the restored intake")?;
    let found = report.findings.iter();
    findings.extend(found.map(|finding| format!("{}: {}", finding.kind, finding.message)));
    Ok(())
}

fn fail_jobs(dir: &Path) -> anyhow::Result<usize> {
    let options = JobOptions::new(dir.to_path_buf());
    let queue = Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options)
        .context("cannot open the restored job queue")?;
    queue.fail_waiting(JOBS_REASON).context("cannot fail the jobs of the restored queue")
}
