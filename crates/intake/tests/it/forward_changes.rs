//! Documents that change, and go, in an external database as in the local one.

use forebay_intake::IntakeError;
use forebay_intake::documents::change::NewContent;

use crate::edits::request_in;
use crate::elsewhere::until;
use crate::forwarding::{House, broken, quarantined};
use crate::support::{block_on, namespace};

fn replace(house: &House, name: &str, id: u64, body: &str) {
    let content = NewContent::Replaced(body.to_owned().into());
    block_on(house.intake().change_document(request_in(name, id), content)).unwrap();
}

fn merge(house: &House, name: &str, id: u64, patch: &str) {
    let content = NewContent::Merged(patch.to_owned().into());
    block_on(house.intake().change_document(request_in(name, id), content)).unwrap();
}

fn delete(house: &House, name: &str, id: u64) {
    block_on(house.intake().delete_document(request_in(name, id))).unwrap();
}

fn drop_all(house: &House, name: &str) {
    block_on(house.intake().drop_documents(&namespace(name), None)).unwrap();
}

/// Some of every kind of change to documents that are stored first.
fn change(house: &House, round: u64) {
    let lines: Vec<String> = (0..6).map(|n| format!("{{\"n\":{n},\"round\":{round}}}")).collect();
    let newest = |name| {
        let answer = house.post(name, &lines.join("\n"));
        answer.first_id.unwrap()
    };
    let (first, last) = (newest("a"), newest("last") + 5);
    newest("dropped");
    replace(house, "a", first, "{\"n\":1.5,\"new\":[1]}");
    merge(house, "a", first + 1, "{\"n\":null,\"text\":\"t\"}");
    delete(house, "a", first + 2);
    replace(house, "a", first + 3, "{}");
    delete(house, "a", first + 4);
    drop_all(house, "dropped");
    // The newest documents are gone: only the last id says that there were any.
    delete(house, "last", last);
}

fn house() -> House {
    let mut house = House::new();
    house.reopen(|options| options.decision.documents_min = 1);
    house
}

#[test]
fn changes_are_followed_live_while_it_is_away_and_after_a_restart() {
    let mut house = house();
    change(&house, 0);
    house.check_same("live");
    house.elsewhere.go_away(true);
    change(&house, 1);
    house.post("dropped", "{\"again\":true}");
    let is_away = || house.intake().database().unwrap().state.name() == "away";
    until("it is away", is_away);
    house.elsewhere.go_away(false);
    house.check_same("after it came back");
    house.elsewhere.go_away(true);
    delete(&house, "last", 7);
    house.reopen(|_| {});
    house.elsewhere.go_away(false);
    house.check_same("after a restart");
}

#[test]
fn a_change_that_it_has_keeps_no_later_document_from_the_spill() {
    let house = house();
    for round in 0..5 {
        change(&house, round);
        house.check_same("before");
        // At once: before its position is recorded.
        house.elsewhere.go_away(true);
        house.post("a", "{\"n\":9}");
        let is_spilled = || {
            let status = house.intake().database().unwrap();
            status.spill_bytes > 0 && status.log_bytes_kept == 0
        };
        until("it is spilled", is_spilled);
        house.elsewhere.go_away(false);
        house.check_same("after it came back");
    }
}

#[test]
fn changes_that_nothing_kept_are_copied_from_the_local_database() {
    for is_new in [false, true] {
        let mut house = house();
        change(&house, 0);
        house.check_same("before");
        let forward = house.options.forward.clone();
        house.reopen(|options| options.forward = None);
        change(&house, 1);
        house.post("dropped", "{\"again\":true}");
        drop_all(&house, "last");
        house.post("late", "{\"n\":1}\n{\"n\":2}");
        delete(&house, "late", 2);
        if is_new {
            for suffix in ["", "-wal", "-shm"] {
                let mut path = house.elsewhere.path.clone().into_os_string();
                path.push(suffix);
                std::fs::remove_file(path).unwrap_or_default();
            }
        }
        house.reopen(|options| options.forward = forward);
        house.check_same("copied");
        house.post("last", "{\"n\":1}");
        house.post("late", "{\"n\":3}");
        change(&house, 2);
        house.check_same("followed");
    }
}

#[test]
fn a_refused_document_is_corrected_in_place_and_replayed() {
    let house = broken();
    house.post("broken", "{\"n\":2}\n{\"n\":1,\"refused\":true}");
    until("it is quarantined", || quarantined(&house) == [("broken".to_owned(), 2)]);
    let reason = house.intake().database().unwrap().quarantined[0].reason.clone();
    assert!(reason.contains("UNIQUE constraint failed"), "{reason}");
    // Other changes of the namespace wait with it.
    merge(&house, "broken", 1, "{\"m\":7}");
    replace(&house, "broken", 3, "{\"n\":3,\"refused\":false}");
    match house.intake().replay_database(Some(&namespace("broken"))) {
        // It may have been tried again by itself since it was corrected.
        Ok(_) | Err(IntakeError::NotFound { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    house.check_same("the document was corrected");
    assert_eq!(quarantined(&house), []);
    house.post("broken", "{\"n\":1}");
    until("it is quarantined again", || quarantined(&house) == [("broken".to_owned(), 1)]);
    delete(&house, "broken", 4);
    house.intake().replay_database(None).unwrap();
    house.check_same("the document was deleted");
}
