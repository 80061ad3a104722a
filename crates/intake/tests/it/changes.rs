//! Documents that are replaced, merged, deleted, and dropped with their namespace.

use forebay_intake::digest::Digest;
use forebay_intake::documents::change::{ChangeRequest, NewContent};
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::redecide::RedecideOptions;
use forebay_intake::{Condition, Intake, IntakeError};
use forebay_sqlite::{ChangeKind, SqliteReader};

use crate::edits::{EDITED, merge, replace, request};
use crate::requests::documents;
use crate::support::{DOCUMENTS, House, ask, block_on, check, findings, namespace, post, remove};

/// The documents of the namespace with their ids; `None` if it does not exist.
async fn all(intake: &Intake) -> Option<Vec<(u64, String)>> {
    let page = documents(intake, &namespace(EDITED)).await.unwrap()?;
    let text = |raw: Vec<u8>| String::from_utf8(raw).unwrap();
    Some(page.documents.into_iter().map(|it| (it.id, text(it.raw))).collect())
}

fn some(found: &[(u64, &str)]) -> Option<Vec<(u64, String)>> {
    Some(found.iter().map(|(id, text)| (*id, (*text).to_owned())).collect())
}

async fn furnish(intake: &Intake) {
    let bodies: Vec<String> = (1..=5).map(|n| format!("{{\"n\":{n},\"t\":\"x\"}}")).collect();
    post(intake, EDITED, Wish::Table, &bodies.join("\n")).await;
}

fn is_missing<T>(result: Result<T, IntakeError>) -> bool {
    matches!(result, Err(IntakeError::NotFound { .. }))
}

#[test]
fn a_changed_document_keeps_its_id_and_a_deleted_one_is_shown_nowhere() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        furnish(intake).await;
        replace(intake, 2, "{\"n\":20,\"new\":true}").await.unwrap();
        merge(intake, 3, "{\"t\":null,\"n\":30}").await.unwrap();
        intake.delete_document(request(1)).await.unwrap();
        intake.delete_document(request(5)).await.unwrap();
        let expected = some(&[
            (2, "{\"n\":20,\"new\":true}"),
            (3, "{\"n\":30}"),
            (4, "{\"n\":4,\"t\":\"x\"}"),
        ]);
        assert_eq!(all(intake).await, expected);
        for id in [1, 5, 6] {
            assert_eq!(intake.document(&namespace(EDITED), id).await.unwrap(), None);
            assert!(is_missing(intake.delete_document(request(id)).await));
            assert!(is_missing(replace(intake, id, "{}").await));
        }
        // No id is given again, not even the last one.
        let again = post(intake, EDITED, Wish::Auto, "{\"n\":6}").await;
        assert_eq!(again.first_id, Some(6));
        let info = &intake.namespaces().await.unwrap()[0];
        assert_eq!((info.row_count, info.last_id), (4, Some(6)));
        assert!(is_missing(intake.drop_documents(&namespace("none"), None).await));
    });
    let house = house.reopen();
    let rows = SqliteReader::open(&house.options.dir.join(DOCUMENTS)).unwrap();
    let rows = rows.rows(EDITED, None, forebay_intake::documents::PageLimits::default()).unwrap();
    let columns: Vec<&str> = rows.schema.columns().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(columns, ["n", "t", "new"]);
    assert_eq!(rows.rows.len(), 4);
    let (options, _dir) = house.close();
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn a_condition_holds_of_the_bytes_that_are_changed_and_of_no_others() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        furnish(intake).await;
        let of = |text: &str| Condition::OneOf(vec![Digest::of(text.as_bytes())]);
        let with = |id, condition| ChangeRequest { condition, ..request(id) };
        let new = || NewContent::Replaced("{\"n\":9}".into());
        let first = "{\"n\":1,\"t\":\"x\"}";
        let changed = intake.change_document(with(1, of(first)), new()).await.unwrap();
        assert_eq!(changed.sha256, Digest::of(b"{\"n\":9}").to_string());
        let refused = intake.change_document(with(1, of(first)), new()).await;
        assert!(matches!(refused, Err(IntakeError::Precondition { .. })), "{refused:?}");
        let refused = intake.delete_document(with(9, Condition::Present)).await;
        assert!(matches!(refused, Err(IntakeError::Precondition { .. })), "{refused:?}");
        let refused = intake.change_document(with(1, Condition::Absent), new()).await;
        assert!(matches!(refused, Err(IntakeError::Precondition { .. })), "{refused:?}");
        intake.delete_document(with(1, of("{\"n\":9}"))).await.unwrap();
    });
}

#[test]
fn many_changes_of_one_document_at_once_all_count() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        post(intake, EDITED, Wish::Collection, "{\"a\":{}}").await;
        let patches = (0..40).map(|n| async move {
            merge(intake, 1, &format!("{{\"a\":{{\"k{n}\":{n}}}}}")).await.unwrap();
        });
        futures_util::future::join_all(patches).await;
        let stored = intake.document(&namespace(EDITED), 1).await.unwrap().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&stored.raw).unwrap();
        assert_eq!(value["a"].as_object().unwrap().len(), 40);
    });
}

#[test]
fn what_is_no_document_changes_nothing() {
    let house = House::with(|options| options.limits.document_size_max = 200);
    block_on(async {
        let intake = &house.intake;
        furnish(intake).await;
        let before = all(intake).await;
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(300));
        for body in ["", "[]", "1", "{", "{\"a\":}", "{} {}", large.as_str()] {
            assert!(replace(intake, 1, body).await.is_err(), "{body}");
            assert!(merge(intake, 1, body).await.is_err(), "{body}");
        }
        // Each is within the limit, and together they are not.
        let half = format!("{{\"b\":\"{}\"}}", "x".repeat(120));
        merge(intake, 2, &half).await.unwrap();
        let refused = merge(intake, 2, &half.replace('b', "c")).await.unwrap_err();
        assert!(matches!(refused, IntakeError::TooLarge { .. }), "{refused:?}");
        replace(intake, 2, "{\"n\":2,\"t\":\"x\"}").await.unwrap();
        assert_eq!(all(intake).await, before);
    });
}

#[test]
fn a_dropped_namespace_is_gone_until_documents_come_and_ids_go_on() {
    let mut house = House::with(|_| {});
    for round in 0..2 {
        block_on(async {
            let intake = &house.intake;
            furnish(intake).await;
            intake.delete_document(request(round * 6 + 2)).await.unwrap();
            intake.drop_documents(&namespace(EDITED), None).await.unwrap();
            assert_eq!(all(intake).await, None);
            assert!(intake.namespaces().await.unwrap().is_empty());
            assert!(is_missing(intake.drop_documents(&namespace(EDITED), None).await));
            assert!(is_missing(replace(intake, 1, "{}").await));
            let redecide = RedecideOptions::default();
            assert!(is_missing(intake.decide_again(&namespace(EDITED), redecide).await));
        });
        house = if round == 0 { house.reopen() } else { house };
        block_on(async {
            let intake = &house.intake;
            assert!(is_missing(replace(intake, 1, "{}").await));
            let stored = post(intake, EDITED, Wish::Auto, "{\"other\":\"text\"}").await;
            assert_eq!(stored.first_id, Some(round * 6 + 6));
            let columns: Vec<&str> =
                stored.columns_added.iter().map(|it| it.column.as_str()).collect();
            assert_eq!(columns, ["other"]);
        });
    }
    let (options, _dir) = house.close();
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn a_document_database_that_is_built_again_is_the_same() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        furnish(intake).await;
        replace(intake, 2, "{\"n\":2.5,\"t\":7}").await.unwrap();
        intake.delete_document(request(3)).await.unwrap();
        post(intake, "gone", Wish::Auto, "{\"a\":1}").await;
        intake.drop_documents(&namespace("gone"), None).await.unwrap();
        post(intake, EDITED, Wish::Auto, "{\"n\":8}").await;
        intake.delete_document(request(6)).await.unwrap();
    });
    let (options, _dir) = house.close();
    let changes = || {
        let reader = SqliteReader::open(&options.dir.join(DOCUMENTS)).unwrap();
        let page = reader.changes(EDITED, 0, 100).unwrap();
        let kinds: Vec<_> = page.changes.iter().map(|it| (it.id, it.kind)).collect();
        let expected = [(2, ChangeKind::Replaced), (3, ChangeKind::Deleted)];
        assert_eq!(kinds, [&expected[..], &[(6, ChangeKind::Deleted)]].concat());
        (page.changes, reader.namespaces().unwrap())
    };
    let open = || {
        let opened = crate::support::open_with(options.clone()).unwrap();
        let answers = ask(&opened, &options.dir);
        let edited = block_on(all(&opened));
        opened.close().unwrap();
        drop(opened);
        (answers, edited, changes())
    };
    let before = open();
    remove(&options.dir, DOCUMENTS);
    let message = &check(&options.dir).unwrap().findings[0].message;
    assert!(message.contains("builds it again"), "{message}");
    assert_eq!(open(), before);
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn the_check_finds_a_change_that_was_undone_behind_the_log() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        furnish(intake).await;
    });
    let (options, _dir) = house.close();
    let path = options.dir.join(DOCUMENTS);
    let before = std::fs::read(&path).unwrap();
    let intake = crate::support::open_with(options.clone()).unwrap();
    block_on(async {
        replace(&intake, 2, "{\"n\":20}").await.unwrap();
        intake.delete_document(request(3)).await.unwrap();
    });
    intake.close().unwrap();
    drop(intake);
    // The rows of before under the position of now.
    let (old, new) = {
        let copy = options.dir.join("old.sqlite");
        std::fs::write(&copy, &before).unwrap();
        (rusqlite::Connection::open(&copy).unwrap(), rusqlite::Connection::open(&path).unwrap())
    };
    let position: i64 =
        new.query_row("SELECT position FROM _forebay_state", [], |row| row.get(0)).unwrap();
    drop((old, new));
    let mut sink = forebay_sqlite::SqliteSink::open(&options.dir.join("old.sqlite")).unwrap();
    use forebay_sink::{Position, Sink as _};
    sink.commit(Position(position.cast_unsigned())).unwrap();
    sink.checkpoint().unwrap();
    drop(sink);
    remove(&options.dir, DOCUMENTS);
    std::fs::rename(options.dir.join("old.sqlite"), &path).unwrap();
    remove(&options.dir, "old.sqlite");
    let found = findings(&options.dir);
    let expected = ["2", "3"].map(|id| format!("the document with id {id} is not the one"));
    assert!(expected.iter().all(|it| found.iter().any(|found| found.contains(it))), "{found:?}");
}
