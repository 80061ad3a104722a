//! Rows that a server refuses: found by halving their batch, and stored in a separate table.
//!
//! Everything happens in the unit's transaction: rows, dead letters and ledger entry are committed
//! together.

use std::ops::Range;

use bytes::Bytes;
use forebay_base::error_chain::chain;
use forebay_pgcopy::{ContentHash, Decoder};
use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::WriteMode;

use super::connect::{is_of_data, refused};
use super::load::Loader;
use super::sql::literal;
use super::tuples::{Tuple, split};
use crate::bulk::Stored;

/// Writes the acceptable rows, and stores the others as dead letters.
pub(super) async fn write_tolerantly(loader: &mut Loader, batch: Bytes) -> Result<()> {
    let tuples = split(&batch)?;
    // Ranges of rows to try, the next one last.
    let whole = 0..tuples.len();
    let mut open = Vec::from([whole]);
    let mut dead = Vec::new();
    while let Some(rows) = open.pop() {
        let (Some(first), Some(last)) =
            (tuples.get(rows.start), tuples.get(rows.end.wrapping_sub(1)))
        else {
            continue;
        };
        let bytes = batch.slice(first.bytes.start..last.bytes.end);
        match attempt(loader, bytes, rows.len() as u64).await? {
            Ok(()) => {
                for tuple in tuples.get(rows).unwrap_or_default() {
                    loader.hash.add(batch.get(tuple.bytes.clone()).unwrap_or_default());
                }
            }
            Err(error) if rows.len() > 1 => {
                tracing::debug!(
                    rows = rows.len(),
                    %error,
                    "a batch is divided to find the refused rows"
                );
                let middle = rows.start + rows.len() / 2;
                open.push(middle..rows.end);
                open.push(rows.start..middle);
            }
            Err(error) => dead.push(letter(loader, &batch, &tuples, &rows, &error)?),
        }
    }
    loader.put_aside(&dead).await
}

/// Tries these rows: writes all of them, or none. The inner error is the server's refusal.
async fn attempt(
    loader: &Loader,
    tuples: Bytes,
    sent: u64,
) -> Result<Result<(), tokio_postgres::Error>> {
    let act = |error| refused(loader.act(), error);
    loader.client.batch_execute("savepoint forebay_batch").await.map_err(act)?;
    let mut done = loader.copy_once(tuples).await?;
    if let Ok(stored) = done {
        loader.check(Stored { stored, sent })?;
    }
    let is_upsert = loader.shared.settings.write_mode == WriteMode::Upsert;
    if done.is_ok() && is_upsert {
        done = loader.merge().await;
    }
    match done {
        Ok(merged) => {
            if is_upsert {
                loader.check_merged(Stored { stored: merged, sent }).await?;
            }
            let tidy = if is_upsert { "truncate pg_temp.forebay_upsert; " } else { "" };
            let release = format!("{tidy}release savepoint forebay_batch");
            loader.client.batch_execute(&release).await.map_err(act)?;
            Ok(Ok(()))
        }
        Err(error) if is_of_data(&error) => {
            let back = "rollback to savepoint forebay_batch; release savepoint forebay_batch";
            loader.client.batch_execute(back).await.map_err(act)?;
            Ok(Err(error))
        }
        Err(error) => Err(act(error)),
    }
}

/// A refused row.
fn letter(
    loader: &Loader,
    batch: &[u8],
    tuples: &[Tuple],
    rows: &Range<usize>,
    error: &tokio_postgres::Error,
) -> Result<DeadRow> {
    let tuple = tuples.get(rows.start).and_then(|tuple| batch.get(tuple.bytes.clone()));
    let reason = match (loader.null_in_key(error), error.as_db_error()) {
        (Some(reason), _) => reason,
        (None, Some(error)) => match error.detail() {
            Some(detail) => format!("{}: {detail}", error.message()),
            None => error.message().to_owned(),
        },
        (None, None) => chain(error).to_string(),
    };
    let row = tuple.map(|tuple| json(loader, tuple)).transpose()?.unwrap_or_default();
    let position = format!("{} row {}", loader.unit(), loader.seen + rows.start as u64 + 1);
    Ok(DeadRow { position, reason, row })
}

/// A row as JSON.
fn json(loader: &Loader, tuple: &[u8]) -> Result<String> {
    let broken = |error: String| ConnectorError::data(loader.act(), error);
    let mut decoder = Decoder::without_header(&loader.shared.columns);
    decoder.push(tuple).map_err(|error| broken(chain(&error).to_string()))?;
    let (record, _): (_, ContentHash) =
        decoder.take().map_err(|error| broken(chain(&error).to_string()))?;
    forebay_sdk::batch::json_rows(&record)
        .map_err(|error| broken(chain(&error).to_string()))
        .map(|mut rows| rows.pop().unwrap_or_default())
}

/// Inserts rows into the table of dead letters.
pub(super) async fn put_aside(loader: &Loader, rows: &[DeadRow]) -> Result<()> {
    let act = |error| refused(format!("store dead letters of {}", loader.into), error);
    let settings = &loader.shared.settings;
    let beside = loader.shared.dead_letters.sql();
    let create = format!(
        "create table if not exists {beside} (
            id bigint generated always as identity primary key, pipeline text not null, stream text not null,
            run text not null, unit text not null, position text not null, error text not null,
            \"row\" jsonb not null, at timestamptz not null default clock_timestamp())"
    );
    let exists = format!("select to_regclass({}) is not null", literal(&beside));
    let exists: bool = loader.client.query_one(&exists, &[]).await.map_err(act)?.get(0);
    if !exists {
        loader.client.batch_execute(&create).await.map_err(act)?;
    }
    let insert = format!(
        "insert into {beside} (pipeline, stream, run, unit, position, error, \"row\")
         values ($1, $2, $3, $4, $5, $6, $7::text::jsonb)"
    );
    let insert = loader.client.prepare(&insert).await.map_err(act)?;
    for row in rows {
        // jsonb has no NUL.
        let shown = row.row.replace("\\u0000", "\\ufffd");
        let run: &str = &loader.shared.context.run;
        loader
            .client
            .execute(
                &insert,
                &[
                    &settings.pipeline,
                    &settings.stream,
                    &run,
                    &loader.unit(),
                    &row.position,
                    &row.reason,
                    &shown,
                ],
            )
            .await
            .map_err(act)?;
    }
    Ok(())
}
