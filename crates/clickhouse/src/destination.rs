//! ClickHouse as a destination.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::run::Context;
use forebay_sdk::settings::TargetSettings;
use parking_lot::Mutex;

use crate::catalog;
use crate::claim::{Held, claim};
use crate::client::Server;
use crate::commit::has;
use crate::ledger::{Head, Ledger, Recorded, digits_of};
use crate::settings::Settings;
use crate::swap::named;
use crate::target::TableTarget;

/// A ClickHouse as a destination.
#[derive(Debug)]
pub struct ClickHouse {
    settings: Settings,
    server: OnceLock<Server>,
    /// The held claims by table. A commit checks that its claim is still held.
    claims: Mutex<HashMap<String, Weak<Held>>>,
}

impl ClickHouse {
    /// Creates a destination with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, server: OnceLock::new(), claims: Mutex::default() }
    }

    fn server(&self) -> Result<&Server> {
        if let Some(server) = self.server.get() {
            return Ok(server);
        }
        let server = Server::new(&self.settings)?;
        Ok(self.server.get_or_init(|| server))
    }

    fn held(&self, target: &TargetSettings) -> Option<Arc<Held>> {
        self.claims.lock().get(&key(target)).and_then(Weak::upgrade)
    }

    fn ledger(&self, target: &TargetSettings) -> Result<Ledger> {
        Ok(Ledger::new(self.server()?, target, self.held(target)))
    }

    /// The entries of the units of a load that are committed, by the ledger or by the rows that are there.
    async fn committed(&self, head: &Head, units: Vec<Recorded>) -> Result<Vec<LedgerEntry>> {
        let (begun, committed): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|unit| !unit.is_committed);
        let mut entries: Vec<LedgerEntry> = committed.into_iter().map(|unit| unit.entry).collect();
        if begun.is_empty() {
            return Ok(entries);
        }
        let server = self.server()?;
        let table = match &head.next {
            None => Some(head.into.clone()),
            Some(uuid) => named(server, uuid).await?,
        };
        let Some(table) = table else { return Ok(entries) };
        for Recorded { entry, .. } in begun {
            if has(server, &table, &entry.load, &entry.unit).await? {
                entries.push(entry);
            }
        }
        entries.sort_unstable_by(|one, other| one.unit.cmp(&other.unit));
        Ok(entries)
    }
}

/// What identifies a table of the database.
fn key(target: &TargetSettings) -> String {
    digits_of(&[&target.into])
}

#[async_trait]
impl Destination for ClickHouse {
    async fn check(&self) -> Result<String> {
        catalog::check(self.server()?).await
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let ledger = self.ledger(target)?;
        let Some(head) = ledger.head().await? else { return Ok(None) };
        let Some(load) = head.load.clone() else { return Ok(None) };
        let units = ledger.units(&load.id).await?;
        let entries = self.committed(&head, units).await?;
        Ok(Some((load, entries)))
    }

    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        let ledger = self.ledger(target)?;
        let Some(head) = ledger.head().await?.filter(|head| head.load.is_some()) else {
            return Ok(0);
        };
        // The tables of an unfinished load are dropped by the next one.
        ledger.put_head(&head.forgotten()).await?;
        Ok(1)
    }

    async fn place(&self, target: &TargetSettings) -> Result<Option<String>> {
        Ok(Some(self.server()?.place(&target.into)))
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let server = self.server()?;
        catalog::check(server).await?;
        let key = key(target);
        let claimed = claim(server, &key, &target.into).await?;
        self.claims.lock().insert(key, Arc::downgrade(claimed.held()));
        Ok(Box::new(claimed))
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        let server = self.server()?.clone();
        let held = self.held(target);
        let opened = TableTarget::open(server, target, key(target), columns, held, context).await?;
        Ok(Arc::new(opened))
    }
}
