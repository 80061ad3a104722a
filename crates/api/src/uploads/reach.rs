//! Which uploads a key may use that is limited to some namespaces.
//!
//! The namespace of an upload is in a header or in its record, not in a path, so the limits of a key are compared here
//! and not where those of other requests are. An upload that a key does not reach does not exist for it: the answer is
//! that to an unknown id, and no request of another client is disturbed.
//!
//! Invariant: every handler of this module calls [`Reach::begin`], [`Reach::find`] or [`Reach::admit`] before it reads
//! or changes anything that a client named.

use forebay_intake::uploads::{UploadError, UploadId, UploadKind, UploadStatus, Uploads};
use http::Extensions;

use super::metadata::{Concat, Described, attribute};
use super::problem::Refused;
use crate::keys::{Area, Grant};
use crate::problem::Problem;

/// What the key of a request may reach.
#[derive(Debug)]
pub(super) struct Reach(Option<Grant>);

impl Reach {
    /// Returns what the key of a request may reach: everything, if none is required.
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get::<Grant>().filter(|grant| grant.is_limited()).cloned())
    }

    /// Checks that the key may begin an upload.
    ///
    /// A partial upload need not name a namespace: the file's is named when it is put together. It then belongs to
    /// the key.
    ///
    /// # Errors
    /// The key is limited to other namespaces.
    pub(super) fn begin(&self, described: &mut Described) -> Result<(), Refused> {
        let Some(grant) = &self.0 else { return Ok(()) };
        // A rule could choose a namespace that the key does not reach.
        described.attributes.remove(attribute::ROUTED);
        let namespace = described.attributes.get(attribute::NAMESPACE);
        if namespace.is_some_and(|namespace| grant.permits(Area::Files, namespace)) {
            return Ok(());
        }
        if described.concat == Concat::Partial && !described.names_namespace {
            let key = String::from_utf8_lossy(&grant.id).into_owned();
            described.attributes.insert(attribute::KEY.to_owned(), key);
            return Ok(());
        }
        Err(Refused::Http(Problem::KEY_LIMIT))
    }

    /// Checks that an upload exists as far as the key is concerned.
    ///
    /// # Errors
    /// [`UploadError::NotFound`].
    pub(super) fn find(&self, status: &UploadStatus) -> Result<(), UploadError> {
        let Some(grant) = &self.0 else { return Ok(()) };
        let attribute = |name: &str| status.new.attributes.get(name).map(String::as_str);
        let is_of_tus = matches!(
            status.new.kind,
            UploadKind::Resumable | UploadKind::Partial | UploadKind::Final
        );
        let is_reached = match (attribute(attribute::KEY), attribute(attribute::NAMESPACE)) {
            (Some(key), _) => key.as_bytes() == grant.id,
            (None, Some(namespace)) => grant.permits(Area::Files, namespace),
            (None, None) => false,
        };
        if is_of_tus && is_reached { Ok(()) } else { Err(UploadError::NotFound { id: status.id }) }
    }

    /// Checks that the key may use an upload, before a request that is in progress is asked to stop.
    ///
    /// # Errors
    /// As [`Reach::find`]; the upload does not exist or is damaged.
    pub(super) async fn admit(&self, uploads: &Uploads, id: UploadId) -> Result<(), UploadError> {
        match &self.0 {
            None => Ok(()),
            Some(_) => self.find(&uploads.status(id).await?),
        }
    }
}
