//! What another database gets: columns that change, and decisions that come late or again.

use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::redecide::RedecideOptions;
use forebay_intake::{Intake, IntakeOptions};
use tempfile::TempDir;

use crate::elsewhere::{Elsewhere, caught_up_but_for, until};
use crate::support::{block_on, directory, namespace, open_with, options, post};

/// An intake that forwards, and its database.
struct House {
    intake: Option<Intake>,
    elsewhere: Elsewhere,
    options: IntakeOptions,
    _dir: TempDir,
}

impl House {
    fn new() -> Self {
        let dir = directory();
        let elsewhere = Elsewhere::new(dir.path().join("elsewhere.sqlite"));
        let mut options = options(&dir.path().join("intake"));
        options.forward = Some(elsewhere.options());
        let intake = Some(open_with(options.clone()).unwrap());
        Self { intake, elsewhere, options, _dir: dir }
    }

    fn intake(&self) -> &Intake {
        self.intake.as_ref().unwrap()
    }

    /// Closes and opens again with other options.
    fn reopen(&mut self, change: impl FnOnce(&mut IntakeOptions)) {
        self.intake.take().unwrap().close().unwrap();
        change(&mut self.options);
        self.intake = Some(open_with(self.options.clone()).unwrap());
    }

    fn post(&self, name: &str, body: &str) {
        block_on(post(self.intake(), name, Wish::Auto, body));
    }

    fn decide_again(&self, name: &str, wish: Wish) {
        let options = RedecideOptions { wish, dry_run: false };
        block_on(self.intake().decide_again(&namespace(name), options)).unwrap();
    }

    fn check_same(&self, at: &str) {
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
