//! `forebay import`: an archive of a namespace (docs/formats/export.md) to a server.
//!
//! Invariants: nothing is sent before the whole archive was verified; a repetition changes nothing; what could
//! not be stored is reported, and makes the exit code 1.

use std::path::PathBuf;

use forebay_intake::names::Namespace;
use indicatif::ProgressBar;
use serde::Serialize;
use ureq::http::Method;

use super::export::{repeated, settings_of};
use super::file_client::{Client, ClientArgs, failed, namespace, shown};
use super::{import_documents, import_files, namespaces, progress};
use crate::archive::{Archive, ArchiveError};
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay import plans.tar
  forebay import plans.tar --server http://other:8090 --namespace plans-copy
  forebay import ./plans-2026-11-26 --dry-run --json

The whole archive is verified before anything is stored. Repeat the command to continue after an
interruption: what is stored already is left alone. Files with other bytes under the same name are
replaced, others of the namespace stay. Media types and times are those of the importing server;
earlier versions of files are not in an archive. The settings of the namespace of files are set at
the end, unless it has settings.

Documents are stored if the server has none in the namespace, or begins with those of the archive.
With --append they are added to others; then a repetition is safe for 24 hours only. They keep their
ids if these begin at 1 without gaps and the namespace is new.

Exit codes: 0 everything is stored; 1 the archive is damaged or was refused, something could not be
stored, which is listed, or the server did not answer; 2 invalid command line.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Tar file or directory that `forebay export` wrote.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Namespace to store in [default: that of the archive].
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<Namespace>,
    /// Add documents to a namespace that has others.
    #[arg(long)]
    append: bool,
    /// Number of files sent at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Verify the archive and report what would be stored, and store nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    from: ClientArgs,
    /// Print a summary as JSON.
    #[arg(long)]
    json: bool,
}

/// What both parts of a run share.
pub(super) struct Import<'a> {
    pub(super) archive: &'a Archive,
    pub(super) client: &'a Client,
    pub(super) namespace: &'a Namespace,
    pub(super) bar: &'a ProgressBar,
    pub(super) dry_run: bool,
}

impl Import<'_> {
    /// Prints a line beside the progress.
    pub(super) fn note(&self, text: &str) {
        self.bar.suspend(|| out::note(text));
    }
}

/// What became of the settings of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SettingsDone {
    /// The archive has none.
    None,
    /// The server had the same.
    Unchanged,
    /// The server had none.
    Set,
    /// The server had others, which stay.
    Kept,
}

/// Counts of a run.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    namespace: &'a str,
    files: import_files::Counts,
    documents: import_documents::Counts,
    settings: SettingsDone,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let bar = progress::of_bytes();
    bar.set_message("verified");
    let mut verified = |bytes| {
        bar.inc(bytes);
        Ok(())
    };
    let archive = Archive::open(&args.path, &mut verified).map_err(|error| {
        bar.finish_and_clear();
        refused(args, error)
    })?;
    bar.set_position(0);
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => Namespace::parse(&archive.manifest().namespace)
            .map_err(|error| Coded::wrap(Exit::Failed, "the archive is refused", error.into()))?,
    };
    let import = Import {
        archive: &archive,
        client: &client,
        namespace: &namespace,
        bar: &bar,
        dry_run: args.dry_run,
    };
    let done = all(&import, args);
    bar.finish_and_clear();
    let (files, documents, settings) = done?;
    let summary = Summary { namespace: namespace.as_str(), files, documents, settings };
    report(&summary, args)?;
    Ok(if files.failed == 0 { Exit::Ok } else { Exit::Failed })
}

fn all(
    import: &Import<'_>,
    args: &Args,
) -> anyhow::Result<(import_files::Counts, import_documents::Counts, SettingsDone)> {
    // Whether the documents can be stored is known before the first file is.
    let documents = import_documents::compare(import, args.append)?;
    let files = import_files::run(import, args.workers)?;
    import.bar.set_message("documents");
    let documents = import_documents::run(import, documents)?;
    // At the end: the limits may be less than the files that are there.
    let settings = settings(import)?;
    Ok((files, documents, settings))
}

/// Sets the settings of the namespace of files, if it has none.
fn settings(import: &Import<'_>) -> anyhow::Result<SettingsDone> {
    let Some(wanted) = &import.archive.manifest().settings else { return Ok(SettingsDone::None) };
    match settings_of(import.client, import.namespace)? {
        Some(found) if found == *wanted => return Ok(SettingsDone::Unchanged),
        Some(_) => return Ok(SettingsDone::Kept),
        None => {}
    }
    if !import.dry_run {
        let settings = serde_json::to_value(wanted)
            .map_err(|error| Coded::wrap(Exit::Failed, "cannot send the settings", error.into()))?;
        let path = namespaces::path(import.namespace);
        repeated(|| import.client.ask(Method::PUT, &path, Some(&settings))).map_err(failed)?;
    }
    Ok(SettingsDone::Set)
}

/// The error for an archive that cannot be used.
fn refused(args: &Args, error: ArchiveError) -> anyhow::Error {
    let path = shown(&args.path.to_string_lossy());
    Coded::wrap(Exit::Failed, format!("{path} is refused, nothing was stored"), error.into())
}

/// The error for an archive that cannot be read any more.
pub(super) fn unreadable(error: ArchiveError) -> anyhow::Error {
    Coded::wrap(Exit::Failed, "the archive was changed during the import", error.into())
}

fn report(summary: &Summary<'_>, args: &Args) -> anyhow::Result<()> {
    if args.json {
        let json = serde_json::to_value(summary)
            .map_err(|error| Coded::wrap(Exit::Failed, "cannot print the summary", error.into()))?;
        return out::json(&json);
    }
    let Summary { namespace, files, documents, settings } = summary;
    let verb = if args.dry_run { "would store" } else { "stored" };
    out::line(format!(
        "{verb} {} files ({}) in {namespace}, of which {} replaced others; {} changed beside their \
         bytes, {} unchanged, {} failed",
        files.stored + files.replaced,
        out::size(files.bytes_sent),
        files.replaced,
        files.changed,
        files.unchanged,
        files.failed
    ))?;
    let ids = match documents.ids_kept {
        Some(true) => ", with their ids",
        Some(false) => ", some with other ids",
        None => "",
    };
    out::line(format!(
        "{verb} {} documents{ids}; {} were there",
        documents.stored, documents.unchanged
    ))?;
    match settings {
        SettingsDone::None | SettingsDone::Unchanged => Ok(()),
        SettingsDone::Set if args.dry_run => out::line("would set the settings of the namespace"),
        SettingsDone::Set => out::line("set the settings of the namespace"),
        SettingsDone::Kept => out::line(format!(
            "kept the settings of the namespace, which differ from those of the archive; forebay \
             namespaces show {namespace} prints them"
        )),
    }
}
