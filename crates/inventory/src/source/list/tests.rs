//! Listing and reading buckets of a server in this process.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use forebay_objects::{Access, Class, Failure, Keys};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::PARTS_MIN;
use crate::source::testing::{
    self, FIELDS, Io, columns, csv, gzip, parquet, read, read_all, rows, settings,
};
use crate::source::{S3, Settings, Spec, open};

/// A server with a bucket `archive`; it ends with its runtime.
struct Server {
    _runtime: Runtime,
    endpoint: String,
    dir: TempDir,
    asked: Arc<Mutex<Asked>>,
}

/// What was asked for, and how often the answer is that there is no time.
#[derive(Default)]
struct Asked {
    queries: Vec<String>,
    paths: Vec<String>,
    busy: usize,
    /// What the query of such a request has in it.
    busy_with: &'static str,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("archive")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("test-access", "test-secret"));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Asked>>::default();
        runtime.spawn(accept(listener, service, Arc::clone(&asked)));
        Self { _runtime: runtime, endpoint, dir, asked }
    }

    fn bucket(&self) -> std::path::PathBuf {
        self.dir.path().join("archive")
    }

    fn settings(&self, secret: &str) -> Settings {
        let access = Access::new(&forebay_objects::Settings {
            endpoint: Some(self.endpoint.clone()),
            allow_http: true,
            region: Some("eu-central-1".to_owned()),
            keys: Some(Keys::new("test-access", secret, None)),
            ..Default::default()
        });
        Settings { s3: Some(S3::new(access.unwrap()).unwrap()), ..settings() }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().queries.len()
    }
}

async fn accept(listener: TcpListener, s3: S3Service, asked: Arc<Mutex<Asked>>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let (s3, asked) = (s3.clone(), Arc::clone(&asked));
        let answer = service_fn(move |request: Request<Incoming>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let path = request.uri().path().to_owned();
            let busy = {
                let mut asked = asked.lock().unwrap();
                asked.queries.push(query.clone());
                asked.paths.push(path);
                let busy = asked.busy > 0 && query.contains(asked.busy_with);
                asked.busy -= usize::from(busy);
                busy
            };
            let s3 = s3.clone();
            async move {
                if busy {
                    let mut busy = Response::new(s3s::Body::empty());
                    *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    return Ok(busy);
                }
                s3.call(request.map(s3s::Body::from)).await
            }
        });
        let served = http1::Builder::new().serve_connection(Io(stream), answer);
        // A client that leaves is no failure.
        tokio::spawn(async move { served.await.unwrap_or_default() });
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_listing_has_every_object_once_and_only_those_of_its_prefix() {
    let server = Server::start();
    let mut expected = Vec::new();
    for i in 0..2500_usize {
        let key = match i % 4 {
            0 => format!("flat/{i:05}"),
            1 => format!("deep/{}/{}/file {i}", i % 50, i % 3),
            // No `+` and no `%`: this server says that keys are encoded and does not encode them.
            2 => format!("deep/one only/a&b ü/{i}"),
            _ => format!("top {i}"),
        };
        write(&server.bucket().join(&key), vec![0; i % 10]);
        expected.push((key.into_bytes(), (i % 10) as u64));
    }
    expected.sort();
    let settings = server.settings("test-secret");
    let kept = read("s3-list://archive", &settings).unwrap();
    let found: Vec<_> = kept.objects.iter().map(|(key, o)| (key.clone(), o.size)).collect();
    assert!(found == expected, "{} of {}", found.len(), expected.len());
    assert!(kept.bad.is_empty(), "{:?}", kept.bad.first());
    assert_eq!(testing::class(&settings, &kept.objects[0].1), "STANDARD");
    assert_ne!(kept.objects[0].1.modified, crate::object::Month::UNKNOWN);
    // The same tree, read as files.
    let files = read(&format!("fs:{}", server.bucket().display()), &settings).unwrap();
    assert!(files.objects == kept.objects);

    let below = read("s3-list://archive/deep/1", &settings).unwrap();
    let wanted = |key: &[u8]| key.starts_with(b"deep/1");
    let wanted = expected.iter().filter(|(key, _)| wanted(key)).count();
    assert_eq!(below.objects.len(), wanted);
    assert!(read("s3-list://archive/none/", &settings).unwrap().objects.is_empty());
    let source = open(&["s3-list://archive".parse::<Spec>().unwrap()], &settings).unwrap();
    assert!(source.parts().unwrap().len() >= PARTS_MIN.min(50));
}

#[test]
fn a_busy_server_is_asked_again_and_a_refusal_is_reported() {
    let server = Server::start();
    write(&server.bucket().join("a"), "1");
    let settings = server.settings("test-secret");
    server.asked.lock().unwrap().busy = 2;
    assert_eq!(read("s3-list://archive", &settings).unwrap().objects.len(), 1);
    let before = server.asked();
    let error = testing::chain(&read("s3-list://missing", &settings).unwrap_err());
    assert!(error.contains("NoSuchBucket"), "{error}");
    let wrong = server.settings("wrong");
    let error = testing::chain(&read("s3-list://archive", &wrong).unwrap_err());
    assert!(error.contains("SignatureDoesNotMatch"), "{error}");
    assert_eq!(server.asked() - before, 2, "what will not be done is asked for once");
}

#[test]
fn inventories_and_tables_are_read_from_a_bucket() {
    let server = Server::start();
    let settings = server.settings("test-secret");
    let temporary = tempfile::tempdir().unwrap();
    let settings = Settings { temporary: temporary.path().to_owned(), ..settings };
    let rows = rows(3000);
    let (first, second) = rows.split_at(1000);
    let message = "message m { required binary bucket; required binary key; optional int64 size; }";
    let inventories = [
        ("CSV", FIELDS, [("1.csv.gz", gzip(&csv(first))), ("2.csv.gz", gzip(&csv(second)))]),
        (
            "Parquet",
            message,
            [
                ("1.parquet", parquet(columns(first), 500)),
                ("2.parquet", parquet(columns(second), 500)),
            ],
        ),
    ];
    for (format, schema, files) in inventories {
        let here = tempfile::tempdir().unwrap();
        let manifest = testing::inventory(here.path(), format, schema, &files);
        let local = read(manifest.to_str().unwrap(), &settings).unwrap();
        let manifest = testing::inventory(&server.bucket(), format, schema, &files);
        let key = manifest.strip_prefix(server.bucket()).unwrap().to_str().unwrap();
        let there = read(&format!("s3://archive/{key}"), &settings).unwrap();
        assert_eq!(there.objects.len(), 3000);
        assert!(there.objects == local.objects, "{format}");
        // A file that differs from the manifest is reported there, too.
        let damaged = server.bucket().join("bucket/daily/data").join(files[1].0);
        let mut content = files[1].1.clone();
        content[5] ^= 1;
        fs::write(&damaged, content).unwrap();
        let error = testing::chain(&read(&format!("s3://archive/{key}"), &settings).unwrap_err());
        assert!(error.contains("its MD5 is"), "{error}");
        fs::write(&damaged, &files[1].1).unwrap();
    }
    write(&server.bucket().join("tables/f.parquet"), parquet(columns(&rows), 700));
    write(&server.bucket().join("tables/below/g.parquet"), "not asked for");
    write(&server.bucket().join("h.csv"), "key,size\na,1\n");
    let kept = read("s3://archive/tables/", &settings).unwrap();
    assert_eq!(kept.objects.len(), 3000);
    assert_eq!(read("s3://archive/h.csv", &settings).unwrap().objects.len(), 1);
    assert!(read("s3://archive/none.csv", &settings).is_err());
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "copies are gone");
}

#[test]
fn any_store_can_be_read_from_but_only_s3_listed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(object_store::memory::InMemory::new());
    let shared = Arc::clone(&store);
    let s3 = S3::with_stores(move |_| Ok(Arc::clone(&shared) as _)).unwrap();
    let content = parquet(columns(&rows(100)), 10);
    let key = object_store::path::Path::from("f.parquet");
    let put = object_store::ObjectStoreExt::put(store.as_ref(), &key, content.into());
    s3.runtime.block_on(put).unwrap();
    let temporary = directory.path().to_owned();
    let settings = Settings { s3: Some(s3), temporary, ..settings() };
    let source = open(&["s3://any/f.parquet".parse::<Spec>().unwrap()], &settings).unwrap();
    assert_eq!(source.provenance().rows, Some(100));
    assert_eq!(read_all(source.as_ref()).unwrap().objects.len(), 100);
    let error = read("s3-list://any", &settings).unwrap_err().to_string();
    assert!(error.contains("does not report storage classes"), "{error}");
    let error = read("s3://any/f.csv", &self::settings()).unwrap_err().to_string();
    assert!(error.contains("no connection to buckets is configured"), "{error}");
}

/// Stores by the name of their bucket; others do not exist.
fn stores(names: &[&'static str]) -> (S3, Vec<Arc<object_store::memory::InMemory>>) {
    let stores: Vec<_> =
        names.iter().map(|_| Arc::new(object_store::memory::InMemory::new())).collect();
    let by_name: Vec<_> = names.iter().copied().zip(stores.clone()).collect();
    let s3 = S3::with_stores(move |wanted| {
        let found = by_name.iter().find(|(name, _)| *name == wanted);
        found
            .map(|(_, store)| Arc::clone(store) as _)
            .ok_or_else(|| Failure::new(Class::Refused, format!("there is no bucket {wanted}")))
    });
    (s3.unwrap(), stores)
}

/// Writes an object with exactly this key.
fn put(s3: &S3, bucket: &str, key: &str, content: Vec<u8>) {
    let remote = s3.remote(bucket).unwrap();
    let key = remote.exact(key).unwrap();
    let put = object_store::ObjectStoreExt::put(remote.store.as_ref(), &key, content.into());
    s3.runtime.block_on(put).unwrap();
}

/// The manifest of an inventory of two files, whose keys have this prefix, and the files.
fn inventory_below(prefix: &str) -> (Vec<u8>, [(&'static str, Vec<u8>); 2]) {
    let rows = rows(200);
    let (first, second) = rows.split_at(80);
    let files = [("1.csv.gz", gzip(&csv(first))), ("2.csv.gz", gzip(&csv(second)))];
    let here = tempfile::tempdir().unwrap();
    let manifest = testing::inventory(here.path(), "CSV", FIELDS, &files);
    let manifest = fs::read_to_string(manifest).unwrap();
    (manifest.replace("bucket/daily/data/", prefix).into_bytes(), files)
}

#[test]
fn an_inventory_below_a_destination_prefix_that_ends_in_a_slash_is_read() {
    let (s3, _stores) = stores(&["archive"]);
    let (manifest, files) = inventory_below("inventories//bucket/daily/data/");
    let at = "inventories//bucket/daily/2024-05-06T01-00Z/manifest.json";
    put(&s3, "archive", at, manifest.clone());
    for (name, content) in files.clone() {
        put(&s3, "archive", &format!("inventories//bucket/daily/data/{name}"), content);
    }
    let settings = Settings { s3: Some(s3), ..settings() };
    let found = read(&format!("s3://archive/{at}"), &settings).unwrap();
    assert_eq!(found.objects.len(), 200);
    // The same in a directory, which has no empty names.
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("inventories/bucket/daily/2024-05-06T01-00Z/manifest.json");
    write(&local, manifest);
    for (name, content) in files {
        write(&here.path().join("inventories/bucket/daily/data").join(name), content);
    }
    for root in [None, Some(here.path().to_owned())] {
        let settings = Settings { root, ..self::settings() };
        assert!(read(local.to_str().unwrap(), &settings).unwrap().objects == found.objects);
    }
    // What is sent to a server is the key, too.
    let server = Server::start();
    write(&server.bucket().join("a/b.csv"), "key,size\nx,1\n");
    assert_eq!(
        read("s3://archive/a//b.csv", &server.settings("test-secret")).unwrap().objects.len(),
        1
    );
    assert!(server.asked.lock().unwrap().paths.contains(&"/archive/a//b.csv".to_owned()));
}

#[test]
fn the_files_of_a_copied_inventory_are_found_beside_its_manifest() {
    for (manifest_at, data_at) in [
        ("copy/manifest.json", "copy/data/"),
        ("copy/2024-05-06T01-00Z/manifest.json", "copy/data/"),
        ("copy/2024-05-06T01-00Z/manifest.json", "copy/2024-05-06T01-00Z/data/"),
        ("manifest.json", "data/"),
        ("manifest.json", ""),
        ("copy/manifest.json", "copy/bucket/daily/data/"),
        ("copy/manifest.json", "bucket/daily/data/"),
    ] {
        // The manifest names the bucket `archive`, which is empty, or does not exist.
        for buckets in [&["mine", "archive"][..], &["mine"]] {
            let (s3, _stores) = stores(buckets);
            let (manifest, files) = inventory_below("bucket/daily/data/");
            put(&s3, "mine", manifest_at, manifest);
            let settings = Settings { s3: Some(s3.clone()), ..settings() };
            let from = format!("s3://mine/{manifest_at}");
            let error = testing::chain(&read(&from, &settings).unwrap_err());
            let expected =
                if buckets.len() > 1 { "does not exist; tried" } else { "no bucket archive" };
            assert!(error.contains(expected), "{error}");
            for (name, content) in files {
                put(&s3, "mine", &format!("{data_at}{name}"), content);
            }
            assert_eq!(read(&from, &settings).unwrap().objects.len(), 200, "{data_at}");
        }
    }
}
