//! Which pack has which blob: a view of the packs in the bucket, in SQLite.
//!
//! It is not synced. After a crash the packs since its epoch are listed and their members added again
//! ([`remote`](super::remote)). `docs/formats/blob-pack.md` describes the tables.
//!
//! Invariants: a digest has one row, that of the pack with the largest id which was added with it and not
//! counted out since; `live` and `blobs` of a pack are the sums over its rows; a pack whose `blobs` is 0 has
//! `dead_ms`, and is named by no row.

use std::path::Path;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::pack::{Member, PackId};
use crate::digest::Digest;
use crate::error::CatalogueError;

const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS packs (
    id INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    payload INTEGER NOT NULL,
    live INTEGER NOT NULL,
    blobs INTEGER NOT NULL,
    dead_ms INTEGER
);
CREATE INDEX IF NOT EXISTS packs_dead ON packs (dead_ms) WHERE dead_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS packs_half_dead ON packs (id) WHERE dead_ms IS NULL AND live < payload / 2;
CREATE TABLE IF NOT EXISTS members (
    digest BLOB PRIMARY KEY,
    pack INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS members_pack ON members (pack);
";

/// Where a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: PackId,
    /// Number of bytes of the pack.
    pub(crate) pack_size: u64,
    pub(crate) member: Member,
}

/// A pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    /// Bytes of blobs that count.
    pub(crate) live: u64,
}

/// Sums over all packs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) packs: u64,
    pub(crate) bytes: u64,
    pub(crate) blobs: u64,
    pub(crate) live: u64,
}

/// What the index says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The newest epoch that packs may be from.
    pub(crate) epoch: u32,
    /// Whether everything that was written before is in it.
    pub(crate) is_complete: bool,
    /// Whether it has blobs.
    pub(crate) has_blobs: bool,
}

/// The index. A look-up waits neither for a transaction nor for a query over many packs.
#[derive(Debug)]
pub(crate) struct BlobIndex {
    writer: Mutex<Connection>,
    /// For look-ups of a blob or a pack.
    reader: Mutex<Connection>,
    /// For everything else.
    scanner: Mutex<Connection>,
}

type Sql<T> = rusqlite::Result<T>;

impl BlobIndex {
    /// Opens the index at `path`; one of another version, log or bucket is emptied.
    ///
    /// * Returns what it knows of itself.
    pub(crate) fn open(
        path: &Path,
        log: [u8; 16],
        url: &str,
    ) -> Result<(Self, Known), CatalogueError> {
        let failed = |source: rusqlite::Error| {
            CatalogueError::new("open the index of blobs in object storage", source)
        };
        let open = || -> Sql<(Self, Known)> {
            let mut writer = connect(path)?;
            writer.pragma_update(None, "journal_mode", "WAL")?;
            writer.execute_batch(TABLES)?;
            if !is_of(&writer, log, url)? {
                let emptied = writer.transaction()?;
                emptied
                    .execute_batch("DELETE FROM meta; DELETE FROM members; DELETE FROM packs;")?;
                set(&emptied, "version", VERSION)?;
                set(&emptied, "log", hex::encode(log))?;
                set(&emptied, "url", url)?;
                emptied.commit()?;
            }
            let known = known(&writer)?;
            Ok((Self::over(path, writer)?, known))
        };
        open().map_err(failed)
    }

    /// Opens the index at `path` if there is one of this log and bucket. Nothing in it is changed.
    pub(crate) fn existing(
        path: &Path,
        log: [u8; 16],
        url: &str,
    ) -> Result<Option<(Self, Known)>, CatalogueError> {
        if !path.exists() {
            return Ok(None);
        }
        let open = || -> Sql<Option<(Self, Known)>> {
            let writer = connect(path)?;
            writer.execute_batch(TABLES)?;
            if !is_of(&writer, log, url)? {
                return Ok(None);
            }
            let known = known(&writer)?;
            Ok(Some((Self::over(path, writer)?, known)))
        };
        open().map_err(|source| {
            CatalogueError::new("open the index of blobs in object storage", source)
        })
    }

    fn over(path: &Path, writer: Connection) -> Sql<Self> {
        let (reader, scanner) = (Mutex::new(connect(path)?), Mutex::new(connect(path)?));
        Ok(Self { writer: Mutex::new(writer), reader, scanner })
    }

    /// Records that packs of this epoch may follow, and that the index is complete up to here. Durable when it
    /// returns.
    pub(crate) fn begin(&self, epoch: u32) -> Result<(), CatalogueError> {
        self.write("begin an epoch in the index of blobs", |write| {
            set(write, "epoch", epoch)?;
            set(write, "clean", false)
        })?;
        self.sync()
    }

    /// Records that everything is in it. Durable when it returns.
    pub(crate) fn end(&self) -> Result<(), CatalogueError> {
        self.write("close the index of blobs", |write| set(write, "clean", true))?;
        self.sync()
    }

    /// Puts everything that was written on stable storage.
    pub(crate) fn sync(&self) -> Result<(), CatalogueError> {
        let writer = self.writer.lock();
        // Readers hold no transaction for long, so a checkpoint that is blocked is tried again by its caller.
        let done =
            writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match done {
            Ok(0) => Ok(()),
            Ok(_) => Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                None,
            )),
            Err(error) => Err(error),
        }
        .map_err(|source| CatalogueError::new("sync the index of blobs", source))
    }

    /// Where a blob is; `None` if no pack has it.
    pub(crate) fn find(&self, digest: Digest) -> Result<Option<Place>, CatalogueError> {
        self.read("find a blob in object storage", |connection| {
            let mut found = connection.prepare_cached(
                "SELECT m.pack, m.offset, m.size, p.size FROM members m
                 JOIN packs p ON p.id = m.pack WHERE m.digest = ?1",
            )?;
            let place = found.query_row([&digest.0[..]], |row| {
                Ok(Place {
                    pack: PackId(unsigned(row.get(0)?)),
                    pack_size: unsigned(row.get(3)?),
                    member: Member {
                        digest,
                        offset: unsigned(row.get(1)?),
                        size: unsigned(row.get(2)?),
                    },
                })
            });
            place.optional()
        })
    }

    /// Adds a pack that is in the bucket. A digest that a later pack has stays there.
    ///
    /// * `counts`: whether a blob of it counts. One that does not is as if it was counted out.
    pub(crate) fn add(
        &self,
        id: PackId,
        size: u64,
        members: &[Member],
        now_ms: i64,
        counts: &mut dyn FnMut(Digest) -> bool,
    ) -> Result<(), CatalogueError> {
        self.write("add a pack to the index of blobs", |write| {
            let payload: u64 = members.iter().map(Member::len).sum();
            let new = write.execute(
                "INSERT OR IGNORE INTO packs (id, size, payload, live, blobs, dead_ms)
                 VALUES (?1, ?2, ?3, 0, 0, ?4)",
                params![signed(id.0), signed(size), signed(payload), now_ms],
            )?;
            if new == 0 {
                return Ok(());
            }
            for member in members {
                if !counts(member.digest) {
                    continue;
                }
                let before = pack_of(write, member.digest)?;
                if before.is_some_and(|before| before > id) {
                    continue;
                }
                count_out(write, member.digest, now_ms)?;
                let mut insert = write.prepare_cached(
                    "INSERT INTO members (digest, pack, offset, size) VALUES (?1, ?2, ?3, ?4)",
                )?;
                insert.execute(params![
                    &member.digest.0[..],
                    signed(id.0),
                    signed(member.offset),
                    signed(member.size)
                ])?;
                let mut count = write.prepare_cached(
                    "UPDATE packs SET live = live + ?2, blobs = blobs + 1, dead_ms = NULL
                     WHERE id = ?1",
                )?;
                count.execute(params![signed(id.0), signed(member.len())])?;
            }
            Ok(())
        })
    }

    /// Counts blobs out of their packs. One that no pack has is no error.
    pub(crate) fn remove(&self, digests: &[Digest], now_ms: i64) -> Result<(), CatalogueError> {
        self.write("remove blobs from the index", |write| {
            digests.iter().try_for_each(|digest| count_out(write, *digest, now_ms))
        })
    }

    /// Whether the index has a pack.
    pub(crate) fn has(&self, id: PackId) -> Result<bool, CatalogueError> {
        self.read("look for a pack in the index of blobs", |connection| {
            let mut found = connection.prepare_cached("SELECT 1 FROM packs WHERE id = ?1")?;
            found.exists([signed(id.0)])
        })
    }

    /// Packs after the epoch `kept` of which no blob counts since this time or earlier, at most `limit`.
    pub(crate) fn dead(
        &self,
        kept: u32,
        until_ms: i64,
        limit: usize,
    ) -> Result<Vec<PackId>, CatalogueError> {
        self.scan("find packs without blobs", |connection| {
            let mut found = connection.prepare_cached(
                "SELECT id FROM packs WHERE dead_ms <= ?1 AND id > ?2 ORDER BY dead_ms LIMIT ?3",
            )?;
            let rows = found
                .query_map(params![until_ms, last_of(kept), limit_of(limit)], |row| {
                    Ok(PackId(unsigned(row.get(0)?)))
                })?;
            rows.collect()
        })
    }

    /// Packs after the epoch `kept` of which less than half counts, at most `limit`.
    pub(crate) fn half_dead(&self, kept: u32, limit: usize) -> Result<Vec<Pack>, CatalogueError> {
        self.scan("find packs that are half dead", |connection| {
            let mut found = connection.prepare_cached(
                "SELECT id, live FROM packs
                 WHERE dead_ms IS NULL AND live < payload / 2 AND id > ?1 LIMIT ?2",
            )?;
            let rows = found.query_map(params![last_of(kept), limit_of(limit)], |row| {
                Ok(Pack { id: PackId(unsigned(row.get(0)?)), live: unsigned(row.get(1)?) })
            })?;
            rows.collect()
        })
    }

    /// The blobs of a pack that count, in the order of their offsets.
    pub(crate) fn members(&self, id: PackId) -> Result<Vec<Member>, CatalogueError> {
        self.scan("read the blobs of a pack", |connection| {
            let mut found = connection.prepare_cached(
                "SELECT digest, offset, size FROM members WHERE pack = ?1 ORDER BY offset",
            )?;
            let rows = found.query_map([signed(id.0)], |row| {
                Ok(Member {
                    digest: Digest(row.get(0)?),
                    offset: unsigned(row.get(1)?),
                    size: unsigned(row.get(2)?),
                })
            })?;
            rows.collect()
        })
    }

    /// Digests after `after` that are in packs after the epoch `kept`, in their order, at most `limit`.
    pub(crate) fn digests(
        &self,
        kept: u32,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<Digest>, CatalogueError> {
        self.scan("list the index of blobs", |connection| {
            let mut found = connection.prepare_cached(
                "SELECT digest FROM members WHERE digest > ?1 AND pack > ?2
                 ORDER BY digest LIMIT ?3",
            )?;
            let after = after.map_or_else(Vec::new, |after| after.0.to_vec());
            let rows = found.query_map(params![after, last_of(kept), limit_of(limit)], |row| {
                Ok(Digest(row.get(0)?))
            })?;
            rows.collect()
        })
    }

    /// Forgets a pack whose object was removed. One that has blobs again stays.
    pub(crate) fn forget(&self, id: PackId) -> Result<(), CatalogueError> {
        self.write("remove a pack from the index of blobs", |write| {
            let gone = write
                .execute("DELETE FROM packs WHERE id = ?1 AND dead_ms IS NOT NULL", [signed(id.0)]);
            gone.map(drop)
        })
    }

    /// Sums over all packs.
    pub(crate) fn totals(&self) -> Result<Totals, CatalogueError> {
        self.scan("sum up the index of blobs", |connection| {
            connection.query_row(
                "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(blobs), 0),
                        coalesce(sum(live), 0) FROM packs",
                [],
                |row| {
                    Ok(Totals {
                        packs: unsigned(row.get(0)?),
                        bytes: unsigned(row.get(1)?),
                        blobs: unsigned(row.get(2)?),
                        live: unsigned(row.get(3)?),
                    })
                },
            )
        })
    }

    fn read<T>(
        &self,
        act: &'static str,
        read: impl FnOnce(&Connection) -> Sql<T>,
    ) -> Result<T, CatalogueError> {
        read(&self.reader.lock()).map_err(|source| CatalogueError::new(act, source))
    }

    fn scan<T>(
        &self,
        act: &'static str,
        scan: impl FnOnce(&Connection) -> Sql<T>,
    ) -> Result<T, CatalogueError> {
        scan(&self.scanner.lock()).map_err(|source| CatalogueError::new(act, source))
    }

    fn write<T>(
        &self,
        act: &'static str,
        write: impl FnOnce(&Transaction<'_>) -> Sql<T>,
    ) -> Result<T, CatalogueError> {
        let mut writer = self.writer.lock();
        let run = || {
            let transaction = writer.transaction()?;
            let done = write(&transaction)?;
            transaction.commit().map(|()| done)
        };
        run().map_err(|source| CatalogueError::new(act, source))
    }
}

/// Whether an index at `path` has blobs, and the bucket that they are in.
pub(crate) fn leftover(path: &Path) -> Result<Option<String>, CatalogueError> {
    if !path.exists() {
        return Ok(None);
    }
    let url = || -> Sql<Option<String>> {
        let connection = connect(path)?;
        connection.execute_batch(TABLES)?;
        if has_blobs(&connection)? { get(&connection, "url") } else { Ok(None) }
    };
    url().map_err(|source| CatalogueError::new("open the index of blobs in object storage", source))
}

/// Whether an index is of this version, log and bucket.
fn is_of(connection: &Connection, log: [u8; 16], url: &str) -> Sql<bool> {
    Ok(get::<i64>(connection, "version")? == Some(VERSION)
        && get::<String>(connection, "log")? == Some(hex::encode(log))
        && get::<String>(connection, "url")?.as_deref() == Some(url))
}

fn known(connection: &Connection) -> Sql<Known> {
    Ok(Known {
        epoch: get(connection, "epoch")?.unwrap_or(0),
        is_complete: get::<bool>(connection, "clean")?.unwrap_or(false),
        has_blobs: has_blobs(connection)?,
    })
}

fn has_blobs(connection: &Connection) -> Sql<bool> {
    connection.prepare("SELECT 1 FROM members LIMIT 1")?.exists([])
}

fn connect(path: &Path) -> Sql<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn get<T: rusqlite::types::FromSql>(connection: &Connection, key: &str) -> Sql<Option<T>> {
    let found =
        connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0));
    found.optional()
}

fn set(write: &Connection, key: &str, value: impl rusqlite::ToSql) -> Sql<()> {
    let set = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    write.execute(set, params![key, value]).map(drop)
}

fn pack_of(write: &Connection, digest: Digest) -> Sql<Option<PackId>> {
    let mut found = write.prepare_cached("SELECT pack FROM members WHERE digest = ?1")?;
    found.query_row([&digest.0[..]], |row| Ok(PackId(unsigned(row.get(0)?)))).optional()
}

/// Removes the row of a digest, and what it counts in its pack.
fn count_out(write: &Connection, digest: Digest, now_ms: i64) -> Sql<()> {
    let mut remove = write
        .prepare_cached("DELETE FROM members WHERE digest = ?1 RETURNING pack, offset, size")?;
    let removed = remove.query_row([&digest.0[..]], |row| {
        let (offset, size) = (unsigned(row.get(1)?), unsigned(row.get(2)?));
        Ok((row.get::<_, i64>(0)?, Member { digest, offset, size }))
    });
    let Some((pack, member)) = removed.optional()? else { return Ok(()) };
    let mut count = write.prepare_cached(
        "UPDATE packs SET live = live - ?2, blobs = blobs - 1,
                dead_ms = CASE WHEN blobs = 1 THEN ?3 END WHERE id = ?1",
    )?;
    count.execute(params![pack, signed(member.len()), now_ms]).map(drop)
}

fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// The last id of an epoch; before all ids if it is 0.
fn last_of(epoch: u32) -> i64 {
    if epoch == 0 { -1 } else { signed(PackId::new(epoch, u32::MAX).0) }
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::pack::{HEADER_SIZE, file_len};
    use super::*;

    const URL: &str = "s3://b/p";

    fn members(contents: &[u8]) -> Vec<Member> {
        let mut offset = HEADER_SIZE;
        let mut next = |content: &u8| {
            let member = Member { digest: Digest::of(&[*content]), offset, size: 1 };
            offset += member.len();
            member
        };
        contents.iter().map(&mut next).collect()
    }

    fn open(dir: &Path) -> (BlobIndex, Known) {
        BlobIndex::open(&dir.join("blobs.sqlite"), [1; 16], URL).unwrap()
    }

    fn pack_of(index: &BlobIndex, content: u8) -> Option<u64> {
        index.find(Digest::of(&[content])).unwrap().map(|place| place.pack.0)
    }

    #[test]
    fn of_two_copies_the_one_in_the_later_pack_counts_in_whichever_order_they_are_added() {
        for order in [[1_u64, 2], [2, 1]] {
            let dir = tempfile::tempdir().unwrap();
            let (index, _) = open(dir.path());
            for id in order {
                index.add(PackId(id), 100, &members(b"ab"), 5, &mut |_| true).unwrap();
            }
            assert_eq!((pack_of(&index, b'a'), pack_of(&index, b'b')), (Some(2), Some(2)));
            assert_eq!(index.dead(0, 5, 9).unwrap(), [PackId(1)]);
            assert_eq!(index.dead(0, 4, 9).unwrap(), []);
            let totals = index.totals().unwrap();
            assert_eq!((totals.packs, totals.blobs, totals.live), (2, 2, 2 * file_len(1)));
        }
    }

    #[test]
    fn a_pack_is_dead_when_its_last_blob_is_counted_out_and_is_then_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = open(dir.path());
        index.add(PackId(1), 100, &members(b"abc"), 0, &mut |d| d != Digest::of(b"c")).unwrap();
        assert_eq!(pack_of(&index, b'c'), None);
        index.remove(&[Digest::of(b"a"), Digest::of(b"x")], 7).unwrap();
        assert_eq!(index.dead(0, i64::MAX, 9).unwrap(), []);
        assert_eq!(index.half_dead(0, 9).unwrap().len(), 1);
        assert_eq!(index.half_dead(1, 9).unwrap(), []);
        index.forget(PackId(1)).unwrap();
        assert!(index.has(PackId(1)).unwrap(), "it has a blob");
        index.remove(&[Digest::of(b"b"), Digest::of(b"a")], 8).unwrap();
        assert_eq!(index.dead(0, 8, 9).unwrap(), [PackId(1)]);
        assert_eq!(index.dead(1, 8, 9).unwrap(), [], "packs up to this epoch are kept");
        index.forget(PackId(1)).unwrap();
        assert_eq!(index.totals().unwrap(), Totals::default());
    }

    #[test]
    fn an_index_of_another_log_or_bucket_is_emptied_and_one_that_was_closed_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let (index, known) = open(dir.path());
        assert_eq!(known, Known::default());
        index.begin(3).unwrap();
        index.add(PackId(1), 100, &members(b"a"), 0, &mut |_| true).unwrap();
        drop(index);
        let (index, known) = open(dir.path());
        assert_eq!(known, Known { epoch: 3, is_complete: false, has_blobs: true });
        index.end().unwrap();
        drop(index);
        let path = dir.path().join("blobs.sqlite");
        assert_eq!(leftover(&path).unwrap().as_deref(), Some(URL));
        let (index, known) = open(dir.path());
        assert_eq!(known, Known { epoch: 3, is_complete: true, has_blobs: true });
        assert_eq!(pack_of(&index, b'a'), Some(1));
        drop(index);
        for (log, url) in [([2; 16], URL), ([1; 16], "s3://other/p")] {
            let (index, known) = BlobIndex::open(&path, log, url).unwrap();
            assert_eq!(known, Known::default());
            assert_eq!(pack_of(&index, b'a'), None);
            index.begin(1).unwrap();
        }
        assert_eq!(leftover(&path).unwrap(), None);
    }
}
