//! Archives that are written and read, and those that must be refused.

use std::path::{Path, PathBuf};

use forebay_intake::digest::Digest;
use forebay_intake::names::Namespace;
use proptest::prelude::*;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::format::Manifest;
use super::{Archive, ArchiveError, DocumentLine, FileLine, Settings, Target, Writer};

fn go(_: u64) -> Result<(), ArchiveError> {
    Ok(())
}

fn file(name: &str, bytes: &[u8]) -> FileLine {
    FileLine {
        name: name.to_owned(),
        sha256: Digest::of(bytes),
        size: bytes.len() as u64,
        mime: "text/plain".to_owned(),
        comment: "a\n\"comment\"".to_owned(),
        metadata: [("Author".to_owned(), "Ada é".to_owned())].into(),
        tags: [("stage".to_owned(), String::new())].into(),
        created: "2026-11-26T00:00:00Z".to_owned(),
    }
}

fn document(id: u64, text: &str) -> DocumentLine {
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    DocumentLine::new(id, "2026-11-26T00:00:00Z".to_owned(), raw)
}

const DOCUMENTS: [(u64, &str); 3] =
    [(1, "{\"a\": 1.10, \"a\": 2}"), (2, "{\"b\":\n\t\"\\u00e9\"}"), (9, "{}")];

/// Writes an archive of three names and two contents.
fn written(dir: &TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(name);
    let mut writer = Writer::create(&path, false).unwrap();
    for (name, bytes) in [("a", &b"same"[..]), ("b", b""), ("c/d", b"same")] {
        let line = file(name, bytes);
        if !writer.has(line.sha256) {
            writer.add_content((line.sha256, line.size), &mut &*bytes, &mut go).unwrap();
        }
        writer.add_file(&line).unwrap();
    }
    for (id, text) in DOCUMENTS {
        writer.add_document(&document(id, text)).unwrap();
    }
    writer.finish(&Namespace::parse("n").unwrap(), Some(Target::Table), Some(settings())).unwrap();
    path
}

fn settings() -> Settings {
    let tags = [("team é".to_owned(), "a \"b\"".to_owned())].into();
    Settings { versions: true, quota_files: Some(9), quota_bytes: None, tags }
}

fn opened(path: &Path) -> Result<Archive, String> {
    Archive::open(path, &mut go).map_err(|error| error.to_string())
}

/// Writes a tar file of these members.
fn tar(dir: &TempDir, members: &[(&str, &[u8])]) -> PathBuf {
    let path = dir.path().join("made.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap();
    path
}

/// A manifest that fits these lists.
fn manifest(files: (u64, u64, &str), contents: (u64, u64), documents: (u64, &str)) -> String {
    let digest = |text: &str| Digest::of(text.as_bytes()).to_string();
    serde_json::json!({
        "format": "forebay-namespace", "version": 1, "namespace": "n",
        "created": "2026-11-26T00:00:00Z", "forebay": "0",
        "files": {
            "count": files.0, "bytes": files.1, "contents": contents.0,
            "content_bytes": contents.1, "size": files.2.len(), "sha256": digest(files.2),
        },
        "documents": {
            "count": documents.0, "target": null, "size": documents.1.len(),
            "sha256": digest(documents.1),
        },
    })
    .to_string()
}

#[test]
fn what_is_written_is_read_as_a_tar_file_and_as_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for name in ["n.tar", "n"] {
        let archive = opened(&written(&dir, name)).unwrap();
        let manifest = archive.manifest();
        assert_eq!((manifest.files.count, manifest.files.contents), (3, 2));
        assert_eq!((manifest.files.bytes, manifest.files.content_bytes), (8, 4));
        assert_eq!(manifest.documents.target, Some(Target::Table));
        assert_eq!(manifest.settings, Some(settings()));
        let mut files = archive.files().unwrap();
        let mut names = Vec::new();
        while let Some(line) = files.next().unwrap() {
            let mut bytes = Vec::new();
            let mut content = archive.content(line.sha256).unwrap();
            std::io::Read::read_to_end(&mut content, &mut bytes).unwrap();
            assert_eq!(line, file(&line.name, &bytes));
            names.push(line.name);
        }
        assert_eq!(names, ["a", "b", "c/d"]);
        let mut documents = archive.documents().unwrap();
        for (id, text) in DOCUMENTS {
            let line = documents.next().unwrap().unwrap();
            assert_eq!((line.id, line.bytes().unwrap()), (id, text));
        }
        assert!(documents.next().unwrap().is_none());
        digests.push((manifest.files.sha256, manifest.documents.sha256));
        assert!(matches!(
            Writer::create(&dir.path().join(name), false),
            Err(ArchiveError::Exists { .. })
        ));
    }
    assert_eq!(digests[0], digests[1], "both forms have the same members");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn a_content_that_is_not_what_was_declared_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["n.tar", "n"] {
        let path = dir.path().join(name);
        let mut writer = Writer::create(&path, false).unwrap();
        let declared = (Digest::of(b"right"), 5);
        for wrong in [&b"wrong"[..], b"righ", b"right!"] {
            let error = writer.add_content(declared, &mut &*wrong, &mut go).unwrap_err();
            assert!(error.is_of_source() && !writer.has(declared.0), "{error}");
        }
        writer.add_content(declared, &mut &b"right"[..], &mut go).unwrap();
        writer.add_file(&file("a", b"right")).unwrap();
        writer.finish(&Namespace::parse("n").unwrap(), None, None).unwrap();
        assert_eq!(opened(&path).unwrap().manifest().files.contents, 1);
    }
    drop(Writer::create(&dir.path().join("dropped.tar"), false).unwrap());
    drop(Writer::create(&dir.path().join("dropped"), false).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_archive_that_was_cut_anywhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(written(&dir, "n.tar")).unwrap();
    let path = dir.path().join("cut.tar");
    for size in (0..whole.len()).step_by(100).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..size]).unwrap();
        let error = opened(&path).unwrap_err();
        assert!(error.contains("was cut"), "{size}: {error}");
    }
    std::fs::write(&path, [&whole[..], b"\0more"].concat()).unwrap();
    assert!(opened(&path).unwrap_err().contains("follows the end"));
    std::fs::write(&path, [&whole[..], &[0; 4_096]].concat()).unwrap();
    opened(&path).unwrap();
}

#[test]
fn a_flipped_bit_is_refused_wherever_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, "n.tar");
    let whole = std::fs::read(&path).unwrap();
    let archive = opened(&path).unwrap();
    let files = serde_json::to_string(archive.manifest()).unwrap();
    for at in (0..whole.len()).step_by(11) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        if let Ok(read) = opened(&path) {
            // Padding, and fields of a header that mean nothing, cannot change what is read. The manifest
            // is covered by no digest in the archive: its information may differ, nothing that counts.
            let now = serde_json::to_string(read.manifest()).unwrap();
            let same = |text: &str| {
                let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
                for information in ["created", "forebay", "namespace"] {
                    value[information].take();
                }
                value["documents"]["target"].take();
                value
            };
            assert_eq!(same(&now), same(&files), "byte {at}");
        }
    }
}

#[test]
fn hostile_members_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let lists = [("files.ndjson", &b""[..]), ("documents.ndjson", b"")];
    let empty = manifest((0, 0, ""), (0, 0), (0, ""));
    let last = [("manifest.json", empty.as_bytes())];
    opened(&tar(&dir, &[&lists[..], &last].concat())).unwrap();
    let content = format!("files/{}", Digest::of(b"x"));
    for name in [
        "../../evil",
        "/etc/passwd",
        "files/../x",
        "files/",
        "./files.ndjson",
        "files/ABCD",
        "x\u{1b}[31m",
        &format!("files/{}", "A".repeat(64)),
        &format!("{content}/x"),
    ] {
        let made = tar(&dir, &[&[(name, &b"x"[..])], &lists[..], &last].concat());
        let error = opened(&made).unwrap_err();
        assert!(error.contains("no member of this name"), "{name}: {error}");
        assert!(!error.contains('\u{1b}'), "{error}");
    }
    let one = [(&*content, &b"x"[..])];
    let with_one = manifest((0, 0, ""), (1, 1), (0, ""));
    let with_one = [("manifest.json", with_one.as_bytes())];
    for (members, expected) in [
        ([&one[..], &one, &lists, &last].concat(), "is there twice"),
        ([&lists[..], &one, &last].concat(), "not in its place"),
        ([&lists[..1], &lists[..], &last].concat(), "is there twice"),
        ([&lists[1..], &lists[..1], &last].concat(), "not in its place"),
        ([&lists[..], &last, &last].concat(), "is there twice"),
        ([&lists[..], &last, &one].concat(), "not in its place"),
        ([&lists[..1], &last].concat(), "has no documents.ndjson"),
        ([&one[..], &lists, &last].concat(), "contents: 1 found, expected 0"),
        ([&one[..], &lists, &with_one].concat(), "no line of files.ndjson names it"),
        ([&[(&*content, &b"y"[..])][..], &lists, &with_one].concat(), "has the SHA-256"),
        ([&lists[..], &[("manifest.json", &b"{}"[..])]].concat(), "manifest.json: "),
        ([&lists[..], &[("manifest.json", &[b' '; 140_000])]].concat(), "more than 131072"),
        (lists.to_vec(), "no manifest.json at its end"),
    ] {
        let error = opened(&tar(&dir, &members)).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn settings_keep_the_rules_of_the_server_and_are_of_the_second_version() {
    let tagged = |version: u32, name: &str| {
        let mut manifest: serde_json::Value =
            serde_json::from_str(&manifest((0, 0, ""), (0, 0), (0, ""))).unwrap();
        manifest["version"] = version.into();
        manifest["settings"] = serde_json::json!({
            "versions": false, "quota_files": null, "quota_bytes": 7, "tags": { name: "x" },
        });
        Manifest::parse(manifest.to_string().as_bytes())
    };
    assert_eq!(tagged(2, "a").unwrap().settings.unwrap().quota_bytes, Some(7));
    assert!(tagged(2, "").is_err(), "a tag without a name");
    assert!(tagged(1, "a").unwrap_err().contains("no settings"));
    assert!(tagged(3, "a").unwrap_err().contains("SHA-256"), "it has no digest");
    assert!(tagged(4, "a").unwrap_err().contains("newer forebay"));
}

#[test]
fn every_changed_byte_of_a_manifest_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let root = written(&dir, "n");
    let path = root.join("manifest.json");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, changed).unwrap();
        let error = opened(&root).unwrap_err();
        assert!(error.contains("manifest.json"), "byte {at}: {error}");
    }
    std::fs::write(&path, whole).unwrap();
    opened(&root).unwrap();
}

#[test]
fn entries_that_are_no_regular_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made.tar");
    for kind in *b"123456LKxgS" {
        let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_path("files.ndjson").unwrap();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, &b""[..]).unwrap();
        builder.into_inner().unwrap();
        let error = opened(&path).unwrap_err();
        assert!(error.contains("no regular file"), "{}: {error}", char::from(kind));
    }
    let root = written(&dir, "n");
    let content = root.join("files").join(Digest::of(b"same").to_string());
    let other = dir.path().join("other");
    std::fs::rename(&content, &other).unwrap();
    std::os::unix::fs::symlink(&other, &content).unwrap();
    assert!(opened(&root).unwrap_err().contains("no regular file"));
    std::fs::remove_file(&content).unwrap();
    assert!(opened(&root).unwrap_err().contains("contents: 1 found, expected 2"));
    std::fs::rename(&other, &content).unwrap();
    opened(&root).unwrap();
    std::fs::write(root.join("note"), "x").unwrap();
    assert!(opened(&root).unwrap_err().contains("no member of this name"));
    std::fs::remove_file(root.join("note")).unwrap();
    std::fs::rename(root.join("files"), dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), root.join("files")).unwrap();
    assert!(opened(&root).unwrap_err().contains("no regular file"));
}

#[test]
fn hostile_lines_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let content = format!("files/{}", Digest::of(b"x"));
    let line = |name: &str| serde_json::to_string(&file(name, b"x")).unwrap() + "\n";
    let long = serde_json::to_string(&FileLine { comment: "x".repeat(5_000), ..file("a", b"x") });
    let tag = FileLine { tags: [("a\u{1b}".to_owned(), String::new())].into(), ..file("a", b"x") };
    for (count, files, expected) in [
        (1, line("../../etc/passwd"), "line 1 of files.ndjson: the file name contains"),
        (1, line("/etc/passwd"), "the component \"\""),
        (1, line("a/"), "the component \"\""),
        (1, line("a\nb"), "the character"),
        (2, line("a") + &line("a"), "line 2 of files.ndjson: the name \"a\" is there twice"),
        (2, line("b") + &line("a"), "not in ascending order"),
        (2, line("a"), "lines of files.ndjson: 1 found, expected 2"),
        (1, line("a").replace("\"size\":1", "\"size\":2"), "has 1 bytes, expected 2"),
        (1, line("a").replace("\"sha256\":\"2", "\"sha256\":\"3"), "the archive has no files/3"),
        (1, long.unwrap() + "\n", "the comment is 5000 bytes"),
        (1, serde_json::to_string(&tag).unwrap() + "\n", "control character"),
        (1, line("a").trim_end().to_owned(), "no line end"),
        (1, "{".repeat(200_000) + "\n", "more than 131072 bytes"),
        (1, "\n".to_owned(), "line 1 of files.ndjson"),
    ] {
        let manifest = manifest((count, count, &files), (1, 1), (0, ""));
        let made = [
            (&*content, &b"x"[..]),
            ("files.ndjson", files.as_bytes()),
            ("documents.ndjson", b""),
            ("manifest.json", manifest.as_bytes()),
        ];
        let error = opened(&tar(&dir, &made)).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains(['\u{1b}', '\n']), "{error}");
    }
    let of = |id: u64, rest: &str| format!("{{\"id\":{id},\"received\":\"\",{rest}}}\n");
    for (count, documents, expected) in [
        (1, of(1, "\"document\":[1]"), "a document is a JSON object"),
        (1, of(1, "\"document\":null"), "either document or text"),
        (1, of(1, "\"text\":\"{}\",\"document\":{}"), "either document or text"),
        (1, of(1, "\"text\":\" {}\""), "white space"),
        (1, of(1, "\"text\":\"{}{}\""), "trailing characters"),
        (1, of(1, "\"text\":\"{\""), "its text"),
        (2, of(1, "\"document\":{}") + &of(1, "\"document\":{}"), "ids are not in ascending order"),
        (1, of(1, "\"document\":{},\"other\":1"), "unknown field"),
    ] {
        let manifest = manifest((0, 0, ""), (0, 0), (count, &documents));
        let made = [
            ("files.ndjson", &b""[..]),
            ("documents.ndjson", documents.as_bytes()),
            ("manifest.json", manifest.as_bytes()),
        ];
        let error = opened(&tar(&dir, &made)).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.tar");
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(opened(&path).is_err());
    }

    #[test]
    fn changed_blocks_never_panic(
        edits in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..20),
        checksums in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir, "n.tar");
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in edits {
            // Mostly in headers, where it matters.
            let at = at % bytes.len();
            let at = if at.is_multiple_of(3) { at } else { at / 512 * 512 + at % 160 };
            bytes[at] = byte;
        }
        if checksums {
            for block in bytes.chunks_mut(512).filter(|block| block.get(257..262) == Some(b"ustar")) {
                let mut header = tar::Header::from_byte_slice(block).clone();
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(archive) = opened(&path) {
            prop_assert_eq!(archive.manifest().files.count, 3);
        }
    }
}
