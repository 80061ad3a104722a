//! The state: limits, restarts, damage, a full disk, a copy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::image::{Image, ImageList};
use forebay_webhooks::{
    Change, DeliveryFilter, Filter, NewHook, OpenError, WebhookError, check, pause_all,
};

use crate::support::{Receiver, World, block_on, open, options};

/// Verifies a state; returns its numbers of hooks and deliveries.
fn counts(dir: &Path) -> (u64, u64) {
    let checked = check(dir).unwrap().unwrap();
    assert!(checked.fingerprint.is_some());
    (checked.hooks, checked.deliveries)
}

#[test]
fn hooks_and_their_deliveries_are_limited_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let first = world.create(Filter::default()).await;
        for _ in 1..5 {
            world.create(Filter::default()).await;
        }
        let url = "https://hooks.example.com/".to_owned();
        let refused = world.hooks.create(NewHook { url, ..NewHook::default() }).await;
        assert!(matches!(refused, Err(WebhookError::TooMany { max: 5 })), "{refused:?}");
        for number in 0..30 {
            world.files.add("file.stored", "in", &number.to_string());
        }
        world.run(first, 3).await;
        let all = DeliveryFilter::default();
        let (kept, more) = world.hooks.deliveries(first, all, 100).await.unwrap();
        assert_eq!((kept.len(), more), (10, false));
        let older = DeliveryFilter { before: Some(kept[3].number), ..all };
        assert_eq!(world.hooks.deliveries(first, older, 100).await.unwrap().0, kept[4..]);
        let before = world.hooks.hook(first).unwrap();
        let world = world.reopen(options(dir.path()), 1);
        let after = world.hooks.hook(first).unwrap();
        assert_eq!((&before.hook, &before.cursors), (&after.hook, &after.cursors));
        assert_eq!(world.hooks.hooks().len(), 5);
        world.hooks.remove(first).await.unwrap();
        assert!(matches!(world.hooks.hook(first), Err(WebhookError::Unknown(_))));
        let world = world.reopen(options(dir.path()), 1);
        assert_eq!(world.hooks.hooks().len(), 4);
        let gone = world.hooks.deliveries(first, all, 1).await;
        assert!(matches!(gone, Err(WebhookError::Unknown(_))));
    });
    assert_eq!(counts(&dir.path().join("webhooks")), (4, 0));
}

#[test]
fn what_a_client_sends_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        let url = |url: &str| Change { url: Some(url.to_owned()), ..Change::default() };
        for wrong in [
            url("http://hooks.example.com/"),
            url("https://localhost.localdomain@10.0.0.1/"),
            url("https://10.0.0.1/"),
            Change { events: Some(vec!["file.eaten".to_owned()]), ..Change::default() },
            Change { description: Some("a\u{1b}[2J".to_owned()), ..Change::default() },
            Change { description: Some("x".repeat(2_000)), ..Change::default() },
            Change { namespace: Some(Some(String::new())), ..Change::default() },
        ] {
            let refused = world.hooks.change(id, wrong.clone()).await;
            let refused = refused.map(|view| view.hook);
            assert!(
                matches!(refused, Err(WebhookError::Address(_) | WebhookError::Rejected(_))),
                "{wrong:?}: {refused:?}"
            );
        }
        let filter = Filter { events: Vec::new(), namespace: Some("a".into()), prefix: None };
        let change = Change { namespace: Some(Some("a".into())), ..Change::default() };
        assert_eq!(world.hooks.change(id, change).await.unwrap().hook.filter, filter);
        let change = Change { namespace: Some(None), ..Change::default() };
        assert_eq!(world.hooks.change(id, change).await.unwrap().hook.filter, Filter::default());
        let long = world.hooks.rotate(id, Duration::from_secs(90 * 24 * 3_600)).await;
        assert!(matches!(long, Err(WebhookError::Rejected(_))));
        assert!(matches!(
            world.hooks.redeliver(id, 99).await,
            Err(WebhookError::UnknownDelivery(99))
        ));
    });
}

#[test]
fn a_damaged_state_is_reported_and_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let id = block_on(async {
        let id = world.create(Filter::default()).await;
        world.files.add("file.stored", "in", "a");
        world.run(id, 2).await;
        id
    });
    let World { hooks, clock, files, jobs, .. } = world;
    drop(hooks);
    let path = dir.path().join("webhooks/state.sqlite");
    let whole = std::fs::read(&path).unwrap();
    let try_open = || {
        let receiver = Arc::new(Receiver::default());
        open(options(dir.path()), &clock, [&files, &jobs], &receiver, 1).map(drop)
    };
    // A value that SQLite finds nothing wrong with.
    let connection = rusqlite::Connection::open(&path).unwrap();
    let changed = connection.execute("UPDATE cursors SET position = position + 10", []).unwrap();
    assert!(changed > 0);
    drop(connection);
    let error = try_open().unwrap_err();
    assert!(matches!(error, OpenError::State { .. }), "{error}");
    let error = check(&dir.path().join("webhooks")).unwrap_err();
    let text = forebay_base::error_chain::chain(&error).to_string();
    assert!(text.contains("cursors") && text.contains(&id.to_string()), "{text}");
    let half = whole[..whole.len() / 2].to_vec();
    for damaged in [b"not a database, not at all".to_vec(), half, Vec::new()] {
        std::fs::write(&path, damaged).unwrap();
        assert!(try_open().is_err());
        assert!(check(&dir.path().join("webhooks")).is_err());
    }
    std::fs::write(&path, whole).unwrap();
    try_open().unwrap();
    assert_eq!(counts(&dir.path().join("webhooks")), (1, 1));
    assert_eq!(check(dir.path()).unwrap(), None);
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_nothing_is_sent_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        world.hooks.limit_state(1).unwrap();
        let long = "x".repeat(5_000);
        for number in 0..3 {
            world.files.add("file.stored", "in", &format!("{long}{number}"));
        }
        // What is stored grows until it does not fit: the hook waits with the result in memory.
        world.hooks.run_until_idle(id).await.unwrap();
        let sent = world.receiver.requests.lock().len();
        assert_eq!(sent, 1);
        let view = world.hooks.hook(id).unwrap();
        assert!(view.stalled.is_some() && view.hook.is_enabled, "{view:?}");
        assert!(world.hooks.degraded().unwrap().contains("does not move on"));
        let error = world.hooks.rotate(id, Duration::ZERO).await;
        let is_full = matches!(&error, Err(WebhookError::Store(error)) if error.is_full());
        assert!(is_full || error.is_ok(), "{error:?}");
        world.hooks.limit_state(100_000).unwrap();
        world.run(id, 3).await;
        let ids = world.receiver.ids();
        // The worker of `run` is another one, as after a restart: it sends the first once more.
        assert_eq!((ids.len(), &ids[0]), (4, &ids[1]));
        assert_eq!(world.hooks.hook(id).unwrap().stalled, None);
    });
}

#[test]
fn another_master_key_disables_every_hook() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let id = block_on(world.create(Filter::default()));
    let world = world.reopen(options(dir.path()), 2);
    let hook = world.hook(id);
    assert!(!hook.is_enabled && hook.reason.unwrap().contains("master key"));
    let enable = Change { is_enabled: Some(true), ..Change::default() };
    block_on(world.hooks.change(id, enable)).unwrap();
    let world = world.reopen(options(dir.path()), 2);
    assert!(world.hook(id).is_enabled);
}

#[test]
fn a_copy_has_every_hook_and_sends_nothing_once_it_is_paused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let id = block_on(async {
        let id = world.create(Filter::default()).await;
        world.files.add("file.stored", "in", "a");
        world.receiver.answer(&[500]);
        world.hooks.run_until_idle(id).await;
        id
    });
    let mut image = Image::create(dir.path(), &dir.path().join("image")).unwrap();
    world.hooks.image(&mut image).unwrap();
    image.finish().unwrap();
    let copy = tempfile::tempdir().unwrap();
    for file in ImageList::open(&dir.path().join("image")).unwrap() {
        let file = file.unwrap();
        let to = copy.path().join(&file.path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(dir.path().join("image/files").join(&file.path), to).unwrap();
    }
    let place = copy.path().join("webhooks");
    assert_eq!(counts(&place), (1, 1));
    assert_eq!(pause_all(&place, "restored").unwrap(), 1);
    assert_eq!(pause_all(&place, "restored").unwrap(), 0);
    let World { clock, files, jobs, .. } = world;
    let receiver = Arc::new(Receiver::default());
    let hooks = open(options(copy.path()), &clock, [&files, &jobs], &receiver, 1).unwrap();
    let hook = hooks.hook(id).unwrap().hook;
    assert_eq!((hook.is_enabled, hook.reason.as_deref()), (false, Some("restored")));
    assert_eq!(block_on(hooks.run_until_idle(id)), None);
    assert!(receiver.requests.lock().is_empty());
}
