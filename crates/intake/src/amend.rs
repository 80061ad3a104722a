//! Other attributes for a version of a name, which stays the same version.
//!
//! [`Intake::change_details`] makes a new version. This does not: the version keeps its id, its time and its
//! place in the history, whether it is what the name refers to or an earlier one.
//!
//! Invariants: as for erasing, one request at a time amends, and none decides on a version that a queued
//! change is about, so that a replay of the log gives the same attributes.

use std::sync::Arc;

use forebay_log::{AppendError, Lsn};

use crate::Intake;
use crate::attributes::Attributes;
use crate::catalogue::{Change, FileRecord};
use crate::error::IntakeError;
use crate::format::Amended;
use crate::pending::{NameKey, NameSeen, Queued};
use crate::versions::ATTEMPTS_MAX;

/// Room in the log's buffer that any entry of attributes fits into, in bytes.
const ENTRY_SIZE: usize = 64 << 10;

impl Intake {
    /// Replaces the attributes of a version of a name, newest or earlier, which keeps its id and its time.
    ///
    /// * `change`: makes the new attributes of the version; it may be called more than once.
    ///
    /// * Returns the version as it is then; `None` if there is no such version, or it is a deletion.
    ///
    /// # Errors
    /// Those of `change`. [`IntakeError::Busy`]: the name is being changed all the time. Others as
    /// [`Intake::put`].
    pub async fn amend_version(
        &self,
        key: &NameKey,
        id: u64,
        mut change: impl FnMut(&FileRecord) -> Result<Attributes, IntakeError> + Send,
    ) -> Result<Option<Arc<FileRecord>>, IntakeError> {
        let shared = &self.inner.shared;
        for _ in 0..ATTEMPTS_MAX {
            let turn = shared.version_turn().await?;
            let generation = shared.pending.lock().generation();
            let current = shared.stored(key)?.map(|(file, _)| file).filter(|file| file.id == id);
            let is_current = current.is_some();
            let found = match current {
                Some(file) => file,
                None => match shared.reader.version(&key.0, &key.1, id)? {
                    Some((version, _)) if !version.is_deletion => version.file,
                    _ => return shared.check_whole().map(|()| None),
                },
            };
            let attributes = change(&found)?;
            let file = Arc::new(FileRecord { attributes, ..found });
            if let Some(end) = self.append_amended(&file, is_current, generation)? {
                drop(turn);
                shared.committed(end).await?;
                return Ok(Some(file));
            }
            drop(turn);
            shared.log.room(ENTRY_SIZE).await;
        }
        Err(IntakeError::Busy { what: "the file is being changed all the time" })
    }

    /// Appends the attributes of a version, if the catalogue has not changed since `generation` and no
    /// queued change is about the name; otherwise, and if the log's buffer is full, returns `None`.
    fn append_amended(
        &self,
        file: &Arc<FileRecord>,
        is_current: bool,
        generation: u64,
    ) -> Result<Option<Lsn>, IntakeError> {
        let shared = &self.inner.shared;
        let mut pending = shared.pending.lock();
        let key = (file.namespace.clone(), file.name.clone());
        if pending.generation() != generation || matches!(pending.name(&key), NameSeen::Pending(_))
        {
            return Ok(None);
        }
        let (id, attributes) = (file.id, file.attributes.clone());
        let (namespace, name) = key;
        let entry = Amended { amended_ms: shared.now_ms(), namespace, name, id, attributes };
        let appended = match shared.log.try_append(&[&entry.encode()]) {
            Ok(appended) => appended,
            Err(AppendError::Full { .. }) => return Ok(None),
            Err(error) => return Err(IntakeError::Append(error)),
        };
        let Amended { namespace, name, attributes, .. } = entry;
        let (attributes, file) = (Arc::new(attributes), is_current.then(|| Arc::clone(file)));
        let change = Change::Amended { namespace, name, id, attributes, file };
        let (lsn, end) = (appended.lsn, appended.end);
        shared.queue(&mut pending, Queued { lsn, end, change, answered: None });
        Ok(Some(end))
    }
}
