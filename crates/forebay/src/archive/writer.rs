//! Writing an archive, under a temporary name until it is complete.
//!
//! Invariants: a content that could not be written whole, with its digest, leaves nothing; the archive gets its
//! name only when all of it is on stable storage; one that is dropped before is removed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use forebay_intake::digest::Digest;
use forebay_intake::names::Namespace;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempDir};

use super::error::ArchiveError;
use super::format::{
    DOCUMENT_LINE_SIZE_MAX, DocumentLine, DocumentsPart, FILE_LINE_SIZE_MAX, FILES_MAX, FORMAT,
    FileLine, FilesPart, Manifest, Settings, Target, VERSION,
};
use super::members::{CONTENTS, DOCUMENTS, FILES, MANIFEST, MemberName, PIECE, hash};
use super::tar_file::{check_content, cut_back, write_end, write_header, write_padding};

/// Where an archive is written.
#[derive(Debug)]
enum Output {
    Tar { part: NamedTempFile, replace: bool },
    Directory { part: TempDir },
}

/// A list of lines, which is a file of its own until the archive is finished.
#[derive(Debug)]
struct List {
    to: BufWriter<File>,
    hasher: Sha256,
    size: u64,
    count: u64,
    size_max: u64,
}

impl List {
    fn new(to: File, size_max: u64) -> Self {
        let (hasher, to) = (Sha256::new(), BufWriter::with_capacity(PIECE, to));
        Self { to, hasher, size: 0, count: 0, size_max }
    }

    fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        if line.len() as u64 >= self.size_max {
            let text = format!("a line has more than {} bytes", self.size_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        line.push(b'\n');
        self.hasher.update(&line);
        self.size += line.len() as u64;
        self.count += 1;
        self.to.write_all(&line)
    }

    /// The file, from its beginning, with size and digest.
    fn finish(self) -> io::Result<(File, u64, Digest)> {
        let mut file = self.to.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        Ok((file, self.size, Digest(self.hasher.finalize().into())))
    }
}

/// Writes an archive.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    parent: PathBuf,
    output: Output,
    files: List,
    documents: List,
    contents: HashSet<Digest>,
    content_bytes: u64,
    bytes: u64,
    last_name: Option<String>,
    last_id: Option<u64>,
    created: jiff::Timestamp,
}

impl Writer {
    /// Begins an archive: a tar file if the name ends with `.tar`, a directory otherwise.
    ///
    /// * `replace`: whether a tar file that exists is replaced at the end.
    ///
    /// # Errors
    /// [`ArchiveError::Exists`], [`ArchiveError::Write`]: nothing was written.
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, ArchiveError> {
        let cannot_write = |source| ArchiveError::Write { path: path.to_owned(), source };
        let is_tar = path.extension().is_some_and(|extension| extension == "tar");
        let exists = path.symlink_metadata().is_ok();
        if exists && !(is_tar && replace) {
            return Err(ArchiveError::Exists { path: path.to_owned() });
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).to_owned();
        let mut part = tempfile::Builder::new();
        // As any new file; the usual mode of a temporary one is for its owner alone.
        let part = part.prefix(".forebay-").suffix(".part");
        let (output, files, documents) = if is_tar {
            let part = part.permissions(PermissionsExt::from_mode(0o666));
            let part = part.tempfile_in(&parent).map_err(cannot_write)?;
            let spool = || tempfile::tempfile_in(&parent).map_err(cannot_write);
            (Output::Tar { part, replace }, spool()?, spool()?)
        } else {
            let part = part.permissions(PermissionsExt::from_mode(0o777));
            let part = part.tempdir_in(&parent).map_err(cannot_write)?;
            std::fs::create_dir(part.path().join(CONTENTS)).map_err(cannot_write)?;
            let list = |name| create(&part.path().join(name)).map_err(cannot_write);
            let (files, documents) = (list(FILES)?, list(DOCUMENTS)?);
            (Output::Directory { part }, files, documents)
        };
        Ok(Self {
            path: path.to_owned(),
            parent,
            output,
            files: List::new(files, FILE_LINE_SIZE_MAX),
            documents: List::new(documents, DOCUMENT_LINE_SIZE_MAX),
            contents: HashSet::new(),
            content_bytes: 0,
            bytes: 0,
            last_name: None,
            last_id: None,
            created: jiff::Timestamp::now(),
        })
    }

    /// Whether the archive has a content.
    pub(crate) fn has(&self, digest: Digest) -> bool {
        self.contents.contains(&digest)
    }

    /// Adds a content, and verifies it.
    ///
    /// * `progress`: called with the number of bytes of each piece.
    ///
    /// # Errors
    /// [`ArchiveError`]: the archive is without the content. If [`ArchiveError::is_of_source`], it can be
    /// added again.
    pub(crate) fn add_content(
        &mut self,
        (digest, size): (Digest, u64),
        from: &mut dyn Read,
        progress: &mut dyn FnMut(u64) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let path = &self.path;
        let cannot_write = |source| ArchiveError::Write { path: path.to_owned(), source };
        let name = MemberName::Content(digest);
        // One byte more shows that there are more.
        let mut from = from.take(size.saturating_add(1));
        let mut copy = |to: &mut File| {
            let cannot_fetch = |source| ArchiveError::Source { member: name.text(), source };
            let (found_size, found) = hash(&mut from, cannot_fetch, &mut |bytes| {
                to.write_all(bytes).map_err(cannot_write)?;
                progress(bytes.len() as u64)
            })?;
            check_content((digest, size), (found, found_size))
        };
        match &mut self.output {
            Output::Tar { part, .. } => {
                let file = part.as_file_mut();
                let at = file.stream_position().map_err(cannot_write)?;
                write_header(file, name, size).map_err(cannot_write)?;
                if let Err(error) = copy(file) {
                    cut_back(file, at).map_err(cannot_write)?;
                    return Err(error);
                }
                write_padding(file, size).map_err(cannot_write)?;
            }
            Output::Directory { part } => {
                let place = part.path().join(CONTENTS).join(digest.to_string());
                let mut file = create(&place).map_err(cannot_write)?;
                if let Err(error) = copy(&mut file) {
                    std::fs::remove_file(&place).map_err(cannot_write)?;
                    return Err(error);
                }
            }
        }
        self.contents.insert(digest);
        self.content_bytes += size;
        Ok(())
    }

    /// Adds a file whose content was added. Files are added in ascending order of their names.
    ///
    /// # Errors
    /// [`ArchiveError`]: it was not added.
    pub(crate) fn add_file(&mut self, file: &FileLine) -> Result<(), ArchiveError> {
        if self.files.count >= FILES_MAX {
            return Err(ArchiveError::TooMany { what: "files", limit: FILES_MAX });
        }
        if self.last_name.as_ref().is_some_and(|last| *last >= file.name) {
            return Err(not_ascending(FILES, &self.files));
        }
        let pushed = self.files.push(file);
        pushed.map_err(|source| ArchiveError::Write { path: self.path.clone(), source })?;
        self.bytes = self.bytes.saturating_add(file.size);
        self.last_name = Some(file.name.clone());
        Ok(())
    }

    /// Adds a document. Documents are added in ascending order of their ids.
    ///
    /// # Errors
    /// [`ArchiveError`]: it was not added.
    pub(crate) fn add_document(&mut self, document: &DocumentLine) -> Result<(), ArchiveError> {
        if self.last_id.is_some_and(|last| last >= document.id) {
            return Err(not_ascending(DOCUMENTS, &self.documents));
        }
        let pushed = self.documents.push(document);
        pushed.map_err(|source| ArchiveError::Write { path: self.path.clone(), source })?;
        self.last_id = Some(document.id);
        Ok(())
    }

    /// Completes the archive; returns its manifest, and the digest of that.
    ///
    /// * `target`: where the documents are stored, if that is decided.
    /// * `settings`: those of the namespace of files, if it has any.
    ///
    /// # Errors
    /// [`ArchiveError`]: there is no archive under the name.
    pub(crate) fn finish(
        self,
        namespace: &Namespace,
        target: Option<Target>,
        settings: Option<Settings>,
    ) -> Result<(Manifest, Digest), ArchiveError> {
        let Self { path, parent, output, files, documents, contents, .. } = self;
        let cannot_write = |source| ArchiveError::Write { path: path.clone(), source };
        let (file_count, document_count) = (files.count, documents.count);
        let (mut files, files_size, files_sha256) = files.finish().map_err(cannot_write)?;
        let (mut documents, size, sha256) = documents.finish().map_err(cannot_write)?;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            namespace: namespace.to_string(),
            created: self.created.to_string(),
            forebay: env!("CARGO_PKG_VERSION").to_owned(),
            files: FilesPart {
                count: file_count,
                bytes: self.bytes,
                contents: contents.len() as u64,
                content_bytes: self.content_bytes,
                size: files_size,
                sha256: files_sha256,
            },
            documents: DocumentsPart { count: document_count, target, size, sha256 },
            settings,
            sha256: None,
        };
        let text = manifest.encode().map_err(|error| cannot_write(error.into()))?;
        match output {
            Output::Tar { mut part, replace } => {
                let to = part.as_file_mut();
                append(to, MemberName::Files, files_size, &mut files).map_err(cannot_write)?;
                append(to, MemberName::Documents, size, &mut documents).map_err(cannot_write)?;
                append(to, MemberName::Manifest, text.len() as u64, &mut &*text)
                    .and_then(|()| write_end(to))
                    .and_then(|()| to.sync_all())
                    .map_err(cannot_write)?;
                let named = match replace {
                    true => part.persist(&path).map(drop),
                    false => part.persist_noclobber(&path).map(drop),
                };
                named.map_err(|error| cannot_write(error.error))?;
            }
            Output::Directory { part } => {
                create(&part.path().join(MANIFEST))
                    .and_then(|mut file| file.write_all(&text))
                    .map_err(cannot_write)?;
                let root = File::open(part.path()).map_err(cannot_write)?;
                // One call for all files.
                rustix::fs::syncfs(&root).map_err(|error| cannot_write(error.into()))?;
                std::fs::rename(part.path(), &path).map_err(cannot_write)?;
                // It is not there any more under its temporary name.
                drop(part.keep());
            }
        }
        File::open(&parent).and_then(|parent| parent.sync_all()).map_err(cannot_write)?;
        Ok((manifest, Digest::of(&text)))
    }
}

fn not_ascending(member: &'static str, list: &List) -> ArchiveError {
    let reason = "the server does not list in ascending order".to_owned();
    ArchiveError::Line { member, line: list.count + 1, reason }
}

/// Creates a file that is also read.
fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

/// Appends a member to a tar file.
fn append(to: &mut File, name: MemberName, size: u64, from: &mut dyn Read) -> io::Result<()> {
    write_header(to, name, size)?;
    let copied = io::copy(&mut BufReader::with_capacity(PIECE, from), to)?;
    if copied != size {
        return Err(io::Error::other(format!("{} changed while it was copied", name.text())));
    }
    write_padding(to, size)
}
