//! Changes of files that move no bytes: copies, renames, and what is stored beside the bytes.
//!
//! Each is one entry of the log that names a blob that is there already. It is decided under the queue's
//! lock together with the name that it was made of: if that name is another file by then, the change is
//! decided again from what it is now.
//!
//! Invariants: a copy never refers to bytes that its origin no longer had when it was made; a rename leaves
//! exactly one of the two names, also after a crash; a change of attributes never puts back bytes that
//! somebody replaced meanwhile.

use std::sync::Arc;

use crate::Intake;
use crate::attributes::Attributes;
use crate::catalogue::FileRecord;
use crate::error::IntakeError;
use crate::files::{Condition, NewFile, Origin, Put};
use crate::format::IdempotencyRecord;
use crate::pending::NameKey;

/// How often a change is decided again because its origin was changed meanwhile.
const ATTEMPTS_MAX: usize = 100;

/// A name that is to be given the bytes of another.
#[derive(Debug, Clone)]
pub struct FileCopy {
    /// The name that has the bytes.
    pub from: NameKey,
    /// The name that gets them.
    pub to: NameKey,
    /// What must hold of `from`.
    pub source: Condition,
    /// What must hold of `to`.
    pub condition: Condition,
    /// Comment of `to`; `None` for that of `from`.
    pub comment: Option<String>,
    /// Attributes of `to`; `None` for those of `from`.
    pub attributes: Option<Attributes>,
    /// The record to store the answer under, if the request had a key.
    pub idempotency: Option<IdempotencyRecord>,
}

/// What a file is to have beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDetails {
    /// Its comment; may be empty.
    pub comment: String,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Intake {
    /// Gives another name to the bytes of a file. No byte is copied.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: `from` does not exist. Others as [`Intake::put`].
    pub async fn copy(&self, copy: FileCopy) -> Result<Put, IntakeError> {
        self.derive(copy, false).await
    }

    /// Gives another name to a file: the old one is deleted by the same change.
    ///
    /// # Errors
    /// As [`Intake::copy`]; [`IntakeError::Rejected`] if both names are the same.
    pub async fn rename(&self, copy: FileCopy) -> Result<Put, IntakeError> {
        if copy.from == copy.to {
            let text = "a file cannot be moved to its own name".to_owned();
            return Err(IntakeError::rejected("same_name", text));
        }
        self.derive(copy, true).await
    }

    /// Changes what a file has beside its bytes.
    ///
    /// * `change`: computes what it is to have from what it has. Called again if the file was changed
    ///   meanwhile.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: there is no such file. Others as [`Intake::put`], and those of `change`.
    pub async fn change_details(
        &self,
        key: &NameKey,
        condition: Condition,
        idempotency: Option<IdempotencyRecord>,
        mut change: impl FnMut(&FileRecord) -> Result<FileDetails, IntakeError> + Send,
    ) -> Result<Put, IntakeError> {
        self.retried(key, &Condition::None, |file| {
            let FileDetails { comment, attributes } = change(file)?;
            Ok(NewFile {
                key: key.clone(),
                condition: condition.clone(),
                idempotency,
                ..made_of(file, comment, attributes, false)
            })
        })
        .await
    }

    async fn derive(&self, copy: FileCopy, is_moved: bool) -> Result<Put, IntakeError> {
        let FileCopy { from, to, source, condition, comment, attributes, idempotency } = copy;
        self.retried(&from, &source, |file| {
            let comment = comment.clone().unwrap_or_else(|| file.comment.clone());
            let attributes = attributes.clone().unwrap_or_else(|| file.attributes.clone());
            Ok(NewFile {
                key: to.clone(),
                condition: condition.clone(),
                idempotency,
                ..made_of(file, comment, attributes, is_moved)
            })
        })
        .await
    }

    /// Makes a file of the one named `from` until that stayed the same meanwhile.
    async fn retried(
        &self,
        from: &NameKey,
        source: &Condition,
        mut make: impl FnMut(&Arc<FileRecord>) -> Result<NewFile, IntakeError> + Send,
    ) -> Result<Put, IntakeError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(found) = self.find(from).await? else {
                return Err(IntakeError::NotFound { what: format!("file {}/{}", from.0, from.1) });
            };
            source.check(Some(&found.record))?;
            let new = make(&found.record)?;
            if let Some(put) = self.inner.shared.put(new, None).await? {
                return Ok(put);
            }
            tokio::task::yield_now().await;
        }
        Err(IntakeError::Busy { what: "the file is being changed all the time" })
    }
}

/// A file with the bytes of `file`, under the same name.
fn made_of(
    file: &Arc<FileRecord>,
    comment: String,
    attributes: Attributes,
    is_moved: bool,
) -> NewFile {
    let key = (file.namespace.clone(), file.name.clone());
    NewFile {
        key: key.clone(),
        comment,
        attributes,
        digest: file.digest,
        size: file.size,
        mime: file.mime.clone(),
        category: file.category,
        condition: Condition::None,
        idempotency: None,
        origin: Some(Origin { key, id: file.id, is_moved }),
    }
}
