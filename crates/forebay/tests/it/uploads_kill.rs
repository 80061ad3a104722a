//! The server is killed while uploads arrive; a client that asks where to continue gets the same file.

use std::io::Write as _;

use forebay_base::fs::sim::Rng;
use serde_json::Value;

use crate::support::{Server, agent, run};

const SIZE: usize = 3_000_000;

fn noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(SIZE + 8);
    while bytes.len() < SIZE {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(SIZE);
    bytes
}

/// Where the upload continues, and the file if it is complete.
fn head(server: &Server, path: &str) -> (usize, Option<String>) {
    let request = agent().head(format!("{}{path}", server.url)).header("tus-resumable", "1.0.0");
    let answer = request.call().unwrap();
    assert_eq!(answer.status().as_u16(), 200, "{answer:?}");
    let header = |name: &str| answer.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
    (header("upload-offset").unwrap().parse().unwrap(), header("upload-file"))
}

/// Sends bytes from `at` on, declares all of them, and leaves the connection open.
fn send_part(
    server: &Server,
    path: &str,
    at: usize,
    bytes: &[u8],
    total: usize,
) -> std::net::TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "PATCH {path} HTTP/1.1\r\nhost: localhost\r\ntus-resumable: 1.0.0\r\nupload-offset: {at}\r\n\
         content-type: application/offset+octet-stream\r\ncontent-length: {total}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn an_upload_that_is_killed_again_and_again_is_the_file_that_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(5);
    let bytes = noise(6);
    let mut server = Server::start(&dir, &[]);
    let answer = agent()
        .post(format!("{}/v1/uploads", server.url))
        .header("tus-resumable", "1.0.0")
        .header("upload-length", SIZE.to_string())
        .header("upload-metadata", "filename YmlnLmJpbg==,namespace aW4=")
        .send_empty()
        .unwrap();
    assert_eq!(answer.status().as_u16(), 201);
    let path = answer.headers()["location"].to_str().unwrap().to_owned();
    let (mut acknowledged, mut rounds) = (0, 0);
    let file = loop {
        let (offset, file) = head(&server, &path);
        assert!(offset >= acknowledged, "{offset} < {acknowledged}");
        acknowledged = offset;
        if let Some(file) = file {
            break file;
        }
        rounds += 1;
        let most = 1 + rng.below(900_000);
        let end = (offset + most).min(SIZE);
        if rounds % 2 == 1 || end == SIZE {
            // A whole request, which is acknowledged.
            let answer = agent()
                .patch(format!("{}{path}", server.url))
                .header("tus-resumable", "1.0.0")
                .header("upload-offset", offset.to_string())
                .header("content-type", "application/offset+octet-stream")
                .send(&bytes[offset..end])
                .unwrap();
            assert_eq!(answer.status().as_u16(), 204, "{answer:?}");
            acknowledged = answer.headers()["upload-offset"].to_str().unwrap().parse().unwrap();
            assert_eq!(acknowledged, end);
        } else {
            // A request under way: what arrived of it is kept or not, and nothing else is there.
            let held = send_part(&server, &path, offset, &bytes[offset..end], SIZE - offset);
            if rounds % 4 == 0 {
                // The client lost its connection, and comes back before the server knows.
                // What it had not read of the connection is not kept.
                acknowledged = head(&server, &path).0;
                assert!((offset..=end).contains(&acknowledged), "{offset}, {acknowledged}, {end}");
            }
            server.signal("KILL");
            assert_eq!(server.wait(), None);
            drop(held);
            server = Server::start(&dir, &[]);
        }
    };
    assert_eq!(file, "/v1/files/in/big.bin");
    server.signal("KILL");
    assert_eq!(server.wait(), None);
    let server = Server::start(&dir, &[]);
    assert_eq!(head(&server, &path), (SIZE, Some(file.clone())));
    let mut stored = agent().get(format!("{}{file}", server.url)).call().unwrap();
    assert!(stored.body_mut().with_config().limit(1 << 30).read_to_vec().unwrap() == bytes);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let output = run(&dir, &["fsck", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sound"], &report["files"]), (&true.into(), &1.into()), "{report}");
}
