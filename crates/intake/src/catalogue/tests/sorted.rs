//! Sorted listings and statistics against a plain list.

use std::collections::BTreeSet;

use forebay_base::waiting::{Gone, Waiting};

use super::*;
use crate::catalogue::report::{Top, shared_within};
use crate::catalogue::statistics::{Most, statistics};

const NAMESPACES: [&str; 3] = ["a", "a.b", "b"];
const NAMES: [&str; 9] =
    ["a", "a/b", "a/b/c", "a/\u{e9}", "a0", "b/x", "\u{df}", "\u{1f30a}/y", "z"];
const SIZES: [u64; 5] = [0, 1, 7, 7, 1 << 40];
const TIMES: [i64; 4] = [-5, 0, 9, 9];
const TYPES: [&str; 3] = ["text/plain", "image/png", "x/y"];

/// Indexes into the lists above, and whether the name has a tag.
type Given = (usize, usize, usize, usize, usize, bool);

fn given() -> impl Strategy<Value = Given> {
    (0..3usize, 0..9usize, 0..5usize, 0..4usize, 0..3usize, any::<bool>())
}

fn record(id: u64, (namespace, name, size, time, mime, is_tagged): Given) -> Arc<FileRecord> {
    let mut attributes = Attributes::default();
    if is_tagged {
        attributes.set(crate::attributes::AttributeKind::Tag, "t", "v").unwrap();
    }
    Arc::new(FileRecord {
        id,
        namespace: Namespace::parse(NAMESPACES[namespace]).unwrap(),
        name: FileName::parse(NAMES[name]).unwrap(),
        // Bytes of the same size are the same.
        digest: Digest::of(&SIZES[size].to_le_bytes()),
        size: SIZES[size],
        mime: Cow::Borrowed(TYPES[mime]),
        category: if mime == 1 { Category::Image } else { Category::Text },
        comment: String::new(),
        created_ms: TIMES[time],
        attributes,
    })
}

/// A catalogue with these names, where some are deleted, and those in the last namespace keep versions.
fn filled(
    steps: &[(Given, bool)],
) -> (tempfile::TempDir, CatalogueReader, Vec<FileRecord>, Vec<FileRecord>) {
    let (dir, mut catalogue, reader) = open();
    let mut files: BTreeMap<(String, String), FileRecord> = BTreeMap::new();
    let (mut versions, mut changes) = (Vec::new(), Vec::new());
    let mut stored = std::collections::BTreeSet::new();
    for (lsn, (given, is_deletion)) in (1u64..).zip(steps) {
        let file = record(lsn, *given);
        let key = (file.namespace.as_str().to_owned(), file.name.as_str().to_owned());
        let keeps = given.0 == 2;
        let before = if *is_deletion {
            let Some(before) = files.remove(&key) else { continue };
            let (namespace, name) = (file.namespace.clone(), file.name.clone());
            let kept_ms = keeps.then_some(5);
            changes.push(change(lsn, Change::Delete { namespace, name, kept_ms }));
            Some(before)
        } else {
            let place = if lsn % 2 == 0 { BlobLocation::File } else { BlobLocation::Entry(lsn) };
            let place = stored.insert(file.digest).then_some(place);
            changes.push(change(lsn, Change::Put { file: file.clone(), stored: place, keeps }));
            files.insert(key, (*file).clone())
        };
        versions.extend(before.filter(|_| keeps));
    }
    catalogue.apply(&changes, steps.len() as u64 + 1).unwrap();
    assert_eq!(catalogue.verify(9).unwrap(), Vec::<String>::new());
    (dir, reader, files.into_values().collect(), versions)
}

fn passes(filter: &FileFilter, file: &FileRecord) -> bool {
    filter.namespace.as_ref().is_none_or(|namespace| *namespace == file.namespace)
        && filter.prefix.as_ref().is_none_or(|prefix| file.name.as_str().starts_with(prefix))
        && filter.category.is_none_or(|category| category == file.category)
        && filter.size_min.is_none_or(|least| file.size >= least)
        && filter.created_to_ms.is_none_or(|end| file.created_ms < end)
        && (filter.tags.is_empty() || !file.attributes.is_empty())
}

fn filters() -> impl Strategy<Value = FileFilter> {
    let maybe = || any::<bool>();
    let select = (maybe(), maybe(), maybe(), maybe());
    (0..4usize, 0..3usize, select).prop_map(|(namespace, prefix, (image, size, time, tag))| {
        FileFilter {
            namespace: NAMESPACES.get(namespace).map(|name| Namespace::parse(name).unwrap()),
            prefix: ["a", "a/"].get(prefix).map(|prefix| (*prefix).to_owned()),
            category: image.then_some(Category::Image),
            size_min: size.then_some(7),
            created_to_ms: time.then_some(9),
            tags: if tag { vec![("t".to_owned(), None)] } else { Vec::new() },
            ..FileFilter::default()
        }
    })
}

fn sort(order: FileOrder, files: &mut [FileRecord]) {
    let name = |file: &FileRecord| (file.namespace.clone(), file.name.as_str().to_owned());
    files.sort_by_key(name);
    match order {
        FileOrder::Name => {}
        FileOrder::NameReversed => files.reverse(),
        FileOrder::Newest => files.sort_by_key(|file| std::cmp::Reverse(file.created_ms)),
        FileOrder::Oldest => files.sort_by_key(|file| file.created_ms),
        FileOrder::Smallest => files.sort_by_key(|file| file.size),
        FileOrder::Largest => files.sort_by_key(|file| std::cmp::Reverse(file.size)),
    }
}

/// Reads a cursor as a client sends it back.
fn sent(mark: &FileMark) -> FileMark {
    FileMark::parse(&mark.to_string()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]
    #[test]
    fn pages_of_every_order_have_each_file_once_in_the_order_of_a_sorted_list(
        steps in proptest::collection::vec((given(), any::<bool>()), 0..60),
        filter in filters(),
        limits in proptest::collection::vec(1usize..6, 1..4),
    ) {
        let (_dir, reader, files, _) = filled(&steps);
        for order in FileOrder::ALL {
            let mut expected: Vec<_> =
                files.iter().filter(|file| passes(&filter, file)).cloned().collect();
            sort(order, &mut expected);
            let (mut found, mut after) = (Vec::new(), None::<FileMark>);
            for limit in limits.iter().cycle() {
                let sorted = Sorted::by(order, after.as_ref());
                let page = reader.list_sorted(&filter, &sorted, *limit).unwrap();
                let Some(last) = page.last() else { break };
                after = Some(sent(&FileMark::of(order, last)));
                found.extend(page);
            }
            prop_assert_eq!(found, expected, "{:?}", order);
        }
    }

    #[test]
    fn sorted_pages_with_prefixes_have_these_first_and_each_entry_once(
        steps in proptest::collection::vec((given(), any::<bool>()), 0..60),
        prefix in 0..3usize,
        limits in proptest::collection::vec(1usize..4, 1..4),
    ) {
        let (_dir, reader, files, _) = filled(&steps);
        let browse = Browse {
            namespace: Namespace::parse("a").unwrap(),
            prefix: ["", "a", "a/"][prefix].to_owned(),
            delimiter: "/".to_owned(),
            after: None,
        };
        for order in FileOrder::ALL {
            let (mut plain, mut shared) = (Vec::new(), std::collections::BTreeSet::new());
            for file in &files {
                let name = file.name.as_str();
                if file.namespace == browse.namespace && name.starts_with(&browse.prefix) {
                    match browse.shared(name) {
                        Some(prefix) => drop(shared.insert(prefix.to_owned())),
                        None => plain.push(file.clone()),
                    }
                }
            }
            sort(order, &mut plain);
            let mut shared: Vec<_> = shared.into_iter().collect();
            if order == FileOrder::NameReversed {
                shared.reverse();
            }
            let (mut found, mut prefixes, mut after) = (Vec::new(), Vec::new(), None);
            for limit in limits.iter().cycle() {
                let page = reader.browse_sorted(&browse, order, after.as_ref(), *limit).unwrap();
                prop_assert!(page.files.len() + page.prefixes.len() <= *limit);
                prop_assert!(page.prefixes.is_empty() || found.is_empty());
                found.extend(page.files);
                prefixes.extend(page.prefixes);
                after = page.next.as_ref().map(sent);
                if after.is_none() {
                    break;
                }
            }
            prop_assert_eq!((found, prefixes), (plain, shared), "{:?}", order);
        }
    }

    #[test]
    fn statistics_are_those_of_a_plain_list_whatever_is_in_memory_at_once(
        steps in proptest::collection::vec((given(), any::<bool>()), 0..80),
        filter in filters(),
        contents in 1usize..4,
        groups in 1usize..4,
    ) {
        let (_dir, reader, files, versions) = filled(&steps);
        let gone = Gone::default();
        let found = reader.ask("test", |connection| {
            statistics(connection, &filter, Most { contents, groups }, &gone)
        });
        let found = found.unwrap();
        let mut selected: Vec<_> =
            files.into_iter().filter(|file| passes(&filter, file)).collect();
        let sums = |files: &mut dyn Iterator<Item = u64>| {
            files.fold(FileSums::default(), |sums, size| FileSums {
                files: sums.files + 1,
                bytes: sums.bytes + size,
            })
        };
        prop_assert_eq!(found.all, sums(&mut selected.iter().map(|file| file.size)));
        let different: BTreeMap<_, _> =
            selected.iter().map(|file| (file.digest.0, file.size)).collect();
        prop_assert_eq!(found.different, sums(&mut different.values().copied()));
        let kept = versions.iter().filter(|file| passes(&filter, file));
        prop_assert_eq!(found.versions, sums(&mut kept.map(|file| file.size)));
        for (category, of) in &found.categories {
            let of_it = selected.iter().filter(|file| file.category.as_str() == *category);
            prop_assert_eq!(*of, sums(&mut of_it.map(|file| file.size)));
        }
        prop_assert_eq!(found.categories.values().map(|of| of.files).sum::<u64>(), found.all.files);
        for (mime, of) in &found.media_types {
            let of_it = selected.iter().filter(|file| file.mime == *mime);
            prop_assert_eq!(*of, sums(&mut of_it.map(|file| file.size)));
        }
        let by_type = found.media_types.iter().map(|(_, of)| of.files).sum::<u64>();
        prop_assert_eq!(by_type + found.other_media_types.files, found.all.files);
        prop_assert!(groups < 3 || found.other_media_types.files == 0);
        for (namespace, of) in &found.namespaces {
            let of_it = selected.iter().filter(|file| file.namespace.as_str() == namespace);
            prop_assert_eq!(*of, sums(&mut of_it.map(|file| file.size)));
        }
        let named = found.namespaces.iter().map(|(_, of)| of.files).sum::<u64>();
        prop_assert_eq!(named + found.other_namespaces.files, found.all.files);
        let namespaces: BTreeSet<_> = selected.iter().map(|file| &file.namespace).collect();
        prop_assert_eq!(found.namespaces.len(), namespaces.len().min(groups));
        for class in &found.sizes {
            let range = class.size_min..=class.size_max;
            let of_it = selected.iter().filter(|file| range.contains(&file.size));
            prop_assert_eq!(class.sums, sums(&mut of_it.map(|file| file.size)));
        }
        prop_assert_eq!(found.sizes.iter().map(|of| of.sums.files).sum::<u64>(), found.all.files);
        let times = || selected.iter().map(|file| file.created_ms);
        prop_assert_eq!((found.oldest_ms, found.newest_ms), (times().min(), times().max()));
        sort(FileOrder::Largest, &mut selected);
        selected.truncate(10);
        prop_assert_eq!(found.largest, selected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]
    #[test]
    fn contents_of_a_namespace_are_counted_in_as_many_passes_as_memory_needs(
        steps in proptest::collection::vec((given(), any::<bool>()), 0..80),
        namespace in 0..3usize,
        (contents_max, limit) in (1usize..4, 1usize..6),
    ) {
        let (_dir, reader, files, versions) = filled(&steps);
        let namespace = Namespace::parse(NAMESPACES[namespace]).unwrap();
        let mut counted = BTreeMap::<_, (u64, u64)>::new();
        for file in files.iter().chain(&versions).filter(|file| file.namespace == namespace) {
            let (size, names) = counted.entry(file.digest).or_default();
            (*size, *names) = (file.size, *names + 1);
        }
        let mut expected: Vec<_> = counted
            .into_iter()
            .filter(|(_, (size, names))| *size > 0 && *names > 1)
            .map(|(digest, (size, names))| SharedContent { digest, size, names })
            .collect();
        expected.sort_by_key(|content| std::cmp::Reverse((content.saved_bytes(), content.digest)));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = reader.ask("test", |connection| {
                let mut top = Top::new(limit, after);
                let gone = Gone::default();
                shared_within(connection, &namespace, contents_max, &gone, &mut top)?;
                Ok(top.sorted())
            });
            let page = page.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.saved_bytes(), last.digest));
            found.extend(page);
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_cursor_is_read_as_it_was_displayed_and_nothing_else_is() {
    let file = record(7, (1, 3, 2, 0, 0, false));
    for order in FileOrder::ALL {
        let mark = FileMark::of(order, &file);
        assert_eq!((mark.order(), mark.is_prefix()), (order, false));
        assert_eq!(sent(&mark), mark);
    }
    let prefix = FileMark::parse("largest::docs/a:b/").unwrap();
    assert!(prefix.is_prefix() && prefix.to_string() == "largest::docs/a:b/");
    for text in [
        "",
        "largest",
        "largest:9",
        "largest:9:docs",
        "size:9:docs/a",
        "largest:x:docs/a",
        "largest:+9:docs/a",
        "largest:09:docs/a",
        "largest:9:Docs/a",
        "docs/a",
        "largest:-0:docs/a",
    ] {
        assert_eq!(FileMark::parse(text), None, "{text}");
    }
}

#[test]
fn an_altered_row_is_an_error_of_every_order_and_of_statistics() {
    for (column, value) in [
        ("size", "'x'"),
        ("size", "0"),
        ("created_ms", "7"),
        ("mime", "'x/y'"),
        ("name", "'zz'"),
        ("namespace", "'zz'"),
        ("digest", "zeroblob(32)"),
    ] {
        let (_dir, reader, path) = many();
        let other = Connection::open(&path).unwrap();
        let sql = format!("UPDATE files SET {column} = {value} WHERE name = 'name-0777'");
        other.execute_batch(&sql).unwrap();
        reader.look_again();
        let namespace = Some(Namespace::parse("ns").unwrap());
        for filter in [FileFilter::default(), FileFilter { namespace, ..FileFilter::default() }] {
            for order in FileOrder::ALL {
                let found = reader.list_sorted(&filter, &Sorted::by(order, None), 3);
                assert!(found.unwrap_err().source.is_damage(), "{sql}");
            }
            let gone = Gone::default();
            assert!(reader.statistics(&filter, &gone).unwrap_err().source.is_damage(), "{sql}");
        }
    }
}

#[test]
fn an_altered_version_is_an_error_of_statistics() {
    for set in ["size = 9", "name = 'zz'", "namespace = 'a'", "namespace = 'c'", "id = 900"] {
        let step = |size| ((2, 0, size, 0, 0, false), false);
        let (dir, reader, _, versions) = filled(&[step(1), step(2), step(1)]);
        assert_eq!(versions.len(), 2);
        let filter = FileFilter { namespace: Namespace::parse("b").ok(), ..FileFilter::default() };
        let gone = Gone::default();
        let found = reader.statistics(&filter, &gone).unwrap().unwrap();
        assert_eq!(found.versions, FileSums { files: 2, bytes: 8 });
        let other = Connection::open(dir.path().join("catalogue.sqlite")).unwrap();
        other.execute_batch(&format!("UPDATE versions SET {set} WHERE id = 2")).unwrap();
        reader.look_again();
        let refused = reader.statistics(&filter, &gone).unwrap_err();
        assert!(refused.source.is_damage(), "{set}: {refused:?}");
        let namespace = Namespace::parse("b").unwrap();
        assert!(reader.usage(&namespace).unwrap_err().source.is_damage(), "{set}");
        let shared = reader.most_shared(Some(&namespace), 9, None, &gone);
        assert!(shared.unwrap_err().source.is_damage(), "{set}");
    }
}

#[test]
fn statistics_that_are_stopped_are_none() {
    let (_dir, reader, _) = many();
    let gone = Waiting::default().gone();
    assert_eq!(reader.statistics(&FileFilter::default(), &gone).unwrap(), None);
}
