//! Opening an archive, which verifies all of it, and reading its members afterwards.
//!
//! Invariants: nothing of an archive is returned before every byte was hashed and compared, and every line
//! checked; memory is limited by the limits of the format, not by what an archive says about itself.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_intake::digest::Digest;
use serde::de::DeserializeOwned;

use super::directory::Directory;
use super::error::ArchiveError;
use super::format::{
    DOCUMENT_LINE_SIZE_MAX, DocumentLine, FILE_LINE_SIZE_MAX, FILES_MAX, FileLine,
    MANIFEST_SIZE_MAX, Manifest,
};
use super::members::{DOCUMENTS, FILES, MemberBytes, MemberName, PIECE, Section};
use super::tar_file;

/// The members of an archive, as they are found.
#[derive(Debug, Default)]
pub(super) struct Found {
    contents: HashMap<Digest, Content>,
    content_bytes: u64,
    files: Option<(Section, Digest)>,
    documents: Option<(Section, Digest)>,
    manifest: Option<Vec<u8>>,
    manifest_digest: Option<Digest>,
    last: Option<MemberName>,
}

/// A content that was found.
#[derive(Debug)]
struct Content {
    section: Section,
    /// Whether a name refers to it.
    is_named: bool,
}

impl Found {
    /// Keeps the bytes of a manifest, up to one more than it can have.
    pub(super) fn keep(&self, name: MemberName, head: &mut Vec<u8>, bytes: &[u8]) {
        let limit = usize::try_from(MANIFEST_SIZE_MAX).unwrap_or(usize::MAX);
        if name == MemberName::Manifest && head.len() <= limit {
            head.extend_from_slice(bytes.get(..limit + 1).unwrap_or(bytes));
        }
    }

    /// Adds a member with the digest of its bytes.
    pub(super) fn add(
        &mut self,
        name: MemberName,
        section: Section,
        digest: Digest,
        head: Vec<u8>,
    ) -> Result<(), ArchiveError> {
        let refused = |reason| Err(ArchiveError::Member { name: name.text(), reason });
        let is_content = |name: MemberName| matches!(name, MemberName::Content(_));
        match self.last {
            Some(last) if last == name => return refused("it is there twice"),
            Some(last) if !is_content(name) && last > name => {
                return refused("it is there twice, or not in its place");
            }
            Some(last) if is_content(name) && !is_content(last) => {
                return refused("it is not in its place");
            }
            _ => self.last = Some(name),
        }
        match name {
            MemberName::Content(expected) => {
                if digest != expected {
                    let member = name.text();
                    return Err(ArchiveError::Digest { member, expected, found: digest });
                }
                if self.contents.len() as u64 >= FILES_MAX {
                    return Err(ArchiveError::TooMany { what: "contents", limit: FILES_MAX });
                }
                self.content_bytes = self.content_bytes.saturating_add(section.size);
                let content = Content { section, is_named: false };
                if self.contents.insert(expected, content).is_some() {
                    return refused("it is there twice");
                }
            }
            MemberName::Files => self.files = Some((section, digest)),
            MemberName::Documents => self.documents = Some((section, digest)),
            MemberName::Manifest => {
                (self.manifest, self.manifest_digest) = (Some(head), Some(digest));
            }
        }
        Ok(())
    }

    /// Whether the last member was found.
    pub(super) fn is_complete(&self) -> bool {
        self.manifest.is_some()
    }
}

/// Where the bytes of an archive are.
#[derive(Debug)]
enum Source {
    Tar(Arc<File>),
    Directory(Directory),
}

/// An archive that was verified.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    source: Source,
    manifest: Manifest,
    digest: Digest,
    contents: HashMap<Digest, Content>,
    files: Section,
    documents: Section,
}

impl Archive {
    /// Opens and verifies an archive.
    ///
    /// * `progress`: called with the number of bytes of each piece that was read.
    ///
    /// # Errors
    /// [`ArchiveError`]: it is not an archive, is damaged, or breaks a rule.
    pub(crate) fn open(
        path: &Path,
        progress: &mut dyn FnMut(u64) -> Result<(), ArchiveError>,
    ) -> Result<Self, ArchiveError> {
        let cannot_read = |source| ArchiveError::Read { path: path.to_owned(), source };
        // Opening a pipe would wait for its other end.
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file =
            File::options().read(true).custom_flags(flags).open(path).map_err(cannot_read)?;
        let kind = file.metadata().map_err(cannot_read)?.file_type();
        let mut found = Found::default();
        let source = if kind.is_dir() {
            let directory = Directory::open(path, file)?;
            directory.scan(path, &mut found, progress)?;
            Source::Directory(directory)
        } else if kind.is_file() {
            let file = Arc::new(file);
            tar_file::scan(path, &file, &mut found, progress)?;
            Source::Tar(file)
        } else {
            let reason = "it is neither a regular file nor a directory".to_owned();
            return Err(ArchiveError::Tar { offset: 0, reason });
        };
        let (manifest, digest) = checked_manifest(&found)?;
        let section = |found: Option<(Section, Digest)>| found.map(|(section, _)| section);
        let (files, documents) = (section(found.files), section(found.documents));
        let mut archive = Self {
            path: path.to_owned(),
            source,
            manifest,
            digest,
            contents: found.contents,
            files: files.unwrap_or_default(),
            documents: documents.unwrap_or_default(),
        };
        archive.check_files()?;
        archive.check_documents()?;
        Ok(archive)
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The SHA-256 of the manifest's bytes, which stands for the whole archive.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the files in ascending order of their names.
    ///
    /// # Errors
    /// [`ArchiveError::Read`], [`ArchiveError::Cut`]: the list cannot be opened.
    pub(crate) fn files(&self) -> Result<Lines<FileLine>, ArchiveError> {
        let bytes = self.bytes(MemberName::Files, self.files)?;
        Ok(Lines::new(&self.path, bytes, FILES, FILE_LINE_SIZE_MAX))
    }

    /// Returns the documents in ascending order of their ids.
    ///
    /// # Errors
    /// [`ArchiveError::Read`], [`ArchiveError::Cut`]: they cannot be opened.
    pub(crate) fn documents(&self) -> Result<Lines<DocumentLine>, ArchiveError> {
        let bytes = self.bytes(MemberName::Documents, self.documents)?;
        Ok(Lines::new(&self.path, bytes, DOCUMENTS, DOCUMENT_LINE_SIZE_MAX))
    }

    /// Returns the bytes of files.
    ///
    /// # Errors
    /// [`ArchiveError::Cut`]: the archive has no such content. [`ArchiveError::Read`]: it cannot be opened.
    pub(crate) fn content(&self, digest: Digest) -> Result<MemberBytes, ArchiveError> {
        let name = MemberName::Content(digest);
        let missing = || ArchiveError::Cut { what: format!("it has no {}", name.text()) };
        let content = self.contents.get(&digest).ok_or_else(missing)?;
        self.bytes(name, content.section)
    }

    fn bytes(&self, name: MemberName, section: Section) -> Result<MemberBytes, ArchiveError> {
        let file = match &self.source {
            Source::Tar(file) => Arc::clone(file),
            Source::Directory(directory) => Arc::new(directory.member(name)?),
        };
        Ok(MemberBytes::new(file, section))
    }

    fn check_files(&mut self) -> Result<(), ArchiveError> {
        let (mut count, mut bytes) = (0, 0_u64);
        let mut last: Option<String> = None;
        let mut lines = self.files()?;
        while let Some(line) = lines.next()? {
            count += 1;
            if count > FILES_MAX {
                return Err(ArchiveError::TooMany { what: "files", limit: FILES_MAX });
            }
            let refused =
                |reason: String| ArchiveError::Line { member: FILES, line: count, reason };
            line.check().map_err(refused)?;
            match last.as_deref().map(|last| last.cmp(&line.name)) {
                None | Some(Ordering::Less) => {}
                Some(Ordering::Equal) => {
                    return Err(refused(format!("the name {:?} is there twice", line.name)));
                }
                Some(Ordering::Greater) => {
                    return Err(refused("the names are not in ascending order".to_owned()));
                }
            }
            let content = self.contents.get_mut(&line.sha256);
            let content = content
                .ok_or_else(|| refused(format!("the archive has no files/{}", line.sha256)))?;
            if content.section.size != line.size {
                let (expected, found) = (line.size, content.section.size);
                return Err(refused(format!(
                    "files/{} has {found} bytes, expected {expected}",
                    line.sha256
                )));
            }
            content.is_named = true;
            bytes = bytes.saturating_add(line.size);
            last = Some(line.name);
        }
        let part = &self.manifest.files;
        same("lines of files.ndjson", part.count, count)?;
        same("bytes of files", part.bytes, bytes)?;
        match self.contents.iter().find(|(_, content)| !content.is_named) {
            None => Ok(()),
            Some((digest, _)) => Err(ArchiveError::Member {
                name: MemberName::Content(*digest).text(),
                reason: "no line of files.ndjson names it",
            }),
        }
    }

    fn check_documents(&self) -> Result<(), ArchiveError> {
        let mut count = 0;
        let mut last = None;
        let mut lines = self.documents()?;
        while let Some(line) = lines.next()? {
            count += 1;
            let refused =
                |reason: String| ArchiveError::Line { member: DOCUMENTS, line: count, reason };
            line.bytes().map_err(refused)?;
            if last.is_some_and(|last| last >= line.id) {
                return Err(refused("the ids are not in ascending order".to_owned()));
            }
            last = Some(line.id);
        }
        same("lines of documents.ndjson", self.manifest.documents.count, count)
    }
}

/// Reads the manifest, and compares it with what was found.
fn checked_manifest(found: &Found) -> Result<(Manifest, Digest), ArchiveError> {
    let missing = |what: &str| ArchiveError::Cut { what: format!("it has no {what}") };
    let bytes = found.manifest.as_deref().ok_or_else(|| missing("manifest.json"))?;
    let digest = found.manifest_digest.ok_or_else(|| missing("manifest.json"))?;
    if bytes.len() as u64 > MANIFEST_SIZE_MAX {
        let reason = format!("it has more than {MANIFEST_SIZE_MAX} bytes");
        return Err(ArchiveError::Manifest { reason });
    }
    let manifest = Manifest::parse(bytes).map_err(|reason| ArchiveError::Manifest { reason })?;
    let (files, documents) = (&manifest.files, &manifest.documents);
    for (member, list, size, sha256) in [
        (FILES, found.files, files.size, files.sha256),
        (DOCUMENTS, found.documents, documents.size, documents.sha256),
    ] {
        let (section, digest) = list.ok_or_else(|| missing(member))?;
        same(&format!("bytes of {member}"), size, section.size)?;
        if digest != sha256 {
            let member = member.to_owned();
            return Err(ArchiveError::Digest { member, expected: sha256, found: digest });
        }
    }
    same("contents", files.contents, found.contents.len() as u64)?;
    same("bytes of contents", files.content_bytes, found.content_bytes)?;
    Ok((manifest, digest))
}

fn same(what: &str, expected: u64, found: u64) -> Result<(), ArchiveError> {
    match expected == found {
        true => Ok(()),
        false => Err(ArchiveError::Differs { what: what.to_owned(), expected, found }),
    }
}

/// The lines of a member.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    path: PathBuf,
    bytes: BufReader<MemberBytes>,
    member: &'static str,
    size_max: u64,
    line: u64,
    buffer: Vec<u8>,
    of: PhantomData<T>,
}

impl<T: DeserializeOwned> Lines<T> {
    fn new(path: &Path, bytes: MemberBytes, member: &'static str, size_max: u64) -> Self {
        Self {
            path: path.to_owned(),
            bytes: BufReader::with_capacity(PIECE, bytes),
            member,
            size_max,
            line: 0,
            buffer: Vec::new(),
            of: PhantomData,
        }
    }

    /// Reads the next line; `None` after the last.
    ///
    /// # Errors
    /// [`ArchiveError::Line`]: it is not what the member has. [`ArchiveError::Read`]: it cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<T>, ArchiveError> {
        self.buffer.clear();
        self.line += 1;
        let mut limited = self.bytes.by_ref().take(self.size_max + 1);
        let read = limited.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| ArchiveError::Read { path: self.path.clone(), source })?;
        let refused =
            |reason: String| ArchiveError::Line { member: self.member, line: self.line, reason };
        match self.buffer.strip_suffix(b"\n") {
            Some(line) => serde_json::from_slice(line)
                .map(Some)
                .map_err(|error| refused(error.to_string().escape_debug().to_string())),
            None if read == 0 => Ok(None),
            None if read as u64 > self.size_max => {
                Err(refused(format!("it has more than {} bytes", self.size_max)))
            }
            None => Err(refused("it has no line end".to_owned())),
        }
    }
}
