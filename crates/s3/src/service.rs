//! The operations: each is one function elsewhere. What is not here is answered 501 by `s3s`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_api::intake::Sending;
use forebay_intake::Intake;
use forebay_intake::names::Namespace;
use forebay_intake::uploads::UploadId;
use http::{Extensions, StatusCode};
use parking_lot::Mutex;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
    CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteBucketInput,
    DeleteBucketOutput, DeleteBucketTaggingInput, DeleteBucketTaggingOutput, DeleteObjectInput,
    DeleteObjectOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput, DeleteObjectsInput,
    DeleteObjectsOutput, GetBucketAccelerateConfigurationInput,
    GetBucketAccelerateConfigurationOutput, GetBucketAclInput, GetBucketAclOutput,
    GetBucketCorsInput, GetBucketCorsOutput, GetBucketEncryptionInput, GetBucketEncryptionOutput,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketLoggingInput, GetBucketLoggingOutput,
    GetBucketNotificationConfigurationInput, GetBucketNotificationConfigurationOutput,
    GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput, GetBucketPolicyInput,
    GetBucketPolicyOutput, GetBucketReplicationInput, GetBucketReplicationOutput,
    GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput, GetBucketTaggingInput,
    GetBucketTaggingOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAclInput, GetObjectAclOutput,
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectOutput,
    GetObjectTaggingInput, GetObjectTaggingOutput, GetPublicAccessBlockInput,
    GetPublicAccessBlockOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput,
    HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListObjectVersionsInput, ListObjectVersionsOutput,
    ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput,
    ListPartsOutput, Payer, PutBucketAclInput, PutBucketAclOutput, PutBucketTaggingInput,
    PutBucketTaggingOutput, PutBucketVersioningInput, PutBucketVersioningOutput, PutObjectAclInput,
    PutObjectAclOutput, PutObjectInput, PutObjectOutput, PutObjectTaggingInput,
    PutObjectTaggingOutput, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders, s3_error};

use crate::access::Caller;
use crate::algorithm::Algorithm;
use crate::amended::RawExpires;
use crate::chunks::Fault;
use crate::empty::{only_owner, only_private};
use crate::error::{BareTag, WithStatus};
use crate::read::OtherHeader;
use crate::write::{Beside, WriteConditions};

/// What the operations work on. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) intake: Intake,
    pub(crate) region: Option<String>,
    pub(crate) sending: Sending,
    /// Namespaces without a record that had files when they were last looked at.
    pub(crate) known: Arc<Mutex<HashSet<Namespace>>>,
    /// Uploads that are being completed: a repetition waits for the first request.
    pub(crate) completing: Arc<Mutex<HashMap<UploadId, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Service {
    pub(crate) fn new(intake: Intake, region: Option<String>) -> Self {
        let (known, completing) = (Arc::default(), Arc::default());
        Self { intake, region, sending: Sending::default(), known, completing }
    }
}

/// How long the completion of an upload may take before its response begins.
const COMPLETE_QUIETLY: Duration = Duration::from_secs(10);

type Answer<T> = S3Result<S3Response<T>>;

fn answer<T>(output: S3Result<T>) -> Answer<T> {
    output.map(S3Response::new)
}

fn caller<T>(request: &S3Request<T>) -> Option<Caller> {
    request.extensions.get::<Caller>().cloned()
}

/// The `Expires` of a request if it is no date.
fn expires(extensions: &Extensions) -> Option<String> {
    extensions.get::<RawExpires>().map(|RawExpires(text)| text.clone())
}

/// Adds the headers for which an output has no field.
fn with_headers<T>(
    mut response: S3Response<T>,
    headers: impl IntoIterator<Item = OtherHeader>,
) -> S3Response<T> {
    response.headers.extend(headers);
    response
}

/// Splits a request into its input and the rest that a write needs.
macro_rules! with_body {
    ($service:ident.$function:ident($request:ident)) => {{
        let S3Request { input, headers, trailing_headers, extensions, .. } = $request;
        let fault = extensions.get::<Fault>().cloned().unwrap_or_default();
        // Those of a request that was changed.
        let trailers = trailing_headers.as_ref().or_else(|| extensions.get::<TrailingHeaders>());
        let beside = Beside {
            headers: &headers,
            trailers,
            fault,
            expires: expires(&extensions),
            sender: Caller::sender(extensions.get()),
        };
        answer($service.$function(input, beside).await)
    }};
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> Answer<ListBucketsOutput> {
        let caller = caller(&request);
        answer(self.list_buckets(request.input, caller.as_ref()).await)
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        answer(self.create_bucket(request.input).await)
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> Answer<DeleteBucketOutput> {
        let is_limited = caller(&request).is_some_and(|caller| caller.is_limited());
        answer(self.delete_bucket(&request.input.bucket, is_limited).await)
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        answer(self.head_bucket(&request.input.bucket).await)
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        answer(self.bucket_location(&request.input.bucket).await)
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> Answer<ListObjectsOutput> {
        answer(self.list_v1(request.input).await)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        answer(self.list_v2(request.input).await)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> Answer<ListObjectVersionsOutput> {
        answer(self.list_versions(request.input).await)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let (output, others) = self.get_object(request.input).await?;
        Ok(with_headers(S3Response::new(output), others))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let (output, tags, others) = self.head_object(request.input).await?;
        let is_part = output.content_range.is_some();
        let mut response = with_headers(S3Response::new(output), others);
        if tags > 0 {
            response.headers.insert("x-amz-tagging-count", tags.into());
        }
        if is_part {
            response.extensions.insert(WithStatus(StatusCode::PARTIAL_CONTENT));
        }
        Ok(response)
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        let mut response = answer(self.attributes(request.input).await)?;
        response.extensions.insert(BareTag);
        Ok(response)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let (output, checksum) = with_body!(self.put_object(request))?.output;
        Ok(with_headers(S3Response::new(output), checksum))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let caller = caller(&request);
        // The input has no fields for them.
        let conditions = WriteConditions::of_headers(&request.headers)?;
        let expires = expires(&request.extensions);
        answer(self.copy_object(request.input, conditions, expires, caller.as_ref()).await)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        answer(self.delete_object(request.input).await)
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        answer(self.delete_objects(request.input).await)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let expires = expires(&request.extensions);
        answer(self.create_upload(request.input, expires).await)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        with_body!(self.upload_part(request))
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> Answer<UploadPartCopyOutput> {
        let caller = caller(&request);
        answer(self.copy_part(request.input, caller.as_ref()).await)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        // The input has no fields for them, so they would not be compared.
        for algorithm in Algorithm::ALL {
            if request.headers.contains_key(algorithm.header()) {
                algorithm.check_of_parts()?;
            }
        }
        let (caller, input, service) = (caller(&request), request.input, self.clone());
        // It ends even if its client leaves, which then asks again.
        let completing =
            tokio::spawn(async move { service.complete_upload(input, caller.as_ref()).await });
        let mut work = Box::pin(async move {
            let ended = completing.await;
            ended.unwrap_or_else(|error| Err(s3_error!(error, InternalError, "The server failed")))
        });
        match tokio::time::timeout(COMPLETE_QUIETLY, &mut work).await {
            Ok(completed) => answer(completed),
            // The status is sent now, and blanks until there is a result, so that the client waits.
            Err(_) => Ok(S3Response::new(CompleteMultipartUploadOutput {
                future: Some(work),
                ..CompleteMultipartUploadOutput::default()
            })),
        }
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        answer(self.abort_upload(request.input).await)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        answer(self.list_parts(request.input).await)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        answer(self.list_uploads(request.input).await)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> Answer<GetObjectTaggingOutput> {
        let input = request.input;
        answer(self.tagging(&input.bucket, &input.key, input.version_id.as_deref()).await)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> Answer<PutObjectTaggingOutput> {
        let input = request.input;
        let (version, tags) = (input.version_id.as_deref(), input.tagging.tag_set);
        let set = self.set_tags(&input.bucket, &input.key, version, tags).await;
        answer(set.map(|version_id| PutObjectTaggingOutput { version_id }))
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> Answer<DeleteObjectTaggingOutput> {
        let input = request.input;
        let version = input.version_id.as_deref();
        let set = self.set_tags(&input.bucket, &input.key, version, Vec::new()).await;
        answer(set.map(|version_id| DeleteObjectTaggingOutput { version_id }))
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> Answer<GetBucketAclOutput> {
        answer(self.bucket_acl(&request.input.bucket).await)
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> Answer<GetObjectAclOutput> {
        answer(self.object_acl(&request.input.bucket, &request.input.key).await)
    }

    async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> Answer<PutBucketAclOutput> {
        let input = request.input;
        self.bucket(&input.bucket).await?;
        only_private(input.acl.as_ref().map(s3s::dto::BucketCannedACL::as_str))?;
        only_owner(input.access_control_policy.as_ref())?;
        answer(Ok(PutBucketAclOutput::default()))
    }

    async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> Answer<PutObjectAclOutput> {
        let input = request.input;
        self.object(&input.bucket, &input.key, input.version_id.as_deref()).await?;
        only_private(input.acl.as_ref().map(s3s::dto::ObjectCannedACL::as_str))?;
        only_owner(input.access_control_policy.as_ref())?;
        answer(Ok(PutObjectAclOutput::default()))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        answer(self.versioning(&request.input.bucket).await)
    }

    async fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> Answer<PutBucketVersioningOutput> {
        answer(self.put_versioning(request.input).await)
    }

    async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> Answer<GetBucketPolicyOutput> {
        Err(self.no_configuration(&request.input.bucket, S3ErrorCode::NoSuchBucketPolicy).await)
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> Answer<GetBucketLifecycleConfigurationOutput> {
        let code = S3ErrorCode::NoSuchLifecycleConfiguration;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> Answer<GetBucketCorsOutput> {
        Err(self
            .no_configuration(&request.input.bucket, S3ErrorCode::NoSuchCORSConfiguration)
            .await)
    }

    async fn get_bucket_encryption(
        &self,
        request: S3Request<GetBucketEncryptionInput>,
    ) -> Answer<GetBucketEncryptionOutput> {
        let code = S3ErrorCode::ServerSideEncryptionConfigurationNotFoundError;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> Answer<GetBucketTaggingOutput> {
        answer(self.bucket_tagging(&request.input.bucket).await)
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> Answer<PutBucketTaggingOutput> {
        let input = request.input;
        let set = self.put_bucket_tagging(&input.bucket, input.tagging.tag_set).await;
        // As S3 answers, and not as it is documented.
        answer(set).map(|mut response| {
            response.extensions.insert(WithStatus(StatusCode::NO_CONTENT));
            response
        })
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> Answer<DeleteBucketTaggingOutput> {
        answer(self.delete_bucket_tagging(&request.input.bucket).await)
    }

    async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> Answer<GetObjectLockConfigurationOutput> {
        let code = S3ErrorCode::ObjectLockConfigurationNotFoundError;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_bucket_logging(
        &self,
        request: S3Request<GetBucketLoggingInput>,
    ) -> Answer<GetBucketLoggingOutput> {
        self.bucket(&request.input.bucket).await?;
        answer(Ok(GetBucketLoggingOutput::default()))
    }

    async fn get_bucket_notification_configuration(
        &self,
        request: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> Answer<GetBucketNotificationConfigurationOutput> {
        self.bucket(&request.input.bucket).await?;
        answer(Ok(GetBucketNotificationConfigurationOutput::default()))
    }

    async fn get_bucket_accelerate_configuration(
        &self,
        request: S3Request<GetBucketAccelerateConfigurationInput>,
    ) -> Answer<GetBucketAccelerateConfigurationOutput> {
        self.bucket(&request.input.bucket).await?;
        answer(Ok(GetBucketAccelerateConfigurationOutput::default()))
    }

    async fn get_bucket_request_payment(
        &self,
        request: S3Request<GetBucketRequestPaymentInput>,
    ) -> Answer<GetBucketRequestPaymentOutput> {
        self.bucket(&request.input.bucket).await?;
        let payer = Some(Payer::from_static(Payer::BUCKET_OWNER));
        answer(Ok(GetBucketRequestPaymentOutput { payer }))
    }

    async fn get_bucket_website(
        &self,
        request: S3Request<GetBucketWebsiteInput>,
    ) -> Answer<GetBucketWebsiteOutput> {
        let code = S3ErrorCode::NoSuchWebsiteConfiguration;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_bucket_replication(
        &self,
        request: S3Request<GetBucketReplicationInput>,
    ) -> Answer<GetBucketReplicationOutput> {
        let code = S3ErrorCode::ReplicationConfigurationNotFoundError;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> Answer<GetPublicAccessBlockOutput> {
        let code = S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into());
        Err(self.no_configuration(&request.input.bucket, code).await)
    }

    async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> Answer<GetBucketOwnershipControlsOutput> {
        let code = S3ErrorCode::OwnershipControlsNotFoundError;
        Err(self.no_configuration(&request.input.bucket, code).await)
    }
}
