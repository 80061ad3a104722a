//! Rows into PostgreSQL one by one, many in a statement, and by COPY; and what a new connection costs beside one
//! that is kept.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use tokio_postgres::{Client, NoTls};

use super::pipeline::server::Server;
use super::{Figures, Plan};

/// Number of rows inserted one by one, many in a statement, and by COPY in a round.
const SINGLE: usize = 1_000;
const TOGETHER: usize = 20_000;
const COPIED: usize = 100_000;
/// Number of rows in a statement.
const STATEMENT: usize = 1_000;
/// Numbers of rows in a COPY.
const BATCHES: [usize; 4] = [10, 100, 1_000, 10_000];
/// Number of connections made, and of queries on one that is kept.
const CONNECTIONS: usize = 50;

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let scratch = scratch.join("rows");
    std::fs::create_dir(&scratch).context("cannot create a directory for PostgreSQL")?;
    let server = Server::start(&scratch)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the client")?;
    runtime.block_on(async {
        let (mut single, mut together) = (Vec::new(), Vec::new());
        let mut copied = [const { Vec::new() }; BATCHES.len()];
        let (mut fresh, mut kept) = (Vec::new(), Vec::new());
        let client = connect(server.port).await?;
        for _ in 0..plan.rounds {
            single.push(rows(&client, SINGLE, 1, Way::Insert).await?);
            together.push(rows(&client, TOGETHER, STATEMENT, Way::Insert).await?);
            for (rates, batch) in copied.iter_mut().zip(BATCHES) {
                let count = COPIED.min(batch * 1_000);
                rates.push(rows(&client, count, batch, Way::Copy).await?);
            }
            let begun = Instant::now();
            for _ in 0..CONNECTIONS {
                connect(server.port).await?.simple_query("select 1").await?;
            }
            fresh.push(each_us(begun));
            let begun = Instant::now();
            for _ in 0..CONNECTIONS {
                client.simple_query("select 1").await?;
            }
            kept.push(each_us(begun));
        }
        figures.median("rows_single_insert_per_s", single);
        figures.median("rows_multi_insert_per_s", together);
        for (rates, batch) in copied.into_iter().zip(BATCHES) {
            figures.median(&format!("rows_copy_{batch}_per_s"), rates);
        }
        figures.median("connection_new_us", fresh);
        figures.median("connection_kept_us", kept);
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of connections")]
fn each_us(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / CONNECTIONS as f64
}

async fn connect(port: u16) -> anyhow::Result<Client> {
    let settings = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (client, connection) =
        tokio_postgres::connect(&settings, NoTls).await.context("cannot connect to PostgreSQL")?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "a connection to PostgreSQL failed");
        }
    });
    Ok(client)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Insert,
    Copy,
}

/// Writes rows of five columns in batches, each committed by itself, and returns rows per second.
async fn rows(client: &Client, count: usize, batch: usize, way: Way) -> anyhow::Result<f64> {
    use futures_util::SinkExt as _;
    let table =
        "create table rows (id bigint, name text, email text, price float8, at timestamptz)";
    client.batch_execute(&format!("drop table if exists rows; {table}")).await?;
    let begun = Instant::now();
    for first in (0..count).step_by(batch) {
        let numbers = first..(first + batch).min(count);
        if way == Way::Copy {
            let sink = client.copy_in("copy rows from stdin").await?;
            let mut sink = std::pin::pin!(sink);
            let text: String = numbers.map(|n| line(n, "\t", "")).collect();
            sink.send(bytes::Bytes::from(text)).await?;
            sink.finish().await?;
        } else {
            let values: Vec<_> = numbers.map(|n| format!("({})", line(n, ",", "'"))).collect();
            client.batch_execute(&format!("insert into rows values {}", values.join(","))).await?;
        }
    }
    let took = begun.elapsed();
    let found = client.query_one("select count(*), count(distinct id) from rows", &[]).await?;
    let (found, different): (i64, i64) = (found.get(0), found.get(1));
    ensure!(found == different && found == i64::try_from(count)?, "{found} of {count} rows");
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    Ok(count as f64 / took.as_secs_f64())
}

/// The values of a row.
fn line(number: usize, between: &str, quote: &str) -> String {
    let end = if quote.is_empty() { "\n" } else { "" };
    format!(
        "{number}{between}{quote}customer {number}{quote}{between}{quote}c{number}@mail.example{quote}\
         {between}{}.5{between}{quote}2026-01-01 00:00:00+00{quote}{end}",
        number % 1_000
    )
}
