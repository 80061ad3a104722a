//! An archive as a directory: finding its members.
//!
//! Invariant: every file is opened below a directory that is held open, by a fixed name or 64 hexadecimal
//! digits, without following a symbolic link.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags, openat};

use super::error::ArchiveError;
use super::members::{
    CONTENTS, DOCUMENTS, FILES, MANIFEST, MemberBytes, MemberName, Section, hash,
};
use super::reader::Found;

/// A directory that is held open, and that of its contents.
#[derive(Debug)]
pub(super) struct Directory {
    root: File,
    contents: Option<File>,
}

impl Directory {
    /// Opens a directory, and refuses one with other files than an archive has.
    pub(super) fn open(path: &Path, root: File) -> Result<Self, ArchiveError> {
        let cannot_read = |source| ArchiveError::Read { path: path.to_owned(), source };
        let mut directory = Self { root, contents: None };
        for name in names(&directory.root).map_err(cannot_read)? {
            let name = name.map_err(cannot_read)?;
            if name == CONTENTS.as_bytes() {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let contents = openat(&directory.root, CONTENTS, flags, Mode::empty());
                directory.contents =
                    Some(contents.map_err(|error| not_plain(&name, error.into()))?.into());
            } else {
                MemberName::parse(&name)?;
            }
        }
        Ok(directory)
    }

    /// Reads all members, and adds them to `found`.
    ///
    /// * `progress`: called with the number of bytes of each piece.
    pub(super) fn scan(
        &self,
        path: &Path,
        found: &mut Found,
        progress: &mut dyn FnMut(u64) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let cannot_read = |source| ArchiveError::Read { path: path.to_owned(), source };
        if let Some(contents) = &self.contents {
            for name in names(contents).map_err(cannot_read)? {
                let name = name.map_err(cannot_read)?;
                let member = MemberName::parse(&[b"files/", &*name].concat())?;
                self.read(path, member, found, progress)?;
            }
        }
        for member in [MemberName::Files, MemberName::Documents, MemberName::Manifest] {
            self.read(path, member, found, progress)?;
        }
        Ok(())
    }

    fn read(
        &self,
        path: &Path,
        member: MemberName,
        found: &mut Found,
        progress: &mut dyn FnMut(u64) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let cannot_read = |source| ArchiveError::Read { path: path.to_owned(), source };
        let file = self.member(member)?;
        let size = file.metadata().map_err(cannot_read)?.len();
        let section = Section { at: 0, size };
        let mut head = Vec::new();
        let mut bytes = MemberBytes::new(Arc::new(file), section);
        let (_, digest) = hash(&mut bytes, cannot_read, &mut |bytes| {
            found.keep(member, &mut head, bytes);
            progress(bytes.len() as u64)
        })?;
        found.add(member, section, digest, head)
    }

    /// Opens a member.
    pub(super) fn member(&self, member: MemberName) -> Result<File, ArchiveError> {
        let text = member.text();
        let missing = || ArchiveError::Cut { what: format!("it has no {text}") };
        let (directory, name) = match member {
            MemberName::Content(digest) => {
                (self.contents.as_ref().ok_or_else(missing)?, digest.to_string())
            }
            MemberName::Files => (&self.root, FILES.to_owned()),
            MemberName::Documents => (&self.root, DOCUMENTS.to_owned()),
            MemberName::Manifest => (&self.root, MANIFEST.to_owned()),
        };
        // Opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match openat(directory, &*name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(rustix::io::Errno::NOENT) => return Err(missing()),
            Err(error) => return Err(not_plain(text.as_bytes(), error.into())),
        };
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(file),
            Ok(_) => Err(ArchiveError::Member { name: text, reason: "it is no regular file" }),
            Err(error) => Err(not_plain(text.as_bytes(), error)),
        }
    }
}

/// The error for a member that cannot be opened.
fn not_plain(name: &[u8], source: io::Error) -> ArchiveError {
    let name = String::from_utf8_lossy(name).into_owned();
    // ELOOP: a symbolic link is not followed. ENOTDIR: so for a directory.
    match rustix::io::Errno::from_io_error(&source) {
        Some(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            ArchiveError::Member { name, reason: "it is no regular file" }
        }
        _ => ArchiveError::Read { path: name.escape_debug().to_string().into(), source },
    }
}

/// The names in a directory, without its own and that above.
fn names(directory: &File) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>>> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    Ok(names.filter(|name: &io::Result<Vec<u8>>| !matches!(name.as_deref(), Ok(b"." | b".."))))
}
