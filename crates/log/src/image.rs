//! A log as part of an image: all segments, the last one as far as it was written.
//!
//! Invariant: the copy is what a crash would have left at that moment, so every opening reads it.

use forebay_base::image::Image;

use crate::{
    Log, Lsn,
    error::{CommitError, DiskError, LogImageError},
};

/// A segment file, as it is copied.
struct Part {
    base: u64,
    bytes: u64,
    size: u64,
}

impl Log {
    /// Adds the log's segments to an image, and returns the position up to which it has them: at least that of
    /// everything that was acknowledged before the call.
    ///
    /// Nothing is truncated or erased meanwhile; entries are appended. Works on the real file system only.
    ///
    /// # Errors
    /// [`LogImageError`]: the log is closed by a failure, or files cannot be linked. Segments that were
    /// added stay in the image.
    pub fn image(&self, image: &mut Image) -> Result<Lsn, LogImageError> {
        match self.sync() {
            // What was acknowledged is written; the rest waits for space.
            Ok(_) | Err(CommitError::Stalled { .. }) => {}
            Err(error) => return Err(LogImageError::Commit(error)),
        }
        let _one_at_a_time = self.shared.maintenance.lock();
        let (parts, end) = self.parts().map_err(LogImageError::Disk)?;
        for Part { base, bytes, size } in parts {
            let path = self.shared.path(base);
            image.link_beginning(&path, bytes, size).map_err(LogImageError::Image)?;
        }
        Ok(end)
    }

    fn parts(&self) -> Result<(Vec<Part>, Lsn), DiskError> {
        let shared = &*self.shared;
        let written = shared.written();
        let mut segments = shared.segments.lock();
        let listed: Vec<_> = segments.iter().collect();
        let mut parts = Vec::with_capacity(listed.len());
        let mut end = written;
        for segment in listed {
            // A sealed segment may end at its entries; the last one has the size it was made with.
            let (last, size) = match segment.end {
                Some(last) => (last, 0),
                None => {
                    let (file, path) = segments.file(&*shared.fs, &shared.dir, segment.base)?;
                    let size = file.len().map_err(|source| {
                        DiskError::new("get the size of log segment", path, source)
                    })?;
                    (written.max(segment.first()), size)
                }
            };
            end = last;
            parts.push(Part { base: segment.base, bytes: last - segment.base, size });
        }
        Ok((parts, Lsn(end)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_base::fs::RealFs;
    use forebay_base::image::ImageList;

    use super::*;
    use crate::Options;

    #[test]
    fn an_image_opens_with_what_was_appended_before_and_nothing_after() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { segment_size: crate::SEGMENT_SIZE_MIN, ..Options::default() };
        let (log, _) =
            Log::open(Arc::new(RealFs), &dir.path().join("log"), options.clone()).unwrap();
        let entry = |number: u32| format!("{number}").repeat(3_000).into_bytes();
        for number in 0..100 {
            let appended = log.append(&[&entry(number)]).unwrap();
            log.commit(appended.end).unwrap();
        }
        let mut image = Image::create(dir.path(), &dir.path().join("image")).unwrap();
        let end = log.image(&mut image).unwrap();
        image.finish().unwrap();
        // More entries, and the removal of the first ones, do not change the image.
        for number in 100..200 {
            let appended = log.append(&[&entry(number)]).unwrap();
            log.commit(appended.end).unwrap();
        }
        log.truncate_before(end).unwrap();
        let copy = dir.path().join("copy");
        std::fs::create_dir_all(copy.join("log")).unwrap();
        for file in ImageList::open(&dir.path().join("image")).unwrap() {
            let file = file.unwrap();
            let linked = dir.path().join("image/files").join(&file.path);
            let mut bytes = std::fs::read(linked).unwrap();
            bytes.truncate(usize::try_from(file.bytes).unwrap());
            bytes.resize(usize::try_from(file.size).unwrap(), 0);
            std::fs::write(copy.join(&file.path), bytes).unwrap();
        }
        let (copied, recovery) = Log::open(Arc::new(RealFs), &copy.join("log"), options).unwrap();
        assert!(recovery.cut.is_none(), "{recovery:?}");
        let mut reader = copied.reader(copied.start());
        let mut count = 0;
        while let Some(found) = reader.next().unwrap() {
            assert_eq!(found.payload, entry(count));
            count += 1;
        }
        assert_eq!(count, 100);
    }
}
