//! Checking a queue that is not open.
//!
//! Invariant: nothing is changed, and what is damaged stops no other part of the check.

use std::path::Path;
use std::sync::Arc;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;

use crate::body::Bodies;
use crate::error::{BodyError, OpenError};
use crate::format;
use crate::id::JobId;
use crate::table::{Body, Table};

/// The result of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Intact entries of the log.
    pub entries: u64,
    /// Jobs that they state.
    pub jobs: u64,
    /// Bytes of bodies in files that match their hashes.
    pub bodies_bytes: u64,
    /// Bytes of a torn tail, which the next opening cuts off. Nothing acknowledged is in it.
    pub torn_tail_bytes: u64,
}

/// Reads the log of the queue in `dir`, and the bodies of all jobs that may still run.
///
/// * `on_damage`: called with each damage.
/// * Returns `None` if there is no queue.
///
/// # Errors
/// [`OpenError::Locked`]: it is open. Others: it could not be read.
pub fn check(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    on_damage: &mut dyn FnMut(String),
) -> Result<Option<Checked>, OpenError> {
    let failed = |act| {
        let path = dir.to_owned();
        move |source| OpenError::Io { act, path, source }
    };
    let log = dir.join("log");
    if !fs.exists(&log).map_err(failed("look for"))? {
        return Ok(None);
    }
    let lock = fs.lock_exclusive(&dir.join("lock"));
    let _lock = lock.map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked { path: dir.to_owned() },
        _ => failed("lock")(source),
    })?;
    let (mut table, mut unknown) = (Table::default(), Vec::new());
    let verified = forebay_log::check_entries(
        &**fs,
        &log,
        &mut |found| match format::decode(found.payload) {
            Ok((id, at_ms, entry)) => table.replay(id, at_ms, &entry, (found.lsn, found.lsn)),
            Err(reason) => unknown.push(OpenError::Entry { lsn: found.lsn.0, reason }.to_string()),
        },
        &mut |damage| on_damage(damage.to_string()),
    );
    let verified = verified.map_err(OpenError::Log)?;
    unknown.into_iter().for_each(&mut *on_damage);
    let mut checked = Checked {
        entries: verified.entries,
        jobs: table.jobs.len() as u64,
        torn_tail_bytes: verified.tail.map_or(0, |tail| tail.bytes),
        ..Checked::default()
    };
    let bodies = Bodies::new(Arc::clone(fs), dir, u64::MAX);
    for (&id, job) in table.jobs.iter().filter(|(_, job)| job.needs_file()) {
        let Body::File { size, sha256 } = job.body else { continue };
        match read(&bodies, id, (size, sha256)) {
            Ok(()) => checked.bodies_bytes += size,
            Err(error) => on_damage(format!("the body of job {id}: {}", chain(&error))),
        }
    }
    Ok(Some(checked))
}

/// Reads a body to its end, where it is compared with its hash.
fn read(bodies: &Bodies, id: JobId, (size, sha256): (u64, [u8; 32])) -> Result<(), BodyError> {
    let mut reader = bodies.reader(id, size, sha256)?;
    while reader.read_next()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_base::clock::SystemClock;
    use forebay_base::fs::RealFs;

    use super::*;
    use crate::{NewJob, Options, Priority, Queue};

    /// A closed queue with jobs that wait, one of them with a file.
    async fn queue(dir: &Path) -> JobId {
        let options = Options::new(dir.to_owned());
        let queue = Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options).unwrap();
        let mut last = None;
        for size in [0, 100, 100_000] {
            let mut body = queue.body();
            body.write(&vec![7; size]).unwrap();
            let new = NewJob {
                work: "request".to_owned(),
                priority: Priority::Normal,
                key: None,
                order: b"order".to_vec(),
                body: Some(body.finish().unwrap()),
            };
            last = Some(queue.submit(new).await.unwrap().id);
        }
        queue.close(Duration::ZERO).await.unwrap();
        last.unwrap()
    }

    fn damages(dir: &Path) -> (Option<Checked>, Vec<String>) {
        let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
        let mut damages = Vec::new();
        let checked = check(&fs, dir, &mut |damage| damages.push(damage)).unwrap();
        (checked, damages)
    }

    #[tokio::test]
    async fn a_sound_queue_is_counted_and_none_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(damages(dir.path()), (None, Vec::new()));
        queue(dir.path()).await;
        let (checked, damages) = damages(dir.path());
        let checked = checked.unwrap();
        assert_eq!((checked.jobs, checked.bodies_bytes, damages), (3, 100_000, Vec::new()));
    }

    #[tokio::test]
    async fn a_changed_byte_of_the_log_and_a_changed_or_missing_body_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let id = queue(dir.path()).await;
        let log = dir.path().join("log/0000000000000000.log");
        let whole = std::fs::read(&log).unwrap();
        let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..used).step_by(97) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&log, changed).unwrap();
            assert!(!damages(dir.path()).1.is_empty(), "byte {at}");
        }
        std::fs::write(&log, &whole).unwrap();
        assert_eq!(damages(dir.path()).1, Vec::<String>::new());
        let body = dir.path().join("bodies").join(id.to_string());
        std::fs::write(&body, vec![8; 100_000]).unwrap();
        let found = damages(dir.path()).1;
        assert!(found.len() == 1 && found[0].contains(&id.to_string()), "{found:?}");
        std::fs::remove_file(&body).unwrap();
        assert_eq!(damages(dir.path()).1.len(), 1);
    }
}
