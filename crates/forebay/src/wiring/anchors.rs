//! Places outside this machine that get the event store's checkpoints, and its witnesses.
//!
//! The store calls them on separate threads. Each call has a small runtime and a time limit, so
//! that none of them waits for the server's runtime or for a peer that does not answer.

mod bucket;
mod http;
mod syslog;

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay_events::store::{AnchorFiles, AnchorPlace, Directory, KeptFiles, Witness};

use crate::config::{Anchor, Anchors, Witnesses};
use bucket::Objects;
use http::Post;
use syslog::Syslog;

/// Maximum time of one call.
const LIMIT: Duration = Duration::from_secs(15);

type Failed = Box<dyn Error + Send + Sync>;

/// The configured places.
pub(crate) fn places(anchors: &Anchors) -> Vec<AnchorPlace> {
    let place = |anchor: &Anchor| match anchor {
        Anchor::Directory(path) => AnchorPlace::Directory(path.clone()),
        Anchor::Bucket(address) => {
            AnchorPlace::Target(Arc::new(KeptFiles(Objects::new(address.clone()))))
        }
        Anchor::Http(url) => AnchorPlace::Target(Arc::new(Post::new(url.clone()))),
        Anchor::Syslog(address) => AnchorPlace::Target(Arc::new(Syslog::new(address.clone()))),
    };
    anchors.0.iter().map(place).collect()
}

/// The configured witnesses.
pub(crate) fn witnesses(witnesses: &Witnesses) -> Vec<Witness> {
    let witness = |(url, key): &(url::Url, _)| Witness {
        transport: Arc::new(http::Witnessing::new(url)),
        key: Clone::clone(key),
    };
    witnesses.0.iter().map(witness).collect()
}

/// The files of a place that can be read back; `None` for one that only receives.
pub(crate) fn files(anchor: &Anchor) -> Option<Box<dyn AnchorFiles>> {
    match anchor {
        Anchor::Directory(path) => {
            let fs = Arc::new(forebay_base::fs::RealFs);
            Some(Box::new(Directory::new(fs, path.clone())))
        }
        Anchor::Bucket(address) => Some(Box::new(Objects::new(address.clone()))),
        Anchor::Http(_) | Anchor::Syslog(_) => None,
    }
}

/// Runs requests to their end, for at most `limit`.
fn run<T>(limit: Duration, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs()).into()))
    });
    // A look-up of a name that does not end is left behind.
    runtime.shutdown_background();
    done
}

/// A checkpoint of 7 events.
#[cfg(test)]
fn test_publication() -> forebay_events::store::Publication {
    use forebay_events::checkpoint::{Checkpoint, SigningKey};
    use forebay_events::merkle::Hash;

    let key = SigningKey::from_seed("log.example/events", [7; 32]).unwrap();
    let origin = "log.example/events".to_owned();
    let checkpoint = Checkpoint { origin, size: 7, root: Hash([1; 32]), extensions: Vec::new() };
    let note = checkpoint.sign(&key).unwrap().to_string();
    let key = key.verifier().clone();
    forebay_events::store::Publication { checkpoint, note, key, first: true }
}
