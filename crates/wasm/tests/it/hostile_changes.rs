//! Components that lie about changes: each ends in its error, before anything of the lie is applied.

use forebay_sdk::ConnectorError;
use forebay_sdk::changes::feed::{
    Applied, Attached, ChangeUnit, Changes, Feed, FeedOrigin, FeedStream, Next, StreamChanges,
};
use forebay_sdk::changes::{ChangedRow, Field, NetChanges};
use forebay_sdk::component::feed_column;
use forebay_sdk::connector::{Destination as _, Form, Result, Source};
use forebay_sdk::settings::FeedForm;
use forebay_wasm::WasmDestination;
use serde_json::json;

use crate::components::{limited, loaded, runtime, source, stream};

fn said(error: &ConnectorError) -> String {
    forebay_base::error_chain::chain(error).to_string()
}

/// A feed of one stream, up to a position.
fn feed(position: Option<&str>) -> Feed {
    let id = feed_column("id".into(), "integer".into(), true, 1, Some("int4")).unwrap();
    Feed {
        origin: FeedOrigin::default(),
        position: position.map(str::to_owned),
        streams: vec![FeedStream {
            stream: "t".into(),
            columns: vec![id],
            from: None,
            known_by: Vec::new(),
        }],
        form: FeedForm::Apply,
    }
}

/// Follows up to the present, and confirms each position: the positions.
async fn followed(source: &dyn Source) -> Result<Vec<String>> {
    let changes = source.changes().expect("the component reports changes");
    let attached = changes.attach(&feed(Some("0")), &[stream("t")], 1 << 20).await?;
    let Attached::Stream(mut following) = attached else { panic!("it has lost the feed") };
    let (wanted, mut found) = (following.present().to_owned(), vec!["0".to_owned()]);
    loop {
        match following.next().await? {
            Next::Unit(unit) => found.extend(unit.position),
            Next::Idle { position, .. } => found.push(position),
        }
        let last = &found[found.len() - 1];
        following.confirm(last).await?;
        if following.is_reached(last, &wanted) {
            return Ok(found);
        }
    }
}

#[test]
fn a_source_that_lies_about_changes_is_an_error_and_the_next_one_is_served() {
    for (mode, expected) in [
        ("loop-next", "computed for 0.3 s"),
        ("memory-next", "limits.max_memory"),
        ("trap-next", "which failed"),
        ("trap-follow", "which failed"),
        ("trap-confirm", "which failed"),
        ("fail-next", "cannot follow: as asked"),
        ("odd-present", "a position is not a line"),
        ("back", "after the position \"1\" came \"0\", which is not beyond it"),
        ("same", "after the position \"1\" came \"1\", which is not beyond it"),
        ("always-reached", "which is not beyond it"),
        ("never-reached", "which is not beyond it"),
        ("no-position", "a position is not a line"),
        ("unknown-stream", "stream 7 is not one of the feed"),
        ("missing-field", "0 fields instead of 1"),
        ("more-fields", "2 fields instead of 1"),
        ("half-field", "a field is cut off"),
        ("cut-unit", "it is cut off"),
        ("huge-unit", "limits.max_memory"),
    ] {
        let Some(bad) = source("trials", &json!({ "mode": mode }), limited(mode)) else { return };
        let good = source("trials", &json!({ "mode": "good" }), limited("good")).unwrap();
        let (failed, found) =
            runtime().block_on(async { (followed(&*bad).await, followed(&*good).await) });
        let error = failed.expect_err(mode);
        assert!(said(&error).contains(expected), "{mode}: {}", said(&error));
        assert_eq!(found.unwrap(), ["0", "1", "2", "3"], "after {mode}");
    }
}

#[test]
fn a_component_is_kept_alive_while_nothing_is_taken_from_it() {
    let Some(bad) =
        source("trials", &json!({ "mode": "trap-keep-alive" }), limited("trap-keep-alive"))
    else {
        return;
    };
    runtime().block_on(async {
        let changes = bad.changes().unwrap();
        let attached = changes.attach(&feed(Some("0")), &[stream("t")], 1 << 20).await.unwrap();
        let Attached::Stream(mut following) = attached else { panic!("it has lost the feed") };
        // The first waits to be taken, so the component is kept alive, at which this one traps.
        let Next::Unit(unit) = following.next().await.unwrap() else { panic!("no unit") };
        assert_eq!(unit.position.as_deref(), Some("1"));
        let failed = loop {
            match following.next().await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(said(&failed).contains("follow changes"), "{}", said(&failed));
    });
}

#[test]
fn a_feed_that_is_none_of_what_was_asked_for_is_not_created() {
    for (mode, expected) in [
        ("other-streams", "not those that were asked for"),
        ("feed-type", "not the name of a type"),
        ("odd-position", "a position is not a line"),
    ] {
        let Some(bad) = source("trials", &json!({ "mode": mode }), limited(mode)) else { return };
        let changes = bad.changes().unwrap();
        let streams = [stream("t")];
        let created = runtime().block_on(changes.create(&FeedOrigin::default(), &streams));
        let error = created.expect_err(mode);
        assert!(said(&error).contains(expected), "{mode}: {}", said(&error));
        assert!(!said(&error).contains('\u{1b}'), "{mode}: {error:?}");
    }
    let Some(lost) = source("trials", &json!({ "mode": "lost" }), limited("lost")) else { return };
    let changes = lost.changes().unwrap();
    let attached = runtime().block_on(changes.attach(&feed(Some("0")), &[stream("t")], 1));
    let Ok(Attached::Lost(found)) = attached else { panic!("it has lost nothing") };
    assert!(found.contains("it forgot") && !found.contains('\u{1b}'), "{found:?}");
}

/// A unit that inserts a row.
fn unit() -> ChangeUnit {
    let mut net = NetChanges::new([0]);
    net.insert(ChangedRow::new([Field::Value(&[0, 0, 0, 1])]).unwrap()).unwrap();
    ChangeUnit {
        position: Some("1".into()),
        commits: 1,
        committed_us: None,
        redefined: Vec::new(),
        streams: vec![StreamChanges { stream: 0, changes: Changes::Net(net) }],
    }
}

#[test]
fn a_destination_that_says_it_applied_what_it_was_not_given_is_not_believed() {
    for (mode, expected) in [
        ("trap-apply", "which failed"),
        ("loop-apply", "computed for 0.3 s"),
        ("fail-apply", "cannot apply: as asked"),
        ("more-rows", "and was given [1] changes"),
        ("all-rows", "and was given [1] changes"),
        ("no-streams", "and was given [1] changes"),
        ("good", ""),
    ] {
        let Some(loaded) = loaded("trials", limited(mode)) else { return };
        let config = json!({ "mode": mode }).to_string().into();
        let destination = WasmDestination::new(loaded, config, Form::Tuples);
        let applied = runtime().block_on(async {
            let target = destination.feeds().expect("the component applies changes");
            assert_eq!(target.forms(), [FeedForm::Apply, FeedForm::Log]);
            target.check(&feed(None).streams, FeedForm::Apply).unwrap();
            target.open("p", &feed(Some("0")), &[]).await.unwrap().apply(unit()).await
        });
        match applied {
            Ok(applied) => {
                assert_eq!(
                    (mode, applied),
                    ("good", vec![Applied { inserted: 1, ..Applied::default() }])
                );
            }
            Err(error) => assert!(
                said(&error).contains(expected) && mode != "good",
                "{mode}: {}",
                said(&error)
            ),
        }
    }
}

#[test]
fn a_component_without_changes_reports_and_applies_none() {
    let Some(clean) = source("sequence", &json!({}), limited("good")) else { return };
    assert!(clean.changes().is_none());
}
