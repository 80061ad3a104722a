//! Tags of buckets: those of their namespaces.
//!
//! Invariants: a bucket without tags has no tag set, as S3 has it; what else is stored with the namespace
//! stays as it is.

use forebay_intake::IntakeError;
use forebay_intake::attributes::AttributeKind::Tag as TagKind;
use forebay_intake::attributes::Attributes;
use forebay_intake::names::Namespace;
use s3s::dto::{DeleteBucketTaggingOutput, GetBucketTaggingOutput, PutBucketTaggingOutput, Tag};
use s3s::{S3Result, s3_error};

use crate::error::of_intake;
use crate::object::{bucket_tags_of_set, tags_in};
use crate::service::Service;

impl Service {
    pub(crate) async fn bucket_tagging(&self, bucket: &str) -> S3Result<GetBucketTaggingOutput> {
        let namespace = self.bucket(bucket).await?;
        let record = self.intake.namespace_record(&namespace).await.map_err(of_intake)?;
        let tag_set = record.map(|record| tags_in(&record.attributes)).unwrap_or_default();
        if tag_set.is_empty() {
            return Err(s3_error!(NoSuchTagSet, "The TagSet does not exist"));
        }
        Ok(GetBucketTaggingOutput { tag_set })
    }

    pub(crate) async fn put_bucket_tagging(
        &self,
        bucket: &str,
        tags: Vec<Tag>,
    ) -> S3Result<PutBucketTaggingOutput> {
        let tags = bucket_tags_of_set(tags)?;
        let namespace = self.bucket(bucket).await?;
        self.replace_bucket_tags(&namespace, &tags).await?;
        Ok(PutBucketTaggingOutput {})
    }

    pub(crate) async fn delete_bucket_tagging(
        &self,
        bucket: &str,
    ) -> S3Result<DeleteBucketTaggingOutput> {
        let namespace = self.bucket(bucket).await?;
        // One that only has files gets no record by that.
        if self.intake.namespace_record(&namespace).await.map_err(of_intake)?.is_some() {
            self.replace_bucket_tags(&namespace, &[]).await?;
        }
        Ok(DeleteBucketTaggingOutput {})
    }

    async fn replace_bucket_tags(
        &self,
        namespace: &Namespace,
        tags: &[(String, String)],
    ) -> S3Result<()> {
        let change = |mut attributes: Attributes, _| {
            attributes.retain(|kind, _| kind != TagKind);
            for (name, value) in tags {
                attributes.set(TagKind, name, value)?;
            }
            Ok(attributes)
        };
        match self.intake.change_namespace(namespace, change).await {
            Ok(_) => Ok(()),
            Err(IntakeError::Attributes(error)) => Err(s3_error!(InvalidTag, "{error}")),
            Err(error) => Err(of_intake(error)),
        }
    }
}
