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
use crate::versions::{NULL, Wanted, version_id};

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
        let versioning = self.versioning_of(&namespace).await?;
        let before = match Wanted::parse(id_marker.as_deref()) {
            Ok(Wanted::Current) => None,
            Ok(Wanted::Numbered(id)) => Some(id),
            // The newest version of its key is the one without a number.
            Ok(Wanted::Null) => match versioning {
                Versioning::Suspended { at } => Some(at),
                Versioning::On | Versioning::Off => None,
            },
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
        let versions = versions.into_iter().map(|state| version(state, versioning, encoding));
        let markers = markers.into_iter().map(|state| marker(state, versioning, encoding));
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
}

/// The id of a listed version. Markers and what is kept have a number, whatever the bucket does now.
fn listed_id(state: &NameState, versioning: Versioning) -> String {
    let id = state.version.file.id;
    if state.is_latest && !state.version.is_deletion {
        return version_id(versioning, id).unwrap_or_else(|| NULL.to_owned());
    }
    id.to_string()
}

fn version(state: &NameState, versioning: Versioning, encoding: Encoding) -> ObjectVersion {
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
        version_id: Some(listed_id(state, versioning)),
        ..ObjectVersion::default()
    }
}

fn marker(state: &NameState, versioning: Versioning, encoding: Encoding) -> DeleteMarkerEntry {
    let object = Object(&state.version.file);
    DeleteMarkerEntry {
        is_latest: Some(state.is_latest),
        key: Some(encoding.write(object.0.name.as_str())),
        last_modified: Some(object.modified()),
        owner: Some(owner()),
        version_id: Some(listed_id(state, versioning)),
    }
}
