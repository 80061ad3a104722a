//! Metadata, tags, copies, renames, directories and namespaces over HTTP.

use serde_json::{Value, json};

use super::support::House;

#[tokio::test]
async fn metadata_and_tags_come_with_the_file_and_are_changed_without_its_bytes() {
    let house = House::new();
    let sent = [("forebay-meta-author", "Ada"), ("forebay-tags", "stage=raw&project=x%26y")];
    let put = house.send("PUT", "/v1/files/n/a.txt", &sent, "hello").await;
    assert_eq!(put.status, 201);
    assert_eq!(put.json()["metadata"], json!({"author": "Ada"}));
    assert_eq!(put.json()["tags"], json!({"project": "x&y", "stage": "raw"}));
    let patch =
        r#"{"comment":"done","tags":{"stage":"final","project":null},"metadata":{"n":"1"}}"#;
    let changed = house.send("PATCH", "/v1/files/n/a.txt", &[], patch).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.json()["tags"], json!({"stage": "final"}));
    assert_eq!(changed.json()["metadata"], json!({"author": "Ada", "n": "1"}));
    let house = house.reopen();
    let got = house.get("/v1/files/n/a.txt").await;
    assert_eq!((got.status, &got.body[..]), (200, &b"hello"[..]));
    assert_eq!(got.header("forebay-meta-author"), "Ada");
    assert_eq!(got.header("forebay-tags"), "stage=final");
    assert_eq!(house.list("?tag=stage").await.0, ["n/a.txt"]);
    assert_eq!(house.list("?tag=stage=final").await.0, ["n/a.txt"]);
    assert_eq!(house.list("?tag=stage=raw").await.0, Vec::<String>::new());
    assert_eq!(house.list("?tag=stage&tag=project").await.0, Vec::<String>::new());
    // The same bytes without attributes are a file without attributes.
    house.put("n/a.txt", "hello").await;
    assert_eq!(house.list("?tag=stage").await.0, Vec::<String>::new());
}

#[tokio::test]
async fn a_change_that_breaks_a_rule_or_a_condition_changes_nothing() {
    let house = House::new();
    let put = house.put("n/a", "x").await;
    let etag = put.header("etag").to_owned();
    for (path, headers, body, error) in [
        ("/v1/files/n/a", vec![], "", (400, "json")),
        ("/v1/files/n/a", vec![], "[]", (400, "json")),
        ("/v1/files/n/a", vec![], r#"{"tag":{}}"#, (400, "json")),
        ("/v1/files/n/a", vec![], r#"{"tags":{"":"x"}}"#, (400, "attributes")),
        ("/v1/files/n/a", vec![], r#"{"tags":{"a":"b\n"}}"#, (400, "attributes")),
        ("/v1/files/n/a", vec![("if-match", "\"00\"")], "{}", (412, "precondition")),
        ("/v1/files/n/b", vec![], "{}", (404, "not_found")),
        ("/v1/files/n/..%2Fb", vec![], "{}", (400, "name")),
    ] {
        let answer = house.send("PATCH", path, &headers, body).await;
        assert_eq!(answer.error(), (error.0, error.1.to_owned()), "{path} {body}");
    }
    let twice = [("forebay-tags", "a=1&a=2")];
    let refused = house.send("PUT", "/v1/files/n/c", &twice, "x").await;
    assert_eq!(refused.error(), (400, "attributes".to_owned()));
    let keyed = [("if-match", &*etag), ("idempotency-key", "k")];
    for replayed in [false, true] {
        let done = house.send("PATCH", "/v1/files/n/a", &keyed, r#"{"tags":{"t":"1"}}"#).await;
        assert_eq!((done.status, done.header("idempotent-replay") == "true"), (200, replayed));
    }
    let other = house.send("PATCH", "/v1/files/n/a", &keyed, r#"{"tags":{"t":"2"}}"#).await;
    assert_eq!(other.error(), (422, "idempotency_key_reused".to_owned()));
    assert_eq!(house.list("?tag=t=1").await.0, ["n/a"]);
}

#[tokio::test]
async fn files_are_copied_moved_and_deleted_together_each_with_its_own_result() {
    let house = House::new();
    for (name, bytes) in [("n/a", "one"), ("n/b", "two")] {
        house.send("PUT", &format!("/v1/files/{name}"), &[("forebay-tags", "t=1")], bytes).await;
    }
    let path = |name: &str| {
        let (namespace, name) = name.split_once('/').unwrap();
        json!({"namespace": namespace, "name": name})
    };
    let transfer = |from: &str, to: &str| json!({"from": path(from), "to": path(to)});
    let body = json!({"files": [
        transfer("n/a", "m/a"), transfer("n/missing", "m/x"), transfer("n/b", "n/a"),
    ]});
    let copied = house.send("POST", "/v1/files/copy", &[], body.to_string()).await;
    assert_eq!(copied.status, 207, "{copied:?}");
    let results = &copied.json()["results"];
    let of = |field: &str| [0, 1, 2].map(|at| results[at][field].clone());
    assert_eq!(of("status"), ["copied", "failed", "failed"]);
    let codes = [1, 2].map(|at| results[at]["error"]["code"].clone());
    assert_eq!(codes, ["not_found", "precondition"]);
    assert_eq!(results[0]["file"]["tags"], json!({"t": "1"}));
    // A chain is done in its order.
    let body = json!({"files": [transfer("n/b", "n/c"), transfer("n/c", "n/d")]});
    let moved = house.send("POST", "/v1/files/move", &[], body.to_string()).await;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(house.list("").await.0, ["m/a", "n/a", "n/d"]);
    let house = house.reopen();
    assert_eq!(house.get("/v1/files/n/d").await.body, "two");
    assert_eq!(house.get("/v1/files/m/a").await.body, "one");
    let body = json!({"files": [path("n/d"), path("n/b"), path("m/a")]});
    let deleted = house.send("POST", "/v1/files/delete", &[], body.to_string()).await;
    assert_eq!(deleted.status, 200);
    let statuses = [0, 1, 2].map(|at| deleted.json()["results"][at]["status"].clone());
    assert_eq!(statuses, ["deleted", "absent", "deleted"]);
    assert_eq!(house.list("").await.0, ["n/a"]);
    for (body, headers) in [
        (r#"{"files":[]}"#, vec![]),
        (r#"{"files":[{"namespace":"n"}]}"#, vec![]),
        (r#"{"files":[{"namespace":"n","name":"a"}]}"#, vec![("idempotency-key", "")]),
    ] {
        let refused = house.send("POST", "/v1/files/delete", &headers, body).await;
        assert_eq!(refused.status, 400, "{body}");
    }
}

#[tokio::test]
async fn a_directory_shows_its_files_and_each_shared_prefix_once() {
    let house = House::new();
    for name in ["n/a/1", "n/a/2", "n/a/b/3", "n/ab", "n/b/1", "n/c", "m/x"] {
        house.put(name, name).await;
    }
    let page = |query: &'static str| {
        let house = &house;
        async move {
            let page = house.get(&format!("/v1/files?namespace=n&{query}")).await;
            assert_eq!(page.status, 200, "{page:?}");
            let json = page.json();
            let names = json["files"].as_array().unwrap().iter().map(|file| file["name"].clone());
            (
                json!(names.collect::<Vec<_>>()),
                json["prefixes"].clone(),
                json["next_cursor"].clone(),
            )
        }
    };
    assert_eq!(page("delimiter=/").await, (json!(["ab", "c"]), json!(["a/", "b/"]), json!(null)));
    assert_eq!(
        page("delimiter=/&prefix=a/").await,
        (json!(["a/1", "a/2"]), json!(["a/b/"]), json!(null))
    );
    let first = page("delimiter=/&limit=1").await;
    assert_eq!(first, (json!([]), json!(["a/"]), json!("n/a/")));
    let second = page("delimiter=/&limit=2&cursor=n/a/").await;
    assert_eq!(second, (json!(["ab"]), json!(["b/"]), json!("n/b/")));
    for query in ["delimiter=/", "namespace=n&delimiter=", "namespace=n&delimiter=/&category=text"]
    {
        assert_eq!(house.get(&format!("/v1/files?{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn a_listing_is_sorted_across_pages_and_refuses_the_cursor_of_another_order() {
    let house = House::new();
    for (name, size) in [("n/b", 2), ("n/a", 2), ("n/d/x", 9), ("n/c", 3), ("m/a", 1), ("n/e/y", 0)]
    {
        house.put(name, "x".repeat(size)).await;
    }
    for (query, expected) in [
        ("sort=largest", "n/d/x n/c n/a n/b m/a n/e/y"),
        ("sort=smallest", "n/e/y m/a n/a n/b n/c n/d/x"),
        ("sort=-name", "n/e/y n/d/x n/c n/b n/a m/a"),
        ("sort=newest", "m/a n/a n/b n/c n/d/x n/e/y"),
        ("sort=largest&namespace=n&prefix=d", "n/d/x"),
        ("sort=largest&size_max=2", "n/a n/b m/a n/e/y"),
        ("sort=largest&namespace=n&delimiter=/", "n/d/ n/e/ n/c n/a n/b"),
        ("sort=-name&namespace=n&delimiter=/", "n/e/ n/d/ n/c n/b n/a"),
    ] {
        for limit in 1..4 {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = house.get(&format!("/v1/files?{query}&limit={limit}{after}")).await;
                assert_eq!(page.status, 200, "{query} {page:?}");
                let page = page.json();
                let prefixes = page["prefixes"].as_array().into_iter().flatten();
                found.extend(prefixes.map(|prefix| format!("n/{}", prefix.as_str().unwrap())));
                let files = page["files"].as_array().unwrap().iter();
                let text = |file: &Value, member: &str| file[member].as_str().unwrap().to_owned();
                found
                    .extend(files.map(|f| format!("{}/{}", text(f, "namespace"), text(f, "name"))));
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                after = format!("&cursor={}", cursor.replace('/', "%2F"));
            }
            assert_eq!(found.join(" "), expected, "{query} {limit}");
        }
    }
    for query in [
        "sort=size",
        "sort=largest&cursor=n/a",
        "sort=largest&cursor=smallest:2:n/a",
        "sort=largest&cursor=largest::n/d/",
        "sort=largest&cursor=largest:x:n/a",
        "sort=largest&namespace=n&delimiter=/&cursor=largest:-1:m/a",
        "cursor=largest:-2:n/a",
        "sort=name&namespace=n&delimiter=/&cursor=largest::n/d/",
    ] {
        let refused = house.get(&format!("/v1/files?{query}")).await;
        assert_eq!(refused.error(), (400, "query".to_owned()), "{query}");
    }
}

#[tokio::test]
async fn statistics_count_contents_once_and_what_was_deleted_or_replaced_not_at_all() {
    let house = House::new();
    house.send("PUT", "/v1/namespaces/kept", &[], r#"{"versions":true}"#).await;
    for (name, body) in [
        ("statistics/a", "same"),
        ("statistics/b/c", "same"),
        ("statistics/d", "gone"),
        ("statistics/d", "other text"),
        ("statistics/e", "x"),
        ("kept/a", "one"),
        ("kept/a", "two!"),
    ] {
        house.put(name, body).await;
    }
    house.delete("statistics/e").await;
    let ask = |query: &'static str| {
        let house = &house;
        async move { house.get(&format!("/v1/files/statistics?{query}")).await }
    };
    let counts = |found: &Value, members: &[&str]| {
        members.iter().map(|member| found[*member].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let found = ask("namespace=statistics").await.json();
    let members = ["files", "bytes", "different_files", "different_bytes", "versions"];
    assert_eq!(counts(&found, &members), [3, 18, 2, 14, 0], "{found}");
    assert_eq!(found["largest"][0]["name"], "d");
    assert_eq!(found["sizes"], json!([{"size_min": 4, "size_max": 15, "files": 3, "bytes": 18}]));
    let all = ask("").await.json();
    let members = ["files", "bytes", "versions", "version_bytes"];
    assert_eq!(counts(&all, &members), [4, 22, 1, 3], "{all}");
    let of = |namespace: &str, files, bytes| json!({"namespace": namespace, "files": files, "bytes": bytes});
    assert_eq!(all["namespaces"], json!([of("statistics", 3, 18), of("kept", 1, 4)]));
    assert_eq!(all["other_namespaces"], json!({"files": 0, "bytes": 0}));
    assert_eq!(ask("namespace=statistics&prefix=b/").await.json()["files"], 1);
    assert_eq!(ask("size_min=5").await.json()["bytes"], 10);
    let none = ask("namespace=none").await.json();
    assert_eq!((&none["files"], &none["oldest"]), (&json!(0), &json!(null)));
    for query in ["limit=3", "sort=name", "size_min=x", "namespace=No"] {
        assert_eq!(ask(query).await.status, 400, "{query}");
    }
    // A namespace of this name has files as others have.
    assert_eq!(house.get("/v1/files/statistics/a").await.body, "same");
}

async fn names(house: &House) -> Vec<String> {
    let json = house.get("/v1/namespaces").await.json();
    let all = json["namespaces"].as_array().unwrap().iter();
    all.map(|of| format!("{} {}", of["namespace"], of["explicit"])).collect()
}

#[tokio::test]
async fn a_namespace_exists_without_files_and_is_removed_only_then() {
    let house = House::new();
    assert_eq!(house.send("PUT", "/v1/namespaces/empty", &[], "").await.status, 201);
    assert_eq!(house.send("PUT", "/v1/namespaces/empty", &[], "").await.status, 200);
    assert_eq!(house.send("PUT", "/v1/namespaces/No", &[], "").await.status, 400);
    house.put("full/a", "x").await;
    assert_eq!(names(&house).await, ["\"empty\" true", "\"full\" false"]);
    let house = house.reopen();
    assert_eq!(names(&house).await, ["\"empty\" true", "\"full\" false"]);
    let remove = |name: &str| {
        let path = format!("/v1/namespaces/{name}");
        let house = &house;
        async move { house.send("DELETE", &path, &[], "").await }
    };
    assert_eq!(remove("full").await.error(), (409, "namespace_not_empty".to_owned()));
    house.put("empty/a", "x").await;
    assert_eq!(remove("empty").await.error(), (409, "namespace_not_empty".to_owned()));
    house.delete("empty/a").await;
    assert_eq!(remove("empty").await.status, 204);
    assert_eq!(remove("empty").await.error(), (404, "not_found".to_owned()));
    assert_eq!(names(&house).await, ["\"full\" false"]);
}

#[tokio::test]
async fn a_namespace_is_added_up_and_contents_with_several_names_are_reported() {
    let house = House::new();
    for (name, bytes) in [
        ("n/a.txt", "hello hello"),
        ("n/b.txt", "hello hello"),
        ("m/c.txt", "hello hello"),
        ("n/d.json", "{}"),
        ("m/e", "{}"),
        ("m/f", "alone"),
    ] {
        house.put(name, bytes).await;
    }
    let house = house.reopen();
    let sums = house.get("/v1/namespaces/n").await.json();
    let of = |field: &str| sums[field].clone();
    assert_eq!((of("files"), of("bytes"), of("different_bytes")), (json!(3), json!(24), json!(13)));
    assert_eq!(sums["categories"]["text"], json!({"files": 2, "bytes": 22}));
    assert_eq!((of("namespace"), of("explicit")), (json!("n"), json!(false)));
    assert_eq!(house.get("/v1/namespaces/none").await.error(), (404, "not_found".to_owned()));
    let found = house.get("/v1/files/duplicates").await.json();
    let contents = found["contents"].as_array().unwrap();
    let of =
        |field: &str| contents.iter().map(|content| content[field].clone()).collect::<Vec<_>>();
    assert_eq!(
        (of("names"), of("saved_bytes")),
        (vec![json!(3), json!(2)], vec![json!(22), json!(2)])
    );
    let names = contents[0]["files"].as_array().unwrap().iter().map(|file| file["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["c.txt", "a.txt", "b.txt"]);
    let first = house.get("/v1/files/duplicates?limit=1").await.json();
    assert_eq!(first["contents"], json!([contents[0]]));
    let cursor = first["next_cursor"].as_str().unwrap();
    let page = house.get(&format!("/v1/files/duplicates?limit=1&cursor={cursor}")).await.json();
    assert_eq!(page, json!({"contents": [contents[1]], "next_cursor": null}));
    let within = |name| {
        let path = format!("/v1/files/duplicates?namespace={name}");
        let house = &house;
        async move { house.get(&path).await }
    };
    let found = within("n").await.json();
    let content = &found["contents"][0];
    assert_eq!((&content["names"], &content["saved_bytes"]), (&json!(2), &json!(11)), "{found}");
    let named = |at: usize| (&content["files"][at]["namespace"], &content["files"][at]["name"]);
    assert_eq!(named(0), (&json!("n"), &json!("a.txt")), "{found}");
    assert_eq!(named(1), (&json!("n"), &json!("b.txt")), "{found}");
    assert_eq!(found["contents"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(within("m").await.json()["contents"], json!([]));
    assert_eq!(within("A").await.error().0, 400);
    for wrong in ["x", "1", "1.zz", "-1.00"] {
        let refused = house.get(&format!("/v1/files/duplicates?cursor={wrong}")).await;
        assert_eq!(refused.error().0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_namespace_with_a_quota_says_what_it_holds_and_refuses_what_is_too_much() {
    let house = House::new();
    house.put("n/a", "12345").await;
    let set = |body: &'static str| house.send("PUT", "/v1/namespaces/n", &[], body);
    let limited = set(r#"{"quota_files":2,"quota_bytes":10}"#).await.json();
    let quota = json!({"files": 2, "bytes": 10, "used_files": 1, "used_bytes": 5});
    assert_eq!(limited["quota"], quota);
    for bytes in ["123456", "12345678901"] {
        let refused = house.send("PUT", "/v1/files/n/b", &[], bytes).await;
        assert_eq!(refused.error(), (403, "quota_exceeded".to_owned()), "{bytes}");
    }
    house.put("n/b", "12345").await;
    assert_eq!(house.send("PUT", "/v1/files/n/c", &[], "").await.status, 403);
    // Absent members stay, and null removes a limit.
    assert_eq!(set("{}").await.json()["quota"]["files"], json!(2));
    let fewer = set(r#"{"quota_files":null}"#).await.json();
    assert_eq!(fewer["quota"]["files"], json!(null));
    house.put("n/c", "").await;
    let got = house.get("/v1/namespaces/n").await.json();
    assert_eq!((&got["quota"]["used_files"], &got["quota"]["used_bytes"]), (&json!(3), &json!(10)));
    assert!(set(r#"{"quota_bytes":null}"#).await.json().get("quota").is_none());
    for wrong in [r#"{"quota_bytes":-1}"#, r#"{"quota_bytes":"1"}"#, r#"{"quota":1}"#] {
        assert_eq!(set(wrong).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn versions_are_kept_read_restored_and_erased_where_a_namespace_asks_for_it() {
    let house = House::new();
    let kept = house.send("PUT", "/v1/namespaces/n", &[], r#"{"versions":true}"#).await;
    assert_eq!((kept.status, &kept.json()["versions"]), (201, &json!(true)));
    // Settings that are not named stay.
    let same = house.send("PUT", "/v1/namespaces/n", &[], "").await;
    assert_eq!((same.status, &same.json()["versions"]), (200, &json!(true)));
    assert_eq!(house.send("PUT", "/v1/namespaces/n", &[], r#"{"version":1}"#).await.status, 400);
    for bytes in ["one", "two", "three"] {
        house.put("n/a", bytes).await;
        house.put("m/a", bytes).await;
    }
    house.delete("n/a").await;
    let house = house.reopen();
    let history = house.get("/v1/files/n/a?versions=true").await.json();
    assert_eq!(history["current"], json!(null));
    let versions = history["versions"].as_array().unwrap();
    let deleted: Vec<_> = versions.iter().map(|version| version["deleted"].clone()).collect();
    assert_eq!(deleted, [true, false, false, false]);
    let id = |at: usize| versions[at]["id"].as_str().unwrap().to_owned();
    for (at, bytes) in [(1, "three"), (2, "two"), (3, "one")] {
        let got = house.get(&format!("/v1/files/n/a?version={}", id(at))).await;
        assert_eq!((got.status, &got.body[..]), (200, bytes.as_bytes()));
    }
    let gone = house.get(&format!("/v1/files/n/a?version={}", id(0))).await;
    assert_eq!(gone.error(), (404, "not_found".to_owned()));
    assert_eq!(house.get("/v1/files/m/a?versions=true").await.json()["versions"], json!([]));
    assert_eq!(house.get("/v1/files/m/b?versions=true").await.status, 404);
    assert_eq!(house.get("/v1/files/n/a?version=x").await.status, 400);
    let restored = house.send("POST", &format!("/v1/files/n/a?restore={}", id(3)), &[], "").await;
    assert_eq!(restored.status, 201, "{restored:?}");
    assert_eq!(house.get("/v1/files/n/a").await.body, "one");
    assert_eq!(house.send("POST", "/v1/files/n/a", &[], "").await.status, 400);
    let erased = house.delete(&format!("n/a?version={}", id(2))).await;
    assert_eq!((erased.status, erased.json()), (200, json!({"erased": 1})));
    let again = house.delete(&format!("n/a?version={}", id(2))).await;
    assert_eq!(again.error(), (404, "not_found".to_owned()));
    let page = house.get("/v1/files/n/a?versions=true&limit=2").await.json();
    assert_eq!(page["versions"].as_array().unwrap().len(), 2);
    let rest =
        format!("/v1/files/n/a?versions=true&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(house.get(&rest).await.json()["versions"].as_array().unwrap().len(), 1);
    assert_eq!(house.delete("n/a?prune=1").await.json(), json!({"erased": 2}));
    assert_eq!(house.delete("n/a?prune=1&version=0000000000000000").await.status, 400);
    house.delete("n/a").await;
    let held = house.send("DELETE", "/v1/namespaces/n", &[], "").await;
    assert_eq!(held.error(), (409, "namespace_not_empty".to_owned()));
    house.delete("n/a?prune=0").await;
    assert_eq!(house.send("DELETE", "/v1/namespaces/n", &[], "").await.status, 204);
}
