//! Order, repetition and giving up, with a clock that tests move.

use std::time::Duration;

use forebay_webhooks::{Change, DeliveryFilter, DeliveryState, Filter, SendError};

use crate::support::{START_MS, World, answered, block_on, name_in, options};

#[test]
fn events_are_sent_once_in_order_from_the_creation_on() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        world.files.add("file.stored", "in", "before");
        let id = world.create(Filter::default()).await;
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            ids.push(world.files.add("file.stored", "in", name));
        }
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["a", "b", "c"]);
        assert_eq!(world.receiver.ids(), ids);
        // Again, and after a restart: nothing new, so nothing is sent.
        world.run(id, 3).await;
        let world = world.reopen(options(dir.path()), 1);
        world.run(id, 3).await;
        world.files.add("file.deleted", "in", "d");
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["a", "b", "c", "d"]);
        let (list, more) = world.hooks.deliveries(id, DeliveryFilter::default(), 3).await.unwrap();
        assert!(more && list.iter().all(|delivery| delivery.state == DeliveryState::Delivered));
        assert_eq!(list[0].answer(), Some("an answer"));
    });
}

#[test]
fn only_what_the_filter_selects_is_sent_and_the_rest_is_not_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let filter = Filter { prefix: Some("x".to_owned()), ..Filter::default() };
        let id = world.create(filter).await;
        for number in 0..200 {
            let name = if number % 50 == 0 { "x" } else { "y" };
            world.files.add("file.stored", "in", name);
        }
        world.run(id, 10).await;
        assert_eq!(world.receiver.names(), ["x"; 4]);
        let view = world.hooks.hook(id).unwrap();
        let files = view.cursors.iter().find(|cursor| cursor.source == "intake").unwrap();
        assert_eq!((files.position, files.behind), (2_000, 0));
        assert_eq!(world.hooks.needs_from("intake"), Some(2_000));
    });
}

#[test]
fn what_ended_before_the_creation_is_not_sent_when_the_log_states_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        world.jobs.restate("job.completed", "before", START_MS - 1_000);
        world.run(id, 3).await;
        world.jobs.restate("job.completed", "after", START_MS + 1_000);
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["after"]);
    });
}

#[test]
fn sources_are_sent_by_the_time_of_their_events() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        for number in 0..3 {
            world.files.add("file.stored", "in", &format!("f{number}"));
            world.jobs.add("job.completed", "", &format!("j{number}"));
        }
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["f0", "j0", "f1", "j1", "f2", "j2"]);
    });
}

#[test]
fn a_failed_attempt_is_repeated_later_with_the_same_id_and_the_order_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        let first = world.files.add("file.stored", "in", "a");
        world.files.add("file.stored", "in", "b");
        world.receiver.answer(&[500, 503]);
        let due_ms = world.hooks.run_until_idle(id).await.unwrap();
        let now_ms = forebay_base::clock::Clock::now_ms(&*world.clock);
        assert!((2_500..=5_000).contains(&(due_ms - now_ms)), "{due_ms} {now_ms}");
        let view = world.hooks.hook(id).unwrap();
        assert_eq!((view.waiting, view.hook.failures), (1, 1));
        assert!(view.oldest_ms.is_some() && view.hook.failing_since_ms.is_some());
        // Also if the server was killed meanwhile.
        let world = world.reopen(options(dir.path()), 1);
        world.run(id, 4).await;
        assert_eq!(world.receiver.names(), ["a", "a", "a", "b"]);
        assert_eq!(world.receiver.ids()[..3], [first.clone(), first.clone(), first]);
        let requests = world.receiver.requests.lock();
        assert!(requests[0].timestamp_s < requests[2].timestamp_s, "the time is the attempt's");
        assert_ne!(requests[0].signature, requests[2].signature);
        let hook = world.hook(id);
        assert_eq!((hook.failures, hook.failing_since_ms), (0, None));
    });
}

#[test]
fn an_event_that_is_refused_alone_is_set_aside_and_given_up_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let world =
        world.reopen(forebay_webhooks::Options { attempts_max: 5, ..options(dir.path()) }, 1);
    block_on(async {
        let id = world.create(Filter::default()).await;
        world
            .receiver
            .behave(|request| answered(if name_in(&request.body) == "poison" { 500 } else { 200 }));
        for name in ["a", "poison", "b", "c"] {
            world.files.add("file.stored", "in", name);
        }
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["a", "poison", "poison", "poison", "b", "c"]);
        // It is tried on as long as the receiver takes nothing else.
        world.run(id, 10).await;
        let kept = world.hooks.hook(id).unwrap();
        assert_eq!((kept.waiting, kept.hook.is_enabled), (1, true));
        world.files.add("file.stored", "in", "d");
        world.run(id, 3).await;
        let (failed, _) = {
            let filter = DeliveryFilter { state: Some(DeliveryState::Failed), before: None };
            world.hooks.deliveries(id, filter, 10).await.unwrap()
        };
        assert_eq!(failed.len(), 1);
        assert!(failed[0].attempts() > 5 && failed[0].status() == Some(500), "{failed:?}");
        // It can be sent again by hand.
        world.receiver.behave(|_| answered(204));
        let again = world.hooks.redeliver(id, failed[0].number).await.unwrap();
        assert_eq!(again.state, DeliveryState::Waiting);
        world.run(id, 2).await;
        let again = world.hooks.delivery(id, failed[0].number).await.unwrap();
        assert_eq!((again.state, again.attempts()), (DeliveryState::Delivered, 1));
        assert_eq!(again.event(), failed[0].event());
    });
}

#[test]
fn while_a_receiver_is_away_nothing_is_given_up_and_little_is_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        let away = || SendError::Connection { reason: "connection refused".to_owned() };
        world.receiver.behave(move |_| Err(away()));
        let names: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        for name in &names {
            world.files.add("file.stored", "in", name);
        }
        world.run(id, 100).await;
        let view = world.hooks.hook(id).unwrap();
        assert!(view.hook.is_enabled);
        assert!(view.waiting <= 4, "{} wait", view.waiting);
        world.receiver.behave(|_| answered(200));
        world.receiver.requests.lock().clear();
        world.run(id, 100).await;
        let mut seen = world.receiver.names();
        let last = seen.last().cloned();
        seen.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(seen, names);
        assert!(last.is_some());
        assert_eq!(world.hooks.stats().oldest_waiting_ms, 0);
    });
}

#[test]
fn a_receiver_that_fails_for_days_or_is_gone_disables_its_hook_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let (failing, gone) =
            (world.create(Filter::default()).await, world.create(Filter::default()).await);
        world.files.add("file.stored", "in", "a");
        world.receiver.answer(&[410]);
        world.run(gone, 5).await;
        let hook = world.hook(gone);
        assert!(!hook.is_enabled && hook.reason.unwrap().contains("410"));
        world.receiver.behave(|_| answered(500));
        world.run(failing, 400).await;
        let hook = world.hook(failing);
        assert!(!hook.is_enabled, "{hook:?}");
        assert!(hook.reason.unwrap().contains("120 h"));
        assert_eq!(world.hooks.needs_from("intake"), None, "they hold nothing back");
        assert!(world.hooks.degraded().unwrap().contains("disabled"));
        // Enabled again, it goes on where it was.
        world.receiver.behave(|_| answered(200));
        world.receiver.requests.lock().clear();
        let enable = Change { is_enabled: Some(true), ..Change::default() };
        for id in [failing, gone] {
            assert_eq!(world.hooks.change(id, enable.clone()).await.unwrap().hook.reason, None);
            world.run(id, 3).await;
        }
        assert_eq!(world.receiver.names(), ["a", "a"]);
    });
}

#[test]
fn a_ping_that_succeeds_makes_what_waits_due() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        world.files.add("file.stored", "in", "a");
        world.receiver.answer(&[500; 8]);
        world.run(id, 7).await;
        assert_eq!(world.hooks.ping(id).await.unwrap().state, DeliveryState::Failed);
        let before = world.receiver.requests.lock().len();
        assert_eq!(world.hooks.ping(id).await.unwrap().state, DeliveryState::Delivered);
        world.hooks.run_until_idle(id).await;
        assert_eq!(world.receiver.names()[before..], ["ping", "a"]);
    });
}

#[test]
fn retry_after_is_heeded_up_to_the_longest_delay() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let id = world.create(Filter::default()).await;
        world.files.add("file.stored", "in", "a");
        for (asked_s, least, most) in [(600, 600, 600), (1 << 40, 3_600, 3_600), (0, 2, 5)] {
            world.receiver.behave(move |_| {
                answered(503).map(|answer| forebay_webhooks::Answer {
                    retry_after_s: Some(asked_s),
                    ..answer
                })
            });
            let enable = Change { is_enabled: Some(true), ..Change::default() };
            world.hooks.change(id, enable).await.unwrap();
            let due_ms = world.hooks.run_until_idle(id).await.unwrap();
            let now_ms = forebay_base::clock::Clock::now_ms(&*world.clock);
            let delay = Duration::from_millis(due_ms - now_ms).as_secs();
            // The third attempt would have up to 20 s of its own.
            assert!(delay >= least && delay <= most.max(20), "{delay} {asked_s}");
        }
    });
}

#[test]
fn events_that_left_the_log_are_reported_as_an_event_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    block_on(async {
        let filter = Filter { events: vec!["file.deleted".to_owned()], ..Filter::default() };
        let id = world.create(filter).await;
        let disabled = Change { is_enabled: Some(false), ..Change::default() };
        world.hooks.change(id, disabled).await.unwrap();
        for _ in 0..20 {
            world.files.add("file.deleted", "in", "x");
        }
        world.files.truncate(18);
        let enabled = Change { is_enabled: Some(true), ..Change::default() };
        world.hooks.change(id, enabled).await.unwrap();
        world.run(id, 3).await;
        assert_eq!(world.receiver.names(), ["gap", "x", "x"]);
        let body: serde_json::Value =
            serde_json::from_slice(&world.receiver.requests.lock()[0].body).unwrap();
        let data = &body["data"];
        assert_eq!((&data["source"], &data["entries"]), (&"intake".into(), &18.into()), "{body}");
        assert_eq!((&data["from_position"], &data["to_position"]), (&0.into(), &180.into()));
        assert_eq!(world.hook(id).gaps, 1);
        // A log that was replaced: what it had is lost, and the new one is followed.
        *world.files.log.lock() = [9; 16];
        world.files.truncate(20);
        let world = world.reopen(options(dir.path()), 1);
        world.files.add("file.deleted", "in", "new");
        world.run(id, 3).await;
        assert_eq!(world.receiver.names()[3..], ["gap", "gap", "new"]);
        assert_eq!(world.hook(id).gaps, 3);
    });
}
