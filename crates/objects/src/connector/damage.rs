//! Compares a ledger with the files that exist, before a load removes any.
//!
//! A load removes the files that the ledger does not list: a killed run left them. A ledger that is
//! lost or damaged would turn committed files into such. Every load writes the ledger before its
//! first file, also the very first, so these are damage and never the trace of a killed run:
//! * files of ours without a ledger,
//! * a listed file that does not exist or has another size.
//!
//! While files are being replaced (`is_switching`), those of `next` are the valid ones, and each is
//! in one of two rooms. A load with `replace` needs none of the earlier files: if one of them is
//! damaged, it only leaves the others alone until it has replaced them.

use std::collections::HashSet;

use forebay_sdk::connector::{Load, Result};
use forebay_sdk::error::ConnectorError;

use super::ledger::{self, PartFile, directory_name};
use super::store::{Room, Store};
use super::target::Shared;

/// Whether files that are shown, but not listed, may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unlisted {
    Remove,
    /// The ledger lists a file that is damaged: one that it does not list may be its real one.
    Keep,
}

/// What to do about a damaged ledger or file.
pub(super) fn way_out(into: &str) -> String {
    let own = directory_name(into).unwrap_or_else(|_| into.to_owned());
    format!(
        "nothing was removed. Restore the files of {own:?} and of `_forebay/{own}` from the same \
         backup, or move both elsewhere to copy everything again"
    )
}

/// Fails if files of ours exist, although their ledger does not.
pub(super) async fn refuse_orphans(store: &dyn Store, into: &str) -> Result<()> {
    for room in [Room::Shown, Room::Next, Room::Dead] {
        let files = store.list(room).await?;
        // Other programs may put their files where readers look.
        let ours = |name: &str| room != Room::Shown || ledger::is_ours(name);
        if let Some(file) = files.iter().find(|file| ours(&file.name)) {
            return Err(ConnectorError::data(
                store.display(room, &file.name),
                format!("it exists, but the ledger that lists it does not; {}", way_out(into)),
            ));
        }
    }
    Ok(())
}

/// A listed file that does not exist, or has another size.
pub(super) fn absent(store: &dyn Store, room: Room, file: &PartFile, into: &str) -> ConnectorError {
    let found = format!(
        "the ledger lists it with {} bytes, but no such file exists; {}",
        file.bytes,
        way_out(into)
    );
    ConnectorError::data(store.display(room, &file.name), found)
}

impl Shared {
    /// Fails if the ledger is missing beside files of ours, or lists files that this load needs and
    /// that are damaged. Changes nothing.
    pub(super) async fn check_damage(&self, load: &Load) -> Result<Unlisted> {
        let (store, into) = (&*self.store, &*self.settings.into);
        let (ledger, version) = self.read_ledger().await?;
        if version.is_none() {
            refuse_orphans(store, into).await?;
            return Ok(Unlisted::Remove);
        }
        let shown = self.sizes(Room::Shown).await?;
        let is_there = |sizes: &HashSet<(String, u64)>, file: &PartFile| {
            sizes.contains(&(file.name.clone(), file.bytes))
        };
        // Another load discards what this one prepared.
        if let Some(next) = ledger.next.as_ref().filter(|_| ledger.has(load) || ledger.is_switching)
        {
            let waiting = self.sizes(Room::Next).await?;
            let is_whole = |file: &&PartFile| {
                is_there(&waiting, file) || ledger.is_switching && is_there(&shown, file)
            };
            if let Some(file) = next.files.iter().find(|file| !is_whole(file)) {
                return Err(absent(store, Room::Next, file, into));
            }
        }
        if ledger.is_switching {
            return Ok(Unlisted::Remove);
        }
        match ledger.files.iter().find(|file| !is_there(&shown, file)) {
            None => Ok(Unlisted::Remove),
            Some(_) if self.is_replace => Ok(Unlisted::Keep),
            Some(file) => Err(absent(store, Room::Shown, file, into)),
        }
    }

    /// Names and sizes of the files of a room.
    async fn sizes(&self, room: Room) -> Result<HashSet<(String, u64)>> {
        let files = self.store.list(room).await?;
        Ok(files.into_iter().map(|file| (file.name, file.size)).collect())
    }
}
