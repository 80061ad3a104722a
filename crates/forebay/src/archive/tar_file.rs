//! An archive as a tar file: finding its members, and writing one.
//!
//! Invariants: only plain headers of regular files are accepted, so nothing of an archive changes how the rest
//! is read, and no more memory is used than a header has; the end is there, and nothing follows it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_intake::digest::Digest;
use tar::{EntryType, Header};

use super::error::ArchiveError;
use super::members::{MemberBytes, MemberName, PIECE, Section, hash};
use super::reader::Found;

/// Size of a block.
const BLOCK: u64 = 512;
/// Minimum number of zeros at the end.
const END_SIZE_MIN: u64 = 2 * BLOCK;
/// Maximum number of zeros at the end. Programs pad to several blocks.
const END_SIZE_MAX: u64 = 1 << 20;

/// Reads a whole tar file, and adds its members to `found`.
///
/// * `progress`: called with the number of bytes of each piece.
pub(super) fn scan(
    path: &Path,
    file: &Arc<File>,
    found: &mut Found,
    progress: &mut dyn FnMut(u64) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let cannot_read = |source| ArchiveError::Read { path: path.to_owned(), source };
    let size = file.metadata().map_err(cannot_read)?.len();
    let whole = MemberBytes::new(Arc::clone(file), Section { at: 0, size });
    let mut archive = tar::Archive::new(BufReader::with_capacity(PIECE, whole));
    let mut end = 0;
    // Raw: extended headers are members of other types, and refused like these.
    for entry in archive.entries().map_err(cannot_read)?.raw(true) {
        let mut entry = entry.map_err(|_| not_tar(end, size))?;
        let name = entry.path_bytes().into_owned();
        if entry.header().entry_type() != EntryType::Regular {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(ArchiveError::Member { name, reason: "it is no regular file" });
        }
        let name = MemberName::parse(&name)?;
        let section = Section { at: entry.raw_file_position(), size: entry.size() };
        end = section.at.saturating_add(section.size.div_ceil(BLOCK).saturating_mul(BLOCK));
        if end > size {
            return Err(ArchiveError::Cut { what: format!("it ends within {}", name.text()) });
        }
        let mut head = Vec::new();
        let (read, digest) = hash(&mut entry, cannot_read, &mut |bytes| {
            found.keep(name, &mut head, bytes);
            progress(bytes.len() as u64)
        })?;
        if read != section.size {
            return Err(ArchiveError::Cut { what: format!("it ends within {}", name.text()) });
        }
        found.add(name, section, digest, head)?;
    }
    if !found.is_complete() {
        return Err(ArchiveError::Cut { what: "it has no manifest.json at its end".to_owned() });
    }
    check_end(file, size, end, cannot_read)
}

/// The error for a header that cannot be read. That of the crate repeats parts of the file.
fn not_tar(offset: u64, size: u64) -> ArchiveError {
    if size.saturating_sub(offset) < BLOCK {
        return ArchiveError::Cut { what: format!("it ends within a header at byte {offset}") };
    }
    let reason = "this is no header of a tar file, or it is damaged".to_owned();
    ArchiveError::Tar { offset, reason }
}

/// Checks that zeros follow the last member, and nothing else.
fn check_end(
    file: &Arc<File>,
    size: u64,
    end: u64,
    cannot_read: impl Fn(io::Error) -> ArchiveError,
) -> Result<(), ArchiveError> {
    let zeros = size.saturating_sub(end);
    if zeros < END_SIZE_MIN {
        return Err(ArchiveError::Cut { what: "its last blocks are missing".to_owned() });
    }
    let follows = |offset| ArchiveError::Tar {
        offset,
        reason: "something follows the end of the archive".to_owned(),
    };
    if zeros > END_SIZE_MAX {
        return Err(follows(end));
    }
    let mut rest = Vec::new();
    let section = Section { at: end, size: zeros };
    MemberBytes::new(Arc::clone(file), section).read_to_end(&mut rest).map_err(cannot_read)?;
    match rest.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(index) => Err(follows(end + index as u64)),
    }
}

/// Writes the header of a member.
pub(super) fn write_header(to: &mut impl Write, name: MemberName, size: u64) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_path(name.text())?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    to.write_all(header.as_bytes())
}

/// Writes the zeros after a member of `size` bytes.
pub(super) fn write_padding(to: &mut impl Write, size: u64) -> io::Result<()> {
    let count = size.next_multiple_of(BLOCK) - size;
    io::copy(&mut io::repeat(0).take(count), to).map(drop)
}

/// Writes the end of an archive.
pub(super) fn write_end(to: &mut impl Write) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(END_SIZE_MIN), to).map(drop)
}

/// Removes what was written from `at` on.
pub(super) fn cut_back(file: &mut File, at: u64) -> io::Result<()> {
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at)).map(drop)
}

/// The error of a content that differs from its declaration.
pub(super) fn check_content(
    (digest, size): (Digest, u64),
    (found, found_size): (Digest, u64),
) -> Result<(), ArchiveError> {
    let member = MemberName::Content(digest).text();
    if found_size != size {
        let what = format!("bytes of {member}");
        return Err(ArchiveError::Differs { what, expected: size, found: found_size });
    }
    if found != digest {
        return Err(ArchiveError::Digest { member, expected: digest, found });
    }
    Ok(())
}
