//! Rows that change while the catalogue is used: no listing is shorter for it.

use super::*;

fn listed(reader: &CatalogueReader, filter: &FileFilter) -> Result<Vec<String>, CatalogueError> {
    let files = reader.list(filter, None, 5_000)?;
    Ok(files.into_iter().map(|file| file.name.as_str().to_owned()).collect())
}

fn names(prefix: &str) -> FileFilter {
    let namespace = Some(Namespace::parse("ns").unwrap());
    FileFilter { namespace, prefix: Some(prefix.to_owned()), ..FileFilter::default() }
}

#[test]
fn a_row_altered_in_a_column_that_a_filter_looks_at_is_an_error() {
    let all = FileFilter::default;
    let filters = [
        ("size", FileFilter { size_min: Some(9), ..all() }),
        ("size", FileFilter { size_max: Some(9), ..all() }),
        ("mime", FileFilter { mime: Some("text/plain".into()), ..all() }),
        ("category", FileFilter { category: Some(Category::Text), ..all() }),
        ("created_ms", FileFilter { created_from_ms: Some(1), ..all() }),
        ("created_ms", FileFilter { created_to_ms: Some(2), ..all() }),
        ("digest", FileFilter { digest: Some(Digest::of(b"name-0777")), ..all() }),
    ];
    for (column, filter) in filters {
        for value in ["0", "-1", "99999999", "'x/y'", "zeroblob(32)"] {
            let (_dir, reader, path) = many();
            let found = listed(&reader, &filter).unwrap();
            assert!(found.contains(&"name-0777".to_owned()), "{column}");
            let other = Connection::open(&path).unwrap();
            let sql = format!("UPDATE files SET {column} = {value} WHERE name = 'name-0777'");
            other.execute_batch(&sql).unwrap();
            reader.look_again();
            let refused = listed(&reader, &filter).unwrap_err();
            assert!(refused.source.is_damage(), "{sql}: {refused:?}");
            assert!(refused.source.to_string().contains("ns/name-0777"), "{sql}: {refused:?}");
            assert!(reader.damage().is_some(), "{sql}");
            // A range that ends before the row does not read it.
            assert_eq!(listed(&reader, &names("name-06")).unwrap().len(), 100, "{sql}");
        }
    }
}

#[test]
fn a_name_altered_inside_or_at_the_edge_of_a_range_is_an_error() {
    for (prefix, old) in [
        ("name-07", "name-0750"),
        ("name-07", "name-0700"),
        ("name-07", "name-0799"),
        ("name-0777", "name-0777"),
        ("name-2", "name-2000"),
        ("name-000", "name-0001"),
        ("name", "name-1500"),
    ] {
        for new in ["aaaaaaaaa", "name-0zzz", "zzzzzzzzz", "name-0000"] {
            let (_dir, reader, path) = many();
            alter(&path, old.as_bytes(), new.as_bytes());
            let refused = listed(&reader, &names(prefix));
            assert!(
                matches!(&refused, Err(error) if error.source.is_damage()),
                "{prefix} {old} {new}: {refused:?}"
            );
        }
    }
}

#[test]
fn a_namespace_altered_in_a_row_is_an_error_of_either() {
    for place in ["name-0001", "name-1000", "name-2000"] {
        let (_dir, reader, path) = many();
        // The namespace stands before the name in the row.
        let (old, new) = (format!("ns{place}"), format!("zz{place}"));
        alter(&path, old.as_bytes(), new.as_bytes());
        assert!(listed(&reader, &names("name")).unwrap_err().source.is_damage(), "{place}");
        let pages = reader.list(&names(""), Some(("ns", "name-0999")), 5_000);
        assert_eq!(pages.is_err(), place != "name-0001", "{place}");
    }
}

/// One blob with several names, none of which is that of its entry, and others beside it.
fn named_often() -> (tempfile::TempDir, CatalogueReader, PathBuf, BlobRecord) {
    let (dir, mut catalogue, reader) = open();
    let changes: Vec<_> = (1..=900_u64)
        .map(|lsn| {
            let bytes = format!("bytes {}", lsn % 3);
            let file = file(lsn, &format!("name-{lsn:04}"), bytes.as_bytes());
            let stored = (lsn < 4).then_some(BlobLocation::File);
            change(lsn, Change::Put { file, stored, keeps: false })
        })
        .collect();
    catalogue.apply(&changes, 1_000).unwrap();
    catalogue.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let blob = catalogue.reader().unwrap().blob(Digest::of(b"bytes 1")).unwrap().unwrap();
    let path = dir.path().join("catalogue.sqlite");
    (dir, reader, path, blob)
}

#[test]
fn a_listing_by_digest_has_as_many_names_as_the_blob() {
    let by_digest = |reader: &CatalogueReader, blob: &BlobRecord, limit| {
        let filter = FileFilter { digest: Some(blob.digest), ..FileFilter::default() };
        let found = reader.list_by_digest(&filter, blob, None, &Sorted::default(), limit)?;
        Ok::<_, CatalogueError>(found.unwrap().len())
    };
    let (_dir, reader, path, blob) = named_often();
    assert_eq!(by_digest(&reader, &blob, 1_000).unwrap(), 300);
    let other = Connection::open(&path).unwrap();
    for (change, back) in [
        ("digest = zeroblob(32)", "digest = (SELECT digest FROM files WHERE name = 'name-0004')"),
        ("first = 1", "first = 0"),
    ] {
        let update = |set: &str| format!("UPDATE files SET {set} WHERE name = 'name-0700'");
        other.execute_batch(&update(change)).unwrap();
        reader.look_again();
        // Also a page that ends before it: what the page does not show is not known.
        for limit in [1_000, 10] {
            let refused = by_digest(&reader, &blob, limit).unwrap_err();
            assert!(refused.to_string().contains("by digest"), "{change}: {refused:?}");
            assert!(refused.source.to_string().contains("300 names, and 299"), "{refused:?}");
        }
        other.execute_batch(&update(back)).unwrap();
        reader.look_again();
        assert_eq!(by_digest(&reader, &blob, 1_000).unwrap(), 300);
    }
    // The index alone: its entries have the digest, the namespace and the name in this order.
    for new in ["name-0701", "name-9999", "aaaa-0000", "name-070x"] {
        let (_dir, reader, path, blob) = named_often();
        let entry = |name: &str| [&blob.digest.0[..], b"ns", name.as_bytes()].concat();
        alter(&path, &entry("name-0700"), &entry(new));
        let refused = by_digest(&reader, &blob, 1_000).unwrap_err();
        assert!(refused.source.is_damage(), "{new}: {refused:?}");
    }
}

#[test]
fn rows_that_are_missing_are_found_by_a_pass_and_by_the_totals() {
    let stop = AtomicBool::new(false);
    for change in [
        "DELETE FROM files WHERE name = 'name-0777'",
        "DELETE FROM blobs WHERE digest = (SELECT digest FROM files WHERE name = 'name-0777')",
        "UPDATE files SET name = 'other' WHERE name = 'name-0777'",
        "UPDATE meta SET value = value + 1 WHERE key = 'files'",
        "DELETE FROM meta",
    ] {
        let (_dir, reader, path) = many();
        reader.verify(&stop).unwrap();
        assert_eq!(reader.totals().unwrap().files, 2_000);
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        reader.look_again();
        let refused = reader.verify(&stop).unwrap_err();
        assert!(refused.source.is_damage(), "{change}: {refused:?}");
        assert_eq!(**reader.damage().unwrap(), refused.source.to_string());
        assert!(reader.totals().unwrap_err().source.is_damage(), "{change}");
    }
}

#[test]
fn passes_beside_a_writer_find_nothing_and_an_order_to_stop_ends_one() {
    let (_dir, mut catalogue, reader) = open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| {
            let mut passes = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || passes == 0 {
                reader.verify(&AtomicBool::new(false)).unwrap();
                reader.totals().unwrap();
                passes += 1;
            }
        });
        for lsn in 1..=500_u64 {
            let name = format!("name-{}", lsn % 50);
            let stored = Some(BlobLocation::Entry(lsn));
            let file = file(lsn, &name, format!("bytes {}", lsn % 7).as_bytes());
            catalogue
                .apply(&[change(lsn, Change::Put { file, stored, keeps: false })], lsn + 1)
                .unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        verifying.join().unwrap();
    });
    // A pass that is stopped before its first row has found nothing, whatever there is.
    let (_dir, reader, path) = many();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("DELETE FROM files WHERE name = 'name-0777'").unwrap();
    reader.verify(&AtomicBool::new(true)).unwrap();
    assert!(reader.verify(&AtomicBool::new(false)).is_err());
}

/// Three namespaces of 700 names each.
fn three() -> (tempfile::TempDir, CatalogueReader, PathBuf) {
    let (dir, mut catalogue, reader) = open();
    let changes: Vec<_> = (1..=2_100_u64)
        .map(|lsn| {
            let namespace = ["aa", "mm", "zz"][usize::try_from(lsn % 3).unwrap()];
            let name = format!("{namespace}-{lsn:04}");
            let plain = file(lsn, &name, name.as_bytes());
            let namespace = Namespace::parse(namespace).unwrap();
            let file = Arc::new(FileRecord { namespace, ..plain.as_ref().clone() });
            change(lsn, Change::Put { file, stored: Some(BlobLocation::Entry(lsn)), keeps: false })
        })
        .collect();
    catalogue.apply(&changes, 3_000).unwrap();
    catalogue.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let path = dir.path().join("catalogue.sqlite");
    (dir, reader, path)
}

#[test]
fn pages_that_begin_anywhere_are_parts_of_the_whole_listing() {
    let (_dir, reader, _) = three();
    let key = |file: &FileRecord| (file.namespace.to_string(), file.name.to_string());
    let all: Vec<_> = reader.list(&FileFilter::default(), None, 5_000).unwrap();
    assert_eq!(all.len(), 2_100);
    let stop = ["", "a", "aa", "bb", "mm", "nn", "zz", "zzz"];
    let names = ["", "aa-0002", "aa-9", "mm", "mm-0700", "zz-2099", "zz-2100"];
    for after in stop.iter().flat_map(|namespace| names.map(|name| (*namespace, name))) {
        for namespace in [None, Some("mm")] {
            for limit in [1, 800, 5_000] {
                let namespace = namespace.map(|name| Namespace::parse(name).unwrap());
                let filter = FileFilter { namespace, ..FileFilter::default() };
                let is_wanted = |file: &&FileRecord| {
                    let (of, name) = key(file);
                    (of.as_str(), name.as_str()) > after
                        && filter.namespace.as_ref().is_none_or(|it| *it == file.namespace)
                };
                let expected: Vec<_> = all.iter().filter(is_wanted).take(limit).map(key).collect();
                let found = reader.list(&filter, Some(after), limit).unwrap();
                let found: Vec<_> = found.iter().map(key).collect();
                assert!(found == expected, "{after:?} {limit} {:?}", filter.namespace);
            }
        }
    }
}

#[test]
fn a_row_altered_where_one_namespace_ends_and_the_next_begins_is_an_error() {
    // The last name of one namespace, and the first one of the next.
    for place in ["mmmm-2098", "zzzz-0002", "aaaa-2100", "mmmm-0001"] {
        for other in ["00", "bb", "nn", "~~"] {
            let (_dir, reader, path) = three();
            let altered = format!("{other}{}", &place[2..]);
            alter(&path, place.as_bytes(), altered.as_bytes());
            for after in [("aa", "aa-1500"), ("mm", "mm-1500"), ("mm", "mm-0002")] {
                let is_behind = after < (&place[..2], &place[2..]);
                let listed = reader.list(&FileFilter::default(), Some(after), 5_000);
                assert!(listed.is_err() || !is_behind, "{place} {other} {after:?}");
            }
        }
    }
}
