//! Errors: of addresses, of settings, and of requests.
//!
//! A failed request is classified by what helps against it ([`Class`]). Its reason is one sentence
//! made from the cause: the answer of a server is reduced to its status, code and message, because
//! the rest may repeat signed headers, and a session token is one of them.

use std::error::Error;
use std::path::PathBuf;

use forebay_base::error_chain::chain;
use object_store::client::{HttpError, HttpErrorKind};

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has no characters.
    #[error("it is empty; use a path or s3://BUCKET/PREFIX")]
    Empty,
    /// It has a scheme other than `s3`.
    #[error("only s3:// is supported")]
    Scheme,
    /// It names no bucket.
    #[error("it has no bucket; use s3://BUCKET/PREFIX")]
    NoBucket,
    /// The bucket has a name that no bucket can have.
    #[error("{bucket:?} has characters that cannot be in the name of a bucket")]
    BucketName {
        /// The name.
        bucket: String,
    },
    /// Its prefix has parts that no key has.
    #[error("its prefix is invalid: {reason}")]
    Prefix {
        /// The part, and the fault.
        reason: String,
    },
}

/// Why settings lead to no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The endpoint is not the URL of a server.
    #[error("{endpoint:?} is not the URL of a server: {reason}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The fault.
        reason: String,
    },
    /// The endpoint has a user name or a password.
    #[error("the endpoint {endpoint} contains a user name or password; use keys instead")]
    EndpointSecret {
        /// The endpoint, without what is secret.
        endpoint: String,
    },
    /// The server has no TLS, and that is not permitted.
    #[error("{endpoint} does not use TLS; `allow_http` permits that")]
    NoTls {
        /// The endpoint.
        endpoint: String,
    },
    /// The region is not the name of one.
    #[error("{region:?} is not the name of a region")]
    Region {
        /// The region.
        region: String,
    },
    /// No file has the profile.
    #[error("there is no profile {name:?} in {credentials} or {config}")]
    NoProfile {
        /// Its name.
        name: String,
        /// The file of keys.
        credentials: PathBuf,
        /// The file of settings.
        config: PathBuf,
    },
    /// The profile has half of a key.
    #[error("profile {name:?} has no {lacks}")]
    HalfProfile {
        /// Its name.
        name: String,
        /// The missing setting.
        lacks: &'static str,
    },
    /// The profile was asked for and has no keys.
    #[error("profile {name:?} has neither aws_access_key_id nor aws_secret_access_key")]
    NoKeys {
        /// Its name.
        name: String,
    },
    /// The profile was asked for and gets its keys in a way that is not supported.
    #[error(
        "profile {name:?} gets its keys by {way}, which is not supported; use a profile with \
         credential_process = aws configure export-credentials --profile {name}"
    )]
    OtherKeys {
        /// Its name.
        name: String,
        /// The setting.
        way: &'static str,
    },
    /// A file of profiles exists and cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The files of profiles cannot be found.
    #[error("HOME is not set, nor is {variable}: there are no profiles")]
    NoHome {
        /// The variable that can name the file.
        variable: &'static str,
    },
    /// The address has no valid bucket or prefix.
    #[error("the address is invalid")]
    Address(#[source] AddressError),
    /// The settings are refused by the client of S3.
    #[error("cannot set up the client of S3")]
    Client(#[source] Failure),
}

/// What helps against a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// There is no connection, it was lost, or no answer came in time. Trying again may help.
    Unreachable,
    /// The server is overloaded or has an internal error. Trying again later helps.
    Transient,
    /// The server refused: keys, permissions, the request itself. Trying again does not help.
    Refused,
    /// The object or the bucket does not exist.
    Missing,
    /// The object exists already, or is not the expected version.
    Conflict,
    /// The server, or the store, does not support the operation.
    Unsupported,
}

/// Why a request failed.
///
/// It does not name the object: the caller knows what it attempted, and on what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    class: Class,
    reason: String,
}

impl Failure {
    /// A failure with a reason. Passwords of URLs in `reason` are left out.
    pub fn new(class: Class, reason: impl AsRef<str>) -> Self {
        Self { class, reason: without_secrets(reason.as_ref()) }
    }

    /// The failure that an answer of a server is.
    ///
    /// * `code`, `message`: what the answer says in its body; may be empty.
    #[must_use]
    pub fn answered(status: http::StatusCode, code: &str, message: &str) -> Self {
        let reason = answered(&status.to_string(), code, message);
        Self::new(class_of(status.as_u16(), code), reason)
    }

    /// What helps against it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether trying the same again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.class, Class::Unreachable | Class::Transient)
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as E;
        let (class, reason) = explain(&error);
        let class = match error {
            E::NotFound { .. } => Class::Missing,
            E::AlreadyExists { .. } | E::Precondition { .. } => Class::Conflict,
            E::NotImplemented { .. } | E::NotSupported { .. } => Class::Unsupported,
            E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::NotModified { .. }
            | E::InvalidPath { .. }
            | E::UnknownConfigurationKey { .. } => Class::Refused,
            _ => class,
        };
        Self::new(class, reason)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Class::Refused, chain(&error).to_string())
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let (class, reason) = explain(&error);
        Self::new(class, reason)
    }
}

/// The address that Amazon's machines request their role's keys from.
const METADATA: &str = "169.254.169.254";

/// The class of an error by its causes, and a sentence about the innermost.
fn explain(error: &(dyn Error + 'static)) -> (Class, String) {
    let (mut innermost, mut http) = (error, None);
    let mut next = Some(error);
    while let Some(link) = next {
        innermost = link;
        http = http.or_else(|| link.downcast_ref::<HttpError>().map(HttpError::kind));
        next = link.source();
    }
    let text = innermost.to_string();
    if chain(error).to_string().contains(METADATA) {
        let reason = "no keys are set and this machine has no role; set AWS_ACCESS_KEY_ID and \
                      AWS_SECRET_ACCESS_KEY, or specify a profile";
        return (Class::Refused, reason.to_owned());
    }
    if let Some(kind) = http {
        return match kind {
            HttpErrorKind::Connect => (Class::Unreachable, format!("no connection: {text}")),
            HttpErrorKind::Timeout => (Class::Unreachable, format!("no answer in time: {text}")),
            HttpErrorKind::Decode => (Class::Transient, format!("cannot read the answer: {text}")),
            _ => (Class::Unreachable, text),
        };
    }
    if let Some((_, answer)) = text.split_once("non-2xx status code: ") {
        let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
        let number = status.get(..3).and_then(|number| number.parse().ok()).unwrap_or(0);
        let (code, message) = (element(body, "Code"), element(body, "Message"));
        let status = status.trim_end_matches([':', ' ']);
        return (class_of(number, &code), answered(status, &code, &message));
    }
    if let Some((_, body)) = text.split_once("Server returned error response: ") {
        let (code, message) = (element(body, "Code"), element(body, "Message"));
        return (Class::Transient, answered("with an error", &code, &message));
    }
    // What S3 answers to requests for a bucket in another region.
    if text.contains("redirect without LOCATION") {
        let reason = "the server redirects the request; check the region of the bucket";
        return (Class::Refused, reason.to_owned());
    }
    // What neither the network nor a status explains, such as an answer that cannot be parsed.
    (Class::Transient, text)
}

/// The class of a status and a code of S3.
fn class_of(status: u16, code: &str) -> Class {
    match status {
        // Some servers send these with a status of a refusal.
        _ if matches!(code, "SlowDown" | "RequestTimeout" | "InternalError") => Class::Transient,
        404 => Class::Missing,
        409 | 412 => Class::Conflict,
        501 => Class::Unsupported,
        408 | 429 | 500..=599 => Class::Transient,
        _ => Class::Refused,
    }
}

/// A sentence about an answer: status, code and message.
fn answered(status: &str, code: &str, message: &str) -> String {
    let mut text = format!("the server answered {status}");
    for part in [code, message].into_iter().filter(|part| !part.is_empty()) {
        text += ": ";
        text.extend(part.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX));
    }
    text
}

/// Maximum number of characters of a server's message that are repeated.
const MESSAGE_MAX: usize = 300;

/// The text of an element of an XML document; empty without it.
fn element(body: &str, name: &str) -> String {
    let after = body.split_once(&format!("<{name}>")).map(|(_, after)| after);
    let text = after.and_then(|after| after.split_once(&format!("</{name}>")));
    let text = text.map(|(text, _)| text.to_owned()).unwrap_or_default();
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
}

/// The text with `***` in place of user and password of every URL in it.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut words = text.split(' ').map(|word| {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://***@{host}"),
            None => word.to_owned(),
        }
    });
    let first = words.next().unwrap_or_default();
    words.fold(first, |text, word| text + " " + &word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_reduced_to_code_and_message() {
        let body = "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code>\
                    <Message>The &quot;signature&quot; \u{1b}differs</Message><CanonicalRequest>\
                    x-amz-security-token:hunter2</CanonicalRequest></Error>";
        let (code, message) = (element(body, "Code"), element(body, "Message"));
        let failure = Failure::answered(http::StatusCode::FORBIDDEN, &code, &message);
        assert_eq!(
            failure.to_string(),
            "the server answered 403 Forbidden: SignatureDoesNotMatch: The \"signature\" differs"
        );
        assert_eq!(failure.class(), Class::Refused);
        assert_eq!(answered("503 Slow Down", "", ""), "the server answered 503 Slow Down");
        assert_eq!(element("<Code>", "Code") + &element("</Code><Code>", "Code"), "");
    }

    #[test]
    fn the_status_decides_whether_to_try_again() {
        for (status, class) in [
            (400, Class::Refused),
            (403, Class::Refused),
            (301, Class::Refused),
            (404, Class::Missing),
            (409, Class::Conflict),
            (412, Class::Conflict),
            (429, Class::Transient),
            (500, Class::Transient),
            (503, Class::Transient),
            (501, Class::Unsupported),
        ] {
            assert_eq!(class_of(status, ""), class, "{status}");
        }
        assert_eq!(class_of(400, "RequestTimeout"), Class::Transient);
        let retryable = |class| Failure::new(class, "x").is_retryable();
        assert!(retryable(Class::Transient) && retryable(Class::Unreachable));
        assert!(!retryable(Class::Refused) && !retryable(Class::Conflict));
    }

    #[test]
    fn passwords_of_urls_are_left_out() {
        for (text, expected) in [
            ("get http://u:p@s3.test/x now", "get http://***@s3.test/x now"),
            ("http://u:p@ss@s3.test", "http://***@s3.test"),
            ("https://s3.test/a", "https://s3.test/a"),
            ("mail a@b", "mail a@b"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
        let failure = Failure::new(Class::Refused, "https://u:p@s3.test is no server");
        assert!(!format!("{failure} {failure:?}").contains("u:p"));
    }
}
