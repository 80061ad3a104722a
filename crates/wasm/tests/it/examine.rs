//! Components under test: each promise is reported by itself, and a broken one with what was found.

use forebay_base::error_chain::chain;
use forebay_pgcopy::Column;
use forebay_sdk::acceptance::{self, Findings, Outcome};
use forebay_testing::Postgres;
use forebay_wasm::Grants;
use forebay_wasm::examine::{Accepted, Subject, Tried};
use serde_json::{Value, json};

use crate::components::{loaded, runtime, stream};

/// The broken promises, each with what was found.
fn broken(findings: &Findings) -> Vec<String> {
    let failure = |outcome: &Outcome| match outcome {
        Outcome::Broken(failure) => Some(chain(failure).to_string()),
        Outcome::Kept | Outcome::Untested(_) => None,
    };
    findings.iter().filter_map(|finding| failure(&finding.outcome)).collect()
}

fn kept(findings: &Findings) -> usize {
    findings.iter().filter(|finding| matches!(finding.outcome, Outcome::Kept)).count()
}

/// A component with settings, and what was found about them.
fn examined(name: &str, tried: Tried, config: &Value) -> Option<(Findings, Option<Accepted>)> {
    let loaded = loaded(name, Grants::default())?;
    Some(
        runtime()
            .block_on(async { Subject::of(loaded).await.unwrap().examine(tried, config).await }),
    )
}

/// What is found about a stream of a source.
fn streamed(name: &str, config: &Value, of: &str) -> Option<Findings> {
    let (_, accepted) = examined(name, Tried::Source, config)?;
    let source = accepted.unwrap().source();
    Some(runtime().block_on(acceptance::examine_source(
        &source,
        &stream(of),
        acceptance::UNIT_SIZE,
        None,
    )))
}

#[test]
fn a_source_that_keeps_its_promises_has_no_broken_one() {
    let config = json!({ "rows": 3_000, "rows_per_unit": 700 });
    for (name, of) in [("sequence", "numbers"), ("ticks", "ticks")] {
        let Some((settings, _)) = examined(name, Tried::Source, &config) else { return };
        assert_eq!((broken(&settings), kept(&settings)), (vec![], 4), "{name}");
        let found = streamed(name, &config, of).unwrap();
        assert_eq!((broken(&found), kept(&found)), (vec![], 12), "{name}: {found:?}");
        // Without rows, and with one unit, some promises have no meaning.
        let found = streamed(name, &json!({ "rows": 0 }), of).unwrap();
        assert_eq!((broken(&found), kept(&found)), (vec![], 10), "{name}: {found:?}");
    }
}

#[test]
fn a_setting_that_is_refused_or_should_be_is_found() {
    let wrong = json!({ "rows": "many" });
    for (name, field) in [("sequence", "rows"), ("ticks", "rows: it is not a number of rows")] {
        let Some((found, accepted)) = examined(name, Tried::Source, &wrong) else { return };
        assert!(accepted.is_none());
        let found = broken(&found);
        assert!(found.len() == 1 && found[0].contains(field), "{found:?}");
    }
    let careless = json!({ "mode": "good" });
    let Some((found, _)) = examined("trials", Tried::Source, &careless) else { return };
    let found = broken(&found);
    assert!(found[0].contains("\"no_such_setting\" was accepted"), "{found:?}");
    assert!(found[1].contains("no object") && found[1].contains("[null]"), "{found:?}");
    let (found, _) = examined("trials", Tried::Transform, &careless).unwrap();
    assert!(broken(&found)[0].contains("the component is no transform"), "{found:?}");
}

#[test]
fn a_broken_promise_of_a_source_is_reported_and_the_others_are_tested() {
    for (mode, expected) in [
        ("good", "a unit that no longer exists is refused: the stream was opened"),
        ("half-tuple", "reading a unit twice gives the same rows"),
        ("trap-open", "a stream opens"),
        ("no-units", "a stream opens"),
        ("keeper", "a stream is read as one unit if that is requested: expected 1, found 2"),
    ] {
        let Some(found) = streamed("trials", &json!({ "mode": mode }), "t") else { return };
        let found = broken(&found);
        assert!(found.iter().any(|found| found.starts_with(expected)), "{mode}: {found:?}");
    }
}

#[test]
fn a_transform_is_tested_with_columns_that_fit_it() {
    let columns = acceptance::plain_columns();
    let of = |config: Value| {
        let (_, accepted) = examined("clean", Tried::Transform, &config)?;
        let accepted = accepted.unwrap();
        let open = async |columns: &[Column]| accepted.transform("rows", columns).await;
        Some(runtime().block_on(acceptance::examine_transform(open, &columns)))
    };
    let Some(found) = of(json!({})) else { return };
    assert_eq!((broken(&found), kept(&found)), (vec![], 5));
    let found = broken(&of(json!({ "columns": ["city"] })).unwrap());
    assert!(found.len() == 1 && found[0].contains("has no column \"city\""), "{found:?}");
}

#[test]
fn a_destination_is_tested_with_a_new_target_only() {
    let Some(pg) = Postgres::start() else { return };
    let config = json!({ "port": pg.port(), "database": "postgres" });
    let Some((_, accepted)) = examined("postgres", Tried::Destination, &config) else { return };
    let destination = accepted.unwrap().destination();
    let columns = acceptance::plain_columns();
    let examine =
        || runtime().block_on(acceptance::examine_target(&destination, "scratch", &columns));
    let found = examine();
    assert_eq!((broken(&found), kept(&found)), (vec![], 8));
    let found = broken(&examine());
    assert!(found.len() == 1 && found[0].contains("it has 80 rows; name a target"), "{found:?}");
}
