//! HTTP servers that get checkpoints, and witnesses (C2SP tlog-witness).
//!
//! Invariants: no redirection is followed, no error names the user, password or query of a URL, and
//! the answer of a witness is read up to a limit.

use forebay_events::store::{
    AnchorError, AnchorTarget, Publication, WITNESS_ANSWER_SIZE_MAX, WitnessAnswer,
    WitnessTransport,
};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use url::Url;

use super::{Failed, LIMIT, run};
use crate::config::public;

const TEXT: &str = "text/plain; charset=utf-8";

/// A server that takes each checkpoint as the body of a POST request.
#[derive(Debug)]
pub(super) struct Post {
    url: Url,
    address: String,
}

/// A witness.
#[derive(Debug)]
pub(super) struct Witnessing {
    url: Url,
    address: String,
}

impl Post {
    pub(super) fn new(url: Url) -> Self {
        let address = public(&url);
        Self { url, address }
    }
}

impl Witnessing {
    /// * `url`: the prefix of the requests of the witness.
    pub(super) fn new(url: &Url) -> Self {
        let mut full = url.clone();
        full.set_path(&format!("{}/add-checkpoint", url.path().trim_end_matches('/')));
        Self { url: full, address: public(url) }
    }
}

/// Sends a body, and returns the answer with at most `size_max` bytes of its body.
async fn post(url: &Url, body: String, size_max: usize) -> Result<(u16, Vec<u8>), Failed> {
    let plain = reqwest::Error::without_url;
    let client = reqwest::Client::builder().redirect(Policy::none()).timeout(LIMIT);
    let client = client.build().map_err(plain)?;
    let request = client.post(url.clone()).header(CONTENT_TYPE, TEXT).body(body);
    let mut answer = request.send().await.map_err(plain)?;
    let mut received = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(plain)? {
        if received.len() + chunk.len() > size_max {
            return Err(format!("the answer has more than {size_max} bytes").into());
        }
        received.extend_from_slice(&chunk);
    }
    Ok((answer.status().as_u16(), received))
}

impl AnchorTarget for Post {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn publish(&self, publication: &Publication) -> Result<(), AnchorError> {
        let body = publication.note.clone();
        let answer = run(LIMIT, post(&self.url, body, WITNESS_ANSWER_SIZE_MAX));
        let answer = answer.map_err(|error| AnchorError::remote("post to", self.address(), error));
        match answer?.0 {
            200..=299 => Ok(()),
            status => {
                let reason = format!("status {status}");
                Err(AnchorError::Refused { place: self.address(), reason })
            }
        }
    }
}

impl WitnessTransport for Witnessing {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn add_checkpoint(&self, body: String) -> Result<WitnessAnswer, AnchorError> {
        let answer = run(LIMIT, post(&self.url, body, WITNESS_ANSWER_SIZE_MAX));
        let (status, body) = answer
            .map_err(|error| AnchorError::remote("ask the witness", self.address(), error))?;
        Ok(WitnessAnswer { status, body })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use forebay_base::error_chain::chain;

    use super::super::test_publication;
    use super::*;

    /// A server that answers one request, and returns its head and body.
    fn server(answer: &'static str) -> (Url, JoinHandle<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://user:secret@{}/in?t=secret", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let (mut head, mut size) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim_end().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    size = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
                head.push_str(&line);
                head.push('\n');
            }
            let mut body = vec![0; size];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            (head, String::from_utf8(body).unwrap())
        });
        (url.parse().unwrap(), served)
    }

    #[test]
    fn a_checkpoint_is_the_body_of_a_request() {
        let (url, served) = server("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        let target = Post::new(url);
        let publication = test_publication();
        target.publish(&publication).unwrap();
        let (head, body) = served.join().unwrap();
        assert!(head.starts_with("post /in?t=secret http/1.1\n"), "{head}");
        assert!(head.contains("content-type: text/plain") && head.contains("authorization: basic"));
        assert_eq!(body, publication.note);
    }

    #[test]
    fn a_refusal_or_redirection_is_an_error_without_secrets() {
        for (answer, reason) in [
            ("HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "status 500"),
            (
                "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n",
                "status 302",
            ),
            ("hello\r\n\r\n", "cannot post to"),
        ] {
            let (url, served) = server(answer);
            let error = Post::new(url).publish(&test_publication()).unwrap_err();
            let text = chain(&error).to_string();
            assert!(text.contains(reason) && !text.contains("secret"), "{text}");
            served.join().unwrap();
        }
        let closed: Url = "http://user:secret@127.0.0.1:1/?t=secret".parse().unwrap();
        let error = Post::new(closed).publish(&test_publication()).unwrap_err();
        assert!(!chain(&error).to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_witness_is_asked_below_its_prefix_and_its_answer_returned() {
        let (url, served) =
            server("HTTP/1.1 409 Conflict\r\ncontent-length: 3\r\nconnection: close\r\n\r\n17\n");
        let answer = Witnessing::new(&url).add_checkpoint("old 0\n".to_owned()).unwrap();
        assert_eq!(answer, WitnessAnswer { status: 409, body: b"17\n".to_vec() });
        let (head, body) = served.join().unwrap();
        assert!(head.starts_with("post /in/add-checkpoint?t=secret http/1.1\n"), "{head}");
        assert_eq!(body, "old 0\n");
        for (prefix, full) in
            [("http://w", "/add-checkpoint"), ("http://w/a/", "/a/add-checkpoint")]
        {
            assert_eq!(Witnessing::new(&prefix.parse().unwrap()).url.path(), full);
        }
    }
}
