//! Copying, moving and deleting several files under an idempotency key.

use forebay_intake::request::{Claim, RequestKey};
use serde_json::{Value, json};

use super::support::{Answer, House};

const KEY: (&str, &str) = ("idempotency-key", "k");

fn path(path: &str) -> Value {
    let (namespace, name) = path.split_once('/').unwrap();
    json!({"namespace": namespace, "name": name})
}

/// A request of files to be copied or moved.
fn transfers(pairs: &[(&str, &str)]) -> String {
    let pair = |(from, to): &(&str, &str)| json!({"from": path(from), "to": path(to)});
    json!({"files": pairs.iter().map(pair).collect::<Vec<_>>()}).to_string()
}

fn statuses(reply: &Answer) -> Vec<String> {
    let json = reply.json();
    let results = json["results"].as_array().unwrap().iter();
    results.map(|result| result["status"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_answer_and_changes_nothing() {
    let mut house = House::new();
    for name in ["n/a", "n/b", "n/c"] {
        house.put(name, name).await;
    }
    let moved = transfers(&[("n/a", "m/a"), ("n/missing", "m/x"), ("n/b", "m/b")]);
    let first = house.send("POST", "/v1/files/move", &[KEY], moved.clone()).await;
    assert_eq!(statuses(&first), ["moved", "failed", "moved"]);
    // What would be moved, if it were carried out again.
    for name in ["n/a", "n/missing"] {
        house.put(name, "another").await;
    }
    for _ in 0..2 {
        let again = house.send("POST", "/v1/files/move", &[KEY], moved.clone()).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(again.header("idempotent-replay"), "true");
        house = house.reopen();
    }
    assert_eq!(house.get("/v1/files/m/a").await.body, "n/a");
    let another = transfers(&[("n/a", "m/a")]);
    for (route, body) in [("move", another), ("copy", moved)] {
        let refused = house.send("POST", &format!("/v1/files/{route}"), &[KEY], body).await;
        assert_eq!(refused.error(), (422, "idempotency_key_reused".to_owned()), "{route}");
    }
    let body = json!({"files": [path("n/c"), path("n/none")]}).to_string();
    let key = [("idempotency-key", "d")];
    let first = house.send("POST", "/v1/files/delete", &key, body.clone()).await;
    assert_eq!(statuses(&first), ["deleted", "absent"]);
    house.put("n/c", "new").await;
    let again = house.send("POST", "/v1/files/delete", &key, body).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(house.get("/v1/files/n/c").await.body, "new");
}

#[tokio::test]
async fn a_request_that_was_cut_short_continues_where_it_was() {
    let mut house = House::new();
    for name in ["n/a", "n/b", "n/c"] {
        house.put(name, name).await;
    }
    let whole = |house: House, act: &'static str, body: String, done: &'static str| async move {
        let key = [("idempotency-key", act)];
        let part = RequestKey::parse(act.as_bytes()).unwrap().part(1);
        // The first attempt still has the second file.
        let held = house.intake.claim(part).await.unwrap();
        assert!(matches!(held, Claim::New(_)));
        let route = format!("/v1/files/{act}");
        let first = house.send("POST", &route, &key, body.clone()).await;
        assert_eq!(statuses(&first), [done, "failed"]);
        assert_eq!(first.json()["results"][1]["error"]["code"], "idempotency_key_in_use");
        drop(held);
        let house = house.reopen();
        // A change that is made again would fail, or meet another file.
        house.put("n/a", "changed").await;
        let again = house.send("POST", &route, &key, body.clone()).await;
        assert_eq!((again.status, statuses(&again)), (200, vec![done.to_owned(); 2]), "{again:?}");
        assert_eq!(again.json()["results"][0], first.json()["results"][0]);
        assert_eq!(house.get("/v1/files/n/a").await.body, "changed");
        let replayed = house.send("POST", &route, &key, body).await;
        assert_eq!((replayed.header("idempotent-replay"), &replayed.body), ("true", &again.body));
        house
    };
    house = whole(house, "copy", transfers(&[("n/a", "m/a"), ("n/b", "m/b")]), "copied").await;
    assert_eq!(house.get("/v1/files/m/a").await.body, "n/a");
    house = whole(house, "move", transfers(&[("n/a", "m/2"), ("n/c", "m/c")]), "moved").await;
    assert_eq!(house.get("/v1/files/m/2").await.body, "changed");
    let body = json!({"files": [path("n/a"), path("n/b")]}).to_string();
    whole(house, "delete", body, "deleted").await;
}

#[tokio::test]
async fn an_answer_too_long_to_be_remembered_is_put_together_from_its_parts() {
    let house = House::new();
    let long = "x".repeat(4_000);
    let metadata = ["a", "b", "c", "d"].map(|name| (format!("forebay-meta-{name}"), long.as_str()));
    let metadata = metadata.each_ref().map(|(name, value)| (name.as_str(), *value));
    let put = house.send("PUT", "/v1/files/n/a", &metadata, "bytes").await;
    assert_eq!(put.status, 201);
    let names: Vec<_> = (0..300).map(|at| format!("m/{at:03}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| ("n/a", name.as_str())).collect();
    let first = house.send("POST", "/v1/files/copy", &[KEY], transfers(&pairs)).await;
    assert_eq!(first.status, 200);
    assert!(first.body.len() > 4 << 20);
    let house = house.reopen();
    let again = house.send("POST", "/v1/files/copy", &[KEY], transfers(&pairs)).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
}

#[tokio::test]
async fn several_files_are_changed_each_by_its_own_patch_and_once() {
    let house = House::new();
    for name in ["n/a", "n/b"] {
        house.put(name, name).await;
    }
    let with = |name: &str, patch: Value| {
        let mut file = path(name);
        file.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        file
    };
    let files = [
        with("n/a", json!({"tags": {"stage": "raw"}, "comment": "x"})),
        with("n/b", json!({"metadata": {"Author": "ada"}})),
        with("n/none", json!({"comment": "x"})),
        with("n/a", json!({"tags": {"stage": null, "done": "yes"}})),
        with("n/a", json!({"tags": {"n": "x".repeat(5_000)}})),
    ];
    let body = json!({ "files": files }).to_string();
    let first = house.send("POST", "/v1/files/change", &[KEY], body.clone()).await;
    assert_eq!(first.status, 207);
    assert_eq!(statuses(&first), ["changed", "changed", "failed", "changed", "failed"]);
    let codes = |at: usize| first.json()["results"][at]["error"]["code"].clone();
    assert_eq!((codes(2), codes(4)), (json!("not_found"), json!("attributes")));
    let file = first.json()["results"][3]["file"].clone();
    assert_eq!((&file["comment"], &file["tags"]), (&json!("x"), &json!({"done": "yes"})));
    let again = house.send("POST", "/v1/files/change", &[KEY], body).await;
    assert_eq!((again.header("idempotent-replay"), &again.body), ("true", &first.body));
    for wrong in [r#"{"files":[]}"#, r#"{"files":[{"namespace":"n","name":"a","tag":{}}]}"#] {
        let refused = house.send("POST", "/v1/files/change", &[], wrong).await;
        assert_eq!(refused.error(), (400, "json".to_owned()), "{wrong}");
    }
}
