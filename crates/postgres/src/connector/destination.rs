//! Writing to PostgreSQL: the target of a stream, and the claim on it.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use forebay_base::error_chain::chain;
use forebay_pgcopy::Column;
use forebay_sdk::changes::feed::FeedTarget;
use forebay_sdk::connector::{Claim, Destination, Form, LedgerEntry, Load, Result, Target};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use futures_util::future::join;

use super::catalog::table;
use super::connect::{Pool, Server, refused};
use super::feed::Feeds;
use super::kept::Kept;
use super::known::known;
use super::ledger::{self, Ledger};
use super::money;
use super::place;
use super::settings::Settings;
use super::sql::TableName;
use super::target::PostgresTarget;

/// A PostgreSQL as a destination.
#[derive(Debug)]
pub struct PostgresDestination {
    settings: Settings,
    pool: OnceLock<Arc<Pool>>,
    ledger: Ledger,
    pub(super) feeds: Feeds,
}

impl PostgresDestination {
    /// Creates a destination with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let ledger = Ledger::new(&settings.ledger_schema.0);
        Self {
            feeds: Feeds::new(&settings.ledger_schema.0),
            settings,
            pool: OnceLock::new(),
            ledger,
        }
    }

    /// The connections that all parts share.
    pub(super) fn pool(&self) -> Result<Arc<Pool>> {
        if let Some(pool) = self.pool.get() {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Pool::new(Server::new(&self.settings)?));
        Ok(Arc::clone(self.pool.get_or_init(|| pool)))
    }

    pub(super) fn table_name(&self, target: &TargetSettings) -> Result<TableName> {
        TableName::parse(&target.into, &self.settings.schema.0).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("{:?} is not a valid table name", target.into),
                "set `into` to `table` or `schema.table`, with parts that contain dots in double \
                 quotes",
            )
        })
    }

    /// Looks up a table and discards the result: the first catalogue lookup of a connection takes
    /// ten times as long as any other.
    async fn look_ahead(&self, target: &TargetSettings) -> Result<()> {
        let (pool, name) = (self.pool()?, self.table_name(target)?);
        let client = pool.client(None).await?;
        table(&client, &name).await?;
        pool.give_back(client);
        Ok(())
    }
}

#[async_trait]
impl Destination for PostgresDestination {
    async fn check(&self) -> Result<String> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let asked = client
            .query_one(
                "select version(), has_database_privilege(current_database(), 'create'), \
                 pg_is_in_recovery()",
                &[],
            )
            .await;
        let row = asked.map_err(|error| refused("read the version", error))?;
        let (version, may_create, is_replica): (String, bool, bool) =
            (row.get(0), row.get(1), row.get(2));
        let has_ledger = self.ledger.exists(&client).await?;
        if is_replica {
            return Err(ConnectorError::unsupported(
                format!("{} is a replica, which is read-only", server.name()),
                "specify its primary",
            ));
        }
        if !may_create && !has_ledger {
            return Err(ConnectorError::unsupported(
                format!(
                    "the user may not create schemas in {}, and there is no ledger yet",
                    server.name()
                ),
                "grant CREATE on the database, or set `ledger_schema` to a schema with CREATE \
                 permission",
            ));
        }
        let version = version.split(" on ").next().unwrap_or_default();
        Ok(format!("{version}: {}", server.name()))
    }

    fn form(&self) -> Form {
        Form::Tuples
    }

    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        let pool = self.pool()?;
        let client = pool.client(None).await?;
        let last = match self.ledger.last(&client, target).await? {
            // It starts from the beginning.
            Some((load, _)) if self.ledger.is_lost(&client, target, &load).await? => {
                Some((load, Vec::new()))
            }
            last => last,
        };
        pool.give_back(client);
        Ok(last)
    }

    async fn place(&self, target: &TargetSettings) -> Result<Option<String>> {
        let (pool, name) = (self.pool()?, self.table_name(target)?);
        let client = pool.client(None).await?;
        let place = place::of(&client, &name).await?;
        pool.give_back(client);
        Ok(place)
    }

    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        let pool = self.pool()?;
        let client = pool.client(None).await?;
        let forgotten = self.ledger.forget_all(&client, target).await?;
        pool.give_back(client);
        Ok(forgotten)
    }

    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>> {
        let pool = self.pool()?;
        let claim = async { ledger::claim(pool.server.connect(None).await?, target).await };
        // Later queries use another connection: this one only holds the lock.
        let (claimed, ()) = join(claim, pool.fill(1, None)).await;
        Ok(Box::new(claimed?))
    }

    fn feeds(&self) -> Option<&dyn FeedTarget> {
        Some(self)
    }

    async fn warm(&self, target: &TargetSettings) {
        if let Err(error) = self.look_ahead(target).await {
            tracing::debug!(error = %chain(&error), "could not look up a table in advance");
        }
    }

    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>> {
        let (pool, name) = (self.pool()?, self.table_name(target)?);
        let client = pool.client(Some(&context.phases)).await?;
        let found = table(&client, &name).await?;
        let columns = known(&client, found.as_ref(), columns).await?;
        money::check(&client, &name, &columns.columns).await?;
        let kept = match &found {
            Some(_) if target.write_mode == WriteMode::Replace => Kept::of(&client, &name).await?,
            _ => Kept::default(),
        };
        pool.give_back(client);
        let ledger = self.ledger.clone();
        let target =
            PostgresTarget::new(pool, ledger, target, name, (found, kept), columns, context)?;
        Ok(Arc::new(target))
    }
}
