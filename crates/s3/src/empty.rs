//! Answers about what this server does not have: access control lists, policies, and the like.
//!
//! Clients ask for these before they do their work, and take a clean "there is none" for an answer.

use s3s::dto::{
    AccessControlPolicy, GetBucketAclOutput, GetObjectAclOutput, Grant, Grantee, Permission, Type,
};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::buckets::owner;
use crate::service::Service;

/// Checks that an access control list keeps everything private, which everything is.
///
/// # Errors
/// `AccessControlListNotSupported`.
pub(crate) fn only_private(acl: Option<&str>) -> S3Result<()> {
    match acl {
        None | Some("private" | "bucket-owner-full-control") => Ok(()),
        Some(_) => Err(s3_error!(
            AccessControlListNotSupported,
            "The bucket does not allow ACLs; everything is private to the API keys of the server"
        )),
    }
}

/// Checks a list that is given in full: the owner may have everything, and no one else anything.
///
/// # Errors
/// `AccessControlListNotSupported`.
pub(crate) fn only_owner(policy: Option<&AccessControlPolicy>) -> S3Result<()> {
    let grants = policy.and_then(|policy| policy.grants.as_deref()).unwrap_or_default();
    let is_owner =
        |grant: &Grant| grant.grantee.as_ref().is_some_and(|grantee| grantee.id == owner().id);
    only_private(if grants.iter().all(is_owner) { None } else { Some("other") })
}

fn grants() -> Vec<Grant> {
    let owner = owner();
    let grantee = Grantee {
        display_name: owner.display_name,
        email_address: None,
        id: owner.id,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Some(Permission::from_static(Permission::FULL_CONTROL));
    vec![Grant { grantee: Some(grantee), permission }]
}

impl Service {
    pub(crate) async fn bucket_acl(&self, bucket: &str) -> S3Result<GetBucketAclOutput> {
        self.bucket(bucket).await?;
        Ok(GetBucketAclOutput { grants: Some(grants()), owner: Some(owner()) })
    }

    pub(crate) async fn object_acl(&self, bucket: &str, key: &str) -> S3Result<GetObjectAclOutput> {
        self.object(bucket, key, None).await?;
        Ok(GetObjectAclOutput {
            grants: Some(grants()),
            owner: Some(owner()),
            request_charged: None,
        })
    }

    /// Returns the error of a configuration that an existing bucket does not have.
    pub(crate) async fn no_configuration(&self, bucket: &str, code: S3ErrorCode) -> S3Error {
        match self.bucket(bucket).await {
            Ok(_) => {
                let mut error = S3Error::with_message(code, "The bucket has no such configuration");
                error.set_status_code(http::StatusCode::NOT_FOUND);
                error
            }
            Err(error) => error,
        }
    }
}
