//! Search through the intake: it finds what a scan of the names and texts would find, only names that
//! exist, and whatever happens to its index nothing else is affected.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::rules::Sender;
use forebay_intake::search::{SearchFilter, SearchOrder, SearchPage, SearchQuery};
use forebay_intake::{Condition, Intake, IntakeError, NewFile};
use proptest::prelude::*;
use rusqlite::Connection;

use crate::requests::{delete, put, receive};
use crate::support::{House, block_on, findings, key, namespace, open_with};

const SEARCH: &str = "search.sqlite";

async fn search(intake: &Intake, query: SearchQuery) -> Result<SearchPage, IntakeError> {
    intake.search_reached().await.unwrap();
    intake.search(query).await
}

fn typed(words: &str) -> SearchQuery {
    SearchQuery { words: Some(words.to_owned()), limit: 100, ..SearchQuery::default() }
}

/// The names that a search finds, sorted.
async fn names(intake: &Intake, words: &str) -> Vec<String> {
    let page = search(intake, typed(words)).await.unwrap();
    let names = page.files.iter().map(|f| format!("{}/{}", f.file.namespace, f.file.name));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn words_are_found_in_names_and_in_the_text_of_text_formats() {
    let house = House::with(|options| options.limits.packed_size_max = 1_000);
    let intake = &house.intake;
    block_on(async {
        let long = format!("{} zebra", "filler ".repeat(1_000));
        let html = b"<!DOCTYPE html><html><body class=\"hidden\"><b>visible</b>&amp;</body></html>";
        for (name, bytes) in [
            ("Quarterly-Report v2.txt", &b"The \xC3\xA9cole said: hello, World. foo_bar"[..]),
            ("data.json", br#"{"customer": "Zoe", "n": 1}"#),
            ("page.html", html),
            ("large.txt", long.as_bytes()),
            ("picture.png", b"\x89PNG\r\n\x1a\n hello binary"),
        ] {
            put(intake, &key("docs", name), bytes).await.unwrap();
        }
        for (words, expected) in [
            ("hello", vec!["docs/Quarterly-Report v2.txt"]),
            ("HELLO world", vec!["docs/Quarterly-Report v2.txt"]),
            ("\"hello world\"", vec!["docs/Quarterly-Report v2.txt"]),
            ("\"world hello\"", vec![]),
            ("ecole", vec!["docs/Quarterly-Report v2.txt"]),
            ("foo_bar", vec!["docs/Quarterly-Report v2.txt"]),
            ("foo", vec![]),
            ("foo*", vec!["docs/Quarterly-Report v2.txt"]),
            ("uarterly-rep", vec!["docs/Quarterly-Report v2.txt"]),
            ("v2 hello", vec!["docs/Quarterly-Report v2.txt"]),
            ("zoe customer", vec!["docs/data.json"]),
            ("data.json", vec!["docs/data.json"]),
            ("visible", vec!["docs/page.html"]),
            ("hidden", vec![]),
            ("zebra", vec!["docs/large.txt"]),
            ("binary", vec![]),
            ("pictur", vec!["docs/picture.png"]),
        ] {
            assert_eq!(names(intake, words).await, expected, "{words}");
        }
        let query = SearchQuery { excerpts: true, ..typed("zebra") };
        let page = search(intake, query).await.unwrap();
        assert!(page.files[0].excerpt.as_deref().unwrap().ends_with("filler zebra"));
        assert!(page.files[0].score.is_some() && page.matches == Some(1) && page.next.is_none());
        assert_eq!((page.index.files, page.index.texts, page.index.behind_bytes), (5, 4, 0));
    });
}

#[test]
fn rubbish_is_an_error_of_the_request_or_finds_nothing() {
    let house = House::with(|_| {});
    let intake = &house.intake;
    let long = "x".repeat(10_000);
    block_on(async {
        put(intake, &key("n", "a-b 'x.txt"), b"foo.txt NEAR(a b) {name}").await.unwrap();
        intake.search_reached().await.unwrap();
        for words in ["", " ", "\0", "\"", "*", "'", "-", "()", "^", "\u{301}", &long] {
            let found = intake.search(typed(words)).await;
            match found {
                Err(IntakeError::Rejected { code: "query", .. }) => {}
                Ok(page) => assert!(page.files.is_empty(), "{words:?}"),
                Err(error) => panic!("{words:?}: {error}"),
            }
        }
        for (words, is_found) in [
            ("a-b", true),
            ("foo.txt", true),
            ("'x", true),
            ("a\0b", true),
            ("NEAR(a b)", true),
            ("name:foo", false),
            ("foo AND txt", false),
            ("foo OR nothing", false),
            ("NOT foo", false),
            ("\"foo", true),
            ("; DROP TABLE files", false),
            ("{name}", true),
            ("\u{202e}foo", true),
        ] {
            let found = names(intake, words).await;
            assert_eq!(!found.is_empty(), is_found, "{words:?}");
        }
        let filter = SearchFilter { media_type: Some("image*".into()), ..SearchFilter::default() };
        let query = SearchQuery { filter, limit: 1, ..SearchQuery::default() };
        assert!(matches!(intake.search(query).await, Err(IntakeError::Rejected { .. })));
    });
}

#[test]
fn only_names_that_still_refer_to_what_was_found_are_returned() {
    let house = House::with(|_| {});
    let intake = &house.intake;
    block_on(async {
        for n in 0..4 {
            put(intake, &key("n", &format!("f{n}")), format!("apple {n}").as_bytes())
                .await
                .unwrap();
        }
        assert_eq!(names(intake, "apple").await, ["n/f0", "n/f1", "n/f2", "n/f3"]);
        put(intake, &key("n", "f0"), b"pear").await.unwrap();
        delete(intake, &key("n", "f1")).await.unwrap();
        // The index has not necessarily seen that.
        let page = intake.search(typed("apple")).await.unwrap();
        let found: Vec<_> = page.files.iter().map(|found| found.file.name.as_str()).collect();
        assert!(found.len() == 2 && found.contains(&"f2") && found.contains(&"f3"), "{found:?}");
        assert_eq!(names(intake, "pear").await, ["n/f0"]);
        // Bytes that were stored before are found under their new name, too.
        put(intake, &key("m", "again"), b"apple 3").await.unwrap();
        delete(intake, &key("n", "f3")).await.unwrap();
        intake.reclaim().await.unwrap();
        assert_eq!(names(intake, "apple").await, ["m/again", "n/f2"]);
    });
    let (options, _dir) = house.close();
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn of_many_changes_to_a_name_at_once_the_last_is_found() {
    let house = House::with(|_| {});
    let intake = &house.intake;
    block_on(async {
        // The index is waited for only at the end: it takes these in few transactions.
        for round in 0..40 {
            for name in ["kept.txt", "deleted.txt", "again.txt"] {
                put(intake, &key("n", name), format!("round {round} of words").as_bytes())
                    .await
                    .unwrap();
            }
            delete(intake, &key("n", "again.txt")).await.unwrap();
            put(intake, &key("n", "again.txt"), format!("once more {round}").as_bytes())
                .await
                .unwrap();
            delete(intake, &key("n", "deleted.txt")).await.unwrap();
        }
        assert_eq!(names(intake, "round").await, ["n/kept.txt"]);
        assert_eq!(names(intake, "39").await, ["n/again.txt", "n/kept.txt"]);
        assert_eq!(names(intake, "38").await, [""; 0]);
        assert_eq!(names(intake, "deleted").await, [""; 0]);
        let status = intake.search_status().unwrap();
        assert_eq!((status.files, status.texts, status.behind_bytes), (2, 2, 0));
    });
    let (options, _dir) = house.close();
    assert_eq!(findings(&options.dir), [""; 0]);
}

#[test]
fn an_index_that_is_missing_damaged_or_old_is_built_again() {
    let house = House::with(|_| {});
    block_on(async {
        for n in 0..20 {
            let text = format!("apple number{n}");
            put(&house.intake, &key("n", &format!("f{n}.txt")), text.as_bytes()).await.unwrap();
        }
        house.intake.search_reached().await.unwrap();
    });
    let (options, dir) = house.close();
    let path = options.dir.join(SEARCH);
    type Harm = fn(&Path);
    let harm: [(&str, Harm); 6] = [
        ("missing", |path| std::fs::remove_file(path).unwrap()),
        ("empty", |path| std::fs::write(path, "").unwrap()),
        ("no database", |path| std::fs::write(path, [7; 9_000]).unwrap()),
        ("cut", |path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(8_192).unwrap();
        }),
        ("old", |path| run(path, "PRAGMA user_version = 99")),
        ("altered", |path| run(path, "UPDATE files SET name = 'g' WHERE name = 'f3.txt'")),
    ];
    for (what, harm) in harm {
        harm(&path);
        let intake = open_with(options.clone()).unwrap();
        block_on(async {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            loop {
                // A search that meets the damage has the index built again.
                let found = intake.search(typed("apple number3")).await;
                let status = intake.search_status().unwrap();
                if found.is_ok_and(|page| page.files.len() == 1) && status.files == 20 {
                    break;
                }
                assert!(std::time::Instant::now() < deadline, "{what}: {status:?}");
                tokio::task::yield_now().await;
            }
            assert_eq!(names(&intake, "apple").await.len(), 20, "{what}");
        });
        intake.close().unwrap();
        drop(intake);
        assert_eq!(findings(&options.dir), Vec::<String>::new(), "{what}");
    }
    run(&path, "UPDATE files SET size = 3 WHERE name = 'f3.txt'");
    let found = findings(&options.dir);
    assert!(found.len() == 1 && found[0].starts_with("search: the row"), "{found:?}");
    // The row, its words and its pieces are three tables that have to agree.
    run(&path, "UPDATE files SET size = 13 WHERE name = 'f3.txt'");
    assert_eq!(findings(&options.dir), Vec::<String>::new());
    run(&path, "DELETE FROM words WHERE rowid = (SELECT min(id) FROM files)");
    let found = findings(&options.dir);
    assert!(
        found.len() == 1 && found[0].starts_with("search: the table words has 19 files"),
        "{found:?}"
    );
    drop(dir);
}

fn run(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Bytes of the index, at a fixed distance, are changed in turn: nothing that is returned is wrong, and
/// nothing else is affected.
#[test]
fn a_changed_byte_of_the_index_never_returns_a_wrong_file() {
    let house = House::with(|_| {});
    block_on(async {
        for n in 0..8 {
            let text = format!("apple number{n}");
            put(&house.intake, &key("n", &format!("f{n}.txt")), text.as_bytes()).await.unwrap();
        }
        house.intake.search_reached().await.unwrap();
    });
    let (options, _dir) = house.close();
    let path = options.dir.join(SEARCH);
    run(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    for at in used.into_iter().step_by(97) {
        for suffix in ["-wal", "-shm"] {
            let beside = options.dir.join(format!("{SEARCH}{suffix}"));
            assert!(!beside.exists() || std::fs::remove_file(beside).is_ok());
        }
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        let intake = open_with(options.clone()).unwrap();
        block_on(async {
            for query in [typed("apple"), SearchQuery { limit: 100, ..SearchQuery::default() }] {
                for order in SearchOrder::ALL {
                    let query = SearchQuery { order: Some(order), ..query.clone() };
                    // An error, or files that exist.
                    let Ok(page) = intake.search(query).await else { continue };
                    assert!(page.files.len() <= 8, "byte {at}");
                    for found in page.files {
                        let key = (found.file.namespace.clone(), found.file.name.clone());
                        let stored = intake.find(&key).await.unwrap().unwrap();
                        assert_eq!(stored.record, found.file, "byte {at}");
                    }
                }
            }
            put(&intake, &key("n", "f0.txt"), b"apple number0").await.unwrap();
        });
        intake.close().unwrap();
    }
}

#[test]
fn search_that_is_switched_off_keeps_no_index_and_catches_up_later() {
    let house = House::with(|options| options.search = false);
    block_on(async {
        put(&house.intake, &key("n", "a"), b"apple").await.unwrap();
        let found = house.intake.search(typed("apple")).await;
        assert!(matches!(found, Err(IntakeError::NotFound { .. })));
    });
    let (mut options, _dir) = house.close();
    assert!(!options.dir.join(SEARCH).exists());
    options.search = true;
    let intake = open_with(options).unwrap();
    block_on(async { assert_eq!(names(&intake, "apple").await, ["n/a"]) });
}

#[test]
fn comments_metadata_and_tags_are_searched_as_words_and_by_equality() {
    let house = House::with(|_| {});
    let intake = &house.intake;
    let store = async |name: &str, comment: &str, tags: &[(&str, &str)], author: &str| {
        let mut attributes = Attributes::default();
        for (name, value) in tags {
            attributes.set(AttributeKind::Tag, name, value).unwrap();
        }
        attributes.set(AttributeKind::Metadata, "author", author).unwrap();
        let key = key("n", name);
        let upload = receive(intake, name.as_bytes()).await.unwrap();
        let classified = upload.classify(&key.1).await;
        let (comment, condition) = (comment.to_owned(), Condition::None);
        let idempotency = None;
        let new = NewFile {
            key,
            comment,
            attributes,
            classified,
            condition,
            idempotency,
            is_routed: false,
            sender: Sender::default(),
        };
        intake.put(new, upload).await.unwrap();
    };
    let tag = |name: &str, value: Option<&str>| {
        let tags = vec![(name.to_owned(), value.map(str::to_owned))];
        SearchFilter { tags, ..SearchFilter::default() }
    };
    block_on(async {
        store("a.txt", "the first draft", &[("stage", "final"), ("x", "")], "Ada").await;
        store("b.txt", "", &[("stage", "draft")], "Ada Byron").await;
        store("c.bin", "", &[], "Ada").await;
        for (words, expected) in [
            ("draft", vec!["n/a.txt", "n/b.txt"]),
            ("byron", vec!["n/b.txt"]),
            ("author ada", vec!["n/a.txt", "n/b.txt", "n/c.bin"]),
        ] {
            assert_eq!(names(intake, words).await, expected, "{words}");
        }
        let metadata = vec![("author".to_owned(), "Ada".to_owned())];
        for (words, filter, expected) in [
            (None, tag("stage", None), vec!["a.txt", "b.txt"]),
            (None, tag("stage", Some("draft")), vec!["b.txt"]),
            (None, tag("stage", Some("")), vec![]),
            (None, tag("x", Some("")), vec!["a.txt"]),
            (None, tag("author", None), vec![]),
            (Some("txt"), tag("stage", Some("final")), vec!["a.txt"]),
            (Some(".txt"), tag("x", None), vec!["a.txt"]),
            (None, SearchFilter { metadata, ..SearchFilter::default() }, vec!["a.txt", "c.bin"]),
        ] {
            let words = words.map(str::to_owned);
            let query = SearchQuery {
                words,
                filter,
                limit: 9,
                order: Some(SearchOrder::Name),
                ..SearchQuery::default()
            };
            let page = search(intake, query.clone()).await.unwrap();
            let found: Vec<_> = page.files.iter().map(|found| found.file.name.as_str()).collect();
            assert_eq!(found, expected, "{query:?}");
        }
        // Only the tags change: the file is another entry of the log, with the same bytes.
        store("a.txt", "the first draft", &[("stage", "draft")], "Ada").await;
        let query = SearchQuery { filter: tag("x", None), limit: 9, ..SearchQuery::default() };
        assert!(search(intake, query).await.unwrap().files.is_empty());
    });
}

const WORDS: [&str; 6] = ["apple", "pear", "fig", "app", "x1", "fig_tree"];
const NAMES: [&str; 6] =
    ["n/a.txt", "n/apple-pie.txt", "n/fig tree.txt", "m/x1.txt", "m/a/b.txt", "m/pears.txt"];
const QUERIES: [&str; 12] = [
    "apple",
    "pear fig",
    "\"apple pear\"",
    "app*",
    "fig_tree",
    "x1",
    "pie",
    "ear",
    "fig-tree",
    "txt",
    "a.txt",
    "apple txt x1",
];

#[derive(Debug, Clone)]
enum Step {
    Put { name: usize, words: Vec<usize> },
    Delete { name: usize },
    Search { query: usize, prefix: bool },
    Reopen,
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        5 => (name.clone(), prop::collection::vec(0..WORDS.len(), 1..5))
            .prop_map(|(name, words)| Step::Put { name, words }),
        2 => name.prop_map(|name| Step::Delete { name }),
        4 => (0..QUERIES.len(), any::<bool>()).prop_map(|(query, prefix)| Step::Search { query, prefix }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Drop),
    ]
}

/// Words as the index has them, of ASCII text.
fn tokens(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|part| !part.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Whether a scan of the name and the text finds a query.
fn is_found(query: &str, name: &str, text: &str) -> bool {
    let phrases: Vec<String> = match query.strip_prefix('"') {
        Some(phrase) => vec![phrase.trim_end_matches('"').to_owned()],
        None => query.split_whitespace().map(str::to_owned).collect(),
    };
    let is_piece = |phrase: &String| {
        let piece = phrase.trim_end_matches('*');
        piece.len() >= 3 && name.contains(piece)
    };
    let has = |text: &str, phrase: &String| {
        let (wanted, found) = (tokens(phrase), tokens(text));
        found.windows(wanted.len()).any(|window| match wanted.split_last() {
            Some((last, first)) if phrase.ends_with('*') => {
                window.starts_with(first) && window[first.len()].starts_with(last.as_str())
            }
            _ => window == wanted,
        })
    };
    let has_all_pieces = phrases.iter().all(is_piece);
    has_all_pieces || phrases.iter().all(|phrase| has(name, phrase) || has(text, phrase))
}

fn scan(files: &BTreeMap<String, String>, query: &str, prefix: Option<&str>) -> Vec<String> {
    let inside = |name: &str| {
        let (_, name) = name.split_once('/').unwrap();
        name.to_owned()
    };
    let found = files.iter().filter(|(name, text)| {
        let name = inside(name);
        prefix.is_none_or(|prefix| name.starts_with(prefix)) && is_found(query, &name, text)
    });
    found.map(|(name, _)| name.clone()).collect()
}

fn run_steps(steps: &[Step]) {
    let house = House::with(|options| {
        options.limits.packed_size_max = 12;
        options.segment_size = 64 << 10;
    });
    let House { mut intake, options, dir } = house;
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Reopen | Step::Drop => {
                if matches!(step, Step::Reopen) {
                    intake.close().unwrap();
                }
                drop(intake);
                intake = open_with(options.clone()).unwrap();
            }
            Step::Put { name, words } => {
                let text: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
                let (namespace, name) = NAMES[*name].split_once('/').unwrap();
                let text = text.join(" ");
                block_on(put(&intake, &key(namespace, name), text.as_bytes())).unwrap();
                files.insert(format!("{namespace}/{name}"), text);
            }
            Step::Delete { name } => {
                let (namespace, name) = NAMES[*name].split_once('/').unwrap();
                block_on(delete(&intake, &key(namespace, name))).unwrap();
                files.remove(&format!("{namespace}/{name}"));
            }
            Step::Search { query, prefix } => block_on(async {
                let prefix = prefix.then_some("a");
                let filter =
                    SearchFilter { prefix: prefix.map(str::to_owned), ..SearchFilter::default() };
                let words = QUERIES[*query];
                let page = search(&intake, SearchQuery { filter, ..typed(words) }).await.unwrap();
                let names = page.files.iter();
                let names = names.map(|f| format!("{}/{}", f.file.namespace, f.file.name));
                let mut names: Vec<String> = names.collect();
                names.sort();
                assert_eq!(names, scan(&files, words, prefix), "{words}");
            }),
        }
    }
    intake.close().unwrap();
    drop(intake);
    assert_eq!(findings(&options.dir), Vec::<String>::new());
    drop(dir);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_search_finds_what_a_scan_would(steps in prop::collection::vec(step(), 1..40)) {
        run_steps(&steps);
    }
}

#[test]
fn a_filter_and_an_order_hold_on_every_page() {
    let house = House::with(|_| {});
    let intake = &house.intake;
    block_on(async {
        for n in 0..25 {
            let name = key(if n % 2 == 0 { "even" } else { "odd" }, &format!("{n:02}.txt"));
            put(intake, &name, format!("apple {}", "pie ".repeat(n)).as_bytes()).await.unwrap();
        }
        put(intake, &key("even", "x.png"), b"\x89PNG\r\n\x1a\n").await.unwrap();
        intake.search_reached().await.unwrap();
        for words in [None, Some("apple".to_owned())] {
            for order in SearchOrder::ALL {
                let filter = SearchFilter {
                    namespace: Some(namespace("even")),
                    media_type: Some("text/*".into()),
                    size_min: Some(10),
                    size_max: Some(60),
                    ..SearchFilter::default()
                };
                let mut query = SearchQuery {
                    words: words.clone(),
                    filter,
                    order: Some(order),
                    limit: 2,
                    ..SearchQuery::default()
                };
                let mut found = Vec::new();
                loop {
                    let page = intake.search(query.clone()).await.unwrap();
                    found.extend(page.files.iter().map(|f| (f.file.size, f.file.name.to_string())));
                    query.after = page.next;
                    if query.after.is_none() {
                        break;
                    }
                }
                let expected: Vec<(u64, String)> =
                    (1..7).map(|n| (6 + 8 * n, format!("{:02}.txt", 2 * n))).collect();
                match order {
                    SearchOrder::Newest | SearchOrder::Largest => found.reverse(),
                    SearchOrder::Relevance => found.sort(),
                    _ => {}
                }
                assert_eq!(found, expected, "{words:?} {order:?}");
            }
        }
    });
}
