//! How a loaded table takes the place of the target.
//!
//! A load with `replace` writes to a table beside the target, which the ledger knows by its UUID: that stays the same
//! whatever the table is called. Both are exchanged by one statement, after which the target has that UUID. So the UUID says
//! whether it has happened. Before the exchange, each run gives the loaded table a name that no other run knows: the
//! statement of an earlier run that arrives late names a table that does not exist, and cannot exchange them again. It
//! may arrive just before the new name is given. So the UUID of the table with that name is asked for before the exchange.

use forebay_sdk::connector::{Load, Result};
use forebay_sdk::error::ConnectorError;

use crate::catalog::{OURS, Table, unexpected};
use crate::client::Server;
use crate::columns::create;
use crate::ledger::digits_of;
use crate::sql;
use crate::target::Shared;

/// Number of times that a loaded table is given a name of its own, while statements of an earlier run arrive.
const RENAMES_MAX: u32 = 5;

/// The first part of the names of tables that are loaded.
pub(crate) fn next_prefix(key: &str) -> String {
    format!("{OURS}next_{key}_")
}

/// The first part of the names of tables that are being exchanged.
pub(crate) fn swap_prefix(key: &str) -> String {
    format!("{OURS}swap_{key}_")
}

/// The name of the table with a UUID.
pub(crate) async fn named(server: &Server, uuid: &str) -> Result<Option<String>> {
    let sql = format!(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND toString(uuid) = {}",
        sql::text(uuid)
    );
    let found = server.rows("look for the loaded table", &sql).await?;
    Ok(found.into_iter().flatten().next())
}

impl Shared {
    /// Creates the table that will take the place of the target. Returns its name and UUID.
    pub(crate) async fn create_next(&self, load: &Load) -> Result<(String, String)> {
        let into = &self.settings.into;
        let attempt = uuid::Uuid::new_v4().simple().to_string();
        let table = format!("{}{}_{attempt}", next_prefix(&self.key), digits_of(&[&load.id]));
        let act = format!("create a table beside {into}");
        let sql = match Table::find(&self.server, into).await? {
            // With the sorting key, the indexes and the settings that it has.
            Some(_) => {
                format!("CREATE TABLE IF NOT EXISTS {} AS {}", sql::name(&table), sql::name(into))
            }
            None => create(&table, &self.settings, self.columns()),
        };
        self.server.ensure(&act, &sql).await?;
        let found = Table::find(&self.server, &table).await?;
        let uuid = found.map(|found| found.uuid).ok_or_else(|| unexpected(&act))?;
        Ok((table, uuid))
    }

    /// The name of the loaded table.
    pub(crate) async fn loaded(&self, uuid: &str) -> Result<String> {
        named(&self.server, uuid).await?.ok_or_else(|| ConnectorError::Refused {
            act: format!("replace {}", self.settings.into),
            source: "the loaded table no longer exists; run `forebay pipeline reset` to copy everything again"
                .into(),
        })
    }

    /// Puts the loaded table in the place of the target.
    pub(crate) async fn swap(&self, uuid: &str) -> Result<()> {
        let into = &self.settings.into;
        let act = format!("replace {into}");
        for _ in 0..RENAMES_MAX {
            let found = self.loaded(uuid).await?;
            if found == *into {
                return Ok(());
            }
            self.check_claim()?;
            let attempt = uuid::Uuid::new_v4().simple().to_string();
            let own = format!("{}{attempt}", swap_prefix(&self.key));
            let rename = format!("RENAME TABLE {} TO {}", sql::name(&found), sql::name(&own));
            let renamed = self.server.run(&act, rename).await;
            // A statement of an earlier run may have exchanged the tables just before: what has been renamed is the old
            // one then.
            match self.loaded(uuid).await? {
                now if now == own => return self.take_place(uuid, &own, &act).await,
                now if now == found => renamed?,
                _ => {}
            }
        }
        Err(ConnectorError::Busy {
            act,
            source: "statements of an earlier run were still in progress".into(),
        })
    }

    /// Exchanges the target with the loaded table, which has a name that no other run knows.
    async fn take_place(&self, uuid: &str, own: &str, act: &str) -> Result<()> {
        let into = &self.settings.into;
        let (own, target) = (sql::name(own), sql::name(into));
        let sql = match Table::find(&self.server, into).await? {
            Some(_) => format!("EXCHANGE TABLES {own} AND {target}"),
            None => format!("RENAME TABLE {own} TO {target}"),
        };
        let Err(error) = self.server.run(act, sql).await else { return Ok(()) };
        // An answer that was lost.
        match self.loaded(uuid).await {
            Ok(found) if found == *into => Ok(()),
            _ => Err(error),
        }
    }
}
