//! Searching files over HTTP.

use serde_json::Value;

use super::support::{House, text};

/// The answer to a search once the index is up to date.
async fn search(house: &House, query: &str) -> Value {
    house.intake.search_reached().await.unwrap();
    let answer = house.get(&format!("/v1/files/search?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json()
}

fn names(page: &Value) -> Vec<&str> {
    page["files"].as_array().unwrap().iter().map(|file| text(&file["name"])).collect()
}

#[tokio::test]
async fn every_parameter_narrows_and_pages_follow_each_other() {
    let house = House::new();
    for (name, body) in [
        ("docs/report one.txt", "apple pie"),
        ("docs/report two.txt", "apple tart, and more of it"),
        ("docs/data.json", "{\"apple\": 1}"),
        ("other/note.md", "# an apple"),
    ] {
        let path = format!("/v1/files/{}", name.replace(' ', "%20"));
        let tags = if name.ends_with("one.txt") { "stage=final&x=" } else { "stage=raw" };
        let headers = [("forebay-tags", tags), ("forebay-meta-author", "Ada")];
        assert_eq!(house.send("PUT", &path, &headers, body).await.status, 201);
    }
    for (query, expected) in [
        ("q=apple&sort=name", vec!["data.json", "report one.txt", "report two.txt", "note.md"]),
        ("q=apple&namespace=other", vec!["note.md"]),
        ("q=apple&prefix=report&sort=name", vec!["report one.txt", "report two.txt"]),
        ("q=apple&category=json", vec!["data.json"]),
        ("q=apple&type=APPLICATION/json", vec!["data.json"]),
        ("q=apple&type=text/*&max_size=9", vec!["report one.txt"]),
        ("q=apple&min_size=13", vec!["report two.txt"]),
        ("q=apple&mime=text/*&size_max=9", vec!["report one.txt"]),
        ("q=apple&after=2030-01-01T00:00:00Z", vec![]),
        ("q=apple&before=1", vec![]),
        ("tag=stage=final", vec!["report one.txt"]),
        ("tag=stage&tag=x", vec!["report one.txt"]),
        ("meta.author=Ada&namespace=other", vec!["note.md"]),
        ("meta.author=Eve", vec![]),
        ("q=port+one", vec!["report one.txt"]),
        ("sort=largest&limit=1", vec!["report two.txt"]),
    ] {
        let page = search(&house, query).await;
        assert_eq!(names(&page), expected, "{query}");
    }
    let first = search(&house, "q=apple&limit=3&snippet=true").await;
    assert_eq!(
        (&first["ranked"], &first["sort"], &first["matches"]),
        (&true.into(), &"relevance".into(), &4.into())
    );
    assert_eq!(first["index"]["lag_bytes"], 0);
    assert!(text(&first["files"][0]["snippet"]).contains("apple"), "{first}");
    let url = text(&first["files"][0]["url"]).to_owned();
    assert_eq!(house.get(&url).await.status, 200);
    let cursor = text(&first["next_cursor"]);
    let rest = search(&house, &format!("q=apple&limit=3&cursor={cursor}")).await;
    let mut all = [names(&first), names(&rest)].concat();
    all.sort_unstable();
    assert_eq!(all, ["data.json", "note.md", "report one.txt", "report two.txt"]);
    assert_eq!(rest["next_cursor"], Value::Null);
}

#[tokio::test]
async fn what_is_not_a_search_is_refused_and_a_namespace_may_be_called_search() {
    let house = House::new();
    for query in [
        "q=",
        "q=%00",
        "q=a*",
        "q=x&limit=0",
        "q=x&limit=1001",
        "q=x&sort=best",
        "q=x&cursor=7",
        "q=x&type=image",
        "q=x&min_size=-1",
        "q=x&after=yesterday",
        "q=x&category=x",
        "query=x",
        "namespace=No",
        "snippet=maybe",
    ] {
        let answer = house.get(&format!("/v1/files/search?{query}")).await;
        let (status, code) = answer.error();
        assert!(status == 400 && matches!(code.as_str(), "query" | "name"), "{query}: {code}");
    }
    let long = "x".repeat(10_000);
    assert_eq!(house.get(&format!("/v1/files/search?q={long}")).await.status, 400);
    assert_eq!(house.put("search/a.txt", "apple").await.status, 201);
    assert_eq!(house.get("/v1/files/search/a.txt").await.status, 200);
    assert_eq!(names(&search(&house, "namespace=search").await), ["a.txt"]);
    let off = House::with(|options| options.search = false);
    assert_eq!(off.get("/v1/files/search?q=x").await.error(), (404, "not_found".to_owned()));
}
