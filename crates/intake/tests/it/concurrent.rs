//! Many requests at once on few names and few contents: each client sees its own writes.

use std::sync::Arc;

use forebay_api::intake::router;
use forebay_base::fs::RealFs;
use forebay_base::fs::sim::Rng;
use forebay_intake::Intake;
use forebay_intake::fsck::fsck;

use super::support::{House, noise, send};

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
        let path = format!("/v1/files/shared/{id}-{at}");
        if rng.one_in(3) {
            let answer = send(router(&intake), "DELETE", &path, &[], "").await;
            assert_eq!(answer.status, if names[at].is_some() { 204 } else { 404 });
            names[at] = None;
        } else {
            let answer = send(router(&intake), "PUT", &path, &[], content(which)).await;
            assert_eq!(answer.status, if names[at].is_some() { 200 } else { 201 }, "{answer:?}");
            names[at] = Some(which);
        }
        check(&intake, &path, names[at]).await;
        tokio::task::yield_now().await;
    }
    names
}

async fn check(intake: &Intake, path: &str, which: Option<usize>) {
    let got = send(router(intake), "GET", path, &[], "").await;
    match which {
        None => assert_eq!(got.status, 404, "{path}"),
        Some(which) => assert!(got.status == 200 && got.body == content(which), "{path}: {got:?}"),
    }
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
            check(&house.intake, &format!("/v1/files/shared/{id}-{at}"), *which).await;
        }
    }
    let (options, _dir) = house.close();
    let report = fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.files, left.iter().flatten().flatten().count() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_want_a_free_name_one_gets_it() {
    let house = House::new();
    for round in 0..20 {
        let path = format!("/v1/files/race/{round}");
        let tries: Vec<_> = (0..8)
            .map(|id| {
                let (router, path) = (router(&house.intake), path.clone());
                tokio::spawn(async move {
                    let body = format!("client {id}");
                    let answer = send(router, "PUT", &path, &[("if-none-match", "*")], body).await;
                    (id, answer.status)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for tried in tries {
            match tried.await.unwrap() {
                (id, 201) => winners.push(id),
                (_, status) => assert_eq!(status, 412),
            }
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(house.get(&path).await.body, format!("client {}", winners[0]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documents_of_many_requests_keep_their_order_and_ids_have_no_gap() {
    let house = House::new();
    let posts: Vec<_> = (0..16)
        .map(|request| {
            let router = router(&house.intake);
            tokio::spawn(async move {
                for round in 0..5 {
                    let body: String = (0..20)
                        .map(|at| format!("{{\"request\":{request},\"at\":{}}}\n", round * 20 + at))
                        .collect();
                    let answer = send(router.clone(), "POST", "/v1/documents/d", &[], body).await;
                    assert_eq!(answer.status, 201, "{answer:?}");
                }
            })
        })
        .collect();
    for post in posts {
        post.await.unwrap();
    }
    let mut next = [0; 16];
    for page in 0..2 {
        let path = format!("/v1/documents/d?limit=1000&cursor={}", page * 1_000);
        let page = house.get(&path).await.json();
        for document in page["documents"].as_array().unwrap() {
            let request = document["document"]["request"].as_u64().unwrap();
            let request = usize::try_from(request).unwrap();
            assert_eq!(document["document"]["at"], next[request]);
            next[request] += 1;
        }
        assert_eq!(page["count"], 16 * 100);
    }
    assert_eq!(next, [100; 16]);
}
