//! The catalogue against a plain model, and its transactions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

mod altered;
mod pool;
mod sorted;

fn file(id: u64, name: &str, bytes: &[u8]) -> Arc<FileRecord> {
    Arc::new(FileRecord {
        id,
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse(name).unwrap(),
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        mime: Cow::Borrowed("text/plain"),
        category: Category::Text,
        comment: String::new(),
        created_ms: 1,
        attributes: Attributes::default(),
    })
}

fn open() -> (tempfile::TempDir, Catalogue, CatalogueReader) {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::open(&dir.path().join("catalogue.sqlite")).unwrap();
    let reader = catalogue.reader().unwrap();
    (dir, catalogue, reader)
}

fn change(lsn: u64, change: Change) -> AppliedChange {
    AppliedChange { lsn, change, answered: None }
}

#[test]
fn a_name_for_an_unknown_blob_is_lost_until_the_name_is_deleted() {
    let (_dir, mut catalogue, reader) = open();
    let put = change(2, Change::Put { file: file(2, "b", b"b"), stored: None, keeps: false });
    catalogue.apply(&[put], 3).unwrap();
    assert_eq!(catalogue.lost_blobs().unwrap(), [Digest::of(b"b")]);
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("b").unwrap(),
        kept_ms: None,
    };
    catalogue.apply(&[change(3, delete)], 4).unwrap();
    assert!(catalogue.lost_blobs().unwrap().is_empty());
    assert_eq!(reader.totals().unwrap(), CatalogueTotals::default());
    assert_eq!(catalogue.position(), 4);
}

#[test]
fn a_replay_over_erased_bytes_finds_the_copy_that_was_stored_later() {
    let (_dir, mut catalogue, reader) = open();
    let named = |lsn, stored| Change::Put { file: file(lsn, "b", b"b"), stored, keeps: false };
    catalogue.apply(&[change(2, named(2, None))], 3).unwrap();
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("b").unwrap(),
        kept_ms: None,
    };
    // The name is deleted and the bytes are stored again in one batch, so that the count never
    // shows zero.
    let again = change(4, named(4, Some(BlobLocation::Entry(4))));
    catalogue.apply(&[change(3, delete), again], 5).unwrap();
    assert!(catalogue.lost_blobs().unwrap().is_empty());
    assert_eq!(reader.blob(Digest::of(b"b")).unwrap().unwrap().place, BlobLocation::Entry(4));
}

#[test]
fn a_blob_without_names_takes_the_place_of_a_new_copy() {
    let (_dir, mut catalogue, reader) = open();
    let put = |lsn| Change::Put {
        file: file(lsn, "a", b"a"),
        stored: Some(BlobLocation::Entry(lsn)),
        keeps: false,
    };
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("a").unwrap(),
        kept_ms: None,
    };
    catalogue.apply(&[change(1, put(1)), change(2, delete)], 3).unwrap();
    catalogue.apply(&[change(3, put(3))], 4).unwrap();
    assert_eq!(reader.blob(Digest::of(b"a")).unwrap().unwrap().place, BlobLocation::Entry(3));
}

#[test]
fn listing_pages_through_filters_in_name_order() {
    let (_dir, mut catalogue, reader) = open();
    let names = ["a/1", "a/2", "a\u{10FFFF}", "b", "日"];
    let changes: Vec<_> = names
        .iter()
        .zip(1..)
        .map(|(name, lsn)| {
            let file = file(lsn, name, name.as_bytes());
            change(lsn, Change::Put { file, stored: Some(BlobLocation::Entry(lsn)), keeps: false })
        })
        .collect();
    catalogue.apply(&changes, 9).unwrap();
    let list = |filter: &FileFilter, after| -> Vec<String> {
        let files = reader.list(filter, after, 2).unwrap();
        files.into_iter().map(|file| file.name.as_str().to_owned()).collect()
    };
    let all = FileFilter::default();
    assert_eq!(list(&all, None), ["a/1", "a/2"]);
    assert_eq!(list(&all, Some(("ns", "a/2"))), ["a\u{10FFFF}", "b"]);
    let prefix = |text: &str| FileFilter { prefix: Some(text.into()), ..Default::default() };
    assert_eq!(list(&prefix("a/"), None), ["a/1", "a/2"]);
    assert_eq!(list(&prefix("a\u{10FFFF}"), None), ["a\u{10FFFF}"]);
    assert_eq!(list(&prefix("日"), None), ["日"]);
    let digest = FileFilter { digest: Some(Digest::of(b"b")), ..Default::default() };
    assert_eq!(list(&digest, None), ["b"]);
    let hostile = FileFilter { mime: Some("' OR 1=1 --".into()), ..Default::default() };
    assert!(list(&hostile, None).is_empty());
}

#[test]
fn a_listing_by_digest_and_a_search_for_dead_blobs_look_at_no_other_row() {
    let (_dir, _catalogue, reader) = open();
    let digest = Digest::of(b"b");
    let plan = reader.explain(list::NAMES_BY_DIGEST, [digest.0]).unwrap();
    assert_eq!(plan, ["SEARCH files USING COVERING INDEX files_by_digest (digest=?)"]);
    let plan = reader.explain(crate::catalogue::query::DEAD_BLOBS_IN, [1, 2, 3]).unwrap();
    assert!(plan.iter().all(|step| step.contains("blobs_dead (place>? AND place<?)")), "{plan:?}");
}

/// A catalogue with many names and requests, whose file alone has all of it.
fn many() -> (tempfile::TempDir, CatalogueReader, PathBuf) {
    let (dir, mut catalogue, reader) = open();
    let changes: Vec<_> = (1..=2_000_u64)
        .map(|lsn| {
            let name = format!("name-{lsn:04}");
            let file = file(lsn, &name, name.as_bytes());
            let record =
                IdempotencyRecord { key: file.digest, fingerprint: Digest::of(b"fingerprint") };
            let answered = Answered { record, status: 201, answer: b"{}".to_vec(), created_ms: 1 };
            let change = Change::Put { file, stored: Some(BlobLocation::Entry(lsn)), keeps: false };
            AppliedChange { lsn, change, answered: Some(Arc::new(answered)) }
        })
        .collect();
    catalogue.apply(&changes, 3_000).unwrap();
    assert_eq!(catalogue.verify(9).unwrap(), Vec::<String>::new());
    catalogue.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let path = dir.path().join("catalogue.sqlite");
    (dir, reader, path)
}

/// Changes bytes of a file as a disk would, behind the back of those who have it open.
fn alter(path: &Path, old: &[u8], new: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let places = memchr::memmem::find_iter(&bytes, old).collect::<Vec<_>>();
    for at in places {
        bytes[at..at + old.len()].copy_from_slice(new);
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_key_that_was_altered_is_damage_and_not_a_missing_row() {
    let name = |name: &str| (Namespace::parse("ns").unwrap(), FileName::parse(name).unwrap());
    for (old, new) in [("name-0777", "name-0zzz"), ("name-0777", "name-0000"), ("name-2000", "x")] {
        let (_dir, reader, path) = many();
        let altered = format!("{new:x<9}");
        alter(&path, old.as_bytes(), altered.as_bytes());
        // The cache of this connection is empty: it reads the file.
        let (namespace, wanted) = name(old);
        let found = reader.file(&namespace, &wanted).unwrap_err();
        assert!(found.source.is_damage(), "{found:?}");
        let (namespace, wanted) = name("name-0001");
        assert!(reader.file(&namespace, &wanted).unwrap().is_some());
        let (namespace, wanted) = name("name-0001-b");
        assert!(reader.file(&namespace, &wanted).unwrap().is_none());
        let listed = reader.list(&FileFilter::default(), None, 5_000).unwrap_err();
        assert!(listed.to_string().contains("list files"), "{listed}");
    }
    let digest = Digest::of(b"name-1234");
    let mut other = digest;
    other.0[9] ^= 4;
    let (_dir, reader, path) = many();
    alter(&path, &digest.0, &other.0);
    assert!(reader.blob(digest).unwrap_err().source.is_damage());
    assert!(reader.request(digest).unwrap_err().source.is_damage());
    assert!(reader.blob(Digest::of(b"name-0001")).unwrap().is_some());
    assert!(reader.request(Digest::of(b"name-0001")).unwrap().is_some());
}

#[test]
fn a_row_that_was_altered_is_neither_changed_nor_deleted() {
    let (_dir, mut catalogue, _reader) = open();
    let put = Change::Put {
        file: file(1, "a", b"a"),
        stored: Some(BlobLocation::Entry(1)),
        keeps: false,
    };
    catalogue.apply(&[change(1, put)], 2).unwrap();
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("a").unwrap(),
        kept_ms: None,
    };
    for altered in ["UPDATE files SET size = 9", "UPDATE blobs SET refs = 9"] {
        catalogue.connection.execute_batch(altered).unwrap();
        let refused = catalogue.apply(&[change(2, delete.clone())], 3).unwrap_err();
        assert!(refused.source.is_damage(), "{altered}: {refused:?}");
        assert_eq!(catalogue.position(), 2);
        let right = "UPDATE files SET size = 1; UPDATE blobs SET refs = 1";
        catalogue.connection.execute_batch(right).unwrap();
    }
    catalogue.apply(&[change(2, delete)], 3).unwrap();
    assert_eq!(catalogue.verify(9).unwrap(), Vec::<String>::new());
}

#[test]
fn what_another_program_wrote_is_noticed_at_the_next_change() {
    let (dir, mut catalogue, _reader) = open();
    let put = |lsn, name| {
        let stored = Some(BlobLocation::Entry(lsn));
        change(lsn, Change::Put { file: file(lsn, name, name.as_bytes()), stored, keeps: false })
    };
    catalogue.apply(&[put(1, "a"), put(2, "b")], 3).unwrap();
    let other = Connection::open(dir.path().join("catalogue.sqlite")).unwrap();
    other.execute_batch("CREATE TEMP TABLE t (a); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    catalogue.apply(&[put(3, "c")], 4).unwrap();
    other.execute_batch("UPDATE files SET name = 'z' WHERE name = 'a'").unwrap();
    for _ in 0..2 {
        let refused = catalogue.apply(&[put(4, "d")], 5).unwrap_err();
        assert!(refused.source.is_damage(), "{refused:?}");
        assert!(refused.source.to_string().contains("ns/z"), "{refused:?}");
        assert!(catalogue.forget_requests(9).unwrap_err().source.is_damage());
    }
    other.execute_batch("UPDATE files SET name = 'a' WHERE name = 'z'").unwrap();
    catalogue.apply(&[put(4, "d")], 5).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..Default::default() })]
    #[test]
    fn names_and_reference_counts_follow_a_plain_model(
        // Name, content, whether to delete, whether to store the bytes although they are known.
        steps in proptest::collection::vec((0u8..6, 0u8..5, any::<bool>(), any::<bool>()), 1..60),
        batch in 1usize..8,
    ) {
        let (_dir, mut catalogue, reader) = open();
        let mut names: BTreeMap<String, u8> = BTreeMap::new();
        let mut stored = std::collections::BTreeSet::new();
        let mut given = BTreeMap::new();
        let mut changes = Vec::new();
        for (lsn, (name, content, delete, again)) in (1u64..).zip(steps) {
            let name = format!("n{name}");
            let next = if delete {
                names.remove(&name);
                Change::Delete {
                    namespace: Namespace::parse("ns").unwrap(),
                    name: FileName::parse(&name).unwrap(),
                    kept_ms: None,
                }
            } else {
                let place = (stored.insert(content) || again).then_some(BlobLocation::Entry(lsn));
                let key = (Namespace::parse("ns").unwrap(), FileName::parse(&name).unwrap());
                given.insert(lsn, key);
                names.insert(name.clone(), content);
                Change::Put { file: file(lsn, &name, &[content]), stored: place, keeps: false }
            };
            changes.push(change(lsn, next));
        }
        for changes in changes.chunks(batch) {
            catalogue.apply(changes, changes.last().unwrap().lsn + 1).unwrap();
        }
        for content in stored {
            let refs = names.values().filter(|&&held| held == content).count() as u64;
            let blobs = reader.blobs_after(None, 100).unwrap();
            let found = blobs.iter().find(|(blob, _)| blob.digest == Digest::of(&[content]));
            prop_assert_eq!(found.unwrap().1, refs);
        }
        for content in 0..5u8 {
            let digest = Digest::of(&[content]);
            let filter = FileFilter { digest: Some(digest), ..Default::default() };
            let scanned = reader.list(&filter, None, 100).unwrap();
            let Some(blob) = reader.blob(digest).unwrap() else {
                prop_assert!(scanned.is_empty());
                continue;
            };
            // The entry that holds the bytes gave this name, whatever became of it.
            let holder = match blob.place {
                BlobLocation::Entry(lsn) => Some(&given[&lsn]),
                _ => None,
            };
            for (after, prefix, limit) in [
                (None, None, 100), (Some(("ns", "n2")), None, 100), (None, None, 1),
                (Some(("ns", "n1")), Some("n"), 2), (None, Some("n3"), 100), (None, Some("m"), 1),
            ] {
                let namespace = prefix.map(|_| Namespace::parse("ns").unwrap());
                let prefix = prefix.map(str::to_owned);
                let filter = FileFilter { digest: Some(digest), namespace, prefix, ..Default::default() };
                let wanted = filter.prefix.as_deref().unwrap_or("");
                let scanned: Vec<_> = scanned.iter().filter(|file| {
                    let name = file.name.as_str();
                    name.starts_with(wanted) && after.is_none_or(|(_, after)| name > after)
                }).take(limit).cloned().collect();
                let found = reader.list_by_digest(&filter, &blob, holder, &Sorted::by_name(after), limit).unwrap();
                prop_assert_eq!(found.as_ref(), Some(&scanned));
                prop_assert_eq!(reader.list(&filter, after, limit).unwrap(), scanned);
                let reversed = Sorted::by(FileOrder::NameReversed, None);
                let found = reader.list_by_digest(&filter, &blob, holder, &reversed, limit).unwrap();
                let scanned = reader.list_sorted(&filter, &reversed, limit).unwrap();
                prop_assert_eq!(found, Some(scanned));
            }
        }
        prop_assert_eq!(catalogue.verify(9).unwrap(), Vec::<String>::new());
        let listed = reader.list(&FileFilter::default(), None, 100).unwrap();
        prop_assert_eq!(listed.len(), names.len());
        for file in listed {
            prop_assert_eq!(file.digest, Digest::of(&[names[file.name.as_str()]]));
        }
    }
}
