//! Multipart batches: files, fields and JSON in one request.

use super::support::{Form, House, MULTIPART, noise, text};

#[tokio::test]
async fn a_mixed_batch_answers_for_each_part_and_keeps_the_good_ones() {
    let house = House::new();
    let big = noise(1, 200_000);
    let answer = Form::default()
        .field("namespace", "team")
        .field("comment", "first load")
        .file("a.txt", b"words")
        .file("copy.txt", b"words")
        .file("../escape", b"x")
        .file("dir/big.bin", &big)
        .send(&house)
        .await;
    assert_eq!(answer.status, 207, "{answer:?}");
    let json = answer.json();
    assert_eq!(text(&json["namespace"]), "team");
    let parts = json["parts"].as_array().unwrap();
    let status = |at: usize| text(&parts[at]["status"]);
    assert_eq!((parts.len(), status(0), status(2), status(3)), (4, "stored", "rejected", "stored"));
    assert!(matches!(status(1), "duplicate" | "stored"), "both came at the same time");
    assert_eq!(text(&parts[2]["error"]["code"]), "name");
    assert_eq!(text(&parts[0]["file"]["url"]), "/v1/files/team/a.txt");
    assert_eq!(text(&parts[0]["file"]["comment"]), "first load");
    assert_eq!(house.get("/v1/files/team/dir/big.bin").await.body, big);
    assert_eq!(house.get("/v1/files/team/copy.txt").await.body, "words");
    assert_eq!(house.list("").await.0.len(), 3);
    assert_eq!(house.files_below("staging"), [""; 0]);
}

#[tokio::test]
async fn the_namespace_may_come_after_the_files() {
    let house = House::new();
    let answer = Form::default().file("a", b"x").field("namespace", "late").send(&house).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(house.list("").await.0, ["late/a"]);
    let answer = Form::default().file("b", b"y").send(&house).await;
    assert_eq!((answer.status, text(&answer.json()["namespace"])), (201, "default"));
    assert_eq!(house.get("/v1/files/default/b").await.body, "y");
}

#[tokio::test]
async fn json_is_kept_as_it_came_and_its_documents_are_taken_once() {
    let house = House::new();
    let json = b"[{\"id\":1,\"x\":0.10},\n {\"id\":2,\"x\":2}]";
    for round in 0..3 {
        let answer =
            Form::default().field("namespace", "data").file("d.json", json).send(&house).await;
        let part = &answer.json()["parts"][0];
        assert_eq!(part["documents"]["accepted"], 2, "{part}");
        assert_eq!(part["documents"]["repeated"] == true, round > 0);
        assert_eq!(text(&part["documents"]["target"]), "table");
    }
    assert_eq!(&house.get("/v1/files/data/d.json").await.body[..], json);
    let page = house.get("/v1/documents/data").await.json();
    assert_eq!(page["count"], 2);
    let answer = Form::default()
        .field("namespace", "data")
        .field("json", "file")
        .file("e.json", b"{\"id\":3}")
        .field("json", "documents")
        .file("f.json", b"{\"id\":4}")
        .field("documents", "{\"id\":5}\n{\"id\":6}\n")
        .send(&house)
        .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(house.list("?namespace=data").await.0, ["data/d.json", "data/e.json"]);
    assert_eq!(house.get("/v1/documents/data").await.json()["count"], 5);
}

#[tokio::test]
async fn a_repeated_batch_with_a_key_answers_the_same_and_stores_nothing_more() {
    let house = House::new();
    let body =
        || Form::default().field("namespace", "n").file("a", b"x").file("d.json", b"{\"a\":1}");
    let headers = [MULTIPART, ("idempotency-key", "batch-1")];
    let first = house.send("POST", "/v1/ingest", &headers, body().finish()).await;
    assert_eq!(first.status, 201, "{first:?}");
    house.delete("n/a").await;
    let house = house.reopen();
    let again = house.send("POST", "/v1/ingest", &headers, body().finish()).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotent-replay"), "true");
    assert_eq!(house.list("").await.0, ["n/d.json"]);
    assert_eq!(house.get("/v1/documents/n").await.json()["count"], 1);
    let other = Form::default().field("namespace", "n").file("a", b"y").finish();
    let other = house.send("POST", "/v1/ingest", &headers, other).await;
    assert_eq!(other.error(), (422, "idempotency_key_reused".into()));
}

#[tokio::test]
async fn a_batch_of_nothing_but_refusals_is_unprocessable_and_stores_nothing() {
    let house = House::new();
    let answer = Form::default()
        .field("namespace", "n")
        .file("../a", b"x")
        .file("b/", b"x")
        .file("c//d", b"x")
        .send(&house)
        .await;
    assert_eq!(answer.status, 422, "{answer:?}");
    let json = answer.json();
    assert_eq!(json["parts"].as_array().unwrap().len(), 3);
    assert_eq!(house.list("").await.0, [""; 0]);
}

#[tokio::test]
async fn a_part_beyond_the_limits_takes_no_other_with_it() {
    let house = House::with(|options| {
        options.limits.file_size_max = 2_000;
        options.limits.packed_size_max = 1_000;
    });
    let answer = Form::default()
        .field("namespace", "n")
        .file("good", b"x")
        .file("too-large", &noise(1, 3_000))
        .file("good-too", b"y")
        .send(&house)
        .await;
    assert_eq!(answer.status, 207, "{answer:?}");
    assert_eq!(text(&answer.json()["parts"][1]["error"]["code"]), "too_large");
    assert_eq!(house.list("").await.0, ["n/good", "n/good-too"]);
    assert_eq!(house.files_below("staging"), [""; 0]);
}

#[tokio::test]
async fn files_without_a_namespace_are_held_in_bounded_number() {
    let house = House::with(|options| options.limits.packed_size_max = 100);
    let mut form = Form::default();
    for n in 0..200 {
        form = form.file(&format!("{n:03}"), &noise(n, 200));
    }
    let answer = form.send(&house).await;
    assert_eq!(answer.status, 207, "{answer:?}");
    let parts = answer.json()["parts"].as_array().unwrap().clone();
    let stored = parts.iter().filter(|part| part["status"] == "stored").count();
    assert!((64..200).contains(&stored), "{stored} were held open at once");
    assert!(
        parts.iter().all(|part| {
            part["status"] == "stored" || part["error"]["code"] == "namespace_late"
        })
    );
    let mut form = Form::default().field("namespace", "n");
    for n in 0..200 {
        form = form.file(&format!("{n:03}"), &noise(n, 200));
    }
    assert_eq!(form.send(&house).await.status, 201);
    assert_eq!(house.files_below("staging"), [""; 0]);
}
