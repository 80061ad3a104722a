//! Columns that change their types, and namespaces that are decided when there is enough to decide
//! on.

use std::path::Path;

use forebay_intake::documents::PageLimits;
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::history::SchemaChange;
use forebay_intake::documents::ingest::{ColumnAnswer, DocumentsAnswer};
use forebay_intake::documents::redecide::{RedecideOptions, SchemaAnswer};
use forebay_intake::{Intake, IntakeError};
use rusqlite::Connection;

use crate::support::{
    DOCUMENTS, block_on, check, copy, directory, findings, namespace, open, post, remove, settle,
};

/// Posts bodies one after the other, and closes.
fn posted(dir: &Path, wish: Wish, bodies: &[&str]) -> Vec<DocumentsAnswer> {
    let intake = open(dir).unwrap();
    let answers = block_on(async {
        let mut answers = Vec::new();
        for body in bodies {
            answers.push(post(&intake, "t", wish, body).await);
        }
        answers
    });
    intake.close().unwrap();
    answers
}

/// What a column holds, as SQL literals.
fn column(dir: &Path, name: &str) -> Vec<String> {
    let db = Connection::open(dir.join(DOCUMENTS)).unwrap();
    let mut select = db.prepare(&format!("SELECT quote({name}) FROM t ORDER BY _id")).unwrap();
    let rows = select.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn widened(answer: &DocumentsAnswer) -> Vec<(&str, &str, &str)> {
    answer.columns_widened.iter().map(|it| (&*it.path, it.from, it.to)).collect()
}

fn decide_again(intake: &Intake, wish: Wish, dry_run: bool) -> Result<SchemaAnswer, IntakeError> {
    block_on(intake.decide_again(&namespace("t"), RedecideOptions { wish, dry_run }))
}

fn nothing_is_found(dir: &Path) {
    assert_eq!(findings(dir), Vec::<String>::new());
}

#[test]
fn whole_numbers_before_a_fraction_are_no_silent_null() {
    let dir = directory();
    let dir = dir.path();
    let bodies = ["{\"price\":10}", "{\"price\":9.99}", "{\"price\":7}"];
    let answers = posted(dir, Wish::Table, &bodies);
    assert_eq!(widened(&answers[1]), [("price", "integer", "real")]);
    assert!(answers.iter().all(|answer| answer.values_without_column.is_empty()));
    assert!(answers[0].columns_widened.is_empty() && answers[2].columns_widened.is_empty());
    assert_eq!(column(dir, "price"), ["10.0", "9.99", "7.0"]);
    nothing_is_found(dir);
    // What no double is keeps its digits.
    let answers = posted(dir, Wish::Auto, &["{\"price\":9007199254740993}"]);
    assert_eq!(widened(&answers[0]), [("price", "real", "decimal")]);
    assert_eq!(column(dir, "price"), ["'10'", "'9.99'", "'7'", "'9007199254740993'"]);
    nothing_is_found(dir);
}

#[test]
fn large_whole_numbers_are_not_rounded_by_a_fraction_after_them() {
    for (large, is_reopened) in
        [("9007199254740993", false), ("9007199254740993", true), ("9223372036854775808", false)]
    {
        let dir = directory();
        let dir = dir.path();
        let bodies = ["{\"n\":1}", &format!("{{\"n\":{large}}}"), "{\"n\":0.5}"];
        if is_reopened {
            posted(dir, Wish::Table, &bodies[..2]);
            posted(dir, Wish::Table, &bodies[2..]);
        } else {
            posted(dir, Wish::Table, &bodies);
        }
        assert_eq!(column(dir, "n"), ["'1'", &format!("'{large}'"), "'0.5'"]);
        nothing_is_found(dir);
    }
}

#[test]
fn timestamps_have_a_type_until_one_is_none() {
    let dir = directory();
    let dir = dir.path();
    let time = "2026-01-02T03:04:05.5+01:00";
    let first = format!("{{\"at\":\"{time}\",\"day\":\"2026-01-02\"}}");
    let answers = posted(dir, Wish::Table, &[&first, "{\"at\":\"soon\",\"day\":7}", &first]);
    let types: Vec<&str> = answers[0].columns_added.iter().map(|it| it.r#type).collect();
    assert_eq!(types, ["timestamp", "date"]);
    assert_eq!(widened(&answers[1]), [("at", "timestamp", "text")]);
    let unfit: Vec<(&str, u64)> =
        answers[1].values_without_column.iter().map(|it| (&*it.path, it.values)).collect();
    assert_eq!(unfit, [("day", 1)]);
    assert_eq!(column(dir, "at"), [&*format!("'{time}'"), "'soon'", &*format!("'{time}'")]);
    assert_eq!(column(dir, "day"), ["'2026-01-02'", "NULL", "'2026-01-02'"]);
    nothing_is_found(dir);
}

#[test]
fn a_field_that_was_null_gets_the_type_of_its_first_value() {
    let dir = directory();
    let dir = dir.path();
    let answers = posted(
        dir,
        Wish::Table,
        &["{\"id\":1,\"price\":null}", "{\"id\":2,\"price\":5}", "{\"id\":3,\"price\":0.5}"],
    );
    assert_eq!(answers[0].columns_added.len(), 1);
    assert_eq!(answers[1].columns_added[0].r#type, "integer");
    assert_eq!(column(dir, "price"), ["NULL", "5.0", "0.5"]);
    nothing_is_found(dir);
}

#[test]
fn a_widened_table_is_the_same_when_it_is_built_again() {
    let dir = directory();
    let dir = dir.path();
    let intake = open(dir).unwrap();
    block_on(post(&intake, "t", Wish::Table, "{\"price\":10,\"name\":\"a\"}"));
    intake.close().unwrap();
    drop(intake);
    settle(dir);
    let before = directory();
    copy(dir, before.path());
    posted(dir, Wish::Auto, &["{\"price\":9.99}\n{\"price\":1,\"new\":true}", "{\"name\":\"b\"}"]);
    settle(dir);
    let rows = |dir: &Path| {
        let db = Connection::open(dir.join(DOCUMENTS)).unwrap();
        let mut select =
            db.prepare("SELECT _id, _checksum, price, name, new FROM t ORDER BY _id").unwrap();
        let rows = select.query_map([], |row| {
            let values: [rusqlite::types::Value; 5] =
                [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
            Ok(format!("{values:?}"))
        });
        rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let expected = rows(dir);
    // Without the database, and with the one of before.
    for old in [None, Some(before.path())] {
        remove(dir, DOCUMENTS);
        if let Some(old) = old {
            std::fs::copy(old.join(DOCUMENTS), dir.join(DOCUMENTS)).unwrap();
        }
        open(dir).unwrap().close().unwrap();
        assert_eq!(rows(dir), expected);
        nothing_is_found(dir);
    }
}

#[test]
fn what_left_the_log_is_widened_and_fsck_knows_what_was_there() {
    let dir = directory();
    let dir = dir.path();
    let lines = |from: u64| {
        let line = |n: u64| format!(r#"{{"n":{n},"pad":"{n:0>60}"}}"#);
        (from..from + 1_000).map(line).collect::<Vec<_>>().join("\n")
    };
    let bodies: Vec<String> = (0..8).map(|batch| lines(batch * 1_000)).collect();
    posted(dir, Wish::Table, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let intake = open(dir).unwrap();
    block_on(intake.reclaim()).unwrap();
    intake.close().unwrap();
    drop(intake);
    assert!(check(dir).unwrap().log_bytes < 500_000);
    let answers = posted(dir, Wish::Auto, &["{\"n\":0.5}"]);
    assert_eq!(widened(&answers[0]), [("n", "integer", "real")]);
    assert_eq!(column(dir, "n")[7_999..], ["7999.0", "0.5"]);
    nothing_is_found(dir);
    settle(dir);
    let db = Connection::open(dir.join(DOCUMENTS)).unwrap();
    db.execute("DELETE FROM t WHERE _id = 5", []).unwrap();
    drop(db);
    assert_ne!(findings(dir), Vec::<String>::new());
}

#[test]
fn damage_is_still_damage_after_the_columns_changed() {
    for change in [
        "UPDATE t SET _document = '{\"n\":7}' WHERE _id = 1",
        "UPDATE t SET n = 7 WHERE _id = 1",
        "DELETE FROM t WHERE _id = 1",
    ] {
        let dir = directory();
        let dir = dir.path();
        posted(dir, Wish::Table, &["{\"n\":1}", "{\"n\":2}"]);
        settle(dir);
        Connection::open(dir.join(DOCUMENTS)).unwrap().execute(change, []).unwrap();
        posted(dir, Wish::Auto, &["{\"n\":0.5}"]);
        assert_ne!(findings(dir), Vec::<String>::new(), "{change}");
    }
}

#[test]
fn indexes_and_views_of_others_outlive_a_change_of_columns() {
    let dir = directory();
    let dir = dir.path();
    posted(dir, Wish::Table, &["{\"n\":1}"]);
    let db = Connection::open(dir.join(DOCUMENTS)).unwrap();
    db.execute_batch("CREATE INDEX mine ON t (n); CREATE VIEW seen AS SELECT n FROM t").unwrap();
    drop(db);
    posted(dir, Wish::Auto, &["{\"n\":0.5}"]);
    let db = Connection::open(dir.join(DOCUMENTS)).unwrap();
    let sum: f64 = db.query_row("SELECT sum(n) FROM seen", [], |row| row.get(0)).unwrap();
    let there = "SELECT count(*) FROM sqlite_schema WHERE name = 'mine' AND tbl_name = 't'";
    let count: u64 = db.query_row(there, [], |row| row.get(0)).unwrap();
    assert_eq!((sum, count), (1.5, 1));
}

/// Documents of many kinds.
fn logs(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{{\"field_{}\":{n},\"more_{n}\":\"x\"}}", n % 7)).collect()
}

#[test]
fn heterogeneous_logs_posted_singly_become_no_table() {
    let dir = directory();
    let dir = dir.path();
    let logs = logs(30);
    let bodies: Vec<&str> = logs.iter().map(String::as_str).collect();
    let (first, rest) = bodies.split_at(4);
    for (at, answer) in posted(dir, Wish::Auto, first).iter().enumerate() {
        assert_eq!((answer.target, answer.undecided), (Some("collection"), true), "{at}");
        assert_eq!(answer.decided_by, Some("documents"));
    }
    let answers = posted(dir, Wish::Auto, rest);
    assert!(answers[0].undecided, "a restart decides nothing");
    let last = answers.last().unwrap();
    assert_eq!((last.target, last.undecided), (Some("collection"), false));
    assert_eq!(last.decided_by, Some("existing"));
    let decided = answers.iter().find(|answer| !answer.undecided).unwrap();
    assert_eq!(decided.decided_by, Some("presence"));
    nothing_is_found(dir);
}

#[test]
fn documents_before_the_decision_get_the_columns_too() {
    let dir = directory();
    let dir = dir.path();
    let rows: Vec<String> = (1..=12).map(|n| format!("{{\"id\":{n},\"name\":\"n{n}\"}}")).collect();
    let bodies: Vec<&str> = rows.iter().map(String::as_str).collect();
    posted(dir, Wish::Auto, &bodies[..5]);
    let answers = posted(dir, Wish::Auto, &bodies[5..]);
    let decided: Vec<bool> = answers.iter().map(|answer| !answer.undecided).collect();
    assert_eq!(decided, [false, false, false, false, true, true, true]);
    assert_eq!((answers[4].target, answers[4].decided_by), (Some("table"), Some("stable")));
    assert_eq!(answers[4].columns_added.len(), 2);
    let ids: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    assert_eq!(column(dir, "id"), ids);
    assert_eq!(column(dir, "name")[0], "'n1'");
    nothing_is_found(dir);
    let intake = open(dir).unwrap();
    block_on(async {
        let page = intake.documents(&namespace("t"), None, PageLimits::default()).await;
        let page = page.unwrap().unwrap();
        assert!(!page.info.undecided && page.documents.len() == 12);
        assert_eq!(page.documents[0].raw, rows[0].as_bytes());
    });
}

#[test]
fn enough_documents_or_a_wish_decide_at_once() {
    let dir = directory();
    let dir = dir.path();
    let rows: Vec<String> = (1..=10).map(|n| format!("{{\"id\":{n}}}")).collect();
    let answers = posted(dir, Wish::Auto, &[&rows.join("\n")]);
    assert_eq!((answers[0].target, answers[0].undecided), (Some("table"), false));
    let other = directory();
    posted(other.path(), Wish::Auto, &["{\"id\":1}"]);
    let answers = posted(other.path(), Wish::Table, &["{\"id\":2}"]);
    assert_eq!((answers[0].target, answers[0].undecided), (Some("table"), false));
    assert_eq!(column(other.path(), "id"), ["1", "2"]);
    nothing_is_found(other.path());
}

#[test]
fn a_verdict_of_the_past_is_given_again_on_demand() {
    let dir = directory();
    let dir = dir.path();
    let logs = logs(30);
    let bodies: Vec<&str> = logs.iter().map(String::as_str).collect();
    posted(dir, Wish::Table, &bodies);
    let intake = open(dir).unwrap();
    let dry = decide_again(&intake, Wish::Auto, true).unwrap();
    assert_eq!((dry.target, dry.target_before, dry.documents), ("collection", "table", 30));
    assert_eq!((dry.columns.len(), dry.columns_removed.len()), (0, 37));
    assert_eq!(block_on(intake.namespaces()).unwrap()[0].kind.name(), "table");
    let done = decide_again(&intake, Wish::Auto, false).unwrap();
    assert_eq!(done.target, "collection");
    assert_eq!(block_on(intake.namespaces()).unwrap()[0].kind.name(), "collection");
    let again = decide_again(&intake, Wish::Auto, false).unwrap();
    assert_eq!((again.target_before, again.columns_removed.len()), ("collection", 0));
    let document = block_on(intake.document(&namespace("t"), 7)).unwrap().unwrap();
    assert_eq!(document.raw, logs[6].as_bytes());
    let later = block_on(post(&intake, "t", Wish::Auto, "{\"a\":1}"));
    assert_eq!((later.target, later.first_id), (Some("collection"), Some(31)));
    let table = decide_again(&intake, Wish::Table, false).unwrap();
    assert_eq!((table.target, table.columns_added.len()), ("table", 38));
    intake.close().unwrap();
    drop(intake);
    assert_eq!(column(dir, "field_1")[1], "1");
    nothing_is_found(dir);
    // The log says it again.
    remove(dir, DOCUMENTS);
    open(dir).unwrap().close().unwrap();
    assert_eq!(column(dir, "field_1")[1], "1");
    nothing_is_found(dir);
}

/// What a namespace's history says of each change: its time, the newest document before, and the columns.
fn changes(intake: &Intake) -> Vec<(String, Option<u64>, String)> {
    let history = block_on(intake.schema_history(&namespace("t"))).unwrap().unwrap();
    assert_eq!(history.changes_dropped, 0);
    let columns = |all: &[ColumnAnswer], sign: &str| -> String {
        all.iter().map(|it| format!("{sign}{} {};", it.column, it.r#type)).collect()
    };
    let text = |change: &SchemaChange| {
        let changed = change.columns_changed.iter();
        let changed: String =
            changed.map(|it| format!("{} {}>{};", it.column, it.from, it.to)).collect();
        let added = columns(&change.columns_added, "+");
        added + &changed + &columns(&change.columns_removed, "-")
    };
    let changes = history.changes.iter();
    changes.map(|change| (change.changed.clone(), change.after_id, text(change))).collect()
}

#[test]
fn a_schema_remembers_how_it_became_what_it_is_through_restarts_and_rebuilds() {
    let dir = directory();
    let dir = dir.path();
    let bodies = ["{\"price\":10,\"a b\":true}", "{\"price\":11}", "{\"price\":1.5,\"at\":\"x\"}"];
    posted(dir, Wish::Table, &bodies);
    let intake = open(dir).unwrap();
    let before = changes(&intake);
    let texts: Vec<(Option<u64>, &str)> =
        before.iter().map(|(_, after, text)| (*after, &**text)).collect();
    let expected =
        [(None, "+price integer;+a_b boolean;"), (Some(2), "+at text;price integer>real;")];
    assert_eq!(texts, expected);
    assert!(before.iter().all(|(time, ..)| time.starts_with("20") && time.ends_with('Z')));
    decide_again(&intake, Wish::Collection, false).unwrap();
    let after = changes(&intake);
    assert_eq!(after[..2], before[..]);
    assert_eq!((after[2].1, &*after[2].2), (Some(3), "-price real;-a_b boolean;-at text;"));
    let missing = block_on(intake.schema_history(&namespace("u"))).unwrap();
    assert!(missing.is_none());
    intake.close().unwrap();
    drop(intake);
    // Built again from the log, the history is the same.
    remove(dir, DOCUMENTS);
    let intake = open(dir).unwrap();
    assert_eq!(changes(&intake), after);
    // What is dropped is forgotten; the next document begins again.
    block_on(intake.drop_documents(&namespace("t"), None)).unwrap();
    assert!(block_on(intake.schema_history(&namespace("t"))).unwrap().is_none());
    block_on(post(&intake, "t", Wish::Table, "{\"n\":1}"));
    let later = changes(&intake);
    assert_eq!((later.len(), later[0].1, &*later[0].2), (1, Some(3), "+n integer;"));
    intake.close().unwrap();
    drop(intake);
    nothing_is_found(dir);
}

#[test]
fn a_decision_that_cannot_be_made_is_refused() {
    let dir = directory();
    let intake = open(dir.path()).unwrap();
    let missing = decide_again(&intake, Wish::Auto, false).unwrap_err();
    assert!(matches!(missing, IntakeError::NotFound { .. }), "{missing:?}");
    block_on(post(&intake, "t", Wish::Auto, "{}"));
    let refused = decide_again(&intake, Wish::Table, false).unwrap_err();
    assert!(matches!(refused, IntakeError::Rejected { code: "target", .. }), "{refused:?}");
    // Asked for, one document is enough.
    assert_eq!(decide_again(&intake, Wish::Auto, false).unwrap().target, "collection");
    assert!(!block_on(intake.namespaces()).unwrap()[0].undecided);
    intake.close().unwrap();
}
