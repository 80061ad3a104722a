//! The tree over HTTP: proofs and tiles lead to the signed root, by an independent computation.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::events_support::{events, numbered, post};
use crate::support::{Server, send};

type Hash = [u8; 32];

fn leaf(bytes: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(bytes).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// RFC 6962, section 2.1, literally.
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest(b"").into(),
        [one] => *one,
        _ => {
            let mut split = 1;
            while split * 2 < leaves.len() {
                split *= 2;
            }
            node(&root(&leaves[..split]), &root(&leaves[split..]))
        }
    }
}

/// RFC 9162, section 2.1.3.2.
fn root_by_path(index: u64, size: u64, leaf: Hash, path: &[Hash]) -> Hash {
    let (mut at, mut last, mut found) = (index, size - 1, leaf);
    for beside in path {
        if at % 2 == 1 || at == last {
            found = node(beside, &found);
            while at % 2 == 0 && at != 0 {
                at /= 2;
                last /= 2;
            }
        } else {
            found = node(&found, beside);
        }
        at /= 2;
        last /= 2;
    }
    assert_eq!(last, 0, "the path has the right length");
    found
}

/// Size and root of a signed note.
fn signed(note: &str) -> (u64, Hash) {
    let mut lines = note.lines().skip(1);
    let size = lines.next().unwrap().parse().unwrap();
    (size, STANDARD.decode(lines.next().unwrap()).unwrap().try_into().unwrap())
}

fn hex(text: &Value) -> Hash {
    hex::decode(text.as_str().unwrap()).unwrap().try_into().unwrap()
}

/// Status, head and body of a binary response.
fn get(server: &Server, path: &str) -> (u16, String, Vec<u8>) {
    let mut stream = server.connect();
    send(&mut stream, "GET", &format!("/v1/events/tlog/{path}"), "");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let at = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap().to_lowercase();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, bytes[at + 4..].to_vec())
}

fn hashes(bytes: &[u8]) -> Vec<Hash> {
    assert_eq!(bytes.len() % 32, 0);
    bytes.chunks(32).map(|hash| hash.try_into().unwrap()).collect()
}

fn entries(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((size, rest)) = bytes.split_first_chunk() {
        let (entry, rest) = rest.split_at(usize::from(u16::from_be_bytes(*size)));
        found.push(entry.to_vec());
        bytes = rest;
    }
    found
}

const COUNT: u64 = 700;

fn check_tiles(server: &Server) {
    let (size, signed_root) = signed(&server.get("/v1/events/tlog/checkpoint").body);
    assert_eq!(size, COUNT);
    let mut leaves = Vec::new();
    for (tile, whole) in [("000", true), ("001", true), ("002.p/188", false)] {
        let (status, head, bytes) = get(server, &format!("tile/0/{tile}"));
        assert_eq!(status, 200, "{tile}");
        assert_eq!(head.contains("immutable"), whole, "{head}");
        let found = hashes(&bytes);
        let (status, _, bytes) = get(server, &format!("tile/entries/{tile}"));
        assert_eq!(status, 200, "{tile}");
        let of_entries: Vec<Hash> = entries(&bytes).iter().map(|entry| leaf(entry)).collect();
        assert_eq!(found, of_entries, "{tile}");
        leaves.extend(found);
    }
    assert_eq!((leaves.len() as u64, root(&leaves)), (size, signed_root));
    let (status, _, above) = get(server, "tile/1/000.p/2");
    assert_eq!(status, 200);
    assert_eq!(hashes(&above), [root(&leaves[..256]), root(&leaves[256..512])]);
    for missing in [
        "tile/0/002",
        "tile/0/002.p/189",
        "tile/0/003",
        "tile/1/000",
        "tile/1/000.p/3",
        "tile/2/000.p/1",
        "tile/63/000",
        "tile/64/000",
        "tile/0/0",
        "tile/0/x000/000",
        "tile/x/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/entries/003",
        "tile/0/x018/x446/x744/x073/x709/x551/615",
    ] {
        assert_eq!(get(server, missing).0, 404, "{missing}");
    }
}

#[test]
fn tiles_and_bundles_lead_to_the_signed_root_from_memory_and_from_segments() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    post(&server, "/v1/events", "", numbered(COUNT).as_bytes());
    // Signs a checkpoint of all of them, which is then the newest.
    let (size, _) = signed(&server.get("/v1/events/checkpoint").body);
    assert_eq!(size, COUNT);
    check_tiles(&server);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    events(&dir, &["compact"]);
    check_tiles(&Server::start(&dir, &[]));
}

#[test]
fn proofs_of_events_and_of_continuation_hold_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    post(&server, "/v1/events", "", numbered(300).as_bytes());
    let key = server.get("/v1/events/key").body;
    assert!(key.starts_with("forebay.local/events+") && key.ends_with('\n'), "{key}");
    let earlier = server.get("/v1/events/checkpoint").body;
    post(&server, "/v1/events", "", numbered(100).as_bytes());
    for page in ["limit=3", "limit=2&order=newest", "limit=2&from=2024-11-21T10:24:15Z"] {
        let page = server.get(&format!("/v1/events?{page}")).json();
        for event in page["events"].as_array().unwrap() {
            let id = event["id"].as_str().unwrap();
            let proof = server.get(&format!("/v1/events/{id}/proof")).json();
            let (size, signed_root) = signed(proof["checkpoint"].as_str().unwrap());
            let bytes = STANDARD.decode(proof["leaf_base64"].as_str().unwrap()).unwrap();
            assert_eq!(leaf(&bytes), hex(&proof["leaf_hash"]));
            let path: Vec<Hash> = proof["audit_path"].as_array().unwrap().iter().map(hex).collect();
            let index = proof["leaf_index"].as_u64().unwrap();
            assert_eq!((index, size), (event["seq"].as_u64().unwrap(), 400));
            assert_eq!(root_by_path(index, size, leaf(&bytes), &path), signed_root);
        }
    }
    let proof = server.get("/v1/events/proof/consistency?first=300").json();
    assert_eq!(hex(&proof["first_root"]), signed(&earlier).1);
    let later = signed(proof["checkpoint"].as_str().unwrap());
    assert_eq!((400, hex(&proof["second_root"])), later);
    for wrong in ["", "?first=x", "?first=401", "?first=5&second=4", "?first=1&second=401", "?a=1"]
    {
        let answer = server.get(&format!("/v1/events/proof/consistency{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
    }
}

#[test]
fn the_bundle_of_a_large_event_has_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let line = format!("{}\n", "x".repeat(70_000));
    post(&server, "/v1/events/raw", "", line.as_bytes());
    server.get("/v1/events/checkpoint");
    let (status, _, tile) = get(&server, "tile/0/000.p/1");
    assert_eq!(status, 200);
    let (status, _, bundle) = get(&server, "tile/entries/000.p/1");
    assert_eq!(status, 200);
    let (size, entry) = bundle.split_first_chunk::<2>().unwrap();
    assert_eq!(usize::from(u16::from_be_bytes(*size)), entry.len());
    assert_eq!(entry[0], 2, "the version of a digest");
    assert_eq!(tile, leaf(entry));
}
