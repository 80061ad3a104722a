//! Putting an object together: one request at a time, a piece after the other.
//!
//! Invariant: pieces are read once, in order, and none is held in memory as a whole but small ones that were
//! copied from the log.

use std::sync::Arc;

use forebay_intake::IntakeError;
use forebay_intake::blocks::BlockReader;
use forebay_intake::upload::Source;
use forebay_intake::uploads::{UploadBytes, UploadId};
use s3s::S3Result;

use crate::multipart::no_such_upload;
use crate::service::Service;

/// One request at a time completes an upload.
pub(crate) struct Turn<'s> {
    service: &'s Service,
    pub(crate) id: UploadId,
    pub(crate) lock: Arc<tokio::sync::Mutex<()>>,
}

impl<'s> Turn<'s> {
    pub(crate) fn of(service: &'s Service, id: &str) -> S3Result<Self> {
        let id: UploadId = id.parse().map_err(|_| no_such_upload())?;
        let lock = Arc::clone(service.completing.lock().entry(id).or_default());
        Ok(Self { service, id, lock })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut completing = self.service.completing.lock();
        // This one and the table's.
        if Arc::strong_count(&self.lock) <= 2 {
            completing.remove(&self.id);
        }
    }
}

/// A piece of an object that is put together.
pub(crate) enum Piece {
    Upload(UploadBytes),
    File(BlockReader, u64, u64),
    Memory(bytes::Bytes),
}

/// Pieces, the first one last.
pub(crate) struct Pieces(pub(crate) Vec<Piece>);

impl Source for Pieces {
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, IntakeError> {
        loop {
            let read = match self.0.last_mut() {
                None => return Ok(None),
                Some(Piece::Memory(bytes)) => Some(std::mem::take(bytes)),
                Some(Piece::Upload(source)) => source.next().await?,
                Some(Piece::File(_, start, end)) if *start >= *end => None,
                Some(Piece::File(reader, start, end)) => {
                    let (again, from, to) = (reader.clone(), *start, *end);
                    let failed = |source| IntakeError::Blob { act: "read", source };
                    let read = forebay_base::blocking::spawn(move || again.read(from, to)).await;
                    let read = read
                        .map_err(std::io::Error::other)
                        .and_then(|read| read)
                        .map_err(failed)?;
                    *start += read.len() as u64;
                    Some(read)
                }
            };
            match read {
                Some(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                _ => drop(self.0.pop()),
            }
        }
    }
}
