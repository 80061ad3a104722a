//! Places that are not directories: each is tried alone, and failures delay nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_base::fs::sim::SimFs;
use forebay_events::store::{AnchorError, AnchorPlace, AnchorTarget, Publication};
use forebay_events::{Options, Store};
use parking_lot::{Condvar, Mutex};

use crate::store_online::{anchored, append, open_with, options};

/// A target that records what it receives, and can refuse or block.
#[derive(Debug, Default)]
struct TestTarget {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sizes: Vec<u64>,
    attempts: u64,
    refuses: bool,
    blocks: bool,
}

impl TestTarget {
    fn of(target: &Arc<Self>) -> AnchorPlace {
        AnchorPlace::Target(Arc::clone(target) as Arc<dyn AnchorTarget>)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits until the target is in a state.
    fn wait(&self, is_so: impl Fn(&State) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut state = self.state.lock();
        while !is_so(&state) {
            assert!(!self.changed.wait_until(&mut state, end).timed_out(), "{state:?}");
        }
    }
}

impl AnchorTarget for TestTarget {
    fn address(&self) -> String {
        "test://place".to_owned()
    }

    fn publish(&self, publication: &Publication) -> Result<(), AnchorError> {
        let mut state = self.state.lock();
        state.attempts += 1;
        self.changed.notify_all();
        while state.blocks {
            self.changed.wait(&mut state);
        }
        if state.refuses {
            return Err(AnchorError::remote("reach", self.address(), "it is down"));
        }
        assert_eq!(publication.first, state.sizes.is_empty());
        state.sizes.push(publication.checkpoint.size);
        self.changed.notify_all();
        Ok(())
    }
}

#[test]
fn a_place_that_fails_keeps_no_other_from_its_checkpoints() {
    let disk = SimFs::new(1);
    let (down, up) = (Arc::new(TestTarget::default()), Arc::new(TestTarget::default()));
    down.set(|state| state.refuses = true);
    let directory = AnchorPlace::Directory(PathBuf::from("/elsewhere/anchor"));
    let anchors = vec![TestTarget::of(&down), directory, TestTarget::of(&up)];
    let store = open_with(&disk, Options { anchors, ..options() });
    append(&store, 5);
    let error = store.publish_checkpoint().unwrap_err();
    assert_eq!(error.to_string(), "cannot reach test://place");
    assert_eq!(up.state.lock().sizes, [5]);
    assert_eq!(anchored(&disk).unwrap().notes.len(), 1);
    assert_eq!((store.stats().anchored, store.stats().anchor_failures), (2, 1));
    let published: Vec<_> = store.anchors().into_iter().map(|it| it.published).collect();
    assert_eq!(published, [None, Some(5), Some(5)]);
    let failure = store.anchors()[0].failure.clone().unwrap();
    assert_eq!(failure, "cannot reach test://place: it is down");
    append(&store, 1);
    down.set(|state| state.refuses = false);
    store.publish_checkpoint().unwrap();
    assert_eq!(down.state.lock().sizes, [6]);
    store.close().unwrap();
}

#[test]
fn a_place_that_does_not_answer_delays_neither_appends_nor_checkpoints_nor_others() {
    let dir = tempfile::tempdir().unwrap();
    let (stuck, up) = (Arc::new(TestTarget::default()), Arc::new(TestTarget::default()));
    stuck.set(|state| state.blocks = true);
    let options = Options {
        anchors: vec![TestTarget::of(&stuck), TestTarget::of(&up)],
        anchor_interval: Duration::ZERO,
        ..options()
    };
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(Arc::new(RealFs), clock, dir.path(), options).unwrap();
    append(&store, 5);
    store.checkpoint().unwrap();
    stuck.wait(|state| state.attempts == 1);
    for size in 6..10 {
        append(&store, 1);
        store.checkpoint().unwrap();
        up.wait(|state| state.sizes.contains(&size));
    }
    assert_eq!(store.anchors()[0].published, None);
    stuck.set(|state| state.blocks = false);
    stuck.wait(|state| state.sizes.contains(&9));
    append(&store, 1);
    // Closing publishes the last checkpoint.
    store.close().unwrap();
    for target in [&stuck, &up] {
        assert_eq!(target.state.lock().sizes.last(), Some(&10));
    }
}

#[test]
fn a_place_is_tried_again_after_a_failure_without_a_new_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let target = Arc::new(TestTarget::default());
    target.set(|state| state.refuses = true);
    let options = Options {
        anchors: vec![TestTarget::of(&target)],
        anchor_interval: Duration::from_secs(3_600),
        ..options()
    };
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(Arc::new(RealFs), clock, dir.path(), options).unwrap();
    append(&store, 5);
    store.checkpoint().unwrap();
    target.wait(|state| state.attempts >= 1);
    target.set(|state| state.refuses = false);
    target.wait(|state| state.sizes == [5]);
    store.close().unwrap();
}
