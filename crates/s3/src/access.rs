//! What an operation needs a key for: its scope, and the bucket.
//!
//! Scopes mean what they mean over HTTP: reading is `read`, everything else `write`, and `append` suffices
//! for a new object that replaces none. A key that is limited to some namespaces of files reaches those
//! buckets only, as the source of a copy too ([`Caller::may_read`]).

use forebay_api::keys::{Area, Grant, Scope};
use forebay_intake::rules::{Protocol, Sender};
use s3s::access::{S3Access, S3AccessContext};
use s3s::{S3Error, S3Result, s3_error};

use crate::amended::{Amend, Signer};
use crate::buckets::OWNER;
use crate::credentials::Credentials;

/// Who sent a request: in its extensions once access was granted.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Grant);

impl Caller {
    /// Returns where an object comes from that it sends.
    pub(crate) fn sender(caller: Option<&Self>) -> Sender {
        Sender { protocol: Protocol::S3, key: caller.map(|caller| caller.0.id) }
    }

    /// Returns whether the key may use a bucket at all.
    pub(crate) fn reaches(&self, bucket: &str) -> bool {
        self.0.permits(Area::Files, bucket)
    }

    /// Returns whether the key reaches some buckets only.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_limited()
    }

    /// Checks that the key may read from another bucket.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn may_read(&self, bucket: &str) -> S3Result<()> {
        if self.reaches(bucket) && self.0.allow(Scope::Read).is_ok() {
            return Ok(());
        }
        Err(denied("The key may not read from the bucket of the copy's source"))
    }
}

/// Checks every operation.
#[derive(Debug, Clone)]
pub(crate) struct Access(pub(crate) Credentials);

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let verified = cx.extensions_mut().get::<Signer>().map(|signer| signer.0.clone());
        let signer = cx.credentials().map(|credentials| credentials.access_key.clone());
        let Some(signer) = signer.or(verified) else {
            return Err(denied("Anonymous access is not permitted; sign the request"));
        };
        let stores_body = ["PutObject", "UploadPart"].contains(&cx.s3_op().name());
        if stores_body && cx.extensions_mut().get() == Some(&Amend::Xml) {
            return Err(s3_error!(InvalidRequest, "The bytes of an object are no XML"));
        }
        // It may have been revoked since its secret was looked up.
        let grant = self.0.grant(&signer).ok_or_else(|| denied("Access denied"))?;
        let new_only = cx.headers().get(http::header::IF_NONE_MATCH).is_some_and(|v| v == "*");
        if grant.allow(scope(cx.s3_op().name(), new_only)).is_err() {
            return Err(denied("The API key lacks the scope for this operation"));
        }
        let reaches = match cx.s3_path().get_bucket_name() {
            Some(bucket) => grant.permits(Area::Files, bucket),
            // A limited key lists the buckets it reaches.
            None => grant.reaches(Area::Files),
        };
        if !reaches {
            return Err(denied("The API key is limited to other namespaces"));
        }
        for name in ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"] {
            let expected = cx.headers().get(name);
            if expected.is_some_and(|expected| expected.as_bytes() != OWNER.as_bytes()) {
                return Err(denied("The bucket has another owner than the request expects"));
            }
        }
        cx.extensions_mut().insert(Caller(grant));
        Ok(())
    }
}

/// Returns the scope that an operation needs.
///
/// * `new_only`: the request succeeds only if the object does not exist.
fn scope(operation: &str, new_only: bool) -> Scope {
    let reads = ["Get", "Head", "List"].iter().any(|verb| operation.starts_with(verb));
    match operation {
        _ if reads => Scope::Read,
        "PutObject" if new_only => Scope::Append,
        _ => Scope::Write,
    }
}

fn denied(why: &'static str) -> S3Error {
    s3_error!(AccessDenied, "{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_operations_need_read_and_all_others_write() {
        for (operation, new_only, needed) in [
            ("GetObject", false, Scope::Read),
            ("HeadBucket", false, Scope::Read),
            ("ListObjectsV2", false, Scope::Read),
            ("GetObjectTagging", false, Scope::Read),
            ("PutObject", false, Scope::Write),
            ("PutObject", true, Scope::Append),
            ("CopyObject", true, Scope::Write),
            ("CompleteMultipartUpload", true, Scope::Write),
            ("DeleteObject", false, Scope::Write),
            ("DeleteObjects", false, Scope::Write),
            ("CreateBucket", false, Scope::Write),
            ("SelectObjectContent", false, Scope::Write),
        ] {
            assert_eq!(scope(operation, new_only), needed, "{operation}");
        }
    }
}
