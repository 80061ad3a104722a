//! Following the log from outside: everything in order, what was erased by name, and nothing while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_intake::documents::decide::Wish;
use forebay_intake::format::Entry;
use forebay_intake::{Condition, Feed, FeedError, FeedItem, FileCopy, Intake};

use crate::support::{block_on, directory, key, noise, open_with, options, order, post, put};

fn open(dir: &std::path::Path) -> Intake {
    let mut options = options(dir);
    options.limits.packed_size_max = 32 << 10;
    open_with(options).unwrap()
}

/// What a follower sees from a position on, in words.
fn read(feed: &Feed, from: u64) -> (Vec<String>, u64) {
    let (mut seen, mut at) = (Vec::new(), from);
    loop {
        let reached = feed.read(at, 64 << 10, &mut |item| {
            seen.push(match item {
                FeedItem::Erased { .. } => "erased".to_owned(),
                FeedItem::Entry { entry, .. } => match entry {
                    Entry::FilePut(put) if put.derived => format!("derived {}", put.name),
                    Entry::FilePut(put) => format!("put {}", put.name),
                    Entry::FileMove(moved) => {
                        format!("move {} {}", moved.from_name, moved.put.name)
                    }
                    Entry::Delete(delete) => format!("delete {}", delete.name),
                    Entry::DocumentCommit(commit) => format!("documents {}", commit.count),
                    other => format!("{other:?}").split('(').next().unwrap_or_default().to_owned(),
                },
            });
        });
        match reached.unwrap() {
            reached if reached == at => return (seen, at),
            reached => at = reached,
        }
    }
}

fn copy(from: &str, to: &str) -> FileCopy {
    FileCopy {
        from: key("a", from),
        to: key("a", to),
        source: Condition::None,
        condition: Condition::None,
        comment: None,
        attributes: None,
        idempotency: None,
    }
}

#[test]
fn a_follower_sees_every_change_in_order_and_none_twice() {
    let dir = directory();
    let intake = open(dir.path());
    let feed = intake.feed();
    let begin = feed.end();
    block_on(async {
        put(&intake, &key("a", "x"), b"one", false).await;
        intake.copy(copy("x", "y")).await.unwrap();
        intake.rename(copy("y", "z")).await.unwrap();
        assert!(intake.delete(&key("a", "x"), Condition::None, None).await.unwrap().is_some());
        post(&intake, "orders", Wish::Table, &order(1)).await;
        // The last of them is shown once the catalogue has it.
        loop {
            let end = feed.end();
            if read(&feed, begin).0.len() == 5 {
                return;
            }
            feed.passed(end).await;
        }
    });
    let (seen, reached) = read(&feed, begin);
    assert_eq!(seen, ["put x", "derived y", "move y z", "delete x", "documents 1"]);
    assert_eq!(read(&feed, reached).0, Vec::<String>::new());
    let beyond = feed.read(reached + 1_000_000, 1, &mut |_| {});
    assert!(matches!(beyond, Err(FeedError::Elsewhere { .. })), "{beyond:?}");
}

#[test]
fn what_is_held_stays_and_what_was_erased_is_an_item() {
    let dir = directory();
    let intake = open(dir.path());
    let feed = intake.feed();
    let begin = feed.end();
    let held = Arc::new(AtomicU64::new(begin));
    let from = Arc::clone(&held);
    intake.hold_log(move || Some(from.load(Ordering::SeqCst)));
    block_on(async {
        for n in 0..60 {
            put(&intake, &key("a", &n.to_string()), &noise(n, 20_000), false).await;
        }
        for n in 0..50 {
            assert!(
                intake
                    .delete(&key("a", &n.to_string()), Condition::None, None)
                    .await
                    .unwrap()
                    .is_some()
            );
        }
        intake.reclaim().await.unwrap();
        let (seen, _) = read(&feed, begin);
        assert_eq!(seen.len(), 110, "{seen:?}");
        assert!(seen.iter().all(|item| item != "erased"));
        held.store(u64::MAX, Ordering::SeqCst);
        intake.reclaim().await.unwrap();
    });
    let (seen, _) = read(&feed, begin);
    assert!(seen.iter().any(|item| item == "erased"), "{seen:?}");
    assert!(seen.iter().any(|item| item == "put 55") && seen.iter().any(|item| item == "delete 7"));
}
