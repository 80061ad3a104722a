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
fn a_name_for_an_unknown_blob_is_lost_until_the_name_goes() {
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
    assert_eq!(catalogue.position().unwrap(), 4);
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
    // The name goes and the bytes come again in one batch, so that the count never shows zero.
    let again = change(4, named(4, Some(Place::Entry(4))));
    catalogue.apply(&[change(3, delete), again], 5).unwrap();
    assert!(catalogue.lost_blobs().unwrap().is_empty());
    assert_eq!(reader.blob(Digest::of(b"b")).unwrap().unwrap().place, Place::Entry(4));
}

#[test]
fn a_blob_without_names_takes_the_place_of_a_new_copy() {
    let (_dir, mut catalogue, reader) = open();
    let put = |lsn| Change::Put { file: file(lsn, "a", b"a"), stored: Some(Place::Entry(lsn)) };
    let delete = Change::Delete {
        namespace: Namespace::parse("ns").unwrap(),
        name: FileName::parse("a").unwrap(),
    };
    catalogue.apply(&[change(1, put(1)), change(2, delete)], 3).unwrap();
    catalogue.apply(&[change(3, put(3))], 4).unwrap();
    assert_eq!(reader.blob(Digest::of(b"a")).unwrap().unwrap().place, Place::Entry(3));
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
            change(lsn, Change::Put { file, stored: Some(Place::Entry(lsn)) })
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..Default::default() })]
    #[test]
    fn names_and_reference_counts_follow_a_plain_model(
        steps in proptest::collection::vec((0u8..6, 0u8..5, any::<bool>()), 1..60),
    ) {
        let (_dir, mut catalogue, reader) = open();
        let mut names: BTreeMap<String, u8> = BTreeMap::new();
        let mut stored = std::collections::BTreeSet::new();
        for (lsn, (name, content, delete)) in (1u64..).zip(steps) {
            let name = format!("n{name}");
            let next = if delete {
                names.remove(&name);
                Change::Delete {
                    namespace: Namespace::parse("ns").unwrap(),
                    name: FileName::parse(&name).unwrap(),
                }
            } else {
                let place = stored.insert(content).then_some(Place::Entry(lsn));
                names.insert(name.clone(), content);
                Change::Put { file: file(lsn, &name, &[content]), stored: place }
            };
            catalogue.apply(&[change(lsn, next)], lsn + 1).unwrap();
        }
        for content in stored {
            let refs = names.values().filter(|&&held| held == content).count() as u64;
            let blobs = reader.blobs_after(None, 100).unwrap();
            let found = blobs.iter().find(|(blob, _)| blob.digest == Digest::of(&[content]));
            prop_assert_eq!(found.unwrap().1, refs);
        }
        let listed = reader.list(&FileFilter::default(), None, 100).unwrap();
        prop_assert_eq!(listed.len(), names.len());
        for file in listed {
            prop_assert_eq!(file.digest, Digest::of(&[names[file.name.as_str()]]));
        }
    }
}
