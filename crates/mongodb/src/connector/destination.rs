//! MongoDB as a destination: streams are written to its collections.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::changes::feed::FeedTarget;
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::run::Context;
use forebay_sdk::settings::TargetSettings;
use parking_lot::Mutex;

use super::claim::{Held, claim};
use super::connect::Server;
use super::ledger::Ledger;
use super::names;
use super::source::answer;
use super::target::{self, MongoTarget};
use crate::settings::Settings;

/// A MongoDB as a destination.
#[derive(Debug)]
pub struct MongoDestination {
    server: Server,
    /// The held claims by collection. A commit checks that its claim is still held.
    claims: Mutex<HashMap<String, Weak<Held>>>,
}

impl MongoDestination {
    /// Creates a destination with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self { server: Server::new(settings), claims: Mutex::default() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The claims that are held now.
    pub(super) fn held(&self) -> Vec<Arc<Held>> {
        self.claims.lock().values().filter_map(Weak::upgrade).collect()
    }
}

#[async_trait]
impl Destination for MongoDestination {
    async fn check(&self) -> Result<String> {
        answer(&self.server).await
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        Some(self)
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let ledger = Ledger::new(&self.server, target);
        let Some(known) = ledger.load().await? else { return Ok(None) };
        let entries = ledger.entries().await?.into_iter();
        let of_load = entries.filter(|entry| entry.load_id == known.load.id);
        let mut entries: Vec<LedgerEntry> = of_load.filter_map(|entry| entry.entry).collect();
        entries.sort_unstable_by(|one, other| one.unit.cmp(&other.unit));
        Ok(Some((known.load, entries)))
    }

    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        let ledger = Ledger::new(&self.server, target);
        let known = ledger.load().await?;
        target::clear(&self.server, &ledger, target, known.as_ref()).await?;
        ledger.drop_load().await?;
        Ok(u64::from(known.is_some()))
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let key = names::collection(&target.into)?;
        let claimed = claim(&self.server, &key).await?;
        self.claims.lock().insert(key, Arc::downgrade(claimed.held()));
        Ok(Box::new(claimed))
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        self.server.reach(&context.phases).await?;
        let key = names::collection(&target.into)?;
        let held = self.claims.lock().get(&key).and_then(Weak::upgrade);
        let (server, columns) = (self.server.clone(), columns.to_vec());
        Ok(Arc::new(MongoTarget::open(server, target, columns, held, context).await?))
    }
}
