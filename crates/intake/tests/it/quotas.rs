//! Quotas of namespaces: what exceeds one is refused, whichever request is first.

use forebay_intake::catalogue::{NamespaceRecord, Quota, Usage, Versioning};
use forebay_intake::{Condition, FileCopy, Intake, IntakeError};

use crate::requests::{self, put_if};
use crate::support::{House, block_on, findings, key, namespace};

async fn limit(intake: &Intake, name: &str, files: Option<u64>, bytes: Option<u64>) {
    let (of, quota) = (namespace(name), Quota { files, bytes });
    let set = intake.limit_namespace(&of, |attributes, _| {
        Ok(NamespaceRecord::with_quota(attributes, quota).unwrap())
    });
    set.await.unwrap();
}

async fn put(intake: &Intake, of: &str, name: &str, bytes: &[u8]) -> Result<(), IntakeError> {
    put_if(intake, &key(of, name), bytes, Condition::None).await.map(drop)
}

fn is_over<T>(result: Result<T, IntakeError>) -> bool {
    matches!(result, Err(IntakeError::Rejected { code: "quota_exceeded", .. }))
}

#[test]
fn of_many_uploads_at_once_as_many_are_stored_as_the_quota_permits() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        put(intake, "q", "before", b"x").await.unwrap();
        limit(intake, "q", Some(10), None).await;
        let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let puts = names.iter().map(|name| put(intake, "q", name, name.as_bytes()));
        let done = futures_util::future::join_all(puts).await;
        let stored = done.iter().filter(|done| done.is_ok()).count();
        assert!(done.into_iter().filter(Result::is_err).all(is_over));
        assert_eq!(stored, 9);
        // What is there can be replaced, and its place is free once it is deleted.
        put(intake, "q", "before", b"other").await.unwrap();
        assert!(is_over(put(intake, "q", "late", b"x").await));
        assert!(requests::delete(intake, &key("q", "before")).await.unwrap());
        put(intake, "q", "late", b"x").await.unwrap();
    });
    let (options, _dir) = house.close();
    assert_eq!(findings(&options.dir), Vec::<String>::new());
}

#[test]
fn bytes_of_versions_count_until_they_are_erased_also_after_a_restart() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        let keep = |attributes, _| {
            Ok(NamespaceRecord::with_versioning(attributes, Versioning::On).unwrap())
        };
        intake.change_namespace(&namespace("q"), keep).await.unwrap();
        limit(intake, "q", None, Some(250)).await;
        put(intake, "q", "a", &[1; 100]).await.unwrap();
        put(intake, "q", "a", &[2; 100]).await.unwrap();
        assert!(is_over(put(intake, "q", "a", &[3; 100]).await), "the first is a version");
        assert!(is_over(put(intake, "q", "b", &[3; 51]).await));
        put(intake, "q", "b", &[3; 50]).await.unwrap();
    });
    let house = house.reopen();
    block_on(async {
        let intake = &house.intake;
        let used = Usage { files: 2, bytes: 250 };
        assert_eq!(intake.quota_usage(&namespace("q")), Some(used));
        assert!(is_over(put(intake, "q", "c", &[4; 1]).await));
        assert_eq!(intake.prune_versions(&key("q", "a"), 0).await.unwrap(), 1);
        put(intake, "q", "c", &[4; 100]).await.unwrap();
        // Less than there is: nothing is lost, and nothing more is stored.
        limit(intake, "q", None, Some(10)).await;
        assert!(is_over(put(intake, "q", "d", &[4; 1]).await));
        put(intake, "q", "d", b"").await.unwrap();
        limit(intake, "q", None, None).await;
        assert_eq!(intake.quota_usage(&namespace("q")), None);
        put(intake, "q", "d", &[4; 1_000]).await.unwrap();
    });
}

#[test]
fn copies_and_moves_into_a_full_namespace_are_refused_and_change_nothing() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        put(intake, "other", "a", &[1; 100]).await.unwrap();
        put(intake, "q", "b", &[2; 100]).await.unwrap();
        limit(intake, "q", None, Some(150)).await;
        let copy = |from: (&str, &str), to: (&str, &str)| FileCopy {
            from: key(from.0, from.1),
            to: key(to.0, to.1),
            source: Condition::None,
            condition: Condition::None,
            comment: None,
            attributes: None,
            idempotency: None,
        };
        assert!(is_over(intake.copy(copy(("other", "a"), ("q", "a"))).await));
        assert!(is_over(intake.rename(copy(("other", "a"), ("q", "a"))).await));
        assert!(intake.find(&key("other", "a")).await.unwrap().is_some());
        intake.rename(copy(("q", "b"), ("q", "c"))).await.unwrap();
        intake.rename(copy(("other", "a"), ("q", "c"))).await.unwrap();
        let used = Usage { files: 1, bytes: 100 };
        assert_eq!(intake.quota_usage(&namespace("q")), Some(used));
        intake.rename(copy(("q", "c"), ("other", "c"))).await.unwrap();
        assert_eq!(intake.quota_usage(&namespace("q")), Some(Usage::default()));
    });
}

#[test]
fn a_declared_size_beyond_the_whole_quota_is_refused_before_the_bytes_are_read() {
    let house = House::with(|_| {});
    block_on(async {
        let intake = &house.intake;
        put(intake, "q", "large", &[1; 1_001]).await.unwrap();
        limit(intake, "q", None, Some(1_000)).await;
        assert!(is_over(intake.check_quota(&key("q", "new"), 1_001).await));
        assert!(is_over(intake.check_quota(&key("q", "large"), 1_002).await));
        intake.check_quota(&key("q", "large"), 1_001).await.unwrap();
        intake.check_quota(&key("q", "new"), 1_000).await.unwrap();
        intake.check_quota(&key("other", "new"), u64::MAX).await.unwrap();
    });
}
