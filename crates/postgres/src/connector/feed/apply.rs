//! A unit becomes one transaction: the rows of all its tables, and the position.
//!
//! Foreign keys are not checked and triggers do not fire while changes are applied, as with the server's own
//! subscriptions, if the role may say so: the rows were checked at the source, and arrive table by table.
//! Otherwise constraints are deferred to the end of the transaction.

use async_trait::async_trait;
use forebay_sdk::changes::feed::{
    Applied, ChangeUnit, Changes, Feed, FeedStream, FeedWriter, Redefinition, StreamChanges,
};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::refused;
use super::super::ledger::share_lock;
use super::super::sql::TableName;
use super::alter::Altering;
use super::append::Log;
use super::bag::Bag;
use super::record::Feeds;
use super::staging::Table;

/// Whether the role may apply as a subscription does.
const MAY_REPLICATE: &str = "
select coalesce((select rolsuper from pg_roles where rolname = current_user), false)
  or (current_setting('server_version_num')::int4 >= 150000
      and (select has_parameter_privilege('session_replication_role', 'set')))";

/// The same before there was that privilege.
const IS_SUPERUSER: &str = "select rolsuper from pg_roles where rolname = current_user";

/// Where the changes of a stream are written.
enum Place {
    Rows(Table),
    Bag(Bag),
    Log(Log),
}

impl Place {
    async fn open(
        client: &Client,
        at: usize,
        name: &TableName,
        stream: &FeedStream,
        form: FeedForm,
    ) -> Result<Self> {
        let keeps_deleted = form == FeedForm::Mark;
        Ok(match form {
            FeedForm::Log => Self::Log(Log::open(client, name, stream).await?),
            FeedForm::Apply | FeedForm::Mark if !stream.has_key() => {
                Self::Bag(Bag::open(client, at, name, stream).await?)
            }
            FeedForm::Apply | FeedForm::Mark => {
                Self::Rows(Table::open(client, at, name, stream, keeps_deleted).await?)
            }
        })
    }

    fn name(&self) -> &TableName {
        match self {
            Self::Rows(table) => table.name(),
            Self::Bag(bag) => bag.name(),
            Self::Log(log) => log.name(),
        }
    }

    async fn close(&self, client: &Client) -> Result<()> {
        match self {
            Self::Rows(table) => table.close(client).await,
            Self::Bag(bag) => bag.close(client).await,
            Self::Log(_) => Ok(()),
        }
    }
}

/// Applies the changes of a feed.
pub(super) struct Applier {
    client: Client,
    feeds: Feeds,
    pipeline: String,
    feed: Feed,
    tables: Vec<Place>,
    settings: Vec<TargetSettings>,
    begin: String,
    /// Whether a transaction has begun, with a part of a large one.
    is_begun: bool,
    /// Whether it has changed columns.
    is_redefined: bool,
}

impl Applier {
    pub(super) async fn open(
        client: Client,
        feeds: Feeds,
        pipeline: &str,
        feed: &Feed,
        tables: &[(TableName, &FeedStream)],
        settings: &[TargetSettings],
    ) -> Result<Self> {
        let act = |error| refused("prepare to apply changes", error);
        let query = "select current_setting('server_version_num')::int4 >= 150000";
        let is_15: bool = client.query_one(query, &[]).await.map_err(act)?.get(0);
        let query = if is_15 { MAY_REPLICATE } else { IS_SUPERUSER };
        let may_replicate: bool = client.query_one(query, &[]).await.map_err(act)?.get(0);
        let mut begin = "begin; ".to_owned();
        begin.push_str(if may_replicate {
            "set local session_replication_role = replica"
        } else {
            "set constraints all deferred"
        });
        // The next run waits for the transaction of one that was killed, before it reads the position.
        for target in settings {
            begin.push_str("; ");
            begin.push_str(&share_lock(target));
        }
        let mut opened = Vec::with_capacity(tables.len());
        for (at, (name, stream)) in tables.iter().enumerate() {
            opened.push(Place::open(&client, at, name, stream, feed.form).await?);
        }
        Ok(Self {
            client,
            feeds,
            pipeline: pipeline.to_owned(),
            feed: feed.clone(),
            tables: opened,
            settings: settings.to_vec(),
            begin,
            is_begun: false,
            is_redefined: false,
        })
    }

    /// Records a position in the transaction of the connection, and commits it.
    async fn commit(&mut self, position: &str) -> Result<()> {
        let act = |error| refused("record the position", error);
        let before = self.feed.position.clone().unwrap_or_default();
        let feed = if self.is_redefined { Some(self.feed.encoded()?) } else { None };
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.pipeline, Type::TEXT),
            (&before, Type::TEXT),
            (&position, Type::TEXT),
            (&feed, Type::TEXT),
        ];
        let rows =
            self.client.query_typed(&self.feeds.advance(), &values).await.map_err(act)?.len();
        if rows != 1 {
            return Err(Feed::replaced());
        }
        let committed = self.client.batch_execute("commit").await;
        committed.map_err(|error| refused("commit changes", error))?;
        self.feed.position = Some(position.to_owned());
        self.is_redefined = false;
        Ok(())
    }

    /// Empties the tables that were emptied at the source, or marks their rows as deleted.
    async fn truncate(&self, streams: &[StreamChanges]) -> Result<()> {
        let mut emptied = Vec::new();
        for of in streams {
            match (&of.changes, self.tables.get(of.stream)) {
                (Changes::Net(net), Some(Place::Rows(table))) => match net.truncated_us() {
                    Some(at_us) if table.keeps_deleted() => {
                        table.mark_all(&self.client, at_us).await?;
                    }
                    Some(_) => emptied.push(table.sql()),
                    None => {}
                },
                (Changes::Bag(changes), Some(Place::Bag(bag))) if changes.is_truncated() => {
                    emptied.push(bag.name().sql());
                }
                _ => {}
            }
        }
        if emptied.is_empty() {
            return Ok(());
        }
        // At once, since they may refer to each other.
        let truncate = format!("truncate {}", emptied.join(", "));
        let done = self.client.batch_execute(&truncate).await;
        done.map_err(|error| refused("empty tables", error))
    }

    /// Gives a table other columns, in the transaction of the connection.
    async fn redefine(&mut self, at: usize, redefinition: Redefinition) -> Result<()> {
        let (Some(table), Some(settings), Some(stream)) =
            (self.tables.get_mut(at), self.settings.get(at), self.feed.streams.get_mut(at))
        else {
            return Err(unknown());
        };
        let name = table.name().clone();
        for step in &redefinition.steps {
            let there = super::super::catalog::table(&self.client, &name).await?;
            let columns = there.map(|table| table.columns).unwrap_or_default();
            let altering =
                Altering { name: &name, there: &columns, policy: settings.schema_evolution };
            for statement in altering.statements(step)? {
                let done = self.client.batch_execute(&statement).await;
                done.map_err(|error| refused(format!("change the columns of {name}"), error))?;
            }
        }
        stream.columns = redefinition.columns;
        table.close(&self.client).await?;
        *table = Place::open(&self.client, at, &name, stream, self.feed.form).await?;
        self.is_redefined = true;
        Ok(())
    }
}

fn unknown() -> ConnectorError {
    ConnectorError::data("a feed", "a change of a stream that it has not".to_owned())
}

#[async_trait]
impl FeedWriter for Applier {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        let is_continued = self.is_begun;
        if !is_continued {
            let begun = self.client.batch_execute(&self.begin).await;
            begun.map_err(|error| refused("begin to apply changes", error))?;
            self.is_begun = true;
        }
        let mut applied = vec![Applied::default(); self.tables.len()];
        for (at, redefinition) in unit.redefined {
            self.redefine(at, redefinition).await?;
        }
        self.truncate(&unit.streams).await?;
        for of in unit.streams {
            let place = self.tables.get(of.stream).ok_or_else(unknown)?;
            let done = match (place, of.changes) {
                (Place::Rows(table), Changes::Net(net)) => {
                    table.apply(&self.client, net, is_continued).await?
                }
                (Place::Log(log), Changes::Log(changes)) => {
                    log.append(&self.client, &changes).await?
                }
                (Place::Bag(bag), Changes::Bag(changes)) => {
                    bag.apply(&self.client, changes).await?
                }
                (Place::Rows(_) | Place::Bag(_) | Place::Log(_), _) => {
                    let found = "changes in another form than the feed has".to_owned();
                    return Err(ConnectorError::data("a feed", found));
                }
            };
            if let Some(applied) = applied.get_mut(of.stream) {
                *applied = done;
            }
        }
        if let Some(position) = &unit.position {
            self.commit(position).await?;
            self.is_begun = false;
        }
        Ok(applied)
    }

    async fn advance(&mut self, position: &str) -> Result<()> {
        let begun = self.client.batch_execute("begin").await;
        begun.map_err(|error| refused("begin to record a position", error))?;
        self.commit(position).await
    }
}
