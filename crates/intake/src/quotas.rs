//! Quotas: how many files and bytes a namespace may have.
//!
//! A quota is part of the record of its namespace. What the namespace holds is counted in memory, for
//! namespaces with a quota alone: from the catalogue when the intake is opened or the quota is set, then with
//! every change, under the queue's lock. Bytes of versions count, since they take space; deletions do not.
//!
//! Invariants: a count is that of everything in the log; a change that would exceed a quota is refused
//! before it is in the log; one that lessens what there is never is.

use std::collections::BTreeMap;

use forebay_log::Lsn;

use crate::Intake;
use crate::attributes::Attributes;
use crate::catalogue::{NamespaceRecord, Usage};
use crate::error::IntakeError;
use crate::names::Namespace;
use crate::pending::NameKey;

/// Maximum number of changes to a namespace while what it holds is counted.
const CHANGES_MAX: usize = 65_536;

/// What is known of a namespace that has a quota, or is about to have one.
#[derive(Debug)]
enum Counted {
    /// It is being counted: the changes since, with the positions of their entries.
    Counting(Vec<(Lsn, Change)>),
    /// What it holds.
    Known(Usage),
}

/// What a change adds to a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Names.
    pub(crate) files: i64,
    /// Bytes.
    pub(crate) bytes: i64,
}

impl Change {
    /// What giving a name to a file adds.
    ///
    /// * `before`: size of what the name referred to, and whether that is kept as a version.
    pub(crate) fn of_put(size: u64, before: Option<(u64, bool)>) -> Self {
        let freed = before.filter(|(_, keeps)| !keeps).map_or(0, |(size, _)| size);
        Self {
            files: i64::from(before.is_none()),
            bytes: size.cast_signed().saturating_sub(freed.cast_signed()),
        }
    }

    /// What taking a name away adds.
    pub(crate) fn of_delete(size: u64, keeps: bool) -> Self {
        Self { files: -1, bytes: if keeps { 0 } else { -size.cast_signed() } }
    }

    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            files: self.files.saturating_add(other.files),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Applies it.
    fn to(self, usage: Usage) -> Usage {
        Usage {
            files: usage.files.saturating_add_signed(self.files),
            bytes: usage.bytes.saturating_add_signed(self.bytes),
        }
    }
}

/// What namespaces with a quota hold, as of the newest entry.
#[derive(Debug, Default)]
pub(crate) struct Usages(BTreeMap<Namespace, Counted>);

impl Usages {
    /// What namespaces hold according to the catalogue, when nothing is queued.
    pub(crate) fn new(counted: Vec<(Namespace, Usage)>) -> Self {
        let known = |(namespace, usage)| (namespace, Counted::Known(usage));
        Self(counted.into_iter().map(known).collect())
    }

    /// Records a change whose entry was just appended.
    pub(crate) fn change(&mut self, namespace: &Namespace, lsn: Lsn, change: Change) {
        let Some(counted) = self.0.get_mut(namespace) else { return };
        match counted {
            Counted::Known(usage) => *usage = change.to(*usage),
            Counted::Counting(changes) if changes.len() < CHANGES_MAX => {
                changes.push((lsn, change))
            }
            // The request that counts finds nothing.
            Counted::Counting(_) => drop(self.0.remove(namespace)),
        }
    }

    /// What a namespace holds; `None` if it is not counted.
    pub(crate) fn get(&self, namespace: &Namespace) -> Option<Usage> {
        match self.0.get(namespace)? {
            Counted::Known(usage) => Some(*usage),
            Counted::Counting(_) => None,
        }
    }

    /// Forgets a namespace that has no quota any more.
    pub(crate) fn forget(&mut self, namespace: &Namespace) {
        self.0.remove(namespace);
    }

    /// Begins to record the changes of a namespace that is not counted yet.
    fn begin(&mut self, namespace: &Namespace) {
        self.0.entry(namespace.clone()).or_insert_with(|| Counted::Counting(Vec::new()));
    }

    /// Ends counting.
    ///
    /// * `found`: what the catalogue says, as of this position of the log.
    /// * Returns `false` if there were too many changes meanwhile.
    fn finish(&mut self, namespace: &Namespace, found: Usage, position: u64) -> bool {
        let Some(counted) = self.0.get_mut(namespace) else { return false };
        if let Counted::Counting(changes) = counted {
            let later = changes.iter().filter(|(lsn, _)| lsn.0 >= position);
            let usage = later.fold(found, |usage, (_, change)| change.to(usage));
            *counted = Counted::Known(usage);
        }
        true
    }
}

/// Checks that a change keeps a namespace within its quota.
///
/// # Errors
/// [`IntakeError::Rejected`] with the code `quota_exceeded`.
pub(crate) fn check(
    record: Option<&NamespaceRecord>,
    usage: Option<Usage>,
    change: Change,
) -> Result<(), IntakeError> {
    let (Some(record), Some(usage)) = (record, usage) else { return Ok(()) };
    let (quota, then) = (record.quota(), change.to(usage));
    let namespace = &record.namespace;
    let exceeds =
        |grows: bool, then: u64, most: Option<u64>| most.filter(|most| grows && then > *most);
    if let Some(most) = exceeds(change.files > 0, then.files, quota.files) {
        let text =
            format!("the namespace {namespace} has {} files; its quota is {most}", usage.files);
        return Err(exceeded(text));
    }
    if let Some(most) = exceeds(change.bytes > 0, then.bytes, quota.bytes) {
        let text = format!(
            "the namespace {namespace} would have {} bytes with its versions; its quota is {most}",
            then.bytes
        );
        return Err(exceeded(text));
    }
    Ok(())
}

fn exceeded(text: String) -> IntakeError {
    crate::meters::quota_refused();
    IntakeError::rejected("quota_exceeded", text)
}

impl Intake {
    /// What a namespace with a quota holds; `None` if it has no quota.
    #[must_use]
    pub fn quota_usage(&self, namespace: &Namespace) -> Option<Usage> {
        self.inner.shared.pending.lock().usages.get(namespace)
    }

    /// Checks that a file of this size could be within the quota of its namespace, before its bytes are
    /// read. The put decides: it permits what adds no bytes.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`] with the code `quota_exceeded`: it would not, even if it were the only file, and
    /// its name does not have as many bytes already. Others as [`Intake::find`].
    pub async fn check_quota(&self, key: &NameKey, size: u64) -> Result<(), IntakeError> {
        let beyond = {
            let pending = self.inner.shared.pending.lock();
            let Some(record) = pending.records.records.get(&key.0) else { return Ok(()) };
            if record.quota().bytes.is_none_or(|most| size <= most) {
                return Ok(());
            }
            let empty = pending.usages.get(&key.0).map(|_| Usage::default());
            check(Some(record), empty, Change::of_put(size, None))
        };
        if beyond.is_err() && self.find(key).await?.is_some_and(|stored| stored.record.size >= size)
        {
            return Ok(());
        }
        beyond
    }

    /// Whether a namespace has a quota.
    #[must_use]
    pub fn has_quota(&self, namespace: &Namespace) -> bool {
        let pending = self.inner.shared.pending.lock();
        pending.records.records.get(namespace).is_some_and(|record| !record.quota().is_none())
    }

    /// Changes the attributes of a namespace as [`Intake::change_namespace`] does, where it may get a quota:
    /// first what it holds is counted. What is beyond a quota already stays.
    ///
    /// # Errors
    /// [`IntakeError::Busy`]: the namespace is changed too often to be counted. Others as
    /// [`Intake::change_namespace`].
    pub async fn limit_namespace(
        &self,
        namespace: &Namespace,
        change: impl Fn(Attributes, u64) -> Result<Attributes, IntakeError> + Send,
    ) -> Result<bool, IntakeError> {
        self.count(namespace).await?;
        let changed = self.change_namespace(namespace, change).await;
        let mut pending = self.inner.shared.pending.lock();
        let record = pending.records.records.get(namespace);
        if record.is_none_or(|record| record.quota().is_none()) {
            pending.usages.forget(namespace);
        }
        changed
    }

    /// Counts what a namespace holds, unless that is known.
    async fn count(&self, namespace: &Namespace) -> Result<(), IntakeError> {
        let shared = &self.inner.shared;
        shared.pending.lock().usages.begin(namespace);
        // From here on changes are recorded; what was before is in the catalogue then.
        shared.catch_up().await?;
        shared.check_whole()?;
        let (reader, owned) = (shared.clone(), namespace.clone());
        let counted = forebay_base::blocking::spawn(move || reader.reader.usage(&owned));
        let (usage, position) = counted.await.map_err(crate::listing::interrupted)??;
        if shared.pending.lock().usages.finish(namespace, usage, position) {
            return Ok(());
        }
        Err(IntakeError::Busy { what: "the namespace is changed too often to be counted" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_after_the_counted_position_are_added_and_those_before_are_not() {
        let namespace = Namespace::parse("n").unwrap();
        let mut usages = Usages::default();
        usages.change(&namespace, Lsn(1), Change::of_put(5, None));
        assert_eq!(usages.get(&namespace), None, "without a quota nothing is counted");
        usages.begin(&namespace);
        usages.change(&namespace, Lsn(8), Change::of_put(100, None));
        usages.change(&namespace, Lsn(16), Change::of_put(10, Some((100, false))));
        assert_eq!(usages.get(&namespace), None);
        assert!(usages.finish(&namespace, Usage { files: 2, bytes: 105 }, 16));
        assert_eq!(usages.get(&namespace), Some(Usage { files: 2, bytes: 15 }));
        usages.change(&namespace, Lsn(24), Change::of_delete(10, true));
        assert_eq!(usages.get(&namespace), Some(Usage { files: 1, bytes: 15 }));
        usages.forget(&namespace);
        assert_eq!(usages.get(&namespace), None);
    }

    #[test]
    fn too_many_changes_while_counting_are_reported_and_hold_no_memory() {
        let namespace = Namespace::parse("n").unwrap();
        let mut usages = Usages::default();
        usages.begin(&namespace);
        for lsn in 0..=CHANGES_MAX as u64 {
            usages.change(&namespace, Lsn(lsn), Change::of_put(1, None));
        }
        assert!(usages.0.is_empty());
        assert!(!usages.finish(&namespace, Usage::default(), 0));
    }
}
