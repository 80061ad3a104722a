//! A small store with something of every kind in it, and everything that can be asked of it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::Rng;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::catalogue::{Browse, FileFilter, FileRecord, NamespaceRecord, Versioning};
use forebay_intake::classify::classify;
use forebay_intake::digest::Digest;
use forebay_intake::documents::PageLimits;
use forebay_intake::documents::change::NewContent;
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::frame::Framing;
use forebay_intake::documents::ingest::{DocumentOptions, DocumentsAnswer};
use forebay_intake::fsck::{FsckReport, fsck};
use forebay_intake::names::{FileName, Namespace};
use forebay_intake::request::Claim;
use forebay_intake::rules::Sender;
use forebay_intake::upload::FileBytes;
use forebay_intake::{
    Condition, FileCopy, FileDetails, Intake, IntakeError, IntakeOptions, NameKey, NewFile,
    OpenError, StartReport,
};
use forebay_sqlite::SqliteReader;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::edits::request_in;
use crate::requests::receive;

pub(crate) use forebay_testing::memory_directory as directory;

pub(crate) const CATALOGUE: &str = "catalogue.sqlite";
pub(crate) const DOCUMENTS: &str = "documents.sqlite";
/// 2026-01-02T03:04:05Z.
const NOW_MS: u64 = 1_767_323_045_000;
/// A request whose answer is remembered.
const KEY: &[u8] = b"a key";

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn options(dir: &Path) -> IntakeOptions {
    let mut options = IntakeOptions::new(dir);
    options.segment_size = 256 << 10;
    options.limits.packed_size_max = 2 << 10;
    // Most of these tests open an intake again and again; `search.rs` has its own.
    options.search = false;
    options
}

pub(crate) fn open(dir: &Path) -> Result<Intake, OpenError> {
    open_with(options(dir))
}

pub(crate) fn open_with(options: IntakeOptions) -> Result<Intake, OpenError> {
    open_on(options, Arc::new(RealFs)).map(|(intake, _)| intake)
}

/// Opens an intake whose log and blobs are on another file system.
pub(crate) fn open_on(
    options: IntakeOptions,
    fs: Arc<dyn FileSystem>,
) -> Result<(Intake, StartReport), OpenError> {
    Intake::open(options, fs, Arc::new(ManualClock::new(NOW_MS)))
}

/// A running intake in its own directory.
pub(crate) struct House {
    pub(crate) intake: Intake,
    pub(crate) options: IntakeOptions,
    pub(crate) dir: TempDir,
}

impl House {
    pub(crate) fn with(change: impl FnOnce(&mut IntakeOptions)) -> Self {
        let dir = directory();
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 4 << 20;
        // Most tests say with a document or two what they mean.
        options.decision.documents_min = 1;
        change(&mut options);
        let (intake, report) = open_on(options.clone(), Arc::new(RealFs)).unwrap();
        assert!(report.created);
        Self { intake, options, dir }
    }

    /// Closes the intake. The directory exists until the second value is dropped.
    pub(crate) fn close(self) -> (IntakeOptions, TempDir) {
        let Self { intake, options, dir } = self;
        intake.close().unwrap();
        (options, dir)
    }

    /// Closes the intake and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let (options, dir) = self.close();
        let (intake, report) = open_on(options.clone(), Arc::new(RealFs)).unwrap();
        assert!(!report.created && report.clean && report.torn_bytes == 0, "{report:?}");
        Self { intake, options, dir }
    }
}

pub(crate) fn check(dir: &Path) -> Result<FsckReport, OpenError> {
    fsck(dir, Arc::new(RealFs), |_| {})
}

/// The findings of a check that must succeed.
pub(crate) fn findings(dir: &Path) -> Vec<String> {
    let report = check(dir).unwrap();
    report.findings.into_iter().map(|found| format!("{}: {}", found.kind, found.message)).collect()
}

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub(crate) fn key(namespace_name: &str, name: &str) -> NameKey {
    (namespace(namespace_name), FileName::parse(name).unwrap())
}

/// Bytes that neither repeat nor compress.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

pub(crate) async fn put(intake: &Intake, key: &NameKey, bytes: &[u8], is_keyed: bool) {
    let upload = receive(intake, bytes).await.unwrap();
    let held = match is_keyed {
        true => Some(intake.claim(Digest::of(KEY)).await.unwrap()),
        false => None,
    };
    let idempotency = held.map(|claim| match claim {
        Claim::New(held) => held.record(Digest::of(b"a request")),
        Claim::Answered { .. } => panic!("the key was used"),
    });
    let classified = classify(upload.head(), &key.1);
    let (key, comment, condition) = (key.clone(), "a comment".to_owned(), Condition::None);
    let attributes = Attributes::default();
    let is_routed = false;
    let sender = Sender::default();
    let new =
        NewFile { key, comment, attributes, classified, condition, idempotency, is_routed, sender };
    intake.put(new, upload).await.unwrap();
}

pub(crate) async fn post(intake: &Intake, name: &str, wish: Wish, body: &str) -> DocumentsAnswer {
    let options = DocumentOptions {
        framing: Framing::Lines,
        wish,
        wish_required: false,
        all_or_nothing: false,
        dry_run: false,
    };
    let mut ingest = intake.ingest(namespace(name), options);
    ingest.push(body.as_bytes()).await.unwrap();
    let (status, _, answer) = ingest.finish(None).await.unwrap();
    assert_eq!(status, 201, "{answer:?}");
    answer
}

/// Every kind of value that a column can hold, and a text that is looked for on disk.
pub(crate) fn order(n: u64) -> String {
    format!(
        r#"{{"customer":"customer {n}","amount":"AMOUNT-{n}","weight":{n}.25,"units":{n},"paid":true,"tags":["a","b{n}"]}}"#
    )
}

/// Files that are small, large, named twice and deleted, a remembered request, a table and a
/// collection.
pub(crate) fn furnish(dir: &Path) {
    let intake = open(dir).unwrap();
    block_on(async {
        for n in 0..6 {
            let text = format!("the bytes of the file number {n}");
            put(&intake, &key("notes", &format!("small-{n}.txt")), text.as_bytes(), n == 1).await;
        }
        put(&intake, &key("notes", "again.txt"), b"the bytes of the file number 1", false).await;
        put(&intake, &key("photos", "large.bin"), &[7; 5_000], false).await;
        let gone = key("notes", "small-5.txt");
        assert!(intake.delete(&gone, Condition::None, None).await.unwrap().is_some());
        keep_versions(&intake).await;
        let orders: Vec<String> = (100..108).map(order).collect();
        post(&intake, "orders", Wish::Table, &orders.join("\n")).await;
        post(&intake, "orders", Wish::Table, &order(108)).await;
        let notes = "{\"a\":{\"b\":[1,2]}}\n{\"text\":\"a longer note, in a collection\"}";
        post(&intake, "notes", Wish::Collection, notes).await;
        change_documents(&intake).await;
    });
    intake.close().unwrap();
}

/// Documents that were replaced and deleted, and a namespace that was dropped.
async fn change_documents(intake: &Intake) {
    let orders: Vec<String> = (200..208).map(order).collect();
    for name in ["edited", "gone"] {
        post(intake, name, Wish::Table, &orders.join("\n")).await;
    }
    let replaced = NewContent::Replaced("{\"customer\":\"another\",\"units\":1.5}".into());
    intake.change_document(request_in("edited", 2), replaced).await.unwrap();
    for id in [3, 4, 8] {
        intake.delete_document(request_in("edited", id)).await.unwrap();
    }
    intake.drop_documents(&namespace("gone"), None).await.unwrap();
}

/// A namespace that keeps versions: of a file that was replaced, tagged, moved and deleted.
async fn keep_versions(intake: &Intake) {
    let attributes =
        NamespaceRecord::with_versioning(Attributes::default(), Versioning::On).unwrap();
    intake.set_namespace(&namespace("kept"), attributes).await.unwrap();
    for text in ["the first version of a file", "the second version of a file"] {
        put(intake, &key("kept", "a/one.txt"), text.as_bytes(), false).await;
        put(intake, &key("kept", "b/two.txt"), text.as_bytes(), false).await;
    }
    let tagged = |file: &FileRecord| {
        let mut attributes = file.attributes.clone();
        attributes.set(AttributeKind::Tag, "colour", "green").unwrap();
        Ok(FileDetails { comment: file.comment.clone(), attributes })
    };
    let one = key("kept", "a/one.txt");
    intake.change_details(&one, Condition::None, None, tagged).await.unwrap();
    let copy = FileCopy {
        from: one,
        to: key("kept", "c/three.txt"),
        source: Condition::None,
        condition: Condition::None,
        comment: None,
        attributes: None,
        idempotency: None,
    };
    intake.rename(copy).await.unwrap();
    let two = key("kept", "b/two.txt");
    assert!(intake.delete(&two, Condition::None, None).await.unwrap().is_some());
    // The newest of its states is erased, and the one before it holds again.
    let four = key("kept", "d/four.txt");
    put(intake, &four, b"a text that stays", false).await;
    put(intake, &four, b"a text that is erased", false).await;
    let newest = intake.find(&four).await.unwrap().unwrap().record.id;
    assert!(intake.erase_version(&four, newest).await.unwrap().is_some());
    // Other tags of an earlier version, and of what a name refers to.
    let three = key("kept", "c/three.txt");
    let earlier = intake.versions(&two, None, 9).await.unwrap().versions;
    let earlier = earlier.iter().find(|version| !version.is_deletion).unwrap().file.id;
    let current = intake.find(&three).await.unwrap().unwrap().record.id;
    for (key, id) in [(&two, earlier), (&three, current)] {
        let amended = intake.amend_version(key, id, |file| Ok(tagged(file)?.attributes)).await;
        assert!(amended.unwrap().is_some());
    }
}

/// Moves what is in the write-ahead logs of both databases into the databases.
pub(crate) fn settle(dir: &Path) {
    for view in [CATALOGUE, DOCUMENTS] {
        let db = Connection::open(dir.join(view)).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
}

/// An answer in words. `Err` is an error; a name or id that does not exist is an answer.
pub(crate) type Answer = Result<String, String>;

/// Asks everything.
pub(crate) fn ask(intake: &Intake, dir: &Path) -> Vec<(String, Answer)> {
    let mut answers = block_on(ask_files(intake));
    answers.extend(block_on(ask_documents(intake)));
    let rows = SqliteReader::open(&dir.join(DOCUMENTS))
        .map_err(|error| error.to_string())
        .and_then(|reader| {
            let rows = reader.rows("orders", None, PageLimits::default());
            rows.map(|page| format!("{:?} {:?}", page.schema.columns(), page.rows))
                .map_err(|e| e.to_string())
        });
    answers.push(("rows of orders".to_owned(), rows));
    answers
}

fn answer<T: std::fmt::Debug>(result: Result<T, IntakeError>) -> Answer {
    result.map(|found| format!("{found:?}")).map_err(|error| error.to_string())
}

async fn ask_files(intake: &Intake) -> Vec<(String, Answer)> {
    let mut answers = Vec::new();
    let names = ["small-0.txt", "small-1.txt", "small-2.txt", "small-3.txt", "small-4.txt"];
    let names = names.iter().chain(&["small-5.txt", "again.txt", "none.txt"]);
    let keys = names.map(|name| key("notes", name)).chain([key("photos", "large.bin")]);
    for key in keys {
        let found = intake.find(&key).await;
        let read = found.and_then(|found| match found {
            None => Ok(None),
            Some(file) => {
                let bytes = match intake.read(&file)? {
                    FileBytes::Memory(bytes) => bytes.to_vec(),
                    FileBytes::File(reader) => reader
                        .read(0, 5_000)
                        .map(|bytes| bytes.to_vec())
                        .map_err(|source| IntakeError::Blob { act: "read", source })?,
                };
                Ok(Some((file.record.as_ref().clone(), Digest::of(&bytes))))
            }
        });
        answers.push((format!("file {:?}", key.1), answer(read)));
    }
    let first = Digest::of(b"the bytes of the file number 1");
    for filter in [
        FileFilter::default(),
        FileFilter { digest: Some(first), ..FileFilter::default() },
        FileFilter { mime: Some("text/plain".into()), ..FileFilter::default() },
    ] {
        let question = format!("list {filter:?}");
        answers.push((question, answer(intake.list(filter, None, 100).await)));
    }
    for name in ["a/one.txt", "b/two.txt", "c/three.txt", "d/four.txt", "none.txt"] {
        let key = key("kept", name);
        let history = intake.versions(&key, None, 100).await;
        let ids: Vec<u64> =
            history.iter().flat_map(|all| &all.versions).map(|v| v.file.id).collect();
        let is_known = history.is_ok();
        answers.push((format!("versions of {name}"), answer(history)));
        for at in 0..4 {
            let found = match ids.get(at) {
                Some(id) => answer(intake.find_version(&key, *id).await),
                None if is_known => Ok("there is none".to_owned()),
                None => Err("its id is not known".to_owned()),
            };
            answers.push((format!("version {at} of {name}"), found));
        }
    }
    let tags = vec![("colour".to_owned(), None)];
    let filter = FileFilter { tags, ..FileFilter::default() };
    answers.push(("tagged".to_owned(), answer(intake.list(filter, None, 100).await)));
    let (prefix, delimiter) = (String::new(), "/".to_owned());
    let browse = Browse { namespace: namespace("kept"), prefix, delimiter, after: None };
    answers.push(("directories".to_owned(), answer(intake.browse(browse.clone(), 100).await)));
    let states = Browse { delimiter: String::new(), ..browse };
    answers.push(("states".to_owned(), answer(intake.browse_states(states, None, 100).await)));
    let found = intake.file_namespaces(None, 100).await;
    answers.push(("namespaces of files".to_owned(), answer(found)));
    answers.push(("totals".to_owned(), answer(intake.totals().await)));
    let claimed = intake.claim(Digest::of(KEY)).await.map(|claim| match claim {
        Claim::Answered { fingerprint, status, answer } => Some((fingerprint, status, answer)),
        Claim::New(_) => None,
    });
    answers.push(("claim".to_owned(), answer(claimed)));
    answers
}

async fn ask_documents(intake: &Intake) -> Vec<(String, Answer)> {
    let mut answers = Vec::new();
    answers.push(("namespaces".to_owned(), answer(intake.namespaces().await)));
    for name in ["orders", "notes", "edited", "gone", "none"] {
        let page = intake.documents(&namespace(name), None, PageLimits::default()).await;
        let page = page.map(|page| {
            page.map(|page| {
                let columns = page.schema.columns().to_vec();
                (page.info, columns, page.documents, page.more)
            })
        });
        answers.push((format!("documents of {name}"), answer(page)));
        let history = intake.schema_history(&namespace(name)).await;
        answers.push((format!("schema of {name}"), answer(history)));
        for id in 0..11 {
            let document = intake.document(&namespace(name), id).await;
            answers.push((format!("document {name}/{id}"), answer(document)));
        }
    }
    answers
}

/// Copies the files of a directory over those of another.
pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let path: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&path).unwrap();
            copy(&entry.path(), &path);
        } else {
            std::fs::copy(entry.path(), path).unwrap();
        }
    }
}

/// Removes a database and what belongs to it.
pub(crate) fn remove(dir: &Path, name: &str) {
    for suffix in ["", "-wal", "-shm"] {
        let path = dir.join(format!("{name}{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Removes what SQLite keeps in shared memory of write-ahead logs.
pub(crate) fn remove_shared_memory(dir: &Path) {
    for view in [CATALOGUE, DOCUMENTS] {
        let path = dir.join(format!("{view}-shm"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Replaces the first occurrence of `old` in a file by `new`, of the same length. Writes nothing else:
/// the file may be in use.
pub(crate) fn replace(path: &Path, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, new, at as u64).unwrap();
}
