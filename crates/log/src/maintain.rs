//! Maintenance of segments: listing them, and removing those no longer needed.
//!
//! Invariant: segments are removed in order, oldest first, each removal durable before the next
//! begins, so that a crash never leaves a gap.

use crate::{
    Log, Lsn,
    error::{DiskError, TruncateError},
    log::SegmentInfo,
    segment::Segment,
    writer::Shared,
};

impl Log {
    /// Removes the segments that lie wholly below `lsn`, and returns how many bytes of disk that
    /// freed.
    ///
    /// The segment being written to always stays. Readers inside a removed segment can finish it.
    ///
    /// # Errors
    /// [`TruncateError::Io`]: segments removed before the error stay removed; the call may be
    /// repeated.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<u64, TruncateError> {
        let shared = &*self.shared;
        let _one_at_a_time = shared.maintenance.lock();
        let mut freed = 0;
        while let Some(segment) = oldest_below(shared, lsn) {
            freed += remove(shared, segment).map_err(TruncateError::Io)?;
        }
        Ok(freed)
    }

    /// Returns the number of segments; unlike [`Log::segments`] it accesses no file.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.shared.segments.lock().iter().count()
    }

    /// Returns the segments, oldest first.
    ///
    /// # Errors
    /// When the size of a file cannot be determined.
    pub fn segments(&self) -> Result<Vec<SegmentInfo>, DiskError> {
        let shared = &*self.shared;
        let written = shared.written();
        let mut segments = shared.segments.lock();
        let listed: Vec<Segment> = segments.iter().collect();
        let mut infos = Vec::with_capacity(listed.len());
        for segment in listed {
            let (file, path) = segments.file(&*shared.fs, &shared.dir, segment.base)?;
            let disk_bytes = file
                .disk_size()
                .map_err(|source| DiskError::new("get the size of log segment", path, source))?;
            infos.push(SegmentInfo {
                base: Lsn(segment.base),
                end: Lsn(segment.end.unwrap_or(written.max(segment.first()))),
                sealed: segment.end.is_some(),
                disk_bytes,
            });
        }
        Ok(infos)
    }
}

/// Returns the oldest segment if it is sealed and ends at or before `lsn`.
fn oldest_below(shared: &Shared, lsn: Lsn) -> Option<Segment> {
    let oldest = shared.segments.lock().iter().next();
    oldest.filter(|segment| segment.end.is_some_and(|end| end <= lsn.0))
}

fn remove(shared: &Shared, segment: Segment) -> Result<u64, DiskError> {
    let path = shared.path(segment.base);
    let freed = {
        // Removed from the table before the file, so that no reader opens a file that no longer
        // exists.
        let mut segments = shared.segments.lock();
        let (file, _) = segments.file(&*shared.fs, &shared.dir, segment.base)?;
        let freed = file
            .disk_size()
            .map_err(|source| DiskError::new("get the size of log segment", &path, source))?;
        segments.remove(segment.base);
        freed
    };
    if let Err(source) = shared.fs.remove_file(&path) {
        shared.segments.lock().insert(segment);
        return Err(DiskError::new("remove log segment", path, source));
    }
    shared
        .fs
        .sync_dir(&shared.dir)
        .map_err(|source| DiskError::new("sync directory", &shared.dir, source))?;
    Ok(freed)
}
