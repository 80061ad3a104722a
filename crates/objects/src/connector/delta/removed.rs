//! Lists of data files that a table loses, and their removal once no reader of an earlier version needs them.
//!
//! ```text
//! PATH/_forebay/STREAM/removed/<id>-<ms since 1970>-<random>.json   {"version": 1, "removed": [..], "added": ".."}
//! ```
//!
//! A list is durable before the commit that it belongs to, and before the file that this adds: a kill leaves no file that
//! nothing names.
//!
//! Invariants: a file that the table has, or that a younger list names, stays; and none is removed before its list is as
//! old as `keep_removed`. A run removes files only after a commit of its own, so no earlier run can commit any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_sdk::bridge::blocking;
use forebay_sdk::connector::{Load, Result};
use forebay_sdk::error::ConnectorError;
use parquet::file::reader::ChunkReader as _;
use serde::{Deserialize, Serialize};

use super::super::location::Listed;
use super::super::store::Room;
use super::ledger;
use super::target::Shared;
use super::writer::now_ms;

/// The version of this format.
const VERSION: u32 = 1;
/// Maximum size of a list in bytes.
const LIST_SIZE_MAX: u64 = 64 << 20;

/// What is done besides writing rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Upkeep {
    /// Number of files of one class that are merged; zero: none are.
    pub(super) merge_files: u32,
    /// How long removed files stay; `None`: for ever.
    pub(super) keep_removed: Option<Duration>,
}

/// The files that one commit concerns.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    version: u32,
    /// What it takes out of the table.
    removed: Vec<String>,
    /// What it puts there: of no use if the commit was never made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<String>,
}

impl Shared {
    /// Does what is due after a load has ended. What fails leaves the table as it is, and is due again after the next one.
    pub(super) async fn keep_up(self: &Arc<Self>, load: &Load) {
        if !self.is_replace && self.upkeep.merge_files > 0 {
            match self.merge(load).await {
                Ok(0) | Err(ConnectorError::Stopped) => {}
                Ok(files) => tracing::info!(table = self.display(), files, "merged small files"),
                Err(error) => {
                    let (table, error) = (self.display(), chain(&error));
                    tracing::warn!(table, %error, "small files were not merged");
                }
            }
        }
        if let Some(kept) = self.upkeep.keep_removed
            && let Err(error) = self.remove_expired(load, kept).await
        {
            let (table, error) = (self.display(), chain(&error));
            tracing::warn!(table, %error, "removed files stay until the next run");
        }
    }

    /// Writes the list of a commit, if files are to be removed at all. It is durable on return.
    pub(super) async fn note_removed(&self, removed: &[String], added: Option<&str>) -> Result<()> {
        if self.upkeep.keep_removed.is_none() || removed.is_empty() {
            return Ok(());
        }
        let (removed, added) = (removed.to_vec(), added.map(str::to_owned));
        let list = List { version: VERSION, removed, added };
        let mut list = serde_json::to_vec(&list).map_err(|error| ConnectorError::Refused {
            act: "encode a list of files".into(),
            source: error.into(),
        })?;
        let name = ledger::list_name(&self.settings, now_ms());
        let mut file = self.store.stage(Room::Removed, &name).await?;
        file.write(&mut list).await?;
        file.publish().await.map(drop)
    }

    /// Removes the files of lists that are old enough, and those lists.
    async fn remove_expired(self: &Arc<Self>, load: &Load, kept: Duration) -> Result<()> {
        let until = now_ms().saturating_sub(i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        let lists = self.store.list(Room::Removed).await?.into_iter();
        let lists =
            lists.filter_map(|list| Some((ledger::list_time(&self.settings, &list.name)?, list)));
        let (due, young): (Vec<_>, Vec<_>) = lists.partition(|(at_ms, _)| *at_ms <= until);
        // All younger lists are read, so several lists are dealt with together.
        let late = until.saturating_sub(i64::try_from(kept.as_millis() / 10).unwrap_or(i64::MAX));
        if due.iter().all(|(at_ms, _)| *at_ms > late) {
            return Ok(());
        }
        let Some(mut needed) = self.needed(load).await? else { return Ok(()) };
        for (_, list) in young {
            let list = self.read_list(list).await?;
            needed.extend(list.removed.into_iter().chain(list.added));
        }
        for (_, listed) in due {
            let name = listed.name.clone();
            let list = self.read_list(listed).await?;
            let mut names: Vec<String> = list.removed.into_iter().chain(list.added).collect();
            // Of what else a list may name, nothing is this stream's.
            names.retain(|name| {
                ledger::is_data_file(&self.settings, name) && !needed.contains(name)
            });
            let files = names.len();
            self.store.remove(Room::Shown, names).await?;
            self.store.remove(Room::Removed, vec![name]).await?;
            tracing::info!(table = self.display(), files, "removed files of earlier versions");
        }
        Ok(())
    }

    /// The files that the table has now; `None` if a commit of this run may still arrive, and need others.
    async fn needed(self: &Arc<Self>, load: &Load) -> Result<Option<HashSet<String>>> {
        self.with_prepared(load, |_, prepared| {
            if prepared.known.is_doubtful {
                return Ok(None);
            }
            let there = prepared.table.files(&prepared.table.present()?)?;
            Ok(Some(there.into_iter().map(|file| file.path).collect()))
        })
        .await
    }

    async fn read_list(&self, listed: Listed) -> Result<List> {
        let place = self.store.place(Room::Removed);
        let display = self.store.display(Room::Removed, &listed.name);
        blocking(move || {
            let odd = |found: String| ConnectorError::data(display.clone(), found);
            if listed.size > LIST_SIZE_MAX {
                return Err(odd(format!(
                    "it is larger than {LIST_SIZE_MAX} bytes: not a list of files"
                )));
            }
            let size = usize::try_from(listed.size).unwrap_or(usize::MAX);
            let bytes = place.open(&listed)?.get_bytes(0, size);
            let bytes = bytes.map_err(|error| odd(error.to_string()))?;
            let list: List = serde_json::from_slice(&bytes)
                .map_err(|error| odd(format!("it is not a list of files: {error}")))?;
            match list.version {
                VERSION => Ok(list),
                version => Err(odd(format!(
                    "it has version {version}; this Forebay supports version {VERSION}"
                ))),
            }
        })
        .await
    }
}
