//! The index by itself, with more files than a test could store.

use crate::attributes::Attributes;
use std::borrow::Cow;

use super::cursor::{SearchCursor, SearchOrder};
use super::find::{FindError, Found, MATCHES_MAX, Plan};
use super::schema::{open_reader, version_of};
use super::store::{Change, Opened, Store};
use super::words::Words;
use super::{SearchFilter, SearchQuery};
use crate::catalogue::FileRecord;
use crate::classify::Category;
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::names::{FileName, Namespace};

const LOG: [u8; 16] = [7; 16];

fn store(path: &std::path::Path) -> Store {
    match Store::open(path, LOG).unwrap() {
        Opened::Current(store) => store,
        Opened::Unusable(reason) => panic!("{reason}"),
    }
}

fn put(id: u64, namespace: &str, name: &str, text: &str) -> Change {
    let file = FileRecord {
        id,
        namespace: Namespace::parse(namespace).unwrap(),
        name: FileName::parse(name).unwrap(),
        digest: Digest::of(text.as_bytes()),
        size: id % 1_000,
        mime: Cow::Borrowed("text/plain"),
        category: Category::Text,
        comment: String::new(),
        created_ms: i64::try_from(id).unwrap(),
        attributes: Attributes::default(),
    };
    Change::Put { file: Box::new(file), text: Some(text.to_owned()) }
}

struct Asked<'a> {
    typed: Option<&'a str>,
    filter: SearchFilter,
    order: Option<SearchOrder>,
    after: Option<SearchCursor>,
}

fn ask(path: &std::path::Path, asked: &Asked<'_>, limit: usize) -> Result<Found, FindError> {
    let words = asked.typed.map(|typed| Words::parse(typed).unwrap());
    let query = SearchQuery {
        filter: asked.filter.clone(),
        order: asked.order,
        limit,
        ..SearchQuery::default()
    };
    let plan = Plan::new(&query, words.as_ref());
    plan.find(&open_reader(path).unwrap(), asked.after.as_ref(), limit)
}

/// Every page, with at most this many pages.
fn ids(path: &std::path::Path, mut asked: Asked<'_>, limit: usize, pages_max: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    for _ in 0..pages_max {
        let found = ask(path, &asked, limit).unwrap();
        ids.extend(found.hits.iter().map(|hit| hit.file.id));
        asked.after = found.more;
        if asked.after.is_none() {
            return ids;
        }
    }
    panic!("more than {pages_max} pages");
}

#[test]
fn too_many_matches_are_the_newest_first_and_every_one_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("search.sqlite");
    let mut store = store(&path);
    let count = MATCHES_MAX as u64 + 200;
    let changes: Vec<Change> = (1..=count)
        .map(|id| {
            let namespace = if id.is_multiple_of(100) { "rare" } else { "usual" };
            let text = if id == 5_000 { "common needle" } else { "common" };
            put(id, namespace, &format!("report-{id}"), text)
        })
        .collect();
    store.apply(&changes, count).unwrap();

    let all = |typed| Asked { typed, filter: SearchFilter::default(), order: None, after: None };
    for typed in ["common", "report", "ommon OR", "rep*"] {
        let found = ask(&path, &all(Some(typed)), 3);
        let Ok(found) = found else { panic!("{typed}") };
        if typed == "ommon OR" {
            assert!(found.hits.is_empty(), "an operator is a word like any other");
            continue;
        }
        assert_eq!((found.order, found.matches), (SearchOrder::Newest, None), "{typed}");
        let newest: Vec<_> = found.hits.iter().map(|hit| (hit.file.id, hit.score)).collect();
        assert_eq!(newest, [(count, None), (count - 1, None), (count - 2, None)], "{typed}");
    }
    // As a word and as a piece of the name.
    let newest: Vec<u64> = (1..=count).rev().collect();
    assert_eq!(ids(&path, all(Some("report")), 1_000, 12), newest);
    let oldest = Asked { order: Some(SearchOrder::Oldest), ..all(Some("common")) };
    assert_eq!(ids(&path, oldest, 1_000, 12), (1..=count).collect::<Vec<_>>());

    // A property narrows the matches before they are counted.
    let filter =
        SearchFilter { namespace: Some(Namespace::parse("rare").unwrap()), ..Default::default() };
    let rare = Asked { filter, ..all(Some("common")) };
    let found = ask(&path, &rare, 1_000).unwrap();
    assert_eq!((found.order, found.matches), (SearchOrder::Relevance, Some(count / 100)));
    let needle = ask(&path, &all(Some("needle")), 10).unwrap();
    assert_eq!((needle.hits[0].file.id, needle.matches), (5_000, Some(1)));
    assert!(needle.hits[0].score.unwrap() > 1.0);

    // A condition that no index has is looked at row by row, and a page may end before it is full.
    let filter = SearchFilter { size_max: Some(0), ..SearchFilter::default() };
    let sized = Asked { filter, ..all(Some("common")) };
    let thousands: Vec<u64> = (1..=count).rev().filter(|id| id.is_multiple_of(1_000)).collect();
    assert_eq!(ids(&path, sized, 4, 10), thousands);

    // Without words the rows are read in any order.
    for order in SearchOrder::ALL {
        let found = ids(&path, Asked { order: Some(order), ..all(None) }, 1_000, 12);
        let mut expected: Vec<u64> = (1..=count).collect();
        let name = |id: &u64| {
            (if id.is_multiple_of(100) { "rare" } else { "usual" }, format!("report-{id}"))
        };
        match order {
            SearchOrder::Relevance | SearchOrder::Newest => expected.reverse(),
            SearchOrder::Oldest => {}
            SearchOrder::Name => expected.sort_by_key(name),
            SearchOrder::Smallest => expected.sort_by_key(|id| (id % 1_000, *id)),
            SearchOrder::Largest => {
                expected.sort_by_key(|id| std::cmp::Reverse((id % 1_000, *id)));
            }
        }
        assert_eq!(found, expected, "{order:?}");
    }
    let ranked = SearchCursor::Relevance { score: 1.0, id: 3 };
    let late = Asked { after: Some(ranked), ..all(Some("common")) };
    assert!(matches!(ask(&path, &late, 3), Err(FindError::Query(IntakeError::Rejected { .. }))));
}

#[test]
fn the_beginning_of_too_many_words_is_refused_before_it_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("search.sqlite");
    let mut store = store(&path);
    for n in 0..11 {
        let text: Vec<String> = (0..10_000).map(|word| format!("begin{n}x{word}")).collect();
        store.apply(&[put(n + 1, "n", &format!("long-{n}"), &text.join(" "))], n + 1).unwrap();
    }
    let all = |typed| Asked { typed, filter: SearchFilter::default(), order: None, after: None };
    for typed in ["beg*", "BEGIN* other"] {
        let found = ask(&path, &all(Some(typed)), 3);
        assert!(matches!(found, Err(FindError::Query(IntakeError::Rejected { .. }))), "{typed}");
    }
    assert_eq!(ask(&path, &all(Some("begin3x*")), 3).unwrap().hits.len(), 1);
}

#[test]
fn a_name_has_one_row_and_a_change_applied_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("search.sqlite");
    let mut store = store(&path);
    let delete = |name: &str| Change::Delete { namespace: "n".to_owned(), name: name.to_owned() };
    let changes =
        || [put(1, "n", "a", "one"), put(2, "n", "a", "two"), put(3, "n", "b", "two"), delete("c")];
    for position in [10, 20] {
        store.apply(&changes(), position).unwrap();
        let state = store.state();
        assert_eq!((state.files, state.texts, state.text_bytes), (2, 2, 6));
        assert_eq!(state.position, position);
    }
    let all = |typed| Asked { typed, filter: SearchFilter::default(), order: None, after: None };
    assert_eq!(ids(&path, all(Some("one")), 5, 1), Vec::<u64>::new());
    assert_eq!(ids(&path, all(None), 5, 1), [3, 2]);
    store.apply(&[delete("a"), delete("b")], 30).unwrap();
    assert_eq!(ids(&path, all(None), 5, 1), Vec::<u64>::new());
    assert_eq!(super::check(&path, None).unwrap(), (0, Vec::new()));
}

#[test]
fn an_index_of_another_log_version_or_content_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("search.sqlite");
    drop(store(&path));
    let is_usable = |log| matches!(Store::open(&path, log).unwrap(), Opened::Current(_));
    assert!(is_usable(LOG) && !is_usable([8; 16]));
    let change = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change("UPDATE meta SET files = 1");
    assert!(!is_usable(LOG));
    change("UPDATE meta SET files = 0");
    assert!(is_usable(LOG));
    change("CREATE TABLE more (x)");
    assert!(!is_usable(LOG));
    change("DROP TABLE more; PRAGMA user_version = 1");
    assert!(!is_usable(LOG));
    assert_eq!(version_of(&open_reader(&path).unwrap()).unwrap(), 1);
    assert_eq!(super::check(&path, None).unwrap().1, Vec::<String>::new());
    std::fs::write(&path, "no database at all, but long enough to look like one").unwrap();
    assert!(!is_usable(LOG));
}
