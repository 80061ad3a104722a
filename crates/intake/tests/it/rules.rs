//! Routing rules: the namespace and tags of new files, and how long they are kept.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::fs::RealFs;
use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::catalogue::{NamespaceRecord, Versioning};
use forebay_intake::rules::{Rule, Rules, Sender};
use forebay_intake::upload::Upload;
use forebay_intake::{
    Condition, FileCopy, FileDetails, Intake, IntakeError, IntakeOptions, NewFile, Put,
};

use crate::support::{block_on, directory, findings, key, namespace};

const DAY: Duration = Duration::from_secs(86_400);

fn rules(texts: &[&str]) -> Rules {
    let rules = texts.iter().map(|text| text.parse::<Rule>().unwrap());
    Rules::new(rules.collect()).unwrap()
}

/// An intake with rules and a clock.
struct Ruled {
    intake: Intake,
    options: IntakeOptions,
    clock: Arc<ManualClock>,
}

impl Ruled {
    fn open(options: IntakeOptions, clock: Arc<ManualClock>) -> Self {
        let (intake, _) = Intake::open(options.clone(), Arc::new(RealFs), clock.clone()).unwrap();
        Self { intake, options, clock }
    }

    fn new(dir: &std::path::Path, texts: &[&str]) -> Self {
        let mut options = IntakeOptions::new(dir.join("intake"));
        options.rules = rules(texts);
        Self::open(options, Arc::new(ManualClock::new(1_767_323_045_000)))
    }

    fn close(self) -> (IntakeOptions, Arc<ManualClock>) {
        self.intake.close().unwrap();
        (self.options, self.clock)
    }

    fn reopen(self) -> Self {
        let (options, clock) = self.close();
        Self::open(options, clock)
    }

    async fn put(&self, of: &str, name: &str, is_routed: bool) -> Result<Put, IntakeError> {
        self.put_with(of, name, is_routed, Attributes::default()).await
    }

    async fn put_with(
        &self,
        of: &str,
        name: &str,
        is_routed: bool,
        attributes: Attributes,
    ) -> Result<Put, IntakeError> {
        let upload = Upload::in_memory(format!("bytes of {name}").into_bytes().into());
        let new = NewFile {
            classified: upload.classify(&key(of, name).1).await,
            key: key(of, name),
            comment: String::new(),
            attributes,
            condition: Condition::None,
            idempotency: None,
            is_routed,
            sender: Sender::default(),
        };
        self.intake.put(new, upload).await
    }

    async fn names(&self) -> Vec<String> {
        self.intake.totals().await.unwrap();
        let files = self.intake.files_after(None, 100).unwrap();
        files.iter().map(|file| format!("{}/{}", file.namespace, file.name)).collect()
    }
}

#[test]
fn a_rule_chooses_the_namespace_only_where_the_request_names_none() {
    let dir = directory();
    let texts = ["name=*.log type=text/* -> namespace=logs tag.kind=log", "-> tag.kind=other"];
    let ruled = Ruled::new(dir.path(), &texts);
    block_on(async {
        let tags = |put: &Put| {
            let tags = put.file.attributes.of(AttributeKind::Tag);
            tags.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let routed = ruled.put("default", "a.log", true).await.unwrap();
        assert_eq!(tags(&routed), ["kind=log"]);
        let named = ruled.put("mine", "b.log", false).await.unwrap();
        assert_eq!(tags(&named), ["kind=log"]);
        let mut own = Attributes::default();
        own.set(AttributeKind::Tag, "kind", "mine").unwrap();
        let other = ruled.put_with("default", "c.bin", true, own).await.unwrap();
        assert_eq!(tags(&other), ["kind=mine"]);
        assert_eq!(ruled.names().await, ["default/c.bin", "logs/a.log", "mine/b.log"]);
        // The same file again is the same file.
        let again = ruled.put("default", "a.log", true).await.unwrap();
        assert_eq!((again.file.id, again.duplicate), (routed.file.id, true));
    });
}

#[test]
fn files_are_deleted_when_their_time_has_passed_also_after_a_restart() {
    let dir = directory();
    let texts = ["name=short* -> keep=1d", "name=long* -> keep=10d"];
    let ruled = Ruled::new(dir.path(), &texts);
    block_on(async {
        for name in ["short", "long", "ever"] {
            ruled.put("n", name, false).await.unwrap();
        }
        ruled.clock.advance(DAY - Duration::from_millis(1));
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 0);
        // It is found although the last pass found that nothing expires sooner.
        ruled.put("n", "short late", false).await.unwrap();
        ruled.clock.advance(Duration::from_millis(1));
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 1);
        assert_eq!(ruled.names().await, ["n/ever", "n/long", "n/short late"]);
        ruled.clock.advance(DAY);
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 1);
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 0);
    });
    let ruled = ruled.reopen();
    block_on(async {
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 0);
        ruled.clock.advance(9 * DAY);
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 1);
        assert_eq!(ruled.names().await, ["n/ever"]);
    });
    let (options, _) = ruled.close();
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn what_was_replaced_changed_or_moved_is_kept_from_then_on() {
    let dir = directory();
    let ruled = Ruled::new(dir.path(), &["from=n name=* -> keep=10d"]);
    let intake = &ruled.intake;
    block_on(async {
        for name in ["changed", "replaced", "copied", "left"] {
            ruled.put("n", name, false).await.unwrap();
        }
        ruled.clock.advance(9 * DAY);
        let change = |file: &forebay_intake::catalogue::FileRecord| {
            let attributes = file.attributes.clone();
            Ok(FileDetails { comment: "a comment".to_owned(), attributes })
        };
        let of = key("n", "changed");
        intake.change_details(&of, Condition::None, None, change).await.unwrap();
        let other = Upload::in_memory("other bytes".into());
        let new = NewFile {
            classified: other.classify(&key("n", "replaced").1).await,
            key: key("n", "replaced"),
            comment: String::new(),
            attributes: Attributes::default(),
            condition: Condition::None,
            idempotency: None,
            is_routed: false,
            sender: Sender::default(),
        };
        intake.put(new, other).await.unwrap();
        let copy = FileCopy {
            from: key("n", "copied"),
            to: key("m", "copy"),
            source: Condition::None,
            condition: Condition::None,
            comment: None,
            attributes: None,
            idempotency: None,
        };
        intake.copy(copy).await.unwrap();
        ruled.clock.advance(2 * DAY);
        assert_eq!(intake.remove_expired().await.unwrap(), 2);
        assert_eq!(ruled.names().await, ["m/copy", "n/changed", "n/replaced"]);
        ruled.clock.advance(9 * DAY);
        assert_eq!(intake.remove_expired().await.unwrap(), 3);
    });
}

#[test]
fn what_expires_in_a_namespace_with_versions_is_kept_as_a_version() {
    let dir = directory();
    let ruled = Ruled::new(dir.path(), &["-> keep=1d"]);
    block_on(async {
        let keep = |attributes, _| {
            Ok(NamespaceRecord::with_versioning(attributes, Versioning::On).unwrap())
        };
        ruled.intake.change_namespace(&namespace("n"), keep).await.unwrap();
        let put = ruled.put("n", "a", false).await.unwrap();
        ruled.clock.advance(DAY);
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 1);
        assert!(ruled.intake.find(&key("n", "a")).await.unwrap().is_none());
        let version = ruled.intake.find_version(&key("n", "a"), put.file.id).await.unwrap();
        assert!(version.is_some());
        // The version is not deleted.
        ruled.clock.advance(10 * DAY);
        assert_eq!(ruled.intake.remove_expired().await.unwrap(), 0);
    });
}
