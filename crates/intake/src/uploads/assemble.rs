//! Making a file of complete uploads: their bytes are read once, checked, hashed and staged, a frame at
//! a time.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;

use super::file::FrameReader;
use super::{Inner, UploadError, UploadId, Uploads};
use crate::Intake;
use crate::error::IntakeError;
use crate::upload::{self, Source, Upload};

impl Intake {
    /// The unfinished uploads.
    #[must_use]
    pub fn uploads(&self) -> &Uploads {
        &self.inner.shared.uploads
    }

    /// Puts the bytes of complete uploads together, in this order, for [`Intake::put`].
    ///
    /// The uploads stay as they are: [`Uploads::finish`] them when the file is stored.
    ///
    /// # Errors
    /// [`IntakeError::Upload`]: one is missing, incomplete, finished or damaged. Others as for
    /// [`Intake::receive`].
    pub async fn assemble(&self, ids: &[UploadId]) -> Result<Upload, IntakeError> {
        let uploads = self.uploads();
        let mut parts = VecDeque::with_capacity(ids.len());
        let mut size: u64 = 0;
        for &id in ids {
            let status = uploads.status(id).await?;
            if status.result.is_some() {
                return Err(UploadError::Finished { id }.into());
            }
            if !status.is_complete() {
                return Err(UploadError::Incomplete { id, offset: status.offset }.into());
            }
            let limit = self.limits().file_size_max;
            let too_large = IntakeError::TooLarge { what: "the file", limit };
            size = size.checked_add(status.offset).ok_or(too_large)?;
            parts.push_back((id, status.offset));
        }
        let mut source = Parts { inner: Arc::clone(&uploads.inner), parts, reader: None };
        let upload = upload::take(&self.inner.shared, &mut source, Some(size)).await?;
        if upload.size() == size {
            Ok(upload)
        } else {
            let found = format!("the parts have {} bytes, expected {size}", upload.size());
            let id = ids.first().copied().unwrap_or_default();
            Err(UploadError::Damaged { id, found }.into())
        }
    }
}

impl Uploads {
    /// Returns the first `size` bytes of an upload as a source, for a file that is made of more than
    /// uploads.
    #[must_use]
    pub fn bytes(&self, id: UploadId, size: u64) -> UploadBytes {
        let inner = Arc::clone(&self.inner);
        UploadBytes(Parts { inner, parts: [(id, size)].into(), reader: None })
    }
}

/// The bytes of one upload. Those that do not match their checksum are an error.
pub struct UploadBytes(Parts);

impl std::fmt::Debug for UploadBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UploadBytes").finish_non_exhaustive()
    }
}

impl Source for UploadBytes {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        self.0.next().await
    }
}

/// The bytes of several uploads, one after another.
pub(super) struct Parts {
    pub(super) inner: Arc<Inner>,
    /// Each with the number of its bytes.
    pub(super) parts: VecDeque<(UploadId, u64)>,
    pub(super) reader: Option<(UploadId, FrameReader)>,
}

impl Source for Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        let inner = Arc::clone(&self.inner);
        let (mut parts, mut reader) = (std::mem::take(&mut self.parts), self.reader.take());
        let run = move || {
            let read = read(&inner, &mut parts, &mut reader)?;
            Ok((read, parts, reader))
        };
        let (read, parts, reader) = self.inner.blocking("read uploads in", run).await?;
        (self.parts, self.reader) = (parts, reader);
        Ok(read.map(Bytes::from))
    }
}

fn read(
    inner: &Inner,
    parts: &mut VecDeque<(UploadId, u64)>,
    reader: &mut Option<(UploadId, FrameReader)>,
) -> Result<Option<Vec<u8>>, UploadError> {
    loop {
        if let Some((id, open)) = reader {
            let id = *id;
            match open.next().map_err(inner.failed("read", id))? {
                Ok(Some(bytes)) => return Ok(Some(bytes)),
                Ok(None) => *reader = None,
                Err(offset) => return Err(damaged(inner, id, &format!("the bytes at {offset}"))),
            }
        }
        let Some((id, size)) = parts.pop_front() else { return Ok(None) };
        let file = inner.open_file(id).map_err(|error| match error {
            UploadError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                UploadError::NotFound { id }
            }
            other => other,
        })?;
        match FrameReader::open(file, id, size).map_err(inner.failed("read", id))? {
            Some(open) => *reader = Some((id, open)),
            None => return Err(damaged(inner, id, "its first frame")),
        }
    }
}

/// Refuses an upload from now on.
fn damaged(inner: &Inner, id: UploadId, what: &str) -> UploadError {
    let found = format!("{what} do not match their checksum");
    tracing::error!(upload = %id, %found, "an upload is damaged; it is refused");
    let mut table = inner.table.lock();
    if let Ok(entry) = table.get(id) {
        table.show_damage(&entry, &found);
    }
    UploadError::Damaged { id, found }
}
