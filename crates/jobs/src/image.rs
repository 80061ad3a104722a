//! The queue as part of an image, and the jobs of a restored copy.
//!
//! Invariant: every job in the image that may still run has its body there.

use forebay_base::image::{Image, ImageError};
use forebay_log::LogImageError;

use crate::error::JobError;
use crate::format::{self, End, Entry, How};
use crate::queue::Queue;
use crate::status::Status;

/// Why the queue cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueImageError {
    /// The log cannot.
    #[error("cannot take the log of the job queue into an image")]
    Log(#[from] LogImageError),
    /// A body cannot.
    #[error("cannot take the bodies of jobs into an image")]
    Image(#[from] ImageError),
    /// The bodies cannot be listed.
    #[error("cannot list the bodies of jobs")]
    List(#[source] std::io::Error),
}

impl Queue {
    /// Adds the queue to an image. Blocks; bodies are removed later meanwhile.
    ///
    /// # Errors
    /// [`QueueImageError`]: what was added stays in the image, which is not complete.
    pub fn image(&self, image: &mut Image) -> Result<(), QueueImageError> {
        let bodies = &self.inner.bodies;
        // A body is stored before the entry of its job, and removed after that of its end: those there now are
        // enough for the log as it is now.
        let _none_removed = bodies.hold();
        self.inner.log.image(image)?;
        for path in bodies.paths().map_err(QueueImageError::List)? {
            match image.link(&path) {
                // One that was being received, for a job that is not in the image.
                Err(error) if error.is_missing() => {}
                linked => linked?,
            }
        }
        Ok(())
    }

    /// Records that every job that waits has failed, on stable storage, and returns how many. For a copy whose
    /// original may have run them; before workers are started. The next opening shows it.
    ///
    /// * `reason`: the message that their clients receive.
    ///
    /// # Errors
    /// [`JobError`]: the log does not take it; the jobs before may have failed already.
    pub fn fail_waiting(&self, reason: &str) -> Result<usize, JobError> {
        let waiting: Vec<_> = {
            let table = self.inner.lock();
            let queued = table.jobs.iter().filter(|(_, job)| job.status() == Status::Queued);
            queued.map(|(id, job)| (*id, job.attempts)).collect()
        };
        let (log, now_ms) = (&self.inner.log, self.inner.clock.now_ms());
        for &(id, attempts) in &waiting {
            let end = End { how: How::Failed, result: &[], reason };
            let entry = format::encode(id, now_ms, &Entry::Ended { attempts, end });
            let appended = log.append(&[&entry]);
            appended.map_err(|source| JobError::Append { id, source })?;
        }
        if let Some(&(id, _)) = waiting.last() {
            let synced = log.sync_to(log.end());
            synced.map_err(|source| JobError::Commit { id, source })?;
        }
        Ok(waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use forebay_base::clock::SystemClock;
    use forebay_base::fs::RealFs;
    use forebay_base::image::ImageList;

    use super::*;
    use crate::{NewJob, Options, Priority};

    fn open(dir: &std::path::Path) -> Queue {
        let options = Options::new(dir.join("jobs"));
        Queue::open(Arc::new(RealFs), Arc::new(SystemClock::new()), options).unwrap()
    }

    #[tokio::test]
    async fn an_image_has_waiting_jobs_with_their_bodies_and_a_copy_fails_them() {
        let dir = tempfile::tempdir().unwrap();
        let queue = open(dir.path());
        let mut body = queue.body();
        body.write(&[7; 100_000]).unwrap();
        let body = body.finish().unwrap();
        let new = NewJob {
            work: "request".to_owned(),
            priority: Priority::Normal,
            key: None,
            order: b"order".to_vec(),
            body: Some(body),
        };
        let job = queue.submit(new).await.unwrap().id;
        let mut image = Image::create(dir.path(), &dir.path().join("image")).unwrap();
        queue.image(&mut image).unwrap();
        image.finish().unwrap();
        queue.cancel(job).await.unwrap();
        queue.close(Duration::ZERO).await.unwrap();
        drop(queue);
        let copy = tempfile::tempdir().unwrap();
        for file in ImageList::open(&dir.path().join("image")).unwrap() {
            let file = file.unwrap();
            let mut bytes = std::fs::read(dir.path().join("image/files").join(&file.path)).unwrap();
            bytes.truncate(usize::try_from(file.bytes).unwrap());
            bytes.resize(usize::try_from(file.size).unwrap(), 0);
            let to = copy.path().join(&file.path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::write(to, bytes).unwrap();
        }
        let queue = open(copy.path());
        assert_eq!(queue.job(job).unwrap().status, Status::Queued);
        assert_eq!(queue.fail_waiting("restored").unwrap(), 1);
        drop(queue);
        let queue = open(copy.path());
        let view = queue.job(job).unwrap();
        assert_eq!((view.status, &*view.reason), (Status::Failed, "restored"));
        queue.queue_again(job).await.unwrap();
        assert_eq!(queue.job(job).unwrap().status, Status::Queued);
    }
}
