//! The intake as a subsystem of the server: applies its configuration, provides its routes, stops
//! it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use forebay_api::uploads::Completions;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_base::image::Image;
use forebay_intake::{Intake, IntakeOptions};

use crate::config::Config;
use crate::layout;
use crate::serve::Subsystem;

/// Opens the intake in the data directory; also returns it to those that read its files.
pub(super) fn open(config: &Config) -> anyhow::Result<(Arc<dyn Subsystem>, Intake)> {
    let mut options = options(config);
    options.forward = super::intake_database::options(config)?;
    options.object_storage = super::blobs::options(config)?;
    let dir = options.dir.clone();
    let (intake, report) = Intake::open(options, Arc::new(RealFs), Arc::new(SystemClock::new()))
        .with_context(|| format!("cannot open the intake in {}", dir.display()))?;
    tracing::info!(
        created = report.created,
        clean = report.clean,
        torn_bytes = report.torn_bytes,
        catalogue_entries = report.catalogue_entries,
        document_commits = report.document_commits,
        rebuilt = report.catalogue_rebuilt,
        staging_removed = report.staging_removed,
        orphans_removed = report.orphans_removed,
        files = report.files,
        took_ms = report.took_ms,
        "intake open"
    );
    Ok((Arc::new(IntakeSubsystem(intake.clone(), Completions::default())), intake))
}

/// Returns the configured options of the intake.
pub(crate) fn options(config: &Config) -> IntakeOptions {
    let mut options = IntakeOptions::new(layout::intake(&config.process.data));
    let from = &config.intake;
    options.durability = from.durability;
    options.decision.documents_min = from.decision_documents_min.into();
    options.verify_every = from.verify_interval.get();
    options.search = from.search;
    options.rules = from.rules.clone();
    let limits = &mut options.limits;
    limits.file_size_max = from.file_size_max.0;
    limits.document_size_max = usize::try_from(from.document_size_max.0).unwrap_or(usize::MAX);
    limits.parts_max = usize::try_from(from.parts_max).unwrap_or(usize::MAX);
    limits.large_uploads_max = usize::try_from(from.uploads_max).unwrap_or(usize::MAX);
    limits.body_rate_min = from.upload_rate_min.0;
    limits.body_rate_window = from.upload_rate_grace.get();
    limits.body_idle = from.upload_idle_timeout.get();
    let uploads = &mut options.uploads;
    uploads.open_max = usize::try_from(from.unfinished_uploads_max).unwrap_or(usize::MAX);
    uploads.reserved_max = from.unfinished_bytes_max.0;
    let kept = from.unfinished_kept.get().as_millis();
    uploads.kept_ms = u64::try_from(kept).unwrap_or(u64::MAX);
    options
}

/// The intake, and the uploads that are being stored as files.
struct IntakeSubsystem(Intake, Completions);

impl Subsystem for IntakeSubsystem {
    fn name(&self) -> &'static str {
        "intake"
    }

    fn router(&self) -> axum::Router {
        let uploads = forebay_api::uploads::router(&self.0, &self.1);
        forebay_api::intake::router(&self.0).merge(uploads)
    }

    fn start(&self, _bare: &axum::Router, _routes: &axum::Router) {
        forebay_api::uploads::resume(&self.0, &self.1);
        // It ends when the intake is drained.
        drop(tokio::spawn(self.0.clone().keep_removing_expired()));
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        let mut described = forebay_api::intake::openapi();
        described.merge(forebay_api::uploads::openapi());
        described
    }

    fn readiness(&self) -> Result<(), String> {
        self.0.ready().map_err(|error| error.to_string())
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        Ok(self.0.image(image)?)
    }

    fn degraded(&self) -> Option<String> {
        if let Some(trouble) = self.0.blobs_trouble() {
            return Some(trouble);
        }
        let status = self.0.database()?;
        if !status.state.is_degraded() {
            let held = status.quarantined.first()?;
            return Some(format!(
                "{} refuses the documents of {} namespaces; {} documents are waiting: {}: {}",
                status.database,
                status.quarantined.len(),
                status.documents_waiting,
                held.namespace,
                held.reason
            ));
        }
        let reason = status.reason.as_deref().unwrap_or("unknown reason");
        Some(format!(
            "{} is {}; {} documents are waiting: {reason}",
            status.database,
            status.state.name(),
            status.documents_waiting
        ))
    }

    fn measure(&self) {
        self.0.measure();
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        let intake = self.0.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || intake.close())
                .await
                .context("closing the intake was interrupted")?
                .context("cannot close the intake")
        })
    }
}
