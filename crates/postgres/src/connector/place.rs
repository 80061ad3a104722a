//! Which table a name leads to, whatever address, user, pooler or replica it is reached by.

use forebay_sdk::connector::Result;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connect::refused;
use super::sql::{TableName, literal};

/// Returns what identifies the cluster, the database and the table. A replica has the identifier of its
/// primary. `None` if there is no such table, or the role may not read the cluster's identifier.
///
/// # Errors
/// The server cannot be asked.
pub(super) async fn of(client: &Client, name: &TableName) -> Result<Option<String>> {
    let query = format!(
        "select concat_ws(' ', s.system_identifier, d.oid, t.oid)
         from pg_control_system() s, pg_database d, pg_class t
         where d.datname = current_database() and t.oid = to_regclass({})",
        literal(&name.sql())
    );
    match client.query_opt(&query, &[]).await {
        Ok(row) => Ok(row.map(|row| row.get(0))),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(None),
        Err(error) => Err(refused(format!("look up {name}"), error)),
    }
}
