//! Listing the versions of objects, and the markers of those that were deleted.
//!
//! Invariants: as for [`list`](crate::list); a page continues behind the version that the one before ended
//! with.

use forebay_intake::catalogue::{Browse, BrowsedStates, NameState, Versioning};
use s3s::dto::{
    DeleteMarkerEntry, ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion,
    ObjectVersionStorageClass,
};
use s3s::{S3Result, s3_error};

use crate::buckets::owner;
use crate::error::of_intake;
use crate::list::{Encoding, common, number, page_size};
use crate::object::Object;
use crate::service::Service;
use crate::versions::{Ids, NULL, Wanted};

impl Service {
    pub(crate) async fn list_versions(
        &self,
        input: ListObjectVersionsInput,
    ) -> S3Result<ListObjectVersionsOutput> {
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys, "max-keys")?;
        let delimiter = input.delimiter.clone().filter(|text| !text.is_empty());
        let after = input.key_marker.clone().filter(|marker| !marker.is_empty());
        let id_marker = input.version_id_marker.clone().filter(|marker| !marker.is_empty());
        if id_marker.is_some() && after.is_none() {
            return Err(s3_error!(
                InvalidArgument,
                "A version-id marker cannot be specified without a key marker."
            ));
        }
        let namespace = self.bucket(&input.bucket).await?;
        let ids = self.ids_of(&namespace).await?;
        let before = match Wanted::parse(id_marker.as_deref()) {
            Ok(Wanted::Current) => None,
            Ok(Wanted::Numbered(id)) => Some(id),
            Ok(Wanted::Null) => self.null_marker(&input.bucket, after.as_deref(), &ids).await?,
            Err(_) => {
                return Err(s3_error!(InvalidArgument, "Invalid version id specified"));
            }
        };
        let page = match max {
            0 => BrowsedStates::default(),
            max => {
                let browse = Browse {
                    namespace,
                    prefix: input.prefix.clone().unwrap_or_default(),
                    delimiter: delimiter.clone().unwrap_or_default(),
                    after,
                };
                self.intake.browse_states(browse, before, max).await.map_err(of_intake)?
            }
        };
        let BrowsedStates { states, prefixes, next } = page;
        let (markers, versions): (Vec<_>, Vec<_>) =
            states.iter().partition(|state| state.version.is_deletion);
        let versions = versions.into_iter().map(|state| version(state, &ids, encoding));
        let markers = markers.into_iter().map(|state| marker(state, &ids, encoding));
        let (next_key, next_id) = match next {
            // A number also for the version without one: it says where the page ended.
            Some(next) => (Some(next.name), next.id.map(|id| id.to_string())),
            None => (None, None),
        };
        Ok(ListObjectVersionsOutput {
            common_prefixes: Some(common(prefixes, encoding)),
            delete_markers: Some(markers.collect()),
            delimiter: delimiter.map(|text| encoding.write(text)),
            encoding_type: input.encoding_type,
            is_truncated: Some(next_key.is_some()),
            key_marker: Some(encoding.write(input.key_marker.unwrap_or_default())),
            max_keys: number(max),
            name: Some(input.bucket),
            next_key_marker: next_key.map(|next| encoding.write(next)),
            next_version_id_marker: next_id,
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            versions: Some(versions.collect()),
            ..ListObjectVersionsOutput::default()
        })
    }

    /// The number of the version `null` of a key, behind which a page begins.
    async fn null_marker(
        &self,
        bucket: &str,
        after: Option<&str>,
        ids: &Ids,
    ) -> S3Result<Option<u64>> {
        if let (Versioning::On | Versioning::Suspended { .. }, Some(after)) =
            (ids.versioning, after)
            && let Ok(key) = self.key(bucket, after)
            && let Some(id) = self.null_version(&key, ids).await?
        {
            return Ok(Some(id));
        }
        // It was erased meanwhile: then it was the newest.
        Ok(match ids.versioning {
            Versioning::Suspended { at } => Some(at),
            Versioning::On | Versioning::Off => None,
        })
    }
}

/// The id of a listed version. Markers have a number, whatever the bucket does now.
fn listed_id(state: &NameState, ids: &Ids) -> String {
    let id = state.version.file.id;
    match state.version.is_deletion {
        true => id.to_string(),
        false if state.is_latest => ids.id(id).unwrap_or_else(|| NULL.to_owned()),
        false if ids.was_null(id) => NULL.to_owned(),
        false => id.to_string(),
    }
}

fn version(state: &NameState, ids: &Ids, encoding: Encoding) -> ObjectVersion {
    let object = Object(&state.version.file);
    ObjectVersion {
        e_tag: Some(object.tag()),
        is_latest: Some(state.is_latest),
        key: Some(encoding.write(object.0.name.as_str())),
        last_modified: Some(object.modified()),
        owner: Some(owner()),
        size: Some(object.size()),
        storage_class: Some(ObjectVersionStorageClass::from_static(
            ObjectVersionStorageClass::STANDARD,
        )),
        version_id: Some(listed_id(state, ids)),
        ..ObjectVersion::default()
    }
}

fn marker(state: &NameState, ids: &Ids, encoding: Encoding) -> DeleteMarkerEntry {
    let object = Object(&state.version.file);
    DeleteMarkerEntry {
        is_latest: Some(state.is_latest),
        key: Some(encoding.write(object.0.name.as_str())),
        last_modified: Some(object.modified()),
        owner: Some(owner()),
        version_id: Some(listed_id(state, ids)),
    }
}
