//! `POST /v1/admin/backup-image`: an image of the data directory, for `forebay backup`.
//!
//! The command that copies the image holds `backup.lock` in the data directory meanwhile. The server makes an image
//! only while the lock is held, and removes one whose lock is free: what a killed command leaves does not keep
//! deleted data on the disk.
//!
//! Invariants: one image at a time; no path of a client is used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::response::Response;
use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_base::image::Image;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use super::app::App;
use crate::answer::json;
use crate::problem::Problem;

/// Path of the route.
pub(super) const PATH: &str = "/v1/admin/backup-image";
/// Name of the image in the data directory.
const IMAGE: &str = "backup-image";
/// Name of the file that a command locks while it copies the image.
const LOCK: &str = "backup.lock";
/// How long a request waits for the image of a command that was killed, which is still being made.
const MAKING_LIMIT: Duration = Duration::from_secs(30);
/// Files of the server itself: API keys and the master key.
const OWN: [&str; 3] = ["keys.toml", "keys.made", "master.key"];

/// Where images are made.
#[derive(Debug)]
pub(super) struct Images {
    data: PathBuf,
    /// Held while an image is made or removed.
    making: Mutex<()>,
}

/// An image that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackupImage {
    /// Its directory: an absolute path on the server's machine.
    path: String,
    /// Number of its files.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// How long it took, in milliseconds.
    took_ms: u64,
}

impl Images {
    /// Images of a data directory.
    pub(super) fn of(data: &Path) -> Self {
        Self { data: data.to_path_buf(), making: Mutex::new(()) }
    }

    /// Whether a command holds the lock.
    fn is_wanted(&self) -> std::io::Result<bool> {
        match RealFs.lock_exclusive(&self.data.join(LOCK)) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn remove(&self) -> std::io::Result<bool> {
        match std::fs::remove_dir_all(self.data.join(IMAGE)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an image that no command copies any more. Blocks.
    fn sweep(&self) -> std::io::Result<()> {
        let Some(_making) = self.making.try_lock() else { return Ok(()) };
        let exists = RealFs.exists(&self.data.join(IMAGE))?;
        if exists && !self.is_wanted()? && self.remove()? {
            tracing::info!("removed the image of a backup that was not finished");
        }
        Ok(())
    }
}

impl App {
    /// Removes an image that a killed backup left. Called now and then, on a thread that may block.
    pub fn sweep_images(&self) {
        if let Some(Err(error)) = self.images.as_ref().map(Images::sweep) {
            tracing::warn!(%error, "cannot remove the image of a backup that was not finished");
        }
    }

    /// Makes an image. Blocks.
    fn image(&self) -> Result<BackupImage, Problem> {
        let images = self.images.as_ref().ok_or_else(|| Problem::closed("there is no data"))?;
        let opened = self.opened.get().ok_or(Problem::STARTING)?;
        let conflict = |text: &str| Problem::new(StatusCode::CONFLICT, "backup", text);
        let Some(_making) = images.making.try_lock_for(MAKING_LIMIT) else {
            return Err(conflict("an image is being made; wait until that backup has ended"));
        };
        let begun = Instant::now();
        let made = || {
            if !images.is_wanted().context("cannot lock backup.lock")? {
                return Ok(None);
            }
            images.remove().context("cannot remove an earlier image")?;
            let dir = std::path::absolute(images.data.join(IMAGE))?;
            let mut image = Image::create(&images.data, &dir)?;
            // What was opened last uses what was opened before: its effects are in the image then.
            for subsystem in opened.subsystems.iter().rev() {
                let context = || format!("cannot take {} into the image", subsystem.name());
                subsystem.image(&mut image).with_context(context)?;
            }
            for name in OWN {
                image.copy_if_exists(&images.data.join(name))?;
            }
            let (files, bytes) = image.finish()?;
            anyhow::Ok(Some(BackupImage {
                path: dir.to_str().context("the data directory's path is not UTF-8")?.to_owned(),
                files,
                bytes,
                took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            }))
        };
        match made() {
            Ok(Some(image)) => {
                let BackupImage { files, bytes, took_ms, .. } = image;
                tracing::info!(files, bytes, took_ms, "made an image for a backup");
                Ok(image)
            }
            Ok(None) => Err(conflict(
                "only `forebay backup` on this machine can ask for an image, since it holds \
                 backup.lock in the data directory while it copies the image",
            )),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot make an image for a backup");
                if let Err(error) = images.remove() {
                    tracing::warn!(%error, "cannot remove an unfinished image");
                }
                let is_full = error.chain().any(|cause| {
                    cause.downcast_ref::<std::io::Error>().is_some_and(|error| {
                        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
                    })
                });
                Err(match is_full {
                    true => Problem::full(format!("{error:#}")),
                    false => Problem::closed(format!("{error:#}")),
                })
            }
        }
    }
}

/// Answers a request for an image.
pub(super) async fn create(app: Arc<App>, headers: HeaderMap) -> Response {
    let made = forebay_base::blocking::spawn(move || app.image()).await.unwrap_or_else(|error| {
        tracing::error!(%error, "making an image for a backup panicked");
        Err(Problem::closed("the image was not made; see the server's log"))
    });
    match made {
        Ok(image) => json(StatusCode::OK, &image),
        Err(problem) => problem.answer(&headers),
    }
}
