//! The model of versions: what names referred to, erased and restored.

use std::collections::BTreeSet;

use forebay_intake::attributes::AttributeKind;
use forebay_intake::catalogue::{Browse, FileRecord};
use forebay_intake::{Condition, Intake, IntakeError};

use super::{Model, Usage, Version, content, digest, name_key, of};
use crate::requests;
use crate::support::namespace;

impl Model {
    /// Notes that what a name refers to is replaced, or deleted.
    pub(super) fn replaced(&mut self, name: usize, is_deleted: bool) {
        let stored = self.stored[&of(name)];
        let suspended = self.suspended.get(&of(name).0);
        if !self.keeps.contains(&of(name).0) && suspended.is_none_or(|at| stored >= *at) {
            return;
        }
        let before = (self.files[&of(name)], self.tags.get(&of(name)).cloned(), stored);
        let history = self.history.entry(of(name)).or_default();
        history.push(Some(before));
        if is_deleted {
            history.push(None);
        }
    }

    /// Sets what a name refers to.
    pub(super) fn set(&mut self, name: usize, version: Option<Version>) {
        let key = of(name);
        self.tags.remove(&key);
        let Some((which, tag, stored)) = version else {
            self.files.remove(&key);
            self.stored.remove(&key);
            return;
        };
        self.files.insert(key.clone(), which);
        self.stored.insert(key.clone(), stored);
        if let Some(tag) = tag {
            self.tags.insert(key, tag);
        }
    }

    /// Erases all versions of a name but the newest.
    pub(super) async fn prune(&mut self, intake: &Intake, name: usize, kept: usize) {
        let erased = intake.prune_versions(&name_key(name), kept).await.unwrap();
        let history = self.history.entry(of(name)).or_default();
        let gone = history.len().saturating_sub(kept);
        history.drain(..gone);
        assert_eq!(erased, gone);
        self.check_history(intake, name).await;
    }

    /// Erases one state of a name, counted from the newest one.
    pub(super) async fn erase(&mut self, intake: &Intake, name: usize, state: usize) {
        let key = name_key(name);
        assert_eq!(intake.erase_version(&key, 1).await.unwrap(), None);
        let found = intake.versions(&key, None, 100).await.unwrap();
        let current = found.current.map(|file| file.record.id);
        let older = found.versions.iter().map(|version| version.file.id);
        let Some(id) = current.into_iter().chain(older).nth(state) else { return };
        let erased = intake.erase_version(&key, id).await.unwrap().unwrap();
        assert_eq!(erased.file.id, id);
        let mut history = self.history.remove(&of(name)).unwrap_or_default();
        let is_newest = state == 0 && (current.is_some() || erased.is_deletion);
        if is_newest {
            if current.is_none() {
                history.pop();
            }
            // What was before holds again.
            let is_file = history.last().is_some_and(Option::is_some);
            let again = if is_file { history.pop().flatten() } else { None };
            self.set(name, again);
        } else {
            history.remove(history.len() - 1 - (state - usize::from(current.is_some())));
        }
        self.history.insert(of(name), history);
        self.get(intake, name).await;
        self.check_history(intake, name).await;
    }

    /// Gives one state of a name another tag, counted from the newest one.
    pub(super) async fn amend(&mut self, intake: &Intake, name: usize, state: usize, value: usize) {
        let key = name_key(name);
        let tag = format!("amended {value}");
        let change = |file: &FileRecord| {
            let mut attributes = file.attributes.clone();
            attributes.set(AttributeKind::Tag, "t", &tag).unwrap();
            Ok(attributes)
        };
        assert!(intake.amend_version(&key, 1, change).await.unwrap().is_none());
        let found = intake.versions(&key, None, 100).await.unwrap();
        let current = found.current.map(|file| file.record.id);
        let older = found.versions.iter().map(|version| version.file.id);
        let Some(id) = current.into_iter().chain(older).nth(state) else { return };
        let amended = intake.amend_version(&key, id, change).await.unwrap();
        assert!(amended.iter().all(|amended| amended.id == id));
        if state == 0 && current.is_some() {
            assert!(amended.is_some());
            self.tags.insert(of(name), tag);
        } else {
            let history = self.history.get_mut(&of(name)).unwrap();
            let at = history.len() - 1 - (state - usize::from(current.is_some()));
            assert_eq!(amended.is_some(), history[at].is_some(), "a deletion has no tags");
            if let Some((_, of_version, _)) = &mut history[at] {
                *of_version = Some(tag);
            }
        }
        self.get(intake, name).await;
        self.check_history(intake, name).await;
    }

    /// Compares what namespaces with a quota hold, as the intake counts it.
    pub(super) fn check_usage(&self, intake: &Intake) {
        for of in ["n", "m"] {
            let expected = self.limited.contains(of).then(|| {
                let mut usage = Usage::default();
                for ((_, _), which) in self.files.iter().filter(|((name, _), _)| name == of) {
                    usage.files += 1;
                    usage.bytes += content(*which).len() as u64;
                }
                let kept = self.history.iter().filter(|((name, _), _)| name == of);
                for (which, ..) in kept.flat_map(|(_, all)| all).flatten() {
                    usage.bytes += content(*which).len() as u64;
                }
                usage
            });
            assert_eq!(intake.quota_usage(&namespace(of)), expected, "{of}");
        }
    }

    /// Pages through all states of names and compares them with the model.
    pub(super) async fn browse_states(
        &self,
        intake: &Intake,
        prefix: &str,
        limit: usize,
        delimiter: &str,
    ) {
        let (mut found, mut shared) = (Vec::new(), Vec::new());
        let (mut after, mut before) = (None, None);
        loop {
            let browse = Browse {
                namespace: namespace("n"),
                prefix: prefix.to_owned(),
                delimiter: delimiter.to_owned(),
                after,
            };
            let page = intake.browse_states(browse, before, limit).await.unwrap();
            assert!(page.states.len() + page.prefixes.len() <= limit);
            shared.extend(page.prefixes);
            for state in page.states {
                let file = &state.version.file;
                let digest = (!state.version.is_deletion).then_some(file.digest);
                found.push((file.name.to_string(), digest, state.is_latest));
            }
            let Some(next) = page.next else { break };
            (after, before) = (Some(next.name), next.id);
        }
        let (mut expected, mut prefixes) = (Vec::new(), BTreeSet::new());
        let names: BTreeSet<_> = self.files.keys().chain(self.history.keys()).collect();
        for key in names {
            let (of, name) = key;
            if of != "n" || !name.starts_with(prefix) {
                continue;
            }
            let current = self.files.get(key).copied();
            let older: Vec<_> = self.history.get(key).into_iter().flatten().rev().collect();
            if current.is_none() && older.is_empty() {
                continue;
            }
            let rest = &name[prefix.len()..];
            if let Some(at) = rest.find('/').filter(|_| !delimiter.is_empty()) {
                prefixes.insert(name[..=prefix.len() + at].to_owned());
                continue;
            }
            expected.extend(current.map(|which| (name.clone(), Some(digest(which)), true)));
            expected.extend(older.into_iter().enumerate().map(|(at, state)| {
                let is_latest = current.is_none() && at == 0 && state.is_none();
                let digest = state.as_ref().map(|(which, ..)| digest(*which));
                (name.clone(), digest, is_latest)
            }));
        }
        assert_eq!((found, shared), (expected, prefixes.into_iter().collect()));
    }

    pub(super) async fn check_history(&self, intake: &Intake, name: usize) {
        let expected = self.history.get(&of(name)).cloned().unwrap_or_default();
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = intake.versions(&name_key(name), before, 2).await.unwrap();
            assert_eq!(page.current.is_some(), self.files.contains_key(&of(name)));
            before = page.versions.last().map(|version| version.file.id);
            found.extend(page.versions);
            if !page.more {
                break;
            }
        }
        found.reverse();
        assert_eq!(found.len(), expected.len());
        for (version, expected) in found.iter().zip(&expected) {
            assert_eq!(version.is_deletion, expected.is_none());
            let stored = intake.find_version(&name_key(name), version.file.id).await.unwrap();
            assert_eq!(stored.is_some(), expected.is_some());
            if let (Some(stored), Some((which, tag, _))) = (stored, expected) {
                let size = stored.record.size;
                assert!(requests::range(intake, &stored, 0, size).unwrap() == content(*which));
                let found = stored.record.attributes.get(AttributeKind::Tag, "t");
                assert_eq!(found, tag.as_deref());
            }
        }
    }

    pub(super) async fn restore(&mut self, intake: &Intake, name: usize, version: usize) {
        let all = intake.versions(&name_key(name), None, 100).await.unwrap().versions;
        let (Some(found), Some(history)) = (all.get(version), self.history.get(&of(name))) else {
            return;
        };
        let expected = history[history.len() - 1 - version].clone();
        let done =
            intake.restore_version(&name_key(name), found.file.id, Condition::None, None).await;
        let Some((which, tag, _)) = expected else {
            assert!(matches!(done, Err(IntakeError::NotFound { .. })), "{done:?}");
            return;
        };
        done.unwrap();
        let now = self.files.get(&of(name)).map(|before| content(*before));
        let same = now == Some(content(which)) && self.tags.get(&of(name)) == tag.as_ref();
        if now.is_some() && !same {
            self.replaced(name, false);
        }
        if !same {
            self.set(name, Some((which, tag, self.steps)));
        }
    }
}
