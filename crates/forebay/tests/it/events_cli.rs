//! `forebay events` on a data directory: formats, exactness, proofs, and detection of changes.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_base::checksum::crc32c;
use serde_json::Value;
use tempfile::TempDir;

use crate::events_http::GZIP;
use crate::events_support::{
    append, append_ok, events, events_json, lines, numbered, post, refused, run,
};
use crate::support::{Server, stderr};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

pub(crate) fn save(dir: &TempDir, name: &str, content: &str) -> String {
    fs::write(dir.path().join(name), content).unwrap();
    path(dir, name)
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(crate) fn key(dir: &TempDir, data: &str) -> String {
    text(&events_json(dir, &["stats", "--data", data, "--json"])["verifier_key"]).to_owned()
}

#[test]
fn what_was_appended_is_given_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let line = b"  \xff\x00 no \"JSON\" \xc3\xa9\t";
    let report = append_ok(&dir, &["--stream", "odd", "--format", "raw"], line);
    assert_eq!((report["accepted"].as_u64(), report["rejected"].as_u64()), (Some(1), Some(0)));
    let id = text(&report["first_id"]);
    assert_eq!(report["first_id"], report["last_id"]);
    let output = run(&dir, &["get", id, "--raw"]);
    assert_eq!(output.stdout, line);
    let event = events_json(&dir, &["get", id]);
    assert_eq!(event["stream"], "odd");
    assert_eq!(event["raw_base64"], "ICD/ACBubyAiSlNPTiIgw6kJ");
    refused(&dir, &["get", "01ARZ3NDEKTSV4RRFFQ69G5FAV"], 1);
    refused(&dir, &["get", "nonsense"], 2);
    refused(&dir, &["get", id, "--data", "elsewhere"], 3);
}

#[test]
fn rejected_records_are_written_with_line_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let input = b"{\"a\":1}\n\n{\"b\":\n{\"c\":3}\n";
    let rejects = path(&dir, "rejects");
    let output =
        append(&dir, &["--stream", "s", "--format", "ndjson", "--rejects", &rejects], input);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["accepted"].as_u64(), report["rejected"].as_u64()), (Some(2), Some(1)));
    assert!(stderr(&output).contains("line 3"), "{}", stderr(&output));
    let kept = lines(&fs::read_to_string(&rejects).unwrap());
    assert_eq!((kept[0]["line"].as_u64(), text(&kept[0]["raw"])), (Some(3), "{\"b\":"));
    let again = append(&dir, &["--stream", "s", "--rejects", &rejects], input);
    assert_eq!(again.status.code(), Some(3), "an existing file is not overwritten");
}

#[test]
fn a_json_array_in_a_file_is_its_elements() {
    let dir = tempfile::tempdir().unwrap();
    let report = append_ok(&dir, &["--stream", "s"], b"[\n  {\"a\": 1},\n  {\"b\": 2}\n]\n");
    assert_eq!(report["accepted"], 2);
    let found = lines(&events(&dir, &["scan"]));
    assert_eq!((text(&found[0]["raw"]), text(&found[1]["raw"])), ("{\"a\": 1}", "{\"b\": 2}"));
}

#[test]
fn events_without_a_recognised_time_are_counted_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let input =
        b"{\"n\":1}\n{\"seen\":\"2023-10-11 14:32:52\"}\n{\"time\":\"2023-10-11T14:32:52Z\"}\n";
    let output = append(&dir, &["--stream", "a", "--time-field", "seen"], input);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["mistimed"].as_u64(), report["assumed"].as_u64()), (Some(1), Some(1)));
    assert!(stderr(&output).contains("line 1"), "{}", stderr(&output));
    let found = lines(&events(&dir, &["scan", "--stream", "a"]));
    let sources: Vec<&str> = found.iter().map(|event| text(&event["time_source"])).collect();
    assert_eq!(sources, ["assumed", "event", "received"]);
    let zoned =
        append_ok(&dir, &["--stream", "b", "--time-field", "seen", "--time-zone", "+02:00"], input);
    assert_eq!((zoned["mistimed"].as_u64(), zoned["assumed"].as_u64()), (Some(1), Some(0)));
    refused(&dir, &["append", "--stream", "b", "--time-zone", "Mars/Phobos"], 2);
}

#[test]
fn a_compressed_file_is_decompressed_and_another_binary_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "two.log.gz");
    fs::write(&file, hex::decode(GZIP).unwrap()).unwrap();
    let report = append_ok(&dir, &["--stream", "s", &file], b"");
    assert_eq!(report["accepted"], 2);
    let found = lines(&events(&dir, &["scan", "--stream", "s"]));
    assert_eq!(text(&found[1]["raw"]), "{\"type\":\"b\"}");
    let archive = save(&dir, "logs.zip", "PK\x03\x04 and so on");
    refused(&dir, &["append", "--stream", "s", dir.path().to_str().unwrap()], 3);
    let said = refused(&dir, &["append", "--stream", "s", &archive], 1);
    assert!(said.contains("ZIP archive"), "{said}");
}

#[test]
fn a_scan_takes_what_was_asked_for_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "a"], numbered(10).as_bytes());
    append_ok(&dir, &["--stream", "b"], b"{\"ts\":1732184404.5,\"word\":\"needle\"}\n");
    let numbers = |args: &[&str]| -> Vec<String> {
        let mut all = vec!["scan"];
        all.extend(args);
        let found = lines(&events(&dir, &all));
        found
            .iter()
            .map(|event| {
                let raw: Value = serde_json::from_str(text(&event["raw"])).unwrap();
                raw.get("n").map_or_else(|| "needle".to_owned(), ToString::to_string)
            })
            .collect()
    };
    let all = ["0", "1", "2", "3", "4", "needle", "5", "6", "7", "8", "9"];
    for round in 0..2 {
        assert_eq!(numbers(&[]), all, "round {round}");
        assert_eq!(numbers(&["--newest", "--limit", "2"]), ["9", "8"]);
        assert!(refused(&dir, &["scan", "--limit", "0"], 2).contains("--limit"));
        assert_eq!(numbers(&["--stream", "b"]), ["needle"]);
        assert_eq!(numbers(&["--host", "h1", "--newest", "--limit", "2"]), ["9", "7"]);
        assert_eq!(numbers(&["--contains", "needle"]), ["needle"]);
        assert_eq!(numbers(&["--regex", "\"n\":[89],"]), ["8", "9"]);
        assert_eq!(
            numbers(&["--from", "2024-11-21T10:20:04Z", "--to", "1732184406"]),
            ["4", "needle", "5"]
        );
        let tail = lines(&events(&dir, &["tail", "-n", "2", "--stream", "a"]));
        assert!(text(&tail[1]["raw"]).contains("\"n\":9"), "the latest is last: {tail:?}");
        // Once more from a segment.
        let report = events_json(&dir, &["compact", "--json"]);
        assert_eq!(report["segments"], 1);
    }
}

#[test]
fn a_proof_holds_with_the_key_alone_and_with_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let report = append_ok(&dir, &["--stream", "s"], numbered(5).as_bytes());
    let proof = events(&dir, &["prove", text(&report["last_id"]), "--json"]);
    let json: Value = serde_json::from_str(&proof).unwrap();
    assert_eq!((json["leaf_index"].as_u64(), json["tree_size"].as_u64()), (Some(4), Some(5)));
    let file = save(&dir, "proof.json", &proof);
    let own = key(&dir, "forebay-data");
    let elsewhere = tempfile::tempdir().unwrap();
    let shown = events_json(&elsewhere, &["verify-proof", "--key", &own, "--json", &file]);
    assert_eq!(shown["valid"], true);
    assert!(text(&shown["raw"]).contains("\"n\":4"));
    append_ok(&elsewhere, &["--stream", "s"], b"{}");
    let other = key(&elsewhere, "forebay-data");
    refused(&dir, &["verify-proof", "--key", &other, &file], 1);
    refused(&dir, &["verify-proof", "--key", "nonsense", &file], 2);
    refused(&dir, &["verify-proof", "--key", &own, "missing"], 3);
    let hash = text(&json["audit_path"][0]);
    let turned = if hash.starts_with('0') { '1' } else { '0' };
    let changed = proof.replace(hash, &format!("{turned}{}", &hash[1..]));
    let changed = save(&dir, "changed.json", &changed);
    assert!(refused(&dir, &["verify-proof", "--key", &own, &changed], 1).contains("path"));
    refused(&dir, &["prove", "01ARZ3NDEKTSV4RRFFQ69G5FAV"], 1);
}

#[test]
fn a_later_tree_is_proven_to_continue_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(3).as_bytes());
    let earlier = save(&dir, "earlier", &events(&dir, &["checkpoint"]));
    append_ok(&dir, &["--stream", "s"], numbered(300).as_bytes());
    let proof = events(&dir, &["prove", "--consistency", "3", "303", "--json"]);
    let json: Value = serde_json::from_str(&proof).unwrap();
    assert_eq!((json["first"].as_u64(), json["second"].as_u64()), (Some(3), Some(303)));
    assert!(json["path"].as_array().unwrap().len() > 5);
    let file = save(&dir, "proof.json", &proof);
    let own = key(&dir, "forebay-data");
    events(&dir, &["verify-proof", "--key", &own, "--since", &earlier, &file]);
    refused(&dir, &["verify-proof", "--key", &own, &file], 2);
    let later = save(&dir, "later", &events(&dir, &["checkpoint"]));
    refused(&dir, &["verify-proof", "--key", &own, "--since", &later, &file], 1);
    refused(&dir, &["prove", "--consistency", "3", "304"], 1);
    events(&dir, &["verify", "--since", &earlier, "--since", &later]);
}

fn segment(dir: &TempDir) -> PathBuf {
    let mut found = fs::read_dir(dir.path().join("forebay-data/events/segments")).unwrap();
    found.next().unwrap().unwrap().path()
}

#[test]
fn a_flipped_byte_of_a_segment_is_named() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(2_000).as_bytes());
    let checkpoint = save(&dir, "checkpoint", &events(&dir, &["checkpoint"]));
    events(&dir, &["compact"]);
    events(&dir, &["verify", "--since", &checkpoint]);
    let path = segment(&dir);
    let whole = fs::read(&path).unwrap();
    for at in [10, whole.len() / 3, whole.len() / 2, whole.len() - 9] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let said = refused(&dir, &["verify"], 1);
        assert!(said.contains(path.file_name().unwrap().to_str().unwrap()), "{at}: {said}");
        let json: Value = serde_json::from_str(&refused(&dir, &["verify", "--json"], 1)).unwrap();
        assert_eq!(json["sound"], false);
    }
    fs::write(&path, &whole).unwrap();
    events(&dir, &["verify"]);
}

/// Changes an event in a segment that is not compressed, and corrects the checksum of its block.
fn forge(path: &PathBuf, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.windows(from.len()).position(|found| found == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    let salt = crc32c(&bytes[..32]);
    // One block, after the header: its method, its size, its bytes, its checksum.
    let size = u32::from_le_bytes(bytes[33..37].try_into().unwrap()) as usize;
    let end = 37 + size;
    let checksum = crc32c(&bytes[32..end]) ^ salt;
    bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(path, &bytes).unwrap();
}

#[test]
fn a_forged_event_is_refused_by_every_command_that_reads() {
    let dir = tempfile::tempdir().unwrap();
    let plain = ["--stream", "bank", "--set", "events.compression=none"];
    let report = append_ok(&dir, &plain, b"{\"amount\":100}\n{\"amount\":200}\n");
    let id = report["first_id"].as_str().unwrap().to_owned();
    events(&dir, &["checkpoint"]);
    events(&dir, &["compact", "--set", "events.compression=none"]);
    events(&dir, &["get", &id]);
    forge(&segment(&dir), b"{\"amount\":100}", b"{\"amount\":900}");
    for args in [
        &["get", &id][..],
        &["scan"],
        &["scan", "--contains", "amount"],
        &["scan", "--word", "amount"],
        &["tail"],
        &["export", "--out", "exported"],
    ] {
        let output = run(&dir, args);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert!(!output.status.success(), "{args:?}: {said}");
        assert!(!said.contains(":900") && said.contains("bank"), "{args:?}: {said}");
    }
    // Shown on demand.
    let shown = run(&dir, &["get", &id, "--set", "events.verified_reads=false"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("900"), "{shown:?}");
    refused(&dir, &["verify"], 1);
    // The tree has the hashes of the events as they were: more are accepted and signed.
    append_ok(&dir, &plain, b"{\"amount\":300}\n");
    events(&dir, &["checkpoint"]);
}

#[test]
fn stopping_a_server_whose_store_signs_nothing_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "bank"], b"{\"amount\":100}\n");
    events(&dir, &["checkpoint"]);
    std::fs::write(dir.path().join("forebay-data/events/newest-checkpoint"), "other").unwrap();
    let output = run(&dir, &["checkpoint"]);
    assert!(!output.status.success() && stderr(&output).contains("signs nothing"), "{output:?}");
    // The server reports it when it starts.
    let server = Server::start(&dir, &[]);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_server_verifies_its_store_and_publishes_checkpoints_that_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("anchor").display().to_string();
    let setting = format!("events.anchor={anchor}");
    let server = Server::start(&dir, &["--set", &setting]);
    let url = server.url.clone();
    let answer = post(&server, "/v1/events?stream=s", "", numbered(10).as_bytes());
    assert_eq!(answer.status, 200);
    let shown = events(&dir, &["verify", "--server", &url]);
    assert!(shown.contains("10 hashed") && shown.contains("no changes found"), "{shown}");
    let json = events_json(&dir, &["verify", "--json", "--server", &url]);
    assert_eq!((&json["sound"], &json["events"]), (&true.into(), &10.into()));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    events(&dir, &["verify", "--anchor", &anchor]);
    let data = dir.path().join("forebay-data");
    copy(&data, &dir.path().join("older"));
    append_ok(&dir, &["--stream", "s", "--set", &setting], numbered(5).as_bytes());
    events(&dir, &["verify", "--anchor", &anchor]);
    let said = refused(&dir, &["verify", "--data", "older", "--anchor", &anchor], 1);
    assert!(said.contains("newest 5"), "{said}");
}

#[test]
fn an_older_copy_put_back_is_detected_against_the_newer_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(10).as_bytes());
    let data = dir.path().join("forebay-data");
    copy(&data, &dir.path().join("older"));
    append_ok(&dir, &["--stream", "s"], numbered(5).as_bytes());
    let newer = save(&dir, "newer", &events(&dir, &["checkpoint"]));
    events(&dir, &["verify", "--since", &newer]);
    events(&dir, &["verify", "--data", "older"]);
    let said = refused(&dir, &["verify", "--data", "older", "--since", &newer], 1);
    assert!(said.contains("newest 5"), "{said}");
}

#[test]
fn a_store_rebuilt_without_the_key_is_detected_with_it() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(10).as_bytes());
    let kept = save(&dir, "kept", &events(&dir, &["checkpoint"]));
    let own = key(&dir, "forebay-data");
    append_ok(&dir, &["--data", "rebuilt", "--stream", "s"], numbered(10).as_bytes());
    events(&dir, &["verify", "--data", "rebuilt"]);
    let said = refused(&dir, &["verify", "--data", "rebuilt", "--since", &kept, "--key", &own], 1);
    assert!(said.contains("changed, reordered or replaced"), "{said}");
    refused(&dir, &["verify", "--data", "rebuilt", "--since", &kept], 1);
}

#[test]
fn a_directory_in_use_by_a_server_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    for args in [&["append", "--stream", "s"][..], &["stats"], &["tail"]] {
        let said = refused(&dir, args, 3);
        assert!(said.contains("in use") && said.contains("/v1/events"), "{said}");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    events(&dir, &["stats"]);
}

#[test]
fn presets_and_switches_hold() {
    let dir = tempfile::tempdir().unwrap();
    let off = ["--stream", "s", "--set", "events.merkle=false", "--preset", "max-throughput"];
    append_ok(&dir, &off, b"{\"a\":1}");
    let said = refused(&dir, &["append", "--stream", "s"], 3);
    assert!(said.contains("events.merkle=false"), "{said}");
    assert_eq!(
        lines(&events(&dir, &["scan"])).len(),
        1,
        "a reader uses the store as it was created"
    );
    assert!(refused(&dir, &["checkpoint"], 1).contains("no proofs"));
    refused(&dir, &["append", "--stream", "s", "--preset", "fast"], 2);
    for wrong in ["batch_events=0", "block_size=1KiB", "compression=zip", "retention=30"] {
        let setting = format!("events.{wrong}");
        let said = refused(&dir, &["stats", "--set", &setting], 2);
        assert!(said.contains(setting.split('=').next().unwrap()), "{said}");
    }
}

#[test]
fn expired_events_are_removed_and_the_rest_stays_provable() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "debug"], numbered(3).as_bytes());
    append_ok(&dir, &["--stream", "audit"], numbered(3).as_bytes());
    let before = save(&dir, "before", &events(&dir, &["checkpoint"]));
    let rules = "events.retention=debug=1d,audit=3650d";
    let report = events_json(&dir, &["compact", "--json", "--set", rules]);
    assert_eq!(report["pruned_events"], 0, "they arrived just now, whatever their time");
    // Removing the record of arrivals removes no event: all of them count as arrived now.
    fs::remove_file(dir.path().join("forebay-data/events/arrivals")).unwrap();
    let report = events_json(&dir, &["compact", "--json", "--set", rules]);
    assert_eq!(report["pruned_events"], 0);
    // Until the second has passed since then.
    let rules = "events.retention=debug=1s,audit=3650d";
    let reports = (0..10_000).map(|_| events_json(&dir, &["compact", "--json", "--set", rules]));
    let pruned = reports.map(|report| report["pruned_events"].clone()).find(|count| *count != 0);
    assert_eq!(pruned, Some(3.into()));
    let left = lines(&events(&dir, &["scan", "--proof"]));
    let of = |stream: &str| left.iter().filter(|event| event["stream"] == stream).count();
    // What was removed, under which rules, and that the file was missing, is in the store itself.
    assert_eq!((of("audit"), of("_forebay"), left.len()), (3, 4, 7));
    let own = key(&dir, "forebay-data");
    for event in &left {
        let proof = save(&dir, "proof", &event["proof"].to_string());
        events(&dir, &["verify-proof", "--key", &own, &proof]);
    }
    events(&dir, &["verify", "--since", &before]);
}
