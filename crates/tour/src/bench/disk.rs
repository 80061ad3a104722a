//! Measures this machine without Forebay: disk, processor, SQLite.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Returns the rate of appends of 4 KiB with a flush each, one after another, per second.
pub(super) fn serial_appends_per_s(dir: &Path, lasting: Duration) -> anyhow::Result<f64> {
    let path = dir.join("serial-appends");
    let file = File::create(&path).context("cannot create a file to append to")?;
    let block = [0x5A; 4_096];
    let begun = Instant::now();
    let mut count = 0u32;
    while begun.elapsed() < lasting {
        file.write_all_at(&block, u64::from(count) * 4_096).context("cannot append")?;
        file.sync_data().context("cannot flush")?;
        count += 1;
    }
    let took = begun.elapsed();
    std::fs::remove_file(&path).context("cannot remove the file appended to")?;
    Ok(f64::from(count) / took.as_secs_f64())
}

/// Returns the 99th percentile of the time of an append of 4 KiB and its flush, in microseconds.
pub(super) fn flush_p99_us(dir: &Path, lasting: Duration) -> anyhow::Result<f64> {
    let path = dir.join("flushes");
    let file = File::create(&path).context("cannot create a file to append to")?;
    let block = [0x5A; 4_096];
    let begun = Instant::now();
    let mut samples = Vec::new();
    while begun.elapsed() < lasting {
        let at = samples.len() as u64 * 4_096;
        let one = Instant::now();
        file.write_all_at(&block, at).context("cannot append")?;
        file.sync_data().context("cannot flush")?;
        samples.push(one.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path).context("cannot remove the file appended to")?;
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() * 99 / 100).copied().context("nothing was flushed")
}

/// Writes `size` bytes in pieces of 1 MiB, flushes once, and returns MiB per second.
pub(super) fn write_mib_per_s(dir: &Path, size: u64) -> anyhow::Result<f64> {
    let path = dir.join("plain-write");
    let mut file = File::create(&path).context("cannot create a file to write")?;
    let mut piece = vec![0x5A; 1 << 20];
    let begun = Instant::now();
    for number in 0..size >> 20 {
        if let Some(start) = piece.get_mut(..8) {
            start.copy_from_slice(&number.to_le_bytes());
        }
        file.write_all(&piece).context("cannot write")?;
    }
    file.sync_data().context("cannot flush")?;
    let took = begun.elapsed();
    std::fs::remove_file(&path).context("cannot remove the file written")?;
    Ok(mib(size) / took.as_secs_f64())
}

/// Returns the rate of SHA-256 over memory, in MB per second on one core.
pub(super) fn sha256_mb_per_s() -> f64 {
    let bytes = vec![0xA5; 64 << 20];
    let begun = Instant::now();
    let digest = Sha256::digest(&bytes);
    let took = begun.elapsed();
    std::hint::black_box(digest);
    64.0 * 1.048_576 / took.as_secs_f64()
}

/// Returns the time of SHA-256 for one file of `size` bytes in microseconds, the median of many.
pub(super) fn sha256_us(size: usize) -> f64 {
    let bytes = vec![0x5A; size];
    let mut samples: Vec<f64> = (0..201)
        .map(|_| {
            let begun = Instant::now();
            std::hint::black_box(Sha256::digest(std::hint::black_box(&bytes)));
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(100).copied().unwrap_or_default()
}

/// Returns the rows per second of a prepared statement in one transaction: the documents' columns
/// and text, with all values ready in memory.
pub(super) fn sqlite_rows_per_s(dir: &Path, rows: &[super::rows::Row]) -> anyhow::Result<f64> {
    let path = dir.join("bare.sqlite");
    let mut connection = rusqlite::Connection::open(&path).context("cannot open a database")?;
    connection.pragma_update(None, "journal_mode", "WAL").context("cannot set WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL").context("cannot set synchronous")?;
    connection
        .execute_batch(
            "CREATE TABLE bare (id INTEGER PRIMARY KEY, received INTEGER, document TEXT, a INTEGER,
             b TEXT, c REAL, d INTEGER, e TEXT, f TEXT, g INTEGER)",
        )
        .context("cannot create a table")?;
    let begun = Instant::now();
    let transaction = connection.transaction().context("cannot begin")?;
    {
        let mut statement = transaction
            .prepare("INSERT INTO bare VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")
            .context("cannot prepare")?;
        for row in rows {
            statement
                .execute(rusqlite::params![
                    row.id,
                    1_700_000_000_000_i64,
                    row.text,
                    row.id,
                    row.name,
                    row.price,
                    row.stock,
                    row.city,
                    row.note,
                    row.active
                ])
                .context("cannot insert")?;
        }
    }
    transaction.commit().context("cannot commit")?;
    let took = begun.elapsed();
    drop(connection);
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(dir.join(format!("bare.sqlite{suffix}"))).unwrap_or_default();
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let count = rows.len() as f64;
    Ok(count / took.as_secs_f64())
}

/// Converts bytes to MiB.
pub(super) fn mib(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes below 2^52")]
    let bytes = bytes as f64;
    bytes / 1_048_576.0
}
