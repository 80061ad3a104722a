//! The catalogue against a plain model, and its transactions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

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
    let put = change(2, Change::Put { file: file(2, "b", b"b"), stored: None });
    catalogue.apply(&[put], 3).unwrap();
    assert_eq!(catalogue.lost_blobs().unwrap(), [Digest::of(b"b")]);
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("b").unwrap(),
    };
    catalogue.apply(&[change(3, delete)], 4).unwrap();
    assert!(catalogue.lost_blobs().unwrap().is_empty());
    assert_eq!(reader.totals().unwrap(), CatalogueTotals::default());
    assert_eq!(catalogue.position(), 4);
}

#[test]
fn a_replay_over_erased_bytes_finds_the_copy_that_was_stored_later() {
    let (_dir, mut catalogue, reader) = open();
    let named = |lsn, stored| Change::Put { file: file(lsn, "b", b"b"), stored };
    catalogue.apply(&[change(2, named(2, None))], 3).unwrap();
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("b").unwrap(),
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
    let put =
        |lsn| Change::Put { file: file(lsn, "a", b"a"), stored: Some(BlobLocation::Entry(lsn)) };
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("a").unwrap(),
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
            change(lsn, Change::Put { file, stored: Some(BlobLocation::Entry(lsn)) })
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
    let digest = Some(Digest::of(b"b"));
    let namespace = Some(Namespace::parse("ns").unwrap());
    let holder = (Namespace::parse("ns").unwrap(), FileName::parse("b").unwrap());
    for filter in [
        FileFilter { digest, ..Default::default() },
        FileFilter { digest, namespace, prefix: Some("a/".into()), ..Default::default() },
    ] {
        for after in [None, Some(("ns", "a"))] {
            let plan = reader.explain_by_digest(&filter, Some(&holder), after).unwrap();
            assert!(plan.iter().all(|step| !step.contains("SCAN")), "{plan:?}");
            assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:?}");
            let indexed = |step: &String| step.contains("files_by_digest (digest=?");
            assert!(plan.iter().any(indexed), "{plan:?}");
            let by_name = |step: &String| step.contains("PRIMARY KEY (namespace=? AND name=?)");
            assert!(plan.iter().any(by_name), "{plan:?}");
        }
    }
    let plan = reader.explain(crate::catalogue::query::DEAD_BLOBS_IN, &[1, 2, 3]).unwrap();
    assert!(plan.iter().all(|step| step.contains("blobs_dead (place>? AND place<?)")), "{plan:?}");
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
                }
            } else {
                let place = (stored.insert(content) || again).then_some(BlobLocation::Entry(lsn));
                let key = (Namespace::parse("ns").unwrap(), FileName::parse(&name).unwrap());
                given.insert(lsn, key);
                names.insert(name.clone(), content);
                Change::Put { file: file(lsn, &name, &[content]), stored: place }
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
            // The entry that holds the bytes gave this name, whatever became of it.
            let holder = match reader.blob(digest).unwrap().map(|blob| blob.place) {
                Some(BlobLocation::Entry(lsn)) => Some(&given[&lsn]),
                _ => None,
            };
            for after in [None, Some(("ns", "n2"))] {
                let scanned: Vec<_> = scanned.iter().filter(|file| after.is_none_or(
                    |(_, name)| file.name.as_str() > name)).cloned().collect();
                let found = reader.list_by_digest(&filter, holder, after, 100).unwrap();
                prop_assert_eq!(found, scanned);
            }
        }
        let listed = reader.list(&FileFilter::default(), None, 100).unwrap();
        prop_assert_eq!(listed.len(), names.len());
        for file in listed {
            prop_assert_eq!(file.digest, Digest::of(&[names[file.name.as_str()]]));
        }
    }
}
