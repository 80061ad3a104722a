//! A small client of the S3 port, and of HTTP: it signs, sends, and says whether the whole answer arrived.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::{digest, hmac};
use ureq::http::Request;

use crate::support::agent;

/// Everything but what a path may hold as it is, and what S3 does not encode when it signs.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// The same for a value in a query.
const VALUE: &AsciiSet = &PATH.add(b'/');
/// The payload of a request whose body is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

pub(crate) fn path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

pub(crate) fn value(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

/// An answer whose head arrived.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    /// The body, if all of it arrived.
    pub(crate) body: Option<Vec<u8>>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_deref().unwrap_or_default()).into_owned()
    }

    /// The texts of the elements with this name.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let (text, mut found) = (self.text(), Vec::new());
        let mut rest = text.as_str();
        while let Some((_, behind)) = rest.split_once(&format!("<{name}>")) {
            let Some((value, behind)) = behind.split_once(&format!("</{name}>")) else { break };
            found.push(value.replace("&quot;", "\"").replace("&amp;", "&"));
            rest = behind;
        }
        found
    }
}

/// Sends a request; `None`: the server did not answer.
pub(crate) fn send(
    agent: &ureq::Agent,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Reply> {
    let request =
        headers.iter().fold(Request::builder().method(method).uri(url), |all, (name, value)| {
            all.header(*name, *value)
        });
    // A body without bytes would be sent in chunks.
    let answer = if body.is_empty() && matches!(method, "GET" | "HEAD" | "DELETE") {
        agent.run(request.body(()).unwrap())
    } else {
        agent.run(request.body(body).unwrap())
    };
    let mut answer = answer.ok()?;
    let body = answer.body_mut().with_config().limit(1 << 30).read_to_vec().ok();
    Some(Reply { status: answer.status().as_u16(), headers: answer.headers().clone(), body })
}

/// A client of the S3 port.
#[derive(Debug, Clone)]
pub(crate) struct S3 {
    agent: ureq::Agent,
    /// Such as `http://127.0.0.1:9000`.
    url: String,
    id: String,
    secret: String,
}

impl S3 {
    pub(crate) fn new(url: &str, id: &str, secret: &str) -> Self {
        let [url, id, secret] = [url, id, secret].map(str::to_owned);
        Self { agent: agent(), url, id, secret }
    }

    /// Signs and sends a request. Every header that is given is signed.
    ///
    /// * `query`: encoded pairs with values.
    pub(crate) fn send(
        &self,
        method: &str,
        target: &str,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Reply> {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let host = self.url.split("//").nth(1).unwrap();
        let mut query: Vec<String> =
            query.iter().map(|(name, text)| format!("{name}={}", value(text))).collect();
        query.sort();
        let (target, query) = (path(target), query.join("&"));
        let mut signed: Vec<(&str, &str)> =
            vec![("host", host), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", &time)];
        signed.extend(headers);
        signed.sort_unstable();
        let lines: String =
            signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let canonical = format!("{method}\n{target}\n{query}\n{lines}\n{names}\n{UNSIGNED}");
        let date = &time[..8];
        let scope = format!("{date}/forebay/s3/aws4_request");
        let hash = hex::encode(digest::digest(&digest::SHA256, canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let secret = format!("AWS4{}", self.secret).into_bytes();
        let key = [date, "forebay", "s3", "aws4_request"]
            .iter()
            .fold(secret, |key, part| mac(&key, part));
        let signature = hex::encode(mac(&key, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.id
        );
        signed.retain(|(name, _)| *name != "host");
        signed.push(("authorization", &authorization));
        let url = format!("{}{target}?{query}", self.url);
        send(&self.agent, method, url.trim_end_matches('?'), &signed, body)
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}
