//! Versions of objects: kept, listed, read, copied, erased, suspended.

use crate::support::{Answer, Key, Server};

struct Bucket {
    server: Server,
    key: Key,
}

impl Bucket {
    async fn new() -> Self {
        let server = Server::start();
        let bucket = Self { key: server.all(), server };
        assert_eq!(bucket.call("PUT", "/data").await.status, 200);
        bucket
    }

    async fn versioned() -> Self {
        let bucket = Self::new().await;
        bucket.set("Enabled").await;
        bucket
    }

    async fn call(&self, method: &str, target: &str) -> Answer {
        self.server.call(&self.key, method, target, &[], "").await
    }

    async fn set(&self, status: &str) {
        let xml =
            format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        let length = xml.len().to_string();
        let headers = [("content-length", length.as_str())];
        let set = self.server.call(&self.key, "PUT", "/data?versioning=", &headers, xml).await;
        assert_eq!(set.status, 200, "{}", set.text());
    }

    /// Stores an object, and returns the id of its version.
    async fn put(&self, name: &str, body: &'static str) -> Option<String> {
        let target = format!("/data/{name}");
        let put = self.server.call(&self.key, "PUT", &target, &[], body).await;
        assert_eq!(put.status, 200, "{}", put.text());
        put.header("x-amz-version-id").map(str::to_owned)
    }

    async fn text(&self, target: &str) -> Result<String, String> {
        let got = self.call("GET", target).await;
        match got.status {
            200 => Ok(got.text()),
            _ => Err(got.element("Code").unwrap()),
        }
    }

    /// Keys, ids and kinds of all versions, as pages of `size` show them.
    async fn versions(&self, size: usize) -> Vec<(String, String, &'static str, bool)> {
        let (mut listed, mut target) = (Vec::new(), format!("/data?max-keys={size}&versions="));
        loop {
            let page = self.call("GET", &target).await;
            assert_eq!(page.status, 200, "{}", page.text());
            let text = page.text();
            let mut found: Vec<_> = [("Version", "version"), ("DeleteMarker", "marker")]
                .iter()
                .flat_map(|(element, kind)| {
                    let open = format!("<{element}>");
                    let items = text.split(&open).skip(1).map(|item| {
                        let of = |name: &str| {
                            let (_, rest) = item.split_once(&format!("<{name}>")).unwrap();
                            rest.split_once('<').unwrap().0.to_owned()
                        };
                        (of("Key"), of("VersionId"), *kind, of("IsLatest") == "true")
                    });
                    items.collect::<Vec<_>>()
                })
                .collect();
            assert!(found.len() <= size);
            // One list of each kind: the order between them is that of the ids.
            found.sort_by_key(|(key, id, ..)| {
                (key.clone(), std::cmp::Reverse(id.parse().unwrap_or(u64::MAX)))
            });
            listed.extend(found);
            if page.element("IsTruncated").as_deref() != Some("true") {
                return listed;
            }
            let key = page.element("NextKeyMarker").unwrap();
            let id = page.element("NextVersionIdMarker").unwrap();
            target =
                format!("/data?key-marker={key}&max-keys={size}&version-id-marker={id}&versions=");
        }
    }
}

#[tokio::test]
async fn a_bucket_keeps_versions_only_when_told_to() {
    let bucket = Bucket::new().await;
    assert_eq!(bucket.call("GET", "/data?versioning=").await.element("Status"), None);
    assert_eq!(bucket.put("k", "one").await, None);
    assert_eq!(bucket.text("/data/k?versionId=null").await.as_deref(), Ok("one"));
    let listed = bucket.versions(10).await;
    assert_eq!(listed, [("k".to_owned(), "null".to_owned(), "version", true)]);
    bucket.set("Enabled").await;
    let status = bucket.call("GET", "/data?versioning=").await.element("Status");
    assert_eq!(status.as_deref(), Some("Enabled"));
    let second = bucket.put("k", "two").await.unwrap();
    let listed = bucket.versions(10).await;
    assert_eq!(listed.len(), 2, "what was there before is kept: {listed:?}");
    assert_eq!((listed[0].1.as_str(), listed[0].3), (second.as_str(), true));
    let before = format!("/data/k?versionId={}", listed[1].1);
    assert_eq!(bucket.text(&before).await.as_deref(), Ok("one"));
}

#[tokio::test]
async fn every_version_is_listed_and_read_until_it_is_erased() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let two = bucket.put("k", "two").await.unwrap();
    bucket.put("k/below", "x").await.unwrap();
    let deleted = bucket.call("DELETE", "/data/k").await;
    assert_eq!(deleted.header("x-amz-delete-marker"), Some("true"));
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    let gone = bucket.call("GET", "/data/k").await;
    assert_eq!((gone.status, gone.header("x-amz-delete-marker")), (404, Some("true")));
    assert_eq!(gone.header("x-amz-version-id"), Some(marker.as_str()));
    let of_marker = bucket.call("GET", &format!("/data/k?versionId={marker}")).await;
    assert_eq!(of_marker.element("Code").as_deref(), Some("MethodNotAllowed"));
    assert_eq!(bucket.text(&format!("/data/k?versionId={one}")).await.as_deref(), Ok("one"));
    let head = bucket.call("HEAD", &format!("/data/k?versionId={two}")).await;
    assert_eq!((head.status, head.header("x-amz-version-id")), (200, Some(two.as_str())));
    for size in [1, 2, 3, 100] {
        let listed = bucket.versions(size).await;
        let ids: Vec<_> = listed
            .iter()
            .map(|(key, id, kind, latest)| (key.as_str(), id.as_str(), *kind, *latest))
            .collect();
        let expected =
            [(&marker, "marker", true), (&two, "version", false), (&one, "version", false)];
        let expected = expected.map(|(id, kind, latest)| ("k", id.as_str(), kind, latest));
        assert_eq!(ids[..3], expected, "pages of {size}");
        assert_eq!(ids.len(), 4, "pages of {size}");
    }
    assert_eq!(
        bucket.call("DELETE", "/data").await.element("Code").as_deref(),
        Some("BucketNotEmpty")
    );
    let erased = bucket.call("DELETE", &format!("/data/k?versionId={one}")).await;
    assert_eq!((erased.status, erased.header("x-amz-version-id")), (204, Some(one.as_str())));
    assert_eq!(
        bucket.text(&format!("/data/k?versionId={one}")).await.unwrap_err(),
        "NoSuchVersion"
    );
    for wrong in ["99999", "v1", "007"] {
        let found = bucket.text(&format!("/data/k?versionId={wrong}")).await;
        assert_eq!(found.unwrap_err(), "NoSuchVersion", "{wrong}");
    }
}

#[tokio::test]
async fn the_same_bytes_stored_again_at_once_are_another_version() {
    let bucket = Bucket::versioned().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.extend(bucket.put("k", "bytes").await);
    }
    let listed = bucket.versions(100).await;
    assert_eq!((ids.len(), listed.len()), (20, 20));
    ids.reverse();
    assert_eq!(listed.into_iter().map(|(_, id, ..)| id).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn what_was_before_the_newest_version_holds_again_when_that_is_erased() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let marker = bucket.call("DELETE", "/data/k").await;
    let marker = marker.header("x-amz-version-id").unwrap().to_owned();
    let undone = bucket.call("DELETE", &format!("/data/k?versionId={marker}")).await;
    assert_eq!((undone.status, undone.header("x-amz-delete-marker")), (204, Some("true")));
    let got = bucket.call("GET", "/data/k").await;
    assert_eq!((got.text().as_str(), got.header("x-amz-version-id")), ("one", Some(one.as_str())));
    let two = bucket.put("k", "two").await.unwrap();
    bucket.call("DELETE", &format!("/data/k?versionId={two}")).await;
    assert_eq!(bucket.text("/data/k").await.as_deref(), Ok("one"));
    bucket.call("DELETE", &format!("/data/k?versionId={one}")).await;
    assert_eq!(bucket.text("/data/k").await.unwrap_err(), "NoSuchKey");
    assert!(bucket.versions(10).await.is_empty());
    assert_eq!(bucket.call("DELETE", "/data").await.status, 204, "nothing is left");
}

#[tokio::test]
async fn versions_are_erased_by_one_request() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let two = bucket.put("k", "two").await.unwrap();
    let object = |id: &str| format!("<Object><Key>k</Key><VersionId>{id}</VersionId></Object>");
    let objects = [object(&one), object(&two), "<Object><Key>k</Key></Object>".to_owned()];
    let delete = async |objects: &str| {
        let xml = format!("<Delete>{objects}</Delete>");
        let length = xml.len().to_string();
        let headers = [("content-length", length.as_str())];
        let server = &bucket.server;
        server.call(&bucket.key, "POST", "/data?delete=", &headers, xml).await.text()
    };
    let deleted = delete(&objects[2]).await;
    assert!(deleted.contains("<DeleteMarkerVersionId>"), "{deleted}");
    let deleted = delete(&objects[..2].concat()).await;
    assert_eq!(deleted.matches("<Deleted>").count(), 2, "{deleted}");
    let listed = bucket.versions(10).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].2, "marker");
}

#[tokio::test]
async fn a_version_is_copied_as_it_was() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    bucket.put("k", "two").await.unwrap();
    let source = format!("/data/k?versionId={one}");
    let headers = [("x-amz-copy-source", source.as_str())];
    for to in ["/data/copy", "/data/k"] {
        let copied = bucket.server.call(&bucket.key, "PUT", to, &headers, "").await;
        assert_eq!(copied.status, 200, "{}", copied.text());
        assert_eq!(copied.header("x-amz-copy-source-version-id"), Some(one.as_str()));
        assert!(copied.header("x-amz-version-id").is_some());
        assert_eq!(bucket.text(to).await.as_deref(), Ok("one"));
    }
    assert_eq!(bucket.versions(10).await.len(), 4, "a restored version is a new one");
}

#[tokio::test]
async fn suspended_versions_stay_and_new_objects_have_no_number() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    bucket.set("Suspended").await;
    let status = bucket.call("GET", "/data?versioning=").await.element("Status");
    assert_eq!(status.as_deref(), Some("Suspended"));
    for body in ["two", "three"] {
        assert_eq!(bucket.put("k", body).await.as_deref(), Some("null"));
    }
    assert_eq!(bucket.text("/data/k?versionId=null").await.as_deref(), Ok("three"));
    let ids: Vec<String> = bucket.versions(1).await.into_iter().map(|version| version.1).collect();
    assert_eq!(ids, ["null", &one], "the second one was replaced for good");
    assert_eq!(bucket.call("DELETE", "/data/k?versionId=null").await.status, 204);
    assert_eq!(bucket.text("/data/k").await.as_deref(), Ok("one"));
    bucket.set("Enabled").await;
    bucket.put("k", "four").await.unwrap();
    assert_eq!(bucket.versions(10).await.len(), 2);
}

#[tokio::test]
async fn a_version_stays_null_when_versions_are_enabled_again() {
    let bucket = Bucket::versioned().await;
    let null = "/data/k?versionId=null";
    for newer in [false, true] {
        bucket.set("Suspended").await;
        assert_eq!(bucket.put("k", "one").await.as_deref(), Some("null"));
        bucket.set("Enabled").await;
        let two = match newer {
            true => bucket.put("k", "two").await,
            false => None,
        };
        assert_eq!(bucket.text(null).await.as_deref(), Ok("one"));
        let head = bucket.call("HEAD", null).await;
        assert_eq!(head.header("x-amz-version-id"), Some("null"));
        for size in [1, 10] {
            let listed = bucket.versions(size).await;
            let mut ids: Vec<&str> = listed.iter().map(|(_, id, ..)| id.as_str()).collect();
            ids.sort_unstable();
            let expected: Vec<&str> = two.as_deref().into_iter().chain(["null"]).collect();
            assert_eq!(ids, expected, "pages of {size}");
        }
        let source = [("x-amz-copy-source", null)];
        let copied = bucket.server.call(&bucket.key, "PUT", "/data/copy", &source, "").await;
        assert_eq!(copied.header("x-amz-copy-source-version-id"), Some("null"));
        bucket.call("DELETE", "/data/copy").await;
        for (_, id, ..) in bucket.versions(10).await.iter().filter(|(key, ..)| key == "copy") {
            bucket.call("DELETE", &format!("/data/copy?versionId={id}")).await;
        }
        let deleted = bucket.call("DELETE", null).await;
        assert_eq!((deleted.status, deleted.header("x-amz-version-id")), (204, Some("null")));
        assert_eq!(bucket.text(null).await.unwrap_err(), "NoSuchVersion");
        assert_eq!(bucket.versions(10).await.len(), usize::from(newer));
    }
    assert_eq!(bucket.text("/data/k").await.as_deref(), Ok("two"));
}

#[tokio::test]
async fn a_key_has_one_version_without_a_number() {
    let bucket = Bucket::versioned().await;
    let null = "/data/k?versionId=null";
    let one = bucket.put("k", "one").await.unwrap();
    bucket.set("Suspended").await;
    assert_eq!(bucket.put("k", "two").await.as_deref(), Some("null"));
    bucket.set("Enabled").await;
    let three = bucket.put("k", "three").await.unwrap();
    bucket.set("Suspended").await;
    for stored in ["put", "copied", "deleted", "put again"] {
        match stored {
            "copied" => {
                let source = format!("/data/k?versionId={one}");
                let headers = [("x-amz-copy-source", source.as_str())];
                let copied = bucket.server.call(&bucket.key, "PUT", "/data/k", &headers, "").await;
                assert_eq!(copied.header("x-amz-version-id"), Some("null"));
            }
            "deleted" => assert_eq!(bucket.call("DELETE", "/data/k").await.status, 204),
            _ => assert_eq!(bucket.put("k", "four").await.as_deref(), Some("null")),
        }
        let listed = bucket.versions(10).await;
        let nulls = listed.iter().filter(|(_, id, ..)| id == "null").count();
        assert!(nulls <= 1, "{stored}: {listed:?}");
        let numbered = listed.iter().filter(|(_, id, ..)| *id == one || *id == three).count();
        assert_eq!(numbered, 2, "{stored}: {listed:?}");
    }
    assert_eq!(bucket.text(null).await.as_deref(), Ok("four"));
    assert_eq!(bucket.call("DELETE", null).await.status, 204);
    assert_eq!(bucket.text(null).await.unwrap_err(), "NoSuchVersion", "no other is uncovered");
}

#[tokio::test]
async fn each_version_has_its_tags_and_tagging_makes_no_version() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let two = bucket.put("k", "two").await.unwrap();
    let tag = async |target: &str, value: &str| {
        let xml = format!(
            "<Tagging><TagSet><Tag><Key>a</Key><Value>{value}</Value></Tag></TagSet></Tagging>"
        );
        let length = xml.len().to_string();
        let headers = [("content-length", length.as_str())];
        bucket.server.call(&bucket.key, "PUT", target, &headers, xml).await
    };
    let tagged = async |id: &str| {
        let got = bucket.call("GET", &format!("/data/k?tagging=&versionId={id}")).await;
        assert_eq!((got.status, got.header("x-amz-version-id")), (200, Some(id)));
        got.element("Value")
    };
    let date = bucket.call("HEAD", "/data/k").await.header("last-modified").map(str::to_owned);
    for id in [&one, &two] {
        let set = tag(&format!("/data/k?tagging=&versionId={id}"), &format!("v{id}")).await;
        assert_eq!((set.status, set.header("x-amz-version-id")), (200, Some(id.as_str())));
    }
    let set = tag("/data/k?tagging=", "now").await;
    assert_eq!(set.header("x-amz-version-id"), Some(two.as_str()));
    assert_eq!(tagged(&one).await, Some(format!("v{one}")));
    assert_eq!(tagged(&two).await.as_deref(), Some("now"));
    let head = bucket.call("HEAD", "/data/k").await;
    assert_eq!(head.header("last-modified").map(str::to_owned), date);
    assert_eq!(bucket.versions(10).await.len(), 2, "tagging makes no version");
    let cleared = bucket.call("DELETE", &format!("/data/k?tagging=&versionId={one}")).await;
    assert_eq!((cleared.status, cleared.header("x-amz-version-id")), (204, Some(one.as_str())));
    assert_eq!((tagged(&one).await, tagged(&two).await.as_deref()), (None, Some("now")));
    let three = bucket.put("k", "three").await.unwrap();
    assert_eq!(tagged(&two).await.as_deref(), Some("now"), "it is an earlier version now");
    bucket.call("DELETE", &format!("/data/k?versionId={three}")).await;
    assert_eq!(tagged(&two).await.as_deref(), Some("now"), "it is the newest again");
    let wrong = tag("/data/k?tagging=&versionId=99999", "x").await;
    assert_eq!(wrong.element("Code").as_deref(), Some("NoSuchVersion"));
}

#[tokio::test]
async fn a_delete_of_null_that_deletes_nothing_is_reported_while_there_are_versions() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let delete = async || bucket.call("DELETE", "/data/k?versionId=null").await;
    assert_eq!(delete().await.element("Code").as_deref(), Some("NoSuchVersion"));
    assert_eq!(bucket.call("DELETE", &format!("/data/k?versionId={one}")).await.status, 204);
    assert_eq!(delete().await.status, 204, "nothing is left");
}

#[tokio::test]
async fn a_key_that_only_reads_erases_no_version() {
    let bucket = Bucket::versioned().await;
    let one = bucket.put("k", "one").await.unwrap();
    let reader = bucket.server.key(&[forebay_api::keys::Scope::Read], &[]);
    let target = format!("/data/k?versionId={one}");
    assert_eq!(bucket.server.call(&reader, "DELETE", &target, &[], "").await.status, 403);
    assert_eq!(bucket.server.call(&reader, "GET", &target, &[], "").await.status, 200);
}
