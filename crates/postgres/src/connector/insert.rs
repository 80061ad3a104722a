//! Multi-row INSERT: for servers and poolers that do not support COPY.
//!
//! A field of binary COPY has the same bytes as a binary parameter, so tuples become parameters
//! unchanged.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::WriteMode;

use super::connect::refused;
use super::load::Loader;
use super::sql::{assignments, idents};
use super::tuples::all_fields;
use crate::bulk::{Encoded, Stored};

/// Maximum number of rows of a statement.
const ROWS_MAX: usize = 1000;
/// Maximum number of parameters of a statement in the protocol.
const PARAMETERS_MAX: usize = 65_535;

/// Inserts the rows of these tuples.
pub(super) async fn insert(loader: &Loader, tuples: &[u8]) -> Result<()> {
    let width = loader.shared.columns.len();
    let fields = all_fields(tuples)?;
    if width == 0 || fields.len() % width != 0 {
        return Err(ConnectorError::data(
            loader.act(),
            format!("rows do not have {width} columns"),
        ));
    }
    check_key(loader, &fields)?;
    let rows_max = (PARAMETERS_MAX / width).clamp(1, ROWS_MAX);
    // With nothing but a key to write, a row whose key is there is left out.
    let leaves_out =
        loader.shared.settings.write_mode == WriteMode::Upsert && loader.has_only_key();
    let full = loader.client.prepare(&statement(loader, rows_max)).await;
    let full = full.map_err(|error| refused(loader.act(), error))?;
    for chunk in fields.chunks(rows_max * width) {
        let rows = chunk.len() / width;
        let parameters = chunk.iter().map(|field| Encoded(*field));
        let done = if rows == rows_max {
            loader.client.execute_raw(&full, parameters).await
        } else {
            loader.client.execute_raw(&statement(loader, rows), parameters).await
        };
        let stored = done.map_err(|error| refused(loader.act(), error))?;
        if !leaves_out {
            loader.check(Stored { stored, sent: rows as u64 })?;
        }
    }
    Ok(())
}

/// Refuses a row of an upsert whose key has a NULL: every run would add it again.
fn check_key(loader: &Loader, fields: &[Option<&[u8]>]) -> Result<()> {
    let settings = &loader.shared.settings;
    if settings.write_mode != WriteMode::Upsert {
        return Ok(());
    }
    for (at, column) in loader.shared.columns.iter().enumerate() {
        let is_key = settings.primary_key.contains(&column.name);
        let mut values = fields.iter().skip(at).step_by(loader.shared.columns.len());
        if is_key && values.any(Option::is_none) {
            return Err(ConnectorError::data(loader.act(), loader.null_is_in(&column.name)));
        }
    }
    Ok(())
}

/// The INSERT of this many rows.
fn statement(loader: &Loader, rows: usize) -> String {
    let settings = &loader.shared.settings;
    let columns: Vec<&str> =
        loader.shared.columns.iter().map(|column| column.name.as_str()).collect();
    let mut sql = format!(
        "insert into {} ({}) overriding system value values ",
        loader.into.sql(),
        idents(columns.iter().copied())
    );
    let width = columns.len();
    for row in 0..rows {
        let parameters: Vec<String> =
            (1..=width).map(|index| format!("${}", row * width + index)).collect();
        let separator = if row == 0 { "" } else { ", " };
        sql.push_str(&format!("{separator}({})", parameters.join(", ")));
    }
    if settings.write_mode == WriteMode::Upsert {
        let key = idents(settings.primary_key.iter().map(String::as_str));
        let is_key = |name: &&str| settings.primary_key.iter().any(|key| key == name);
        let others: Vec<&str> = columns.iter().filter(|name| !is_key(name)).copied().collect();
        if others.is_empty() {
            sql.push_str(&format!(" on conflict ({key}) do nothing"));
        } else {
            sql.push_str(&format!(" on conflict ({key}) do update set {}", assignments(&others)));
        }
    }
    sql
}
