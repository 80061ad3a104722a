//! `forebay export`: the files and documents of a namespace as an archive (docs/formats/export.md).
//!
//! Invariants: the archive has its name only if it is complete and on stable storage; every content has the
//! digest that the server has for it; what is left out is listed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_base::backoff::Backoff;
use forebay_console::interrupt::Interrupt;
use forebay_intake::names::{FileName, Namespace};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::SendBody;
use ureq::http::Method;

use super::document_client::Documents;
use super::file_client::{Client, ClientArgs, Failure, Target, failed, namespace, shown};
use super::server::encode;
use super::{namespaces, progress};
use crate::archive::{self, ArchiveError, DocumentLine, FileLine, Writer};
use crate::exit::{Coded, Exit};
use crate::out;

/// Attempts at one request before the command fails.
pub(super) const ATTEMPTS: u32 = 5;
/// Delay before the second attempt; it grows from there.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(200);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(10);
/// Names or documents that are asked for at a time.
pub(super) const PAGE: u64 = 1_000;
/// Maximum size of a page of names, in bytes.
const PAGE_SIZE_MAX: u64 = 128 << 20;

const AFTER_HELP: &str = "\
Examples:
  forebay export plans plans.tar
  forebay export plans plans.tar --force --json
  forebay export plans ./plans-2026-11-26
  forebay import plans.tar --server http://other:8090

The archive has the files of the namespace, with comment, metadata and tags, its settings (limits,
tags, whether versions are kept), and the documents of the namespace with the same name. Earlier
versions of files are left out, as is what only the S3 port shows: headers, ETags, and names that
end with a slash. To keep everything, use `forebay backup`.

A name that ends with .tar makes a tar file, any other a directory. It is written under a temporary
name, verified, synced and renamed.

Exit codes: 0 success; 1 there is no such namespace, the request failed, or names were left out,
which are listed; 2 invalid command line; 130 interrupted.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Namespace of files and documents.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Tar file or directory to write; it must not exist.
    #[arg(value_name = "DIR|FILE.tar")]
    path: PathBuf,
    /// Replace a tar file that exists.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    from: ClientArgs,
    /// Print a summary as JSON.
    #[arg(long)]
    json: bool,
}

/// A page of files.
#[derive(Debug, Deserialize)]
struct FilePage {
    files: Vec<FileLine>,
    next_cursor: Option<String>,
}

/// The files of a namespace, in ascending order of their names.
#[derive(Debug)]
pub(super) struct Files {
    path: String,
    cursor: Option<String>,
    is_at_end: bool,
}

impl Files {
    pub(super) fn new(namespace: &Namespace) -> Self {
        let path = format!("/v1/files?namespace={namespace}&limit={PAGE}");
        Self { path, cursor: None, is_at_end: false }
    }

    /// Fetches the next page; `None` after the last.
    pub(super) fn next(&mut self, client: &Client) -> Result<Option<Vec<FileLine>>, Failure> {
        if self.is_at_end {
            return Ok(None);
        }
        let cursor = self.cursor.as_ref().map(|cursor| format!("&cursor={}", encode(cursor)));
        let page = page(client, &format!("{}{}", self.path, cursor.unwrap_or_default()))?;
        self.cursor = page.next_cursor;
        self.is_at_end = self.cursor.is_none();
        Ok(Some(page.files))
    }
}

fn page(client: &Client, path: &str) -> Result<FilePage, Failure> {
    let request = client.request(Method::GET, path);
    client.read(client.send(request, SendBody::none())?, PAGE_SIZE_MAX)
}

/// Repeats a request that fails for a reason that may pass.
pub(super) fn repeated<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut attempt = 1;
    loop {
        match ask() {
            Err(failure) if attempt < ATTEMPTS => match failure.passes() {
                Some(after) => std::thread::park_timeout(backoff.delay().max(after)),
                None => return Err(failure),
            },
            result => return result,
        }
        attempt += 1;
    }
}

/// The settings of a namespace of files, if it has any.
pub(super) fn settings_of(
    client: &Client,
    namespace: &Namespace,
) -> anyhow::Result<Option<archive::Settings>> {
    match repeated(|| client.ask(Method::GET, &namespaces::path(namespace), None)) {
        Ok(found) => Ok(archive::Settings::of(&found)),
        Err(Failure::Refused { status: 404, .. }) => Ok(None),
        Err(failure) => Err(failed(failure)),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.path == Path::new("-") {
        let text = "an archive is written to a file or a directory, not to standard output";
        return Err(Coded::error(Exit::Usage, text));
    }
    let client = Client::new(&args.from)?;
    let interrupt = Interrupt::listen()?;
    let bar = progress::of_bytes();
    let mut export = Export {
        client: &client,
        namespace: &args.namespace,
        interrupt: &interrupt,
        bar: &bar,
        left_out: 0,
    };
    let done = export.run(args);
    bar.finish_and_clear();
    let left_out = export.left_out;
    let summary = done?;
    if args.json {
        out::json(&summary)?;
    } else {
        out::line(format!(
            "exported {} files ({}) and {} documents of {} to {}",
            summary["files"],
            out::size(summary["bytes"].as_u64().unwrap_or(0)),
            summary["documents"],
            args.namespace,
            shown(&args.path.to_string_lossy())
        ))?;
    }
    Ok(if left_out == 0 { Exit::Ok } else { Exit::Failed })
}

/// A run.
struct Export<'a> {
    client: &'a Client,
    namespace: &'a Namespace,
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
    /// Names that an archive cannot have.
    left_out: u64,
}

impl Export<'_> {
    fn run(&mut self, args: &Args) -> anyhow::Result<Value> {
        let mut writer = Writer::create(&args.path, args.force).map_err(|error| match error {
            ArchiveError::Exists { .. } => {
                let hint = match args.path.extension().is_some_and(|name| name == "tar") {
                    true => "replace it with --force",
                    false => "name a directory that does not exist",
                };
                let path = shown(&args.path.to_string_lossy());
                Coded::error(Exit::Failed, format!("{path} exists; {hint}"))
            }
            error => cannot_export(error),
        })?;
        let (namespace, client) = (self.namespace, self.client);
        let mut files = Files::new(namespace);
        let mut count = 0;
        while let Some(page) = repeated(|| files.next(client)).map_err(failed)? {
            for file in page {
                count += 1;
                self.file(&mut writer, file)?;
                self.bar.set_message(format!("{count} files"));
            }
        }
        let target = self.documents(&mut writer, count)?;
        let settings = settings_of(self.client, namespace)?;
        let (manifest, digest) =
            writer.finish(namespace, target, settings).map_err(cannot_export)?;
        Ok(json!({
            "namespace": namespace.as_str(),
            "path": args.path.to_string_lossy(),
            "files": manifest.files.count,
            "bytes": manifest.files.bytes,
            "contents": manifest.files.contents,
            "content_bytes": manifest.files.content_bytes,
            "documents": manifest.documents.count,
            "settings": manifest.settings.is_some(),
            "left_out": self.left_out,
            "manifest_sha256": digest.to_string(),
        }))
    }

    /// Adds a file, and its content unless another name had it.
    fn file(&mut self, writer: &mut Writer, mut file: FileLine) -> anyhow::Result<()> {
        // Each attempt begins with what the name is now.
        for attempt in 1.. {
            let name = match file.check() {
                Ok(name) => name,
                Err(reason) => {
                    self.left_out += 1;
                    let name = shown(&file.name);
                    let text = format!("left out {}/{name}: {reason}", self.namespace);
                    self.bar.suspend(|| out::note(text));
                    return Ok(());
                }
            };
            if writer.has(file.sha256) || self.content(writer, &file, &name)? {
                return writer.add_file(&file).map_err(cannot_export);
            }
            match self.again(&file)? {
                // It was deleted since the page of names was read.
                None => return Ok(()),
                Some(_) if attempt >= ATTEMPTS => break,
                Some(now) => file = now,
            }
        }
        let text = format!("{}/{} changes all the time", self.namespace, shown(&file.name));
        Err(Coded::error(Exit::Failed, text))
    }

    /// Adds the content of a file; `false` if the name has other bytes now, or does not exist.
    fn content(
        &self,
        writer: &mut Writer,
        file: &FileLine,
        name: &FileName,
    ) -> anyhow::Result<bool> {
        let target = Target { namespace: self.namespace.clone(), name: name.clone() };
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let mut attempt = 1;
        loop {
            let condition = format!("\"{}\"", file.sha256);
            let request = self.client.request(Method::GET, &target.path());
            let request = request.header("if-match", condition);
            let (error, after) = match self.client.send(request, SendBody::none()) {
                Ok(answer) => {
                    let body = answer.into_body().into_with_config().limit(u64::MAX);
                    let begun = self.bar.position();
                    let progress = &mut |bytes| {
                        self.bar.inc(bytes);
                        self.check()
                    };
                    let content = (file.sha256, file.size);
                    match writer.add_content(content, &mut body.reader(), progress) {
                        Ok(()) => return Ok(true),
                        Err(error) if error.is_of_source() => {
                            self.bar.set_position(begun);
                            (cannot_export(error), Some(Duration::ZERO))
                        }
                        Err(error) => return Err(cannot_export(error)),
                    }
                }
                Err(Failure::Refused { status: 404 | 412, .. }) => return Ok(false),
                Err(failure) => {
                    let after = failure.passes();
                    (failed(failure), after)
                }
            };
            match after {
                Some(after) if attempt < ATTEMPTS => {
                    std::thread::park_timeout(backoff.delay().max(after));
                    attempt += 1;
                }
                _ => return Err(error.context(format!("cannot export {target}"))),
            }
        }
    }

    /// What a name is now; `None` if it does not exist.
    fn again(&self, file: &FileLine) -> anyhow::Result<Option<FileLine>> {
        let (namespace, name) = (self.namespace, encode(&file.name));
        // The name itself is the first of those that begin with it.
        let path = format!("/v1/files?namespace={namespace}&prefix={name}&limit=1");
        let page = repeated(|| page(self.client, &path)).map_err(failed)?;
        Ok(page.files.into_iter().next().filter(|now| now.name == file.name))
    }

    /// Adds the documents; returns where they are stored, if that is decided.
    fn documents(
        &self,
        writer: &mut Writer,
        files: u64,
    ) -> anyhow::Result<Option<archive::Target>> {
        let known = self.document_namespace()?;
        let Some(known) = known else {
            if files == 0 {
                let text = format!("there are no files or documents in {}", self.namespace);
                return Err(Coded::error(Exit::Failed, text));
            }
            return Ok(None);
        };
        let is_decided = known["undecided"].as_bool() == Some(false);
        let mut pages = Documents::new(self.namespace, None);
        let (mut target, mut count) = (None, 0);
        while let Some(page) = repeated(|| pages.next(self.client, PAGE)).map_err(failed)? {
            target = archive::Target::parse(&page.target);
            for document in page.documents {
                let line = DocumentLine::new(document.id, document.received, document.document);
                line.bytes().map_err(|reason| {
                    let text = format!("document {}/{}: {reason}", self.namespace, line.id);
                    Coded::error(Exit::Failed, text)
                })?;
                writer.add_document(&line).map_err(cannot_export)?;
                count += 1;
            }
            self.bar.set_message(format!("{files} files, {count} documents"));
            self.check().map_err(cannot_export)?;
        }
        Ok(target.filter(|_| is_decided && count > 0))
    }

    /// What the server says of the namespace of documents; `None` if there is none.
    fn document_namespace(&self) -> anyhow::Result<Option<Value>> {
        let list: Value = repeated(|| {
            let request = self.client.request(Method::GET, "/v1/documents");
            self.client.read(self.client.send(request, SendBody::none())?, PAGE_SIZE_MAX)
        })
        .map_err(failed)?;
        let mut namespaces = list["namespaces"].as_array().into_iter().flatten();
        let name = self.namespace.as_str();
        Ok(namespaces.find(|known| known["namespace"] == name).cloned())
    }

    fn check(&self) -> Result<(), ArchiveError> {
        match self.interrupt.asked() {
            true => Err(ArchiveError::Interrupted),
            false => Ok(()),
        }
    }
}

/// The error of the command.
fn cannot_export(error: ArchiveError) -> anyhow::Error {
    match error {
        ArchiveError::Interrupted => {
            Coded::error(Exit::Interrupted, "interrupted; nothing was written")
        }
        error => Coded::wrap(Exit::Failed, "the export failed", error.into()),
    }
}
