//! An image of a data directory: what its files held at one moment, to be copied at any pace.
//!
//! ```text
//! <image>/files/<path>   a hard link to the file at <path> of the data directory, or a copy of it
//! <image>/list           one JSON object a line for each file, then one with their number; written last
//! ```
//!
//! A file that is never changed again, or is only appended to, is linked: this takes no space and no time. Of
//! one that is appended to the list has the number of bytes that count, and the size to which the copy is
//! filled with zeros. A file that is changed in place is copied. Where links are impossible everything is
//! copied.
//!
//! Invariants: an image without a list is none; what counts of a linked file never changes; no path in a list
//! leads out of the image.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, ErrorKind, Write as _};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Maximum number of files of an image that are listed in memory.
const LISTED_MAX: usize = 4_096;
/// Maximum length of a line of the list, in bytes.
const LINE_SIZE_MAX: u64 = 64 << 10;
/// How often an attempt is repeated because files were replaced meanwhile.
const ATTEMPTS_MAX: usize = 20;

/// Why an image could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The device failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// On which file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file cannot be part of an image.
    #[error("{} cannot be part of an image: {reason}", path.display())]
    Path {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// The list of an image is not whole.
    #[error("{} is not the list of an image: {reason}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ImageError {
    /// Whether a file did not exist, as happens when it is replaced or removed meanwhile.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::NotFound)
    }
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_path_buf();
    move |source| ImageError::Io { act, path, source }
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFile {
    /// Its path below the data directory, and below the `files` of the image.
    pub path: String,
    /// How many of its bytes count, from the first.
    pub bytes: u64,
    /// Size of the file with the zeros that follow them.
    pub size: u64,
    /// Whether the end of the file may be cut off meanwhile, and zeros are as good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_shrink: bool,
}

/// The last line of a list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    files: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    File(ImageFile),
    End(End),
}

/// An image that is being made.
#[derive(Debug)]
pub struct Image {
    root: PathBuf,
    dir: PathBuf,
    list: BufWriter<File>,
    /// Files that are not yet in the list.
    waiting: Vec<ImageFile>,
    /// Whether they may have to be taken back.
    attempting: bool,
    files: u64,
    bytes: u64,
}

impl Image {
    /// Begins an image.
    ///
    /// * `root`: the data directory. All files are given with paths below it.
    /// * `dir`: where the image will be, on the same file system if possible. Must not exist.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn create(root: &Path, dir: &Path) -> Result<Self, ImageError> {
        let files = dir.join("files");
        std::fs::create_dir(dir).map_err(failed("create", dir))?;
        std::fs::create_dir(&files).map_err(failed("create", &files))?;
        let list = dir.join("list.new");
        let list = File::create_new(&list).map_err(failed("create", &list))?;
        Ok(Self {
            root: root.to_path_buf(),
            dir: dir.to_path_buf(),
            list: BufWriter::new(list),
            waiting: Vec::new(),
            attempting: false,
            files: 0,
            bytes: 0,
        })
    }

    /// Number of files so far, and the bytes of them that count.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// Whether a path is inside the data directory.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// Adds a file that is never changed again, only replaced or removed.
    ///
    /// # Errors
    /// [`ImageError`]; the file is not part of the image.
    pub fn link(&mut self, path: &Path) -> Result<(), ImageError> {
        let place = self.place(path)?;
        link(path, &place)?;
        let size = std::fs::metadata(&place).map_err(failed("inspect", &place))?.len();
        self.add(path, size, size)
    }

    /// Adds the beginning of a file that is only appended to.
    ///
    /// * `bytes`: how many bytes count. If the file is shorter, those that it has.
    /// * `size`: the size to which a copy is filled with zeros.
    ///
    /// # Errors
    /// [`ImageError`]; the file is not part of the image.
    pub fn link_beginning(&mut self, path: &Path, bytes: u64, size: u64) -> Result<(), ImageError> {
        let place = self.place(path)?;
        link(path, &place)?;
        self.add(path, bytes, size.max(bytes))
    }

    /// Adds a file that is only appended to, as long as it is now.
    ///
    /// # Errors
    /// [`ImageError`]; the file is not part of the image.
    pub fn link_growing(&mut self, path: &Path) -> Result<(), ImageError> {
        let size = std::fs::metadata(path).map_err(failed("inspect", path))?.len();
        self.link_beginning(path, size, size)
    }

    /// Like [`link_growing`](Self::link_growing), for a file whose end may be cut off meanwhile, and whose readers
    /// take zeros there for an end that was never written.
    ///
    /// # Errors
    /// [`ImageError`]; the file is not part of the image.
    pub fn link_unsettled(&mut self, path: &Path) -> Result<(), ImageError> {
        let place = self.place(path)?;
        link(path, &place)?;
        let size = std::fs::metadata(&place).map_err(failed("inspect", &place))?.len();
        self.list(path, size, size, true)
    }

    /// Adds a copy of a file that may be changed in place, or that someone may edit.
    ///
    /// # Errors
    /// [`ImageError`]; the file is not part of the image.
    pub fn copy(&mut self, path: &Path) -> Result<(), ImageError> {
        let place = self.place(path)?;
        std::fs::copy(path, &place).map_err(failed("copy", path))?;
        self.made(path)
    }

    /// Like [`copy`](Self::copy), and nothing if the file does not exist.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn copy_if_exists(&mut self, path: &Path) -> Result<(), ImageError> {
        match self.copy(path) {
            Err(error) if error.is_missing() => Ok(()),
            copied => copied,
        }
    }

    /// Returns where the caller puts its own copy of a file, and then calls [`made`](Self::made). The directory
    /// exists.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn place(&self, path: &Path) -> Result<PathBuf, ImageError> {
        let place = self.dir.join("files").join(self.inside(path)?);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(failed("create", parent))?;
        }
        Ok(place)
    }

    /// Adds what the caller put at the [`place`](Self::place) of a file.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn made(&mut self, path: &Path) -> Result<(), ImageError> {
        let place = self.dir.join("files").join(self.inside(path)?);
        let size = std::fs::metadata(&place).map_err(failed("inspect", &place))?.len();
        self.add(path, size, size)
    }

    /// Runs `add` until it finds every file that it adds. What an attempt added that did not is taken back.
    ///
    /// # Errors
    /// Those of `add`; after many attempts also that a file is missing.
    pub fn attempt<E: From<ImageError>>(
        &mut self,
        is_missing: impl Fn(&E) -> bool,
        mut add: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush()?;
        self.attempting = true;
        let mut attempts = 1;
        let done = loop {
            let totals = self.totals();
            match add(self) {
                Err(error) if is_missing(&error) && attempts < ATTEMPTS_MAX => {
                    if let Err(error) = self.take_back(totals) {
                        break Err(error.into());
                    }
                    attempts += 1;
                }
                done => break done,
            }
        };
        self.attempting = false;
        done?;
        Ok(self.flush()?)
    }

    fn take_back(&mut self, (files, bytes): (u64, u64)) -> Result<(), ImageError> {
        for file in self.waiting.drain(..) {
            let place = self.dir.join("files").join(&file.path);
            std::fs::remove_file(&place).map_err(failed("remove", &place))?;
        }
        (self.files, self.bytes) = (files, bytes);
        Ok(())
    }

    /// Completes the image.
    ///
    /// # Errors
    /// [`ImageError::Io`]; there is no image.
    pub fn finish(mut self) -> Result<(u64, u64), ImageError> {
        self.flush()?;
        let (new, list) = (self.dir.join("list.new"), self.dir.join("list"));
        self.write(&End { files: self.files })?;
        self.list.flush().map_err(failed("write", &new))?;
        std::fs::rename(&new, &list).map_err(failed("rename", &new))?;
        Ok(self.totals())
    }

    /// The path of a file inside the data directory.
    fn inside<'a>(&self, path: &'a Path) -> Result<&'a Path, ImageError> {
        let refused = |reason| ImageError::Path { path: path.to_path_buf(), reason };
        let inside = path
            .strip_prefix(&self.root)
            .map_err(|_| refused("it is outside of the data directory"))?;
        let text = inside.to_str().ok_or_else(|| refused("its name is not UTF-8"))?;
        if is_safe(text) { Ok(inside) } else { Err(refused("its path is not plain")) }
    }

    fn add(&mut self, path: &Path, bytes: u64, size: u64) -> Result<(), ImageError> {
        self.list(path, bytes, size, false)
    }

    fn list(
        &mut self,
        path: &Path,
        bytes: u64,
        size: u64,
        may_shrink: bool,
    ) -> Result<(), ImageError> {
        let path = self.inside(path)?.to_string_lossy().into_owned();
        self.files += 1;
        self.bytes += bytes;
        self.waiting.push(ImageFile { path, bytes, size, may_shrink });
        if self.waiting.len() >= LISTED_MAX && !self.attempting { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ImageError> {
        for file in std::mem::take(&mut self.waiting) {
            self.write(&file)?;
        }
        Ok(())
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), ImageError> {
        let path = self.dir.join("list.new");
        let mut text = serde_json::to_vec(line)
            .map_err(|error| ImageError::List { path: path.clone(), reason: error.to_string() })?;
        text.push(b'\n');
        self.list.write_all(&text).map_err(failed("write", &path))
    }
}

/// Whether a path has plain components only, so that it cannot lead out of the directory it is joined to.
#[must_use]
pub fn is_safe(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && !path.split('/').any(|part| matches!(part, "" | "." | ".."))
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Links a file, or copies it where that is not possible.
fn link(from: &Path, to: &Path) -> Result<(), ImageError> {
    let copied = match std::fs::hard_link(from, to) {
        Err(error) if cannot_link(&error) => std::fs::copy(from, to).map(drop),
        linked => linked,
    };
    copied.map_err(failed("link", from))
}

/// Whether links of this file are impossible there, though it exists.
fn cannot_link(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::XDEV, Errno::PERM, Errno::OPNOTSUPP, Errno::MLINK, Errno::NOSYS]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

/// The files of a complete image, in the order in which they were added.
#[derive(Debug)]
pub struct ImageList {
    path: PathBuf,
    lines: BufReader<File>,
    files: u64,
    ended: bool,
}

impl ImageList {
    /// Opens the list of an image.
    ///
    /// # Errors
    /// [`ImageError::Io`]: there is none, or it cannot be read.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        let path = dir.join("list");
        let file = File::open(&path).map_err(failed("open", &path))?;
        Ok(Self { path, lines: BufReader::new(file), files: 0, ended: false })
    }

    fn read(&mut self) -> Result<Option<ImageFile>, ImageError> {
        let wrong =
            |reason: &str| ImageError::List { path: self.path.clone(), reason: reason.to_owned() };
        let mut line = Vec::new();
        let mut limited = io::Read::take(&mut self.lines, LINE_SIZE_MAX);
        limited.read_until(b'\n', &mut line).map_err(failed("read", &self.path))?;
        if line.pop() != Some(b'\n') {
            return Err(wrong("it ends inside a line, or a line is too long"));
        }
        match serde_json::from_slice(&line).map_err(|error| wrong(&error.to_string()))? {
            Line::File(file) if is_safe(&file.path) && file.bytes <= file.size => {
                self.files += 1;
                Ok(Some(file))
            }
            Line::File(_) => Err(wrong("a line has no valid path or size")),
            Line::End(end) if end.files == self.files => Ok(None),
            Line::End(_) => Err(wrong("it lacks files")),
        }
    }
}

impl Iterator for ImageList {
    type Item = Result<ImageFile, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dir: &Path, add: impl FnOnce(&mut Image, &Path)) -> Vec<ImageFile> {
        let root = dir.join("data");
        let mut image = Image::create(&root, &root.join("image")).unwrap();
        add(&mut image, &root);
        image.finish().unwrap();
        ImageList::open(&root.join("image")).unwrap().map(Result::unwrap).collect()
    }

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data/a")).unwrap();
        std::fs::write(dir.path().join("data/a/one"), "1111").unwrap();
        std::fs::write(dir.path().join("data/two"), "22").unwrap();
        dir
    }

    #[test]
    fn a_list_has_what_was_added_and_links_keep_removed_files() {
        let dir = data();
        let files = made(dir.path(), |image, root| {
            image.link_beginning(&root.join("a/one"), 3, 8).unwrap();
            image.copy(&root.join("two")).unwrap();
            image.copy_if_exists(&root.join("three")).unwrap();
            std::fs::write(root.join("three"), "333").unwrap();
            image.link_unsettled(&root.join("three")).unwrap();
        });
        let file = |path: &str, bytes, size| ImageFile {
            path: path.to_owned(),
            bytes,
            size,
            may_shrink: path == "three",
        };
        assert_eq!(files, [file("a/one", 3, 8), file("two", 2, 2), file("three", 3, 3)]);
        std::fs::remove_file(dir.path().join("data/a/one")).unwrap();
        let kept = std::fs::read(dir.path().join("data/image/files/a/one")).unwrap();
        assert_eq!(kept, b"1111");
    }

    #[test]
    fn an_attempt_that_misses_a_file_leaves_nothing() {
        let dir = data();
        let mut times = 0;
        let files = made(dir.path(), |image, root| {
            let done = image.attempt(ImageError::is_missing, |image| {
                times += 1;
                image.link(&root.join("a/one"))?;
                image.link(&root.join(if times < 3 { "none" } else { "two" }))
            });
            done.unwrap();
            let never =
                image.attempt(ImageError::is_missing, |image| image.link(&root.join("none")));
            assert!(never.unwrap_err().is_missing());
        });
        assert_eq!(files.len(), 2);
    }

    #[test]
    fn a_list_that_was_cut_or_leads_out_is_refused() {
        let dir = data();
        made(dir.path(), |image, root| {
            assert!(image.link(Path::new("/etc/passwd")).is_err());
            assert!(image.link(&root.join("../data/two")).is_err());
            image.link(&root.join("two")).unwrap();
        });
        let image = dir.path().join("data/image");
        let list = std::fs::read_to_string(image.join("list")).unwrap();
        let refused = |text: &str| {
            std::fs::write(image.join("list"), text).unwrap();
            let read: Result<Vec<_>, _> = ImageList::open(&image).unwrap().collect();
            read.unwrap_err();
        };
        for at in 0..list.len() {
            refused(&list[..at]);
        }
        refused("{\"path\":\"../x\",\"bytes\":0,\"size\":0}\n{\"files\":1}\n");
        refused("{\"path\":\"x\",\"bytes\":0,\"size\":0}\n{\"files\":2}\n");
    }
}
