//! What another database gets: columns that change, decisions that come late or again, and the
//! documents of every namespace that it does not refuse.

use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::ingest::DocumentsAnswer;
use forebay_intake::documents::redecide::RedecideOptions;
use forebay_intake::{Intake, IntakeError, IntakeOptions};
use tempfile::TempDir;

use crate::elsewhere::{Elsewhere, caught_up_but_for, until};
use crate::support::{block_on, directory, namespace, open_with, options, post};

/// An intake that forwards, and its database.
pub(crate) struct House {
    intake: Option<Intake>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) options: IntakeOptions,
    _dir: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        let dir = directory();
        let elsewhere = Elsewhere::new(dir.path().join("elsewhere.sqlite"));
        let mut options = options(&dir.path().join("intake"));
        options.forward = Some(elsewhere.options());
        let intake = Some(open_with(options.clone()).unwrap());
        Self { intake, elsewhere, options, _dir: dir }
    }

    pub(crate) fn intake(&self) -> &Intake {
        self.intake.as_ref().unwrap()
    }

    /// Closes and opens again with other options.
    pub(crate) fn reopen(&mut self, change: impl FnOnce(&mut IntakeOptions)) {
        self.intake.take().unwrap().close().unwrap();
        change(&mut self.options);
        self.intake = Some(open_with(self.options.clone()).unwrap());
    }

    pub(crate) fn post(&self, name: &str, body: &str) -> DocumentsAnswer {
        block_on(post(self.intake(), name, Wish::Auto, body))
    }

    pub(crate) fn decide_again(&self, name: &str, wish: Wish) {
        let options = RedecideOptions { wish, dry_run: false };
        block_on(self.intake().decide_again(&namespace(name), options)).unwrap();
    }

    pub(crate) fn check_same(&self, at: &str) {
        caught_up_but_for(self.intake(), 0);
        // Columns alone are not counted.
        until(at, || self.elsewhere.is_same(&self.options.dir));
    }
}

const BODIES: [&str; 5] = [
    "{\"price\":1,\"at\":\"2026-01-02T03:04:05Z\"}",
    "{\"price\":2,\"at\":\"2026-01-02T03:04:05Z\"}",
    "{\"price\":3,\"at\":null}",
    "{\"price\":9.99,\"at\":\"soon\"}",
    "{\"price\":9007199254740993,\"new\":true}",
];

#[test]
fn widened_columns_and_late_decisions_reach_the_database() {
    let mut house = House::new();
    house.reopen(|options| options.decision.documents_min = 3);
    for (name, is_away) in [("direct", false), ("spilled", true)] {
        house.elsewhere.go_away(is_away);
        for body in BODIES {
            house.post(name, body);
        }
        if is_away {
            let spilled = || house.intake().database().unwrap().spill_bytes > 0;
            until("it is spilled", spilled);
            house.elsewhere.go_away(false);
        }
        house.check_same(name);
    }
    // A decision that is made again has no documents with it.
    for (wish, is_away) in [(Wish::Collection, false), (Wish::Table, true)] {
        house.elsewhere.go_away(is_away);
        house.decide_again("direct", wish);
        house.elsewhere.go_away(false);
        house.check_same("the columns of a decision are there");
    }
}

#[test]
fn what_is_read_back_from_the_log_widens_columns_as_well() {
    let mut house = House::new();
    house.reopen(|options| options.decision.documents_min = 3);
    house.post("n", BODIES[0]);
    house.check_same("the first");
    // Longer than what is handed over, and more commits than are kept.
    house.elsewhere.go_away(true);
    for body in &BODIES[1..] {
        house.post("n", body);
    }
    house.decide_again("n", Wish::Table);
    house.reopen(|_| {});
    house.elsewhere.go_away(false);
    house.check_same("after the restart");
}

#[test]
fn a_database_that_was_not_forwarded_to_gets_the_columns_of_now() {
    let mut house = House::new();
    house.reopen(|options| options.decision.documents_min = 1);
    house.post("n", "{\"price\":1}");
    house.post("same", "{\"price\":1}");
    house.check_same("before");
    let forward = house.options.forward.clone();
    house.reopen(|options| options.forward = None);
    house.post("n", "{\"price\":0.5}\n{\"price\":1,\"new\":2}");
    house.decide_again("n", Wish::Collection);
    house.decide_again("n", Wish::Table);
    house.reopen(|options| options.forward = forward);
    house.check_same("after the copy");
    // Also if no documents are lacking.
    let forward = house.options.forward.clone();
    house.reopen(|options| options.forward = None);
    house.decide_again("n", Wish::Collection);
    house.reopen(|options| options.forward = forward);
    house.check_same("after the copy of columns alone");
}

/// The quarantined namespaces and the number of their documents.
pub(crate) fn quarantined(house: &House) -> Vec<(String, u64)> {
    let held = house.intake().database().unwrap().quarantined;
    held.into_iter().map(|held| (held.namespace, held.documents_waiting)).collect()
}

/// Two namespaces in the database, one of which refuses more documents with the same `n`.
pub(crate) fn broken() -> House {
    let mut house = House::new();
    house.reopen(|options| options.decision.documents_min = 1);
    for name in ["broken", "good"] {
        house.post(name, "{\"n\":1,\"m\":0}");
    }
    house.check_same("before");
    house.elsewhere.run("CREATE UNIQUE INDEX mine ON broken (n)");
    house
}

#[test]
fn a_refused_namespace_holds_up_no_other() {
    for is_away in [false, true] {
        let mut house = broken();
        house.elsewhere.go_away(is_away);
        for round in 0..3 {
            for name in ["broken", "good", "other"] {
                let body = format!("{{\"n\":1,\"m\":{round}}}\n{{\"n\":1,\"m\":{round}.5}}");
                house.post(name, &body);
            }
        }
        if is_away {
            let spilled = || house.intake().database().unwrap().spill_bytes > 0;
            until("it is spilled", spilled);
            house.elsewhere.go_away(false);
        }
        let count = |name| house.elsewhere.count(name);
        let is_written = || (count("good"), count("other")) == (7, 6);
        until("the others are written", is_written);
        let is_held = || quarantined(&house) == [("broken".to_owned(), 6)];
        until("the refused documents are counted", is_held);
        assert_eq!(count("broken"), 1);
        let status = caught_up_but_for(house.intake(), 6);
        let reason = &status.quarantined[0].reason;
        assert!(reason.contains("UNIQUE constraint failed"), "{reason}");
        assert!(status.to_string().contains("broken: 6 documents"), "{status}");

        // It is remembered, whatever leaves the log meanwhile.
        let lines: Vec<String> =
            (0..1_000).map(|n| format!("{{\"n\":{n},\"pad\":\"{n:0>60}\"}}")).collect();
        for _ in 0..8 {
            house.post("good", &lines.join("\n"));
        }
        caught_up_but_for(house.intake(), 6);
        house.reopen(|_| {});
        caught_up_but_for(house.intake(), 6);
        block_on(house.intake().reclaim()).unwrap();
        house.post("broken", "{\"n\":1}");
        house.post("good", "{\"n\":1}");
        caught_up_but_for(house.intake(), 7);
        assert_eq!(quarantined(&house), [("broken".to_owned(), 7)]);
        assert_eq!(house.elsewhere.count("broken"), 1);

        // Once the cause is removed, everything is there, in its order.
        house.elsewhere.run("DROP INDEX mine");
        house.check_same("the cause was removed");
        assert_eq!(quarantined(&house), []);
        house.post("broken", "{\"n\":1}");
        house.reopen(|_| {});
        house.check_same("as if nothing had been");
        assert_eq!(quarantined(&house), []);
    }
}

#[test]
fn a_refused_namespace_is_tried_again_on_request() {
    let house = broken();
    let replay = |name: Option<&str>| {
        let name = name.map(namespace);
        house.intake().replay_database(name.as_ref())
    };
    let refused = replay(Some("broken")).unwrap_err();
    assert!(matches!(refused, IntakeError::NotFound { .. }), "{refused:?}");
    assert!(replay(None).unwrap().quarantined.is_empty());
    house.post("broken", "{\"n\":1}");
    until("it is quarantined", || quarantined(&house) == [("broken".to_owned(), 1)]);
    let retries = || house.intake().database().unwrap().quarantined[0].retries;
    let before = retries();
    let asked = serde_json::to_value(replay(Some("broken")).unwrap()).unwrap();
    let named = &asked["quarantined"][0];
    assert_eq!(named["namespace"], "broken");
    assert!(named["reason"].as_str().unwrap().contains("UNIQUE constraint failed"), "{named}");
    until("it was tried", || retries() > before);
    assert!(replay(Some("good")).is_err());
    house.elsewhere.run("DROP INDEX mine");
    replay(None).unwrap();
    house.check_same("the cause was removed");
}

#[test]
fn a_refusal_of_everything_quarantines_nothing() {
    let house = House::new();
    house.post("n", "{\"n\":1}");
    house.check_same("before");
    house.elsewhere.refuse(true);
    for name in ["n", "m"] {
        house.post(name, "{\"n\":1}");
    }
    let retries = house.intake().database().unwrap().retries;
    until("it was tried", || house.intake().database().unwrap().retries > retries + 5);
    let status = house.intake().database().unwrap();
    assert!(status.state.is_degraded() && status.quarantined.is_empty(), "{status}");
    assert!(status.reason.unwrap().contains("permission denied"));
    house.elsewhere.refuse(false);
    house.check_same("it refuses no longer");
}

#[test]
fn a_copy_leaves_out_what_is_refused_and_another_database_gets_everything() {
    let mut house = broken();
    house.post("broken", "{\"n\":1}");
    until("it is quarantined", || quarantined(&house) == [("broken".to_owned(), 1)]);
    // While it is not forwarded to, more arrives; then what is lacking is copied.
    let forward = house.options.forward.clone();
    house.reopen(|options| options.forward = None);
    for name in ["broken", "good", "new"] {
        house.post(name, "{\"n\":1}");
    }
    house.reopen(|options| options.forward = forward);
    caught_up_but_for(house.intake(), 2);
    assert_eq!(house.elsewhere.count("broken"), 1);
    assert_eq!((house.elsewhere.count("good"), house.elsewhere.count("new")), (2, 1));
    let other = Elsewhere::new(house.elsewhere.path.with_extension("other"));
    let options = other.options();
    house.reopen(|it| it.forward = Some(options));
    house.elsewhere = other;
    house.check_same("another database");
    assert_eq!(quarantined(&house), []);
}

#[test]
fn a_refusal_during_a_copy_holds_up_no_other() {
    let mut house = broken();
    let forward = house.options.forward.clone();
    house.reopen(|options| options.forward = None);
    for name in ["good", "broken", "new"] {
        house.post(name, "{\"n\":1}");
    }
    house.reopen(|options| options.forward = forward);
    until("it is quarantined", || quarantined(&house) == [("broken".to_owned(), 1)]);
    caught_up_but_for(house.intake(), 1);
    assert_eq!((house.elsewhere.count("good"), house.elsewhere.count("new")), (2, 1));
    house.elsewhere.run("DROP INDEX mine");
    house.check_same("the cause was removed");
}
