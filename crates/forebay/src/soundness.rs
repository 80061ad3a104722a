//! Reads what is stored beside the intake: events, cache, inventories, webhooks, jobs and keys.
//!
//! Invariant: nothing is changed, and what is damaged stops no other part of the check.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::keys::{KeyFile, MasterKey};
use forebay_api::webhooks::MasterSecrets;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::store::{Kept, OpenError as EventsError, Store as Events, verify_kept};
use forebay_inventory::index::Index;
use forebay_webhooks::Secrets as _;
use serde::Serialize;

use crate::layout;

/// What was read; `None` for what a data directory does not have.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Others {
    /// Events.
    pub(crate) events: Option<u64>,
    /// Operations in the log of the cache.
    pub(crate) cache_operations: Option<u64>,
    /// Indexes of inventories.
    pub(crate) inventories: Option<u64>,
    /// Webhooks.
    pub(crate) webhooks: Option<u64>,
    /// Jobs.
    pub(crate) jobs: Option<u64>,
    /// What is damaged.
    #[serde(skip)]
    pub(crate) damages: Vec<Damage>,
}

/// Something that differs from what was stored.
#[derive(Debug)]
pub(crate) struct Damage {
    /// `events`, `cache`, `inventory`, `webhooks`, `jobs` or `keys`.
    pub(crate) kind: &'static str,
    /// The fault.
    pub(crate) message: String,
    /// The file or directory it is in.
    pub(crate) path: PathBuf,
}

impl Others {
    fn add(&mut self, kind: &'static str, path: &Path, message: String) {
        self.damages.push(Damage { kind, message, path: path.to_owned() });
    }

    fn events(&mut self, fs: &Arc<dyn FileSystem>, dir: &Path) -> anyhow::Result<()> {
        let verified = Events::exists(&**fs, dir).and_then(|exists| {
            exists.then(|| verify_kept(fs, dir, &Kept::default(), &|_| {})).transpose()
        });
        let verified = match verified {
            Ok(Some(verified)) => verified,
            Ok(None) => return Ok(()),
            Err(EventsError::Manifest { path, reason }) => {
                self.add("events", &path, reason.to_owned());
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot verify the events"),
        };
        self.events = Some(verified.events);
        verified.faults.iter().for_each(|fault| self.add("events", dir, fault.to_string()));
        Ok(())
    }

    fn witness(&mut self, fs: &Arc<dyn FileSystem>, dir: &Path) -> anyhow::Result<()> {
        if dir.exists() {
            let damages = forebay_events::witness::check(&**fs, dir);
            let damages = damages.context("cannot check the witness")?;
            damages.into_iter().for_each(|(path, text)| self.add("witness", &path, text));
        }
        Ok(())
    }

    fn cache(&mut self, dir: &Path) -> anyhow::Result<()> {
        if !dir.exists() {
            return Ok(());
        }
        let checked = forebay_cache::check(&RealFs, dir, &mut |damage| {
            self.add("cache", dir, damage.to_string());
        });
        self.cache_operations = Some(checked.context("cannot check the cache")?.operations);
        Ok(())
    }

    fn inventories(
        &mut self,
        dir: &Path,
        go_on: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if !dir.exists() {
            return Ok(());
        }
        let failed = || format!("cannot list {}", dir.display());
        let mut count = 0;
        for entry in std::fs::read_dir(dir).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            go_on()?;
            if !path.join("index.json").exists() {
                continue;
            }
            count += 1;
            if let Err(error) = Index::open(&path).and_then(|index| index.verify()) {
                self.add("inventory", &path, chain(&error).to_string());
            }
        }
        self.inventories = Some(count);
        Ok(())
    }

    /// * `data`: has the master key from which the secrets of webhooks are derived.
    fn webhooks(&mut self, data: &Path) {
        let dir = layout::webhooks(data);
        let found = match forebay_webhooks::check(&dir) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return self.add("webhooks", &dir, chain(&error).to_string()),
        };
        self.webhooks = Some(found.hooks);
        let path = MasterKey::path(data);
        if found.fingerprint.is_some() && !path.exists() {
            self.add(
                "keys",
                &path,
                "the master key is missing; restore it from a backup".to_owned(),
            );
        } else if let Some(known) = found.fingerprint
            && let Ok(key) = MasterKey::open(data)
            && MasterSecrets::new(key).fingerprint() != known
        {
            let text = "this is not the master key that the webhooks' secrets are derived from; \
                        restore it from a backup";
            self.add("keys", &path, text.to_owned());
        }
    }

    fn jobs(&mut self, fs: &Arc<dyn FileSystem>, dir: &Path) -> anyhow::Result<()> {
        let checked = forebay_jobs::check(fs, dir, &mut |damage| self.add("jobs", dir, damage));
        let checked = checked.context("cannot check the job queue")?;
        self.jobs = checked.map(|checked| checked.jobs);
        Ok(())
    }

    fn keys(&mut self, data: &Path) {
        let file = KeyFile::in_data_dir(data);
        if let Err(error) = file.read() {
            self.add("keys", file.path(), chain(&error).to_string());
        }
        let path = MasterKey::path(data);
        // Opening it would create one that is missing.
        if path.exists()
            && let Err(error) = MasterKey::open(data)
        {
            self.add("keys", &path, chain(&error).to_string());
        }
    }
}

/// Reads everything in the data directory `data` but the intake.
///
/// * `go_on`: called between the parts; its error ends the check.
///
/// # Errors
/// Something is in use, or cannot be read.
pub(crate) fn check_others(
    data: &Path,
    go_on: &dyn Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Others> {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let mut others = Others::default();
    others.keys(data);
    others.jobs(&fs, &layout::jobs(data))?;
    others.webhooks(data);
    go_on()?;
    others.events(&fs, &layout::events(data))?;
    others.witness(&fs, &layout::witness(data))?;
    go_on()?;
    others.cache(&layout::cache(data))?;
    others.inventories(&layout::inventories(data), go_on)?;
    Ok(others)
}
