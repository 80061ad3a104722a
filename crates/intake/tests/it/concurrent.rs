//! Many requests at once on few names and few contents: each client sees its own writes.

use std::sync::Arc;

use forebay_base::fs::RealFs;
use forebay_base::fs::sim::Rng;
use forebay_intake::documents::PageLimits;
use forebay_intake::fsck::fsck;
use forebay_intake::{Condition, Intake, IntakeError, NameKey};

use crate::requests::{bytes_of, delete, post, put, put_if};
use crate::support::{House, key, namespace, noise};

const CLIENTS: u64 = 8;
const STEPS: usize = 120;

/// Contents that all clients share: kept in the log and as files, so that they are duplicates of
/// one another's and are deleted and stored again all the time.
fn content(which: usize) -> Vec<u8> {
    noise(which as u64, if which.is_multiple_of(2) { 700 } else { 3_000 })
}

/// Puts and deletes two names that no other client uses, and reads each back at once.
async fn client(intake: Intake, id: u64) -> Vec<Option<usize>> {
    let mut rng = Rng::new(id);
    let mut names = vec![None, None];
    for _ in 0..STEPS {
        let (at, which) = (rng.below(2), rng.below(6));
        let key = key("shared", &format!("{id}-{at}"));
        if rng.one_in(3) {
            let deleted = delete(&intake, &key).await.unwrap();
            assert_eq!(deleted, names[at].is_some());
            names[at] = None;
        } else {
            let put = put(&intake, &key, &content(which)).await.unwrap();
            assert_eq!(put.created, names[at].is_none(), "{put:?}");
            names[at] = Some(which);
        }
        check(&intake, &key, names[at]).await;
        tokio::task::yield_now().await;
    }
    names
}

async fn check(intake: &Intake, key: &NameKey, which: Option<usize>) {
    let found = bytes_of(intake, key).await.unwrap();
    assert!(found == which.map(content), "{key:?} is not {which:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_client_reads_what_it_wrote_while_others_share_its_bytes() {
    let house = House::with(|options| {
        options.limits.packed_size_max = 1_000;
        options.segment_size = 64 << 10;
    });
    let clients: Vec<_> =
        (0..CLIENTS).map(|id| tokio::spawn(client(house.intake.clone(), id))).collect();
    let mut left = Vec::new();
    for client in clients {
        left.push(client.await.unwrap());
    }
    let house = house.reopen();
    for (id, names) in left.iter().enumerate() {
        for (at, which) in names.iter().enumerate() {
            check(&house.intake, &key("shared", &format!("{id}-{at}")), *which).await;
        }
    }
    let (options, _dir) = house.close();
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.files, left.iter().flatten().flatten().count() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_want_a_free_name_one_gets_it() {
    let house = House::with(|_| {});
    for round in 0..20 {
        let key = key("race", &round.to_string());
        let tries: Vec<_> = (0..8)
            .map(|id| {
                let (intake, key) = (house.intake.clone(), key.clone());
                tokio::spawn(async move {
                    let body = format!("client {id}");
                    (id, put_if(&intake, &key, body.as_bytes(), Condition::Absent).await)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for tried in tries {
            match tried.await.unwrap() {
                (id, Ok(put)) if put.created => winners.push(id),
                (_, Err(IntakeError::Precondition { .. })) => {}
                (id, other) => panic!("client {id}: {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let expected = format!("client {}", winners[0]).into_bytes();
        assert_eq!(bytes_of(&house.intake, &key).await.unwrap(), Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documents_of_many_requests_keep_their_order_and_ids_have_no_gap() {
    let house = House::with(|_| {});
    let posts: Vec<_> = (0..16)
        .map(|request| {
            let intake = house.intake.clone();
            tokio::spawn(async move {
                for round in 0..5 {
                    let body: String = (0..20)
                        .map(|at| format!("{{\"request\":{request},\"at\":{}}}\n", round * 20 + at))
                        .collect();
                    let reply = post(&intake, &namespace("d"), None, &body).await.unwrap();
                    assert_eq!(reply.status, 201, "{reply:?}");
                }
            })
        })
        .collect();
    for post in posts {
        post.await.unwrap();
    }
    let mut next = [0; 16];
    let (mut after, mut more) = (None, true);
    while more {
        let limits = PageLimits { rows_max: 1_000, bytes_max: 8 << 20 };
        let page = house.intake.documents(&namespace("d"), after, limits).await.unwrap().unwrap();
        for document in page.documents {
            let id = after.map_or(1, |last| last + 1);
            assert_eq!(document.id, id, "the ids have a gap");
            after = Some(id);
            let document: serde_json::Value = serde_json::from_slice(&document.raw).unwrap();
            let request = usize::try_from(document["request"].as_u64().unwrap()).unwrap();
            assert_eq!(document["at"], next[request]);
            next[request] += 1;
        }
        assert_eq!(page.info.row_count, 16 * 100);
        more = page.more;
    }
    assert_eq!(next, [100; 16]);
}
