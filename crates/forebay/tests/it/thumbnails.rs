//! Thumbnails of pictures, over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::s3_client::{Reply, send};
use crate::support::{Server, agent};

/// A PNG of 48 x 24 pixels, red on the left and blue on the right.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAADAAAAAYCAIAAAAzn+mLAAAALUlEQVR42u3OsQ0AAAzCMP4/malPsNVS5shpMmm0\
    aYCAgICAgICAgICAgH6BDkm4ZT1PlPPrAAAAAElFTkSuQmCC";

fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    send(&agent(), method, &format!("{}{path}", server.url), headers, body).unwrap()
}

/// Width and height in the frame header of a JPEG.
fn dimensions(jpeg: &[u8]) -> (u16, u16) {
    let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let number = |from: usize| u16::from_be_bytes([jpeg[from], jpeg[from + 1]]);
    (number(at + 7), number(at + 5))
}

#[test]
fn a_picture_is_sent_small_and_anything_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let picture = BASE64.decode(PICTURE).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let reply = ask(&server, "PUT", &format!("/v1/files/p/{name}"), &[], bytes);
        assert_eq!(reply.status, 201, "{}", reply.text());
    };
    put("red.png", &picture);
    put("cut.png", &picture[..60]);
    put("words.txt", b"words");
    let small = ask(&server, "GET", "/v1/files/p/red.png?thumbnail=16", &[], b"");
    assert_eq!(small.status, 200, "{}", small.text());
    assert_eq!(small.header("content-type"), Some("image/jpeg"));
    assert_eq!(small.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(small.header("accept-ranges"), None);
    assert_eq!(dimensions(small.body.as_deref().unwrap()), (16, 8));
    let tag = small.header("etag").unwrap().to_owned();
    let whole = ask(&server, "GET", "/v1/files/p/red.png", &[], b"");
    assert_eq!(whole.body.as_deref(), Some(&picture[..]));
    assert_ne!(whole.header("etag"), Some(&*tag));
    let again = [("if-none-match", &*tag)];
    assert_eq!(ask(&server, "GET", "/v1/files/p/red.png?thumbnail=16", &again, b"").status, 304);
    let other = [("if-match", "\"another\"")];
    assert_eq!(ask(&server, "GET", "/v1/files/p/red.png?thumbnail=16", &other, b"").status, 412);
    let larger = ask(&server, "GET", "/v1/files/p/red.png?thumbnail=512", &again, b"");
    assert_eq!(dimensions(larger.body.as_deref().unwrap()), (48, 24));
    for (path, status, code) in [
        ("cut.png?thumbnail=16", 422, "no_thumbnail"),
        ("words.txt?thumbnail=16", 422, "no_thumbnail"),
        ("none.png?thumbnail=16", 404, "not_found"),
        ("red.png?thumbnail=15", 400, "query"),
        ("red.png?thumbnail=1025", 400, "query"),
        ("red.png?thumbnail=big", 400, "query"),
    ] {
        let reply = ask(&server, "GET", &format!("/v1/files/p/{path}"), &[], b"");
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.text().contains(code), "{path}: {}", reply.text());
    }
    let metrics = server.get("/metrics").body;
    for (result, count) in [("made", 2), ("kept", 0), ("refused", 2)] {
        let line = format!("forebay_intake_thumbnails_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}
