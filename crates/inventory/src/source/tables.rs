//! Sources of files with rows: an S3 Inventory by its manifest, and Parquet and CSV files.

use std::sync::Arc;

use super::csv::{self, CsvFile};
use super::input::{Expected, md5_hex};
use super::location::{FileLocation, Remote};
use super::manifest::{self, CHECKSUM_NAME, Format, MANIFEST_SIZE_MAX, Manifest};
use super::open::{Location, Settings};
use super::parquet::{self, ParquetFiles};
use super::{Part, Provenance, Source, SourceError, SourceFile};

/// Files with rows.
pub(crate) struct Tables {
    provenance: Provenance,
    content: Content,
}

enum Content {
    Parquet(ParquetFiles),
    Csv(Vec<(FileLocation, SourceFile, Expected)>, Arc<csv::Settings>),
}

impl Source for Tables {
    fn provenance(&self) -> Provenance {
        self.provenance.clone()
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        match &self.content {
            Content::Parquet(files) => Ok(files.parts()),
            Content::Csv(files, settings) => Ok(files
                .iter()
                .map(|(place, file, expected)| {
                    let settings = Arc::clone(settings);
                    let size = Some(file.size);
                    Box::new(CsvFile::new(place.clone(), size, expected.clone(), settings)) as _
                })
                .collect()),
        }
    }
}

impl Tables {
    /// Plain Parquet files.
    pub(crate) fn parquet(
        given: &str,
        places: Vec<FileLocation>,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let provenance = Provenance {
            source: given.to_owned(),
            format: "parquet".to_owned(),
            ..Provenance::default()
        };
        let files = places.into_iter().map(|place| (place, Expected::default())).collect();
        Self::of_parquet(provenance, files, settings)
    }

    fn of_parquet(
        mut provenance: Provenance,
        files: Vec<(FileLocation, Expected)>,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let named: Vec<_> =
            files.iter().map(|(place, expected)| (place.name(), expected.md5.clone())).collect();
        let settings = parquet::Settings {
            columns: settings.columns.clone(),
            classes: Arc::clone(&settings.classes),
            memory: settings.memory,
            temporary: settings.temporary.clone(),
        };
        let files = ParquetFiles::open(files, &settings)?;
        provenance.rows = Some(files.rows);
        if provenance.fields.is_empty() {
            provenance.fields.clone_from(&files.fields);
        }
        if provenance.files.is_empty() {
            let files = named.into_iter().zip(&files.sizes);
            provenance.files = files.map(|((name, md5), &size)| file(name, size, md5)).collect();
        }
        let fields = &provenance.fields;
        provenance.all_versions |= settings.columns.has_versions(fields);
        Ok(Self { provenance, content: Content::Parquet(files) })
    }

    /// CSV files with headers.
    pub(crate) fn csv(
        given: &str,
        places: Vec<FileLocation>,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let mut files = Vec::with_capacity(places.len());
        for place in places {
            let name = place.name();
            let size = place.size()?.ok_or_else(|| SourceError::Spec {
                given: name.clone(),
                reason: "there is no such file".to_owned(),
            })?;
            files.push((place, file(name, size, None), Expected::default()));
        }
        let fields = match files.first() {
            Some((place, ..)) => CsvFile::header(place)?,
            None => Vec::new(),
        };
        let provenance = Provenance {
            source: given.to_owned(),
            format: "csv".to_owned(),
            all_versions: settings.columns.has_versions(&fields),
            fields,
            files: files.iter().map(|(_, file, _)| file.clone()).collect(),
            ..Provenance::default()
        };
        let settings = csv::Settings {
            columns: settings.columns.clone(),
            names: None,
            encoded: settings.percent_encoded,
            classes: Arc::clone(&settings.classes),
        };
        Ok(Self { provenance, content: Content::Csv(files, Arc::new(settings)) })
    }

    /// An S3 Inventory.
    pub(crate) fn inventory(
        given: &str,
        location: &Location,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let place = location.place(settings)?;
        let name = place.name();
        let content = place.small(MANIFEST_SIZE_MAX)?.ok_or_else(|| SourceError::Spec {
            given: name.clone(),
            reason: "there is no such manifest".to_owned(),
        })?;
        let checksum = verified(location, &name, &content, settings)?;
        let manifest = Manifest::decode(&name, &content)?;
        let mut provenance = provenance(given, &manifest);
        let manifest_file = file(name.clone(), content.len() as u64, checksum);
        let mut files = Vec::with_capacity(manifest.files.len());
        match location {
            Location::Local(path) => {
                for file in &manifest.files {
                    let root = settings.root.as_deref();
                    let path = manifest::resolve::local(path, root, &file.key)?;
                    let place = FileLocation::Local(path, settings.within.clone());
                    files.push((place, file.expected(settings.verify)));
                }
            }
            Location::S3 { bucket, key } => {
                let named = manifest.destination.as_deref().unwrap_or(bucket);
                if let Some(first) = manifest.files.first() {
                    let at = (bucket.as_str(), key.as_str());
                    let places = RemoteFiles::find(&name, at, named, &first.key, settings)?;
                    for file in &manifest.files {
                        files.push((places.place(&file.key)?, file.expected(settings.verify)));
                    }
                }
            }
        }
        provenance.files = manifest
            .files
            .iter()
            .map(|data| file(data.key.clone(), data.size, data.expected(settings.verify).md5))
            .collect();
        provenance.files.push(manifest_file);
        match manifest.format {
            Format::Parquet => Self::of_parquet(provenance, files, settings),
            Format::Csv => {
                // Reported once for all files, before any is opened.
                settings.columns.places(&name, &manifest.fields)?;
                let csv = csv::Settings {
                    columns: settings.columns.clone(),
                    names: Some(manifest.fields),
                    encoded: true,
                    classes: Arc::clone(&settings.classes),
                };
                let described = files.into_iter().zip(&provenance.files);
                let files =
                    described.map(|((place, expected), file)| (place, file.clone(), expected));
                Ok(Self { content: Content::Csv(files.collect(), Arc::new(csv)), provenance })
            }
        }
    }
}

/// Where the files of a manifest in a bucket are. The first file determines it for all.
struct RemoteFiles<'a> {
    /// The key of the manifest.
    manifest: &'a str,
    remote: Remote,
    /// Which of the places of [`manifest::resolve::remote`].
    layout: usize,
}

impl<'a> RemoteFiles<'a> {
    /// * `name`: that of the manifest in messages. `bucket`, `key`: where it is. `first`: the key
    ///   of its first file.
    fn find(
        name: &str,
        (bucket, key): (&str, &'a str),
        named: &str,
        first: &str,
        settings: &Settings,
    ) -> Result<Self, SourceError> {
        let s3 = settings.s3(name)?;
        let (mut refused, mut tried) = (None, Vec::new());
        let places = manifest::resolve::remote(key, first);
        for (layout, (in_named, place)) in places.into_iter().enumerate() {
            let bucket = if in_named { named } else { bucket };
            let location = format!("s3://{bucket}/{place}");
            if tried.contains(&location) {
                continue;
            }
            tried.push(location);
            let found = s3.remote(bucket).and_then(|remote| {
                let size = remote.place(&place)?.size()?;
                Ok(size.map(|_| remote))
            });
            match found {
                Ok(Some(remote)) => return Ok(Self { manifest: key, remote, layout }),
                Ok(None) => {}
                // A copy is read also where the bucket that the manifest names is another account's.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or_else(|| SourceError::Manifest {
            manifest: name.to_owned(),
            reason: format!("its file {first:?} does not exist; tried {}", tried.join(", ")),
        }))
    }

    fn place(&self, key: &str) -> Result<FileLocation, SourceError> {
        let places = manifest::resolve::remote(self.manifest, key);
        let place = places.into_iter().nth(self.layout).map_or(key.to_owned(), |(_, key)| key);
        self.remote.place(&place)
    }
}

/// Compares a manifest with the MD5 beside it, if there is one; returns that MD5.
fn verified(
    location: &Location,
    name: &str,
    content: &[u8],
    settings: &Settings,
) -> Result<Option<String>, SourceError> {
    if !settings.verify {
        return Ok(None);
    }
    let beside = location.sibling(CHECKSUM_NAME).place(settings)?;
    let Some(checksum) = beside.small(1024)? else {
        return Ok(None);
    };
    let expected = manifest::checksum(&beside.name(), &checksum)?;
    let found = md5_hex(content);
    if expected != found {
        return Err(SourceError::Differs { file: name.to_owned(), what: "MD5", expected, found });
    }
    Ok(Some(found))
}

fn provenance(given: &str, manifest: &Manifest) -> Provenance {
    let format = match manifest.format {
        Format::Csv => "s3-inventory-csv",
        Format::Parquet => "s3-inventory-parquet",
    };
    Provenance {
        source: given.to_owned(),
        format: format.to_owned(),
        bucket: Some(manifest.source.clone()),
        listed_at_ms: manifest.created_ms,
        all_versions: manifest.has("islatest") || manifest.has("versionid"),
        fields: manifest.fields.clone(),
        ..Provenance::default()
    }
}

fn file(name: String, size: u64, md5: Option<String>) -> SourceFile {
    SourceFile { name, size, checksum: md5.map(|md5| format!("md5:{md5}")) }
}
