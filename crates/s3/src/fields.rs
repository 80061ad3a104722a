//! Fields that the inputs and outputs of several operations have, each of them a type of its own.

/// Refuses what would silently do nothing in a request that stores an object.
macro_rules! refuse_others {
    ($input:ident) => {
        $crate::write::refuse_others(&$crate::write::Others {
            acl: $input.acl.as_ref().map(s3s::dto::ObjectCannedACL::as_str),
            encryption: $input
                .server_side_encryption
                .as_ref()
                .map(s3s::dto::ServerSideEncryption::as_str),
            customer_key: $input.sse_customer_algorithm.as_deref(),
            storage: $input.storage_class.as_ref().map(s3s::dto::StorageClass::as_str),
            redirect: $input.website_redirect_location.as_deref(),
            is_locked: $input.object_lock_mode.is_some()
                || $input.object_lock_legal_hold_status.is_some()
                || $input.object_lock_retain_until_date.is_some(),
        })
    };
}

/// Takes the headers that are kept with an object.
///
/// * `$expires`: an `Expires` that is no date.
macro_rules! headers_of {
    ($input:ident, $expires:expr) => {
        $crate::object::Headers {
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            content_type: $input.content_type.take(),
            expires: $expires.or_else(|| $crate::write::http_date($input.expires.as_ref())),
        }
        .without_chunks()
    };
}

/// Takes the conditions on the source of a copy.
macro_rules! source_conditions {
    ($input:ident) => {
        $crate::condition::Conditions {
            matches: $input.copy_source_if_match.take(),
            none_match: $input.copy_source_if_none_match.take(),
            modified_since: $input.copy_source_if_modified_since.take(),
            unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}

/// Sets the checksum of an answer, whichever it is.
macro_rules! set_checksum {
    ($output:ident, $checksum:expr) => {
        let checksum: &$crate::object::StoredChecksum = $checksum;
        let of = |algorithm| $crate::read::of_kind(checksum, algorithm);
        $output.checksum_crc32 = of($crate::algorithm::Algorithm::Crc32);
        $output.checksum_crc32c = of($crate::algorithm::Algorithm::Crc32c);
        $output.checksum_crc64nvme = of($crate::algorithm::Algorithm::Crc64Nvme);
        $output.checksum_sha1 = of($crate::algorithm::Algorithm::Sha1);
        $output.checksum_sha256 = of($crate::algorithm::Algorithm::Sha256);
        $output.checksum_type = Some($crate::read::kind(checksum));
    };
}

pub(crate) use {headers_of, refuse_others, set_checksum, source_conditions};
