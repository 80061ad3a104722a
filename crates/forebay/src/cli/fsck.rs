//! `forebay fsck`.

use std::sync::Arc;

use forebay_base::fs::RealFs;
use forebay_intake::fsck::{Finding, FsckProgress, FsckReport, fsck_with};
use indicatif::{ProgressBar, ProgressStyle};

use super::settings::{DataArgs, wrong};
use crate::exit::Exit;
use crate::out;
use crate::soundness::{Others, check_others};

const AFTER_HELP: &str = "\
Examples:
  forebay fsck                        check ./forebay-data
  forebay fsck --data /srv/forebay --json

Reads everything in the data directory, with the server stopped: files, documents, uploads, events,
cache, inventories, webhooks, jobs and keys. Files in object storage are read there.

Exit codes: 0 no damage found; 1 something is damaged (each finding names the blob and the files
whose content it is, or the file); 3 the data cannot be read or is in use by a server.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = args.data.resolve()?.config().map_err(wrong)?;
    let dir = crate::layout::intake(&config.process.data);
    let bar = ProgressBar::new(0).with_style(style());
    let storage = crate::wiring::blobs::options(&config).map_err(wrong)?;
    let storage = storage.map(|options| options.storage);
    let report =
        fsck_with(&dir, Arc::new(RealFs), storage, |FsckProgress { bytes, bytes_total }| {
            bar.set_length(bytes_total);
            bar.set_position(bytes);
        });
    bar.finish_and_clear();
    let mut report = report.map_err(|error| {
        let text = format!("cannot check {}", dir.display());
        crate::exit::Coded::wrap(Exit::Start, text, error.into())
    })?;
    let others = check_others(&config.process.data, &|| Ok(())).map_err(|error| {
        let text = format!("cannot check {}", config.process.data.display());
        crate::exit::Coded::wrap(Exit::Start, text, error)
    })?;
    report.findings.extend(others.damages.iter().map(|damage| Finding {
        kind: damage.kind,
        message: damage.message.clone(),
        sha256: None,
        path: Some(damage.path.clone()),
        names: Vec::new(),
    }));
    if args.json {
        let sound = report.findings.is_empty();
        let mut json = serde_json::to_value(&report)?;
        json["sound"] = sound.into();
        if let (Some(json), serde_json::Value::Object(others)) =
            (json.as_object_mut(), serde_json::to_value(&others)?)
        {
            json.extend(others);
        }
        out::json(&json)?;
    } else {
        print(&report, &others)?;
    }
    Ok(if report.findings.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn print(report: &FsckReport, others: &Others) -> anyhow::Result<()> {
    out::line(format_args!(
        "log        {} entries, {} bytes\nfiles      {} names\nblobs      {} re-hashed, {} bytes\n\
         documents  {}{}",
        report.log_entries,
        report.log_bytes,
        report.files,
        report.blobs,
        report.blob_bytes,
        report.documents,
        match report.spilled {
            0 => String::new(),
            count => format!(", {count} of them are in files and wait for the database"),
        }
    ))?;
    if report.uploads > 0 {
        out::line(format_args!(
            "uploads    {} unfinished or remembered, {} bytes",
            report.uploads, report.upload_bytes
        ))?;
    }
    if report.upload_torn_bytes > 0 {
        out::line(format_args!(
            "           {} bytes of requests that were never acknowledged, cut off when the upload continues",
            report.upload_torn_bytes
        ))?;
    }
    if report.upload_orphans > 0 {
        out::line(format_args!(
            "           {} parts of uploads that do not exist any more; they expire",
            report.upload_orphans
        ))?;
    }
    if report.upload_leftovers > 0 {
        out::line(format_args!(
            "           {} other files: those that were being created are removed at the next start",
            report.upload_leftovers
        ))?;
    }
    if report.torn_tail_bytes > 0 {
        out::line(format_args!(
            "torn tail  {} bytes of writes that were never acknowledged, cut off the log",
            report.torn_tail_bytes
        ))?;
    }
    print_others(others)?;
    for finding in &report.findings {
        out::line(format_args!("DAMAGED    {}: {}", finding.kind, finding.message))?;
        if let Some(path) = &finding.path {
            out::line(format_args!("           in {}", path.display()))?;
        }
        for name in &finding.names {
            let what = if finding.kind == "documents" { "in namespace" } else { "content of" };
            out::line(format_args!("           {what} {name}"))?;
        }
    }
    match report.findings.len() {
        0 => out::line("no damage found"),
        count => out::line(format_args!(
            "{count} damaged; where a finding says nothing else, restore the named file from a copy"
        )),
    }
}

fn print_others(others: &Others) -> anyhow::Result<()> {
    let counts = [
        ("events", others.events, "verified"),
        ("cache", others.cache_operations, "operations in its log"),
        ("indexes", others.inventories, "of inventories"),
        ("webhooks", others.webhooks, ""),
        ("jobs", others.jobs, "known"),
    ];
    for (what, count, unit) in counts {
        if let Some(count) = count {
            out::line(format!("{what:<10} {count} {unit}").trim_end())?;
        }
    }
    Ok(())
}
