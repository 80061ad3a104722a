//! A feed at its source: the publication that says which tables, the slot that keeps their changes, and the
//! snapshot from which they are copied.
//!
//! Invariants:
//! - The publication is there before the slot, since the server decodes each change with the catalog of its time.
//! - Changes are read only if the slot and the recorded position fit: nothing between them is missing.

use std::time::Duration;

use async_trait::async_trait;
use forebay_base::ServerError;
use forebay_sdk::changes::feed::{
    Attached, ChangeSource, CreatedFeed, Feed, FeedHealth, FeedOrigin, FeedStream, HeldSnapshot,
};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::{Server, refused};
use super::super::source::PostgresSource;
use super::super::sql::{TableName, ident};
use super::assemble::Assembler;
use super::identity::{Identity, Recognized, identities};
use super::slot::{in_use, lost, own_name, slot, temporary_name};
use super::stream::Receiving;
use super::tables::{Followed, followed};
use crate::replication::{CreatedSlot, Lsn, Replication, StartOptions};

/// The first version that sends values in their binary form.
const VERSION_MIN: i32 = 140_000;

const SERVER: &str = "
select current_setting('server_version_num')::int4, current_setting('wal_level'), pg_is_in_recovery(),
       current_database()::text";

/// The tables of a publication, with those of which it has only some columns or rows. Before PostgreSQL 15
/// there was neither.
const PUBLISHED: &str = "
select p.schemaname::text, p.tablename::text,
       to_jsonb(p)->'attnames' is not null
         and jsonb_array_length(to_jsonb(p)->'attnames') < (
           select count(*) from pg_attribute a join pg_class c on c.oid = a.attrelid
             join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = p.schemaname and c.relname = p.tablename and a.attnum > 0
             and not a.attisdropped and a.attgenerated = ''),
       to_jsonb(p)->>'rowfilter' is not null
from pg_publication_tables p where p.pubname = $1";

/// Some of the transactions that have written and not ended.
const WRITERS: &str = "
select 'process ' || pid from pg_locks
where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted and pid <> pg_backend_pid()
union select 'the prepared transaction ' || gid from pg_prepared_xacts
order by 1 limit 5";

/// What a publication leaves out.
const OPERATIONS: &str = "
select pubinsert and pubupdate and pubdelete and pubtruncate from pg_publication where pubname = $1";

impl PostgresSource {
    async fn followed(&self, client: &Client, streams: &[StreamSettings]) -> Result<Vec<Followed>> {
        let mut tables = Vec::with_capacity(streams.len());
        for stream in streams {
            tables.push(followed(client, &self.table_name(stream)?).await?);
        }
        Ok(tables)
    }

    /// Refuses names that something else has: it would be dropped with the feed.
    async fn check_free(
        &self,
        client: &Client,
        origin: &FeedOrigin,
        known: Option<&FeedOrigin>,
    ) -> Result<()> {
        let is_known = |name: fn(&FeedOrigin) -> &str| {
            known.is_some_and(|known| known.server == origin.server && name(known) == name(origin))
        };
        if !is_known(|of| &of.slot) && slot(client, &origin.slot).await?.is_some() {
            return Err(ConnectorError::unsupported(
                format!(
                    "the replication slot {:?} exists, and the destination has no feed that uses it",
                    origin.slot
                ),
                "drop it if nothing else uses it, or name another one with `slot`",
            ));
        }
        if self.given_publication().is_some() || is_known(|of| &of.publication) {
            return Ok(());
        }
        let named = [(&origin.publication as &(dyn ToSql + Sync), Type::TEXT)];
        let found = client.query_typed_opt(OPERATIONS, &named).await;
        if found.map_err(|error| refused("look up the publication", error))?.is_none() {
            return Ok(());
        }
        Err(ConnectorError::unsupported(
            format!("a publication {:?} exists, which no feed made", origin.publication),
            "set `publication` to use it, or drop it",
        ))
    }

    /// Adds tables to a publication.
    async fn publish(&self, client: &Client, publication: &str, tables: &[Followed]) -> Result<()> {
        let act = |error| refused("add tables to the publication", error);
        let named = [(&publication as &(dyn ToSql + Sync), Type::TEXT)];
        let there = client.query_typed(PUBLISHED, &named).await.map_err(act)?;
        let is_there = |table: &&Followed| {
            there.iter().any(|row| {
                let (schema, name): (String, String) = (row.get(0), row.get(1));
                schema == table.name.schema && name == table.name.table
            })
        };
        let missing = tables.iter().filter(|table| !is_there(table));
        let missing: Vec<String> = missing.map(|table| table.name.sql()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let add =
            format!("alter publication {} add table {}", ident(publication), missing.join(", "));
        client.batch_execute(&add).await.map_err(act)
    }

    /// The name of the publication if it is not ours.
    fn given_publication(&self) -> Option<&str> {
        self.settings.publication.as_ref().map(|name| name.0.as_str())
    }
}

#[async_trait]
impl ChangeSource for PostgresSource {
    async fn name(
        &self,
        pipeline: &str,
        streams: &[StreamSettings],
        known: Option<&FeedOrigin>,
    ) -> Result<FeedOrigin> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let row = client.query_typed_one(SERVER, &[]).await;
        let row = row.map_err(|error| refused("read the settings of the server", error))?;
        let (version, level, is_standby, database): (i32, String, bool, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let problem = if version < VERSION_MIN {
            Some(("is older than PostgreSQL 14", "use `sync_mode: incremental`"))
        } else if is_standby {
            Some(("is a standby", "specify its primary"))
        } else if level != "logical" {
            Some((
                "keeps no changes: wal_level is not logical",
                "set `wal_level = logical` and restart it",
            ))
        } else {
            None
        };
        if let Some((found, advice)) = problem {
            return Err(ConnectorError::unsupported(format!("{} {found}", server.name()), advice));
        }
        self.followed(&client, streams).await?;
        let (system, ..) = Replication::connect(server.inner()).await?.identify().await?;
        let own = own_name(pipeline);
        let publication = self.given_publication().map_or_else(|| own.clone(), str::to_owned);
        let slot = self.settings.slot.as_ref().map_or(own, |name| name.0.clone());
        let origin = FeedOrigin { server: system, database, slot, publication };
        self.check_free(&client, &origin, known).await?;
        Ok(origin)
    }

    async fn create(&self, origin: &FeedOrigin, streams: &[StreamSettings]) -> Result<CreatedFeed> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let tables = self.followed(&client, streams).await?;
        if self.given_publication().is_none() {
            let names: Vec<String> = tables.iter().map(|table| table.name.sql()).collect();
            let create = format!(
                "create publication {} for table {} with (publish_via_partition_root = true)",
                ident(&origin.publication),
                names.join(", ")
            );
            let created = client.batch_execute(&create).await;
            created.map_err(|error| refused("create the publication", error))?;
        }
        check_published(&client, &origin.publication, &tables).await?;
        let known = identities(&client, &origin.publication, &names(&tables)).await?;
        let mut replication = Replication::connect(server.inner()).await?;
        let within = self.settings.wait_for_late_commits.get();
        let created = create_slot(&client, &mut replication, &origin.slot, false, within).await?;
        Ok(CreatedFeed {
            position: created.consistent_point.to_string(),
            snapshot: HeldSnapshot { id: created.snapshot, keeper: Box::new(replication) },
            streams: recorded_as(&tables, known, streams, None),
        })
    }

    async fn extend(
        &self,
        origin: &FeedOrigin,
        streams: &[StreamSettings],
        further: &[StreamSettings],
    ) -> Result<CreatedFeed> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let tables = self.followed(&client, streams).await?;
        let added = self.followed(&client, further).await?;
        if self.given_publication().is_none() {
            self.publish(&client, &origin.publication, &added).await?;
        }
        check_published(&client, &origin.publication, &tables).await?;
        let known = identities(&client, &origin.publication, &names(&added)).await?;
        let mut replication = Replication::connect(server.inner()).await?;
        let within = self.settings.wait_for_late_commits.get();
        // It only says from where on changes count, and ends with its connection.
        let name = temporary_name();
        let created = create_slot(&client, &mut replication, &name, true, within).await?;
        let position = created.consistent_point.to_string();
        Ok(CreatedFeed {
            snapshot: HeldSnapshot { id: created.snapshot, keeper: Box::new(replication) },
            streams: recorded_as(&added, known, further, Some(&position)),
            position,
        })
    }

    async fn attach(
        &self,
        feed: &Feed,
        streams: &[StreamSettings],
        unit_size: usize,
    ) -> Result<Attached> {
        let server = Server::new(&self.settings)?;
        let client = server.connect(None).await?;
        let origin = &feed.origin;
        let from = feed.position.as_deref().unwrap_or_default();
        let from = parsed(from)?;
        let mut replication = Replication::connect(server.inner()).await?;
        let (system, _, present) = replication.identify().await?;
        if system != origin.server {
            let found =
                format!("{} is another server than the one the feed began with", server.name());
            return Err(refuse(found));
        }
        if from > present {
            return Err(refuse(format!(
                "the log of {} ends at {present}, and changes up to {from} were applied: it was restored",
                server.name()
            )));
        }
        let found = slot(&client, &origin.slot).await?;
        if let Some(lost) = lost(found.as_ref(), origin, from)? {
            return Ok(Attached::Lost(lost));
        }
        let mut tables = self.followed(&client, streams).await?;
        let names = names(&tables);
        let now = identities(&client, &origin.publication, &names).await?;
        let mut marks = Vec::with_capacity(now.len());
        let mut baselines = Vec::with_capacity(now.len());
        for ((now, name), recorded) in now.into_iter().zip(&names).zip(&feed.streams) {
            if let Some(lost) = now.other_than(&recorded.known_by, name) {
                return Ok(Attached::Lost(lost));
            }
            baselines.push(now.baseline(&recorded.known_by, &recorded.columns));
            let is_recorded = !recorded.known_by.is_empty();
            marks.push(if is_recorded { recorded.known_by.clone() } else { now.marks });
        }
        check_published(&client, &origin.publication, &tables).await?;
        // What changed since then is in the stream.
        for ((table, recorded), baseline) in tables.iter_mut().zip(&feed.streams).zip(baselines) {
            let followed = Followed::new(table.name.clone(), table.oid, recorded.columns.clone());
            *table = Followed { baseline, ..followed };
            if let Some(from) = &recorded.from {
                table.from = parsed(from)?;
            }
        }
        let options = StartOptions {
            protocol_version: 1,
            publications: vec![origin.publication.clone()],
            binary: true,
            streaming: false,
        };
        let patience = replication.patience().await?;
        replication.start(&origin.slot, from, &options).await?;
        let assembler = Assembler::new(tables, from, unit_size, feed.form);
        let tables = Recognized::new(&origin.publication, names, marks);
        let receiving =
            Receiving::start(replication, client, assembler, tables, from, present, patience);
        Ok(Attached::Stream(Box::new(receiving)))
    }

    async fn health(&self, origin: &FeedOrigin) -> Result<FeedHealth> {
        let client = Server::new(&self.settings)?.connect(None).await?;
        let found = slot(&client, &origin.slot).await?;
        let bytes = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        Ok(FeedHealth {
            exists: found.is_some(),
            is_active: found.as_ref().is_some_and(|slot| slot.active_pid.is_some()),
            is_complete: found.as_ref().is_some_and(|slot| !slot.is_lost()),
            confirmed: found.as_ref().and_then(|slot| slot.confirmed).map(|at| at.to_string()),
            lag_bytes: bytes(found.as_ref().and_then(|slot| slot.lag)),
            kept_bytes: bytes(found.as_ref().and_then(|slot| slot.kept)),
            status: found.and_then(|slot| slot.status),
        })
    }

    async fn remove(&self, origin: &FeedOrigin) -> Result<bool> {
        let client = Server::new(&self.settings)?.connect(None).await?;
        let found = slot(&client, &origin.slot).await?;
        if let Some(slot) = &found {
            if !slot.is_of(origin) {
                return Err(ConnectorError::unsupported(
                    format!("the replication slot {:?} was made by another client", origin.slot),
                    "name another one with `slot`",
                ));
            }
            if let Some(pid) = slot.active_pid {
                return Err(in_use(origin, pid));
            }
            let dropped = client
                .query_typed(
                    "select pg_drop_replication_slot($1::text::name)",
                    &[(&origin.slot, Type::TEXT)],
                )
                .await;
            dropped.map_err(|error| refused("drop the replication slot", error))?;
        }
        if self.given_publication() != Some(origin.publication.as_str()) {
            let drop = format!("drop publication if exists {}", ident(&origin.publication));
            let dropped = client.batch_execute(&drop).await;
            dropped.map_err(|error| refused("drop the publication", error))?;
        }
        Ok(found.is_some())
    }
}

/// Creates a slot. An error names the transactions for which it waited.
async fn create_slot(
    client: &Client,
    replication: &mut Replication,
    name: &str,
    is_temporary: bool,
    within: Duration,
) -> Result<CreatedSlot> {
    match replication.create_slot(name, is_temporary, within).await {
        Err(ServerError::Busy { act, server, source }) => {
            let rows = client.query_typed(WRITERS, &[]).await;
            let rows = rows.map_err(|error| refused("look up open transactions", error))?;
            let writers: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            // Names of prepared transactions are the choice of clients.
            let source = match writers.join(", ") {
                writers if writers.is_empty() => source,
                writers => format!("{source}: {}", writers.escape_debug()).into(),
            };
            Err(ServerError::Busy { act, server, source }.into())
        }
        created => Ok(created?),
    }
}

fn parsed(position: &str) -> Result<Lsn> {
    position.parse().map_err(|_| {
        ConnectorError::data("the recorded feed", format!("{position:?} is not a position"))
    })
}

fn names(tables: &[Followed]) -> Vec<TableName> {
    tables.iter().map(|table| table.name.clone()).collect()
}

/// Tables as a feed records them.
fn recorded_as(
    tables: &[Followed],
    known: Vec<Identity>,
    streams: &[StreamSettings],
    from: Option<&str>,
) -> Vec<FeedStream> {
    let recorded = tables.iter().zip(known).zip(streams);
    let recorded = recorded.map(|((table, known), stream)| FeedStream {
        stream: stream.name.clone(),
        columns: table.columns.clone(),
        from: from.map(str::to_owned),
        known_by: known.marks,
    });
    recorded.collect()
}

/// Whether a publication has every change of these tables.
async fn check_published(client: &Client, publication: &str, tables: &[Followed]) -> Result<()> {
    let act = |error| refused("look up the publication", error);
    let rows = client.query_typed(PUBLISHED, &[(&publication, Type::TEXT)]).await.map_err(act)?;
    let all =
        client.query_typed_opt(OPERATIONS, &[(&publication, Type::TEXT)]).await.map_err(act)?;
    let advice = "correct the publication, or leave out `publication` to have one made";
    if !all.is_some_and(|row| row.get(0)) {
        return Err(ConnectorError::unsupported(
            format!(
                "the publication {publication:?} does not exist, or leaves out some operations"
            ),
            advice,
        ));
    }
    for table in tables {
        let is_it = |row: &&tokio_postgres::Row| {
            row.get::<_, String>(0) == table.name.schema
                && row.get::<_, String>(1) == table.name.table
        };
        let row = rows.iter().find(is_it);
        let problem = match row {
            None => "does not have the table",
            Some(row) if row.get(2) => "leaves out columns of",
            Some(row) if row.get(3) => "leaves out rows of",
            Some(_) => continue,
        };
        let found = format!("the publication {publication:?} {problem} {}", table.name);
        return Err(ConnectorError::unsupported(found, advice));
    }
    Ok(())
}

/// Another server is never followed in the place of the one before.
fn refuse(found: String) -> ConnectorError {
    ConnectorError::unsupported(
        found,
        "changes may be missing: run with `--from-scratch`, which copies the tables again",
    )
}
