//! Buckets: namespaces of files.

use forebay_intake::attributes::Attributes;
use forebay_intake::catalogue::FileFilter;
use forebay_intake::names::Namespace;
use forebay_intake::{FileNamespace, IntakeError};
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketOutput,
    GetBucketLocationOutput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput, Owner,
};
use s3s::{S3Error, S3Result, s3_error};

use crate::REGION;
use crate::access::Caller;
use crate::error::of_intake;
use crate::object::timestamp;
use crate::service::Service;

/// Maximum number of buckets on a page.
const BUCKETS_MAX: usize = 10_000;
/// Maximum number of buckets without a record that are known to exist.
const KNOWN_MAX: usize = 10_000;

/// The owner of everything: the port knows keys, not accounts.
pub(crate) const OWNER: &str = "forebay";

pub(crate) fn owner() -> Owner {
    Owner { display_name: Some(OWNER.to_owned()), id: Some(OWNER.to_owned()) }
}

fn missing() -> S3Error {
    s3_error!(NoSuchBucket, "The specified bucket does not exist.")
}

impl Service {
    /// Returns the namespace of a bucket that exists.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn bucket(&self, name: &str) -> S3Result<Namespace> {
        let namespace = Namespace::parse(name).map_err(|_| missing())?;
        if self.intake.namespace_record(&namespace).await.map_err(of_intake)?.is_some()
            || self.known.lock().contains(&namespace)
        {
            return Ok(namespace);
        }
        if !self.has_files(&namespace).await? {
            return Err(missing());
        }
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(namespace.clone());
        Ok(namespace)
    }

    async fn has_files(&self, namespace: &Namespace) -> S3Result<bool> {
        let filter = FileFilter { namespace: Some(namespace.clone()), ..FileFilter::default() };
        Ok(!self.intake.list(filter, None, 1).await.map_err(of_intake)?.is_empty())
    }

    pub(crate) async fn create_bucket(
        &self,
        input: CreateBucketInput,
    ) -> S3Result<CreateBucketOutput> {
        if !s3s::path::check_bucket_name(&input.bucket) {
            return Err(s3_error!(InvalidBucketName, "The specified bucket is not valid."));
        }
        let acl = input.acl.as_ref().map(s3s::dto::BucketCannedACL::as_str);
        crate::empty::only_private(acl)?;
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "Object lock is not supported"));
        }
        let asked = input.create_bucket_configuration.and_then(|asked| asked.location_constraint);
        if let (Some(region), Some(asked)) = (&self.region, &asked)
            && asked.as_str() != region
        {
            return Err(s3_error!(
                IllegalLocationConstraintException,
                "The location constraint is incompatible with the region of this endpoint, {region}"
            ));
        }
        let namespace = Namespace::parse(&input.bucket)
            .map_err(|error| s3_error!(InvalidBucketName, "{error}"))?;
        let exists = || {
            s3_error!(
                BucketAlreadyOwnedByYou,
                "Your previous request to create the named bucket succeeded and you already own it."
            )
        };
        if self.bucket(&input.bucket).await.is_ok() {
            return Err(exists());
        }
        let created = self.intake.set_namespace(&namespace, Attributes::default()).await;
        match created {
            Ok(true) => Ok(CreateBucketOutput { location: Some(format!("/{namespace}")) }),
            Ok(false) => Err(exists()),
            Err(error) => Err(of_intake(error)),
        }
    }

    /// A time for a namespace that was never created but has files: when the first of its names was given.
    /// Clients need a date for every bucket.
    async fn first_use_ms(&self, namespace: Namespace) -> S3Result<i64> {
        let filter = FileFilter { namespace: Some(namespace), ..FileFilter::default() };
        let first = self.intake.list(filter, None, 1).await.map_err(of_intake)?;
        Ok(first.first().map_or(0, |file| file.created_ms))
    }

    /// * `is_limited`: whether the key reaches some buckets only: it may not lift the quota of one.
    pub(crate) async fn delete_bucket(
        &self,
        name: &str,
        is_limited: bool,
    ) -> S3Result<DeleteBucketOutput> {
        // A namespace that only had files vanishes with the last of them.
        self.known.lock().retain(|known| known.as_str() != name);
        let namespace = self.bucket(name).await?;
        if is_limited && self.intake.has_quota(&namespace) {
            return Err(s3_error!(AccessDenied, "The key may not remove the quota of the bucket"));
        }
        let removed = self.intake.remove_namespace(&namespace).await;
        self.known.lock().remove(&namespace);
        match removed {
            Ok(_) => Ok(DeleteBucketOutput {}),
            Err(IntakeError::Rejected { code: "namespace_not_empty", .. }) => {
                Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty"))
            }
            Err(error) => Err(of_intake(error)),
        }
    }

    pub(crate) async fn head_bucket(&self, name: &str) -> S3Result<HeadBucketOutput> {
        self.bucket(name).await?;
        let bucket_region = Some(self.region().to_owned());
        Ok(HeadBucketOutput { bucket_region, ..HeadBucketOutput::default() })
    }

    pub(crate) async fn bucket_location(&self, name: &str) -> S3Result<GetBucketLocationOutput> {
        self.bucket(name).await?;
        let region = self.region().to_owned();
        // The one region that S3 writes as nothing.
        let constraint = (region != "us-east-1").then(|| BucketLocationConstraint::from(region));
        Ok(GetBucketLocationOutput { location_constraint: constraint })
    }

    pub(crate) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or(REGION)
    }

    pub(crate) async fn list_buckets(
        &self,
        input: ListBucketsInput,
        caller: Option<&Caller>,
    ) -> S3Result<ListBucketsOutput> {
        let max = match input.max_buckets {
            None => BUCKETS_MAX,
            Some(max) => usize::try_from(max)
                .ok()
                .filter(|max| (1..=BUCKETS_MAX).contains(max))
                .ok_or_else(|| s3_error!(InvalidArgument, "max-buckets must be from 1 to 10000"))?,
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let (mut buckets, mut after, mut next) = (Vec::new(), input.continuation_token, None);
        'pages: loop {
            let page =
                self.intake.file_namespaces(after.clone(), 1_000).await.map_err(of_intake)?;
            let is_last = page.len() < 1_000;
            for FileNamespace { namespace, record } in page {
                let name = namespace.as_str();
                after = Some(name.to_owned());
                if !name.starts_with(&prefix) || caller.is_some_and(|caller| !caller.reaches(name))
                {
                    continue;
                }
                if buckets.len() == max {
                    next = buckets.last().and_then(|bucket: &Bucket| bucket.name.clone());
                    break 'pages;
                }
                let created_ms = match record {
                    Some(record) => record.created_ms,
                    None => self.first_use_ms(namespace.clone()).await?,
                };
                buckets.push(Bucket {
                    bucket_region: Some(self.region().to_owned()),
                    creation_date: Some(timestamp(created_ms)),
                    name: Some(name.to_owned()),
                });
            }
            if is_last {
                break;
            }
        }
        Ok(ListBucketsOutput {
            buckets: Some(buckets),
            continuation_token: next,
            owner: Some(owner()),
            prefix: input.prefix,
        })
    }
}
