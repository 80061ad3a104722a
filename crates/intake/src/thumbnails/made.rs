//! Making thumbnails: the `image` crate decodes, within limits.

use std::io::{self, Cursor};
use std::sync::Arc;

use ::image::codecs::jpeg::JpegEncoder;
use ::image::metadata::Orientation;
use ::image::{
    DynamicImage, ImageDecoder as _, ImageEncoder as _, ImageError, ImageFormat, ImageReader,
    Limits,
};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Thumbnail;
use crate::digest::Digest;
use crate::error::IntakeError;
use crate::intake::Intake;
use crate::meters;
use crate::operations::StoredFile;
use crate::upload::FileBytes;

/// Maximum size of a picture's file, in bytes.
const FILE_SIZE_MAX: u64 = 32 << 20;
/// Maximum width and height of a picture.
const SIDE_MAX: u32 = 16_384;
/// Maximum memory of decoding a picture, in bytes: 44 million pixels of three colours.
const DECODING_SIZE_MAX: u64 = 128 << 20;
/// Number of pictures decoded at a time.
const AT_A_TIME: usize = 2;
/// Number of requests that wait for one of these.
const WAITING_MAX: usize = 64;
/// Memory of the thumbnails that are kept, in bytes.
const KEPT_SIZE_MAX: u64 = 16 << 20;
/// An estimate of a thumbnail's size, in bytes.
const USUAL_SIZE: u64 = 8 << 10;
/// Quality of JPEG, of 100.
const QUALITY: u8 = 80;

/// Those that are kept, and the turns to make more.
#[derive(Debug)]
pub(crate) struct Thumbnails {
    kept: Cache<(Digest, u32), Thumbnail, BySize>,
    making: Arc<Semaphore>,
    waiting: Semaphore,
}

#[derive(Debug, Clone)]
struct BySize;

impl Weighter<(Digest, u32), Thumbnail> for BySize {
    fn weight(&self, _: &(Digest, u32), thumbnail: &Thumbnail) -> u64 {
        thumbnail.bytes.len() as u64 + 128
    }
}

impl Default for Thumbnails {
    fn default() -> Self {
        let items = usize::try_from(KEPT_SIZE_MAX / USUAL_SIZE).unwrap_or(1);
        Self {
            kept: Cache::with_weighter(items, KEPT_SIZE_MAX, BySize),
            making: Arc::new(Semaphore::new(AT_A_TIME)),
            waiting: Semaphore::new(AT_A_TIME + WAITING_MAX),
        }
    }
}

pub(super) async fn thumbnail(
    intake: &Intake,
    file: &StoredFile,
    size: u32,
) -> Result<Thumbnail, IntakeError> {
    let found = make(intake, file, size).await;
    meters::thumbnail(found.as_ref().map(|(_, kept)| *kept).ok());
    found.map(|(thumbnail, _)| thumbnail)
}

/// A thumbnail, and whether it was kept from before.
async fn make(
    intake: &Intake,
    file: &StoredFile,
    size: u32,
) -> Result<(Thumbnail, bool), IntakeError> {
    let thumbnails = &intake.inner.shared.thumbnails;
    let record = &file.record;
    let format = format_of(&record.mime)
        .ok_or_else(|| none(format!("there are no thumbnails of {}", record.mime)))?;
    let key = (record.digest, size);
    if let Some(thumbnail) = thumbnails.kept.get(&key) {
        return Ok((thumbnail, true));
    }
    if record.size > FILE_SIZE_MAX {
        let limit = FILE_SIZE_MAX >> 20;
        return Err(none(format!("the picture is larger than {limit} MiB")));
    }
    let busy = IntakeError::Busy { what: "too many thumbnails are being made" };
    let Ok(_waiting) = thumbnails.waiting.try_acquire() else { return Err(busy) };
    let Ok(turn) = Arc::clone(&thumbnails.making).acquire_owned().await else { return Err(busy) };
    // Another request may have made it meanwhile.
    if let Some(thumbnail) = thumbnails.kept.get(&key) {
        return Ok((thumbnail, true));
    }
    let (bytes, digest) = (intake.read(file)?, record.digest);
    let made = holding(turn, move || {
        let bytes = whole(&bytes).map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => {
                IntakeError::Damaged { digest: digest.to_hex(), found: source.to_string() }
            }
            _ => IntakeError::Blob { act: "read", source },
        })?;
        reduce(&bytes, format, size).map_err(|reason| none(reason.to_string()))
    });
    // A decoder that panics on these bytes cannot decode them.
    let failed = || Err(none("the picture cannot be decoded".to_owned()));
    let thumbnail = made.await.unwrap_or_else(failed)?;
    thumbnails.kept.insert(key, thumbnail.clone());
    Ok((thumbnail, false))
}

/// Runs `work` on a thread that may block, and gives its turn back when it ends, also if the caller has
/// left before: work that no client waits for takes as much memory and time. `None` if it panicked.
async fn holding<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let worked = forebay_base::blocking::spawn(move || {
        let _turn = turn;
        work()
    });
    worked.await.ok()
}

fn none(text: String) -> IntakeError {
    IntakeError::rejected("no_thumbnail", text)
}

fn format_of(mime: &str) -> Option<ImageFormat> {
    match mime {
        "image/bmp" => Some(ImageFormat::Bmp),
        "image/gif" => Some(ImageFormat::Gif),
        "image/jpeg" => Some(ImageFormat::Jpeg),
        "image/png" | "image/apng" => Some(ImageFormat::Png),
        "image/webp" => Some(ImageFormat::WebP),
        _ => None,
    }
}

/// All bytes of a file.
fn whole(bytes: &FileBytes) -> io::Result<Bytes> {
    let reader = match bytes {
        FileBytes::Memory(bytes) => return Ok(bytes.clone()),
        FileBytes::File(reader) => reader,
    };
    let mut whole = Vec::new();
    loop {
        let more = reader.read(whole.len() as u64, u64::MAX)?;
        if more.is_empty() {
            return Ok(whole.into());
        }
        whole.extend_from_slice(&more);
    }
}

/// Decodes a picture and makes it small.
fn reduce(bytes: &[u8], format: ImageFormat, size: u32) -> Result<Thumbnail, ImageError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    limits.max_alloc = Some(DECODING_SIZE_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    limits.reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let whole = DynamicImage::from_decoder(decoder)?;
    let mut small = match whole.width().max(whole.height()) > size {
        true => whole.thumbnail(size, size),
        false => whole,
    };
    small.apply_orientation(orientation);
    let mut out = Vec::new();
    let mime = if is_transparent(&small) {
        small.to_rgba8().write_to(&mut Cursor::new(&mut out), ImageFormat::Png)?;
        "image/png"
    } else {
        let pixels = small.to_rgb8();
        JpegEncoder::new_with_quality(&mut out, QUALITY).write_image(
            &pixels,
            pixels.width(),
            pixels.height(),
            ::image::ExtendedColorType::Rgb8,
        )?;
        "image/jpeg"
    };
    Ok(Thumbnail { bytes: out.into(), mime })
}

/// Whether a picture shows what is behind it somewhere. Some decoders return an alpha channel for every picture.
fn is_transparent(picture: &DynamicImage) -> bool {
    picture.color().has_alpha() && picture.to_rgba8().pixels().any(|pixel| pixel.0[3] < u8::MAX)
}

/// A thumbnail of a picture with a media type; `None` if there is none.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn decode(bytes: &[u8], mime: &str, size: u32) -> Option<Thumbnail> {
    reduce(bytes, format_of(mime)?, size).ok()
}

#[cfg(test)]
mod tests {
    use ::image::{Rgb, RgbImage, Rgba, RgbaImage};

    use super::*;

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut out = Vec::new();
        picture.write_to(&mut Cursor::new(&mut out), format).unwrap();
        out
    }

    fn opaque(width: u32, height: u32) -> DynamicImage {
        RgbImage::from_fn(width, height, |x, _| match x < width / 2 {
            true => Rgb([250, 0, 0]),
            false => Rgb([0, 0, 250]),
        })
        .into()
    }

    fn decoded(thumbnail: &Thumbnail) -> DynamicImage {
        let format = ImageFormat::from_mime_type(thumbnail.mime).unwrap();
        ::image::load_from_memory_with_format(&thumbnail.bytes, format).unwrap()
    }

    #[test]
    fn every_format_becomes_a_small_picture_of_the_same_shape() {
        for mime in ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"] {
            let format = format_of(mime).unwrap();
            let small = reduce(&encoded(&opaque(400, 100), format), format, 64).unwrap();
            assert_eq!(small.mime, "image/jpeg", "{mime} without transparency");
            let picture = decoded(&small);
            assert_eq!((picture.width(), picture.height()), (64, 16), "{mime}");
            let pixels = picture.to_rgb8();
            let (left, right) = (pixels.get_pixel(8, 8), pixels.get_pixel(56, 8));
            assert!(left.0[0] > 200 && left.0[2] < 60, "{mime}: {left:?}");
            assert!(right.0[2] > 200 && right.0[0] < 60, "{mime}: {right:?}");
        }
    }

    #[test]
    fn transparency_stays_and_small_pictures_are_not_enlarged() {
        let clear = RgbaImage::from_pixel(20, 10, Rgba([9, 9, 9, 0])).into();
        let small = reduce(&encoded(&clear, ImageFormat::Png), ImageFormat::Png, 64).unwrap();
        let picture = decoded(&small);
        assert_eq!((small.mime, picture.width(), picture.height()), ("image/png", 20, 10));
        assert_eq!(picture.to_rgba8().get_pixel(0, 0).0[3], 0);
    }

    #[tokio::test]
    async fn a_turn_lasts_until_the_decoding_ends_also_without_its_client() {
        let making = Arc::new(Semaphore::new(1));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let turn = Arc::clone(&making).try_acquire_owned().unwrap();
        let client = tokio::spawn(holding(turn, move || wait.recv().is_ok()));
        // It has left before its picture was decoded.
        tokio::task::yield_now().await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(making.available_permits(), 0);
        go.send(()).unwrap();
        assert!(making.acquire().await.is_ok(), "the turn is given back in the end");
    }

    #[tokio::test]
    async fn a_decoder_that_panics_gives_its_turn_back() {
        let making = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&making).try_acquire_owned().unwrap();
        assert_eq!(holding(turn, || -> u8 { panic!("on these bytes") }).await, None);
        assert_eq!(making.available_permits(), 1);
    }

    /// A JPEG whose EXIF says that it was held turned to the right.
    fn turned() -> Vec<u8> {
        let jpeg = encoded(&opaque(64, 32), ImageFormat::Jpeg);
        let exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        let size = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
        [&jpeg[..2], &[0xff, 0xe1], &size, exif, &jpeg[2..]].concat()
    }

    #[test]
    fn a_picture_that_was_held_turned_becomes_upright() {
        let picture = decoded(&reduce(&turned(), ImageFormat::Jpeg, 32).unwrap());
        assert_eq!((picture.width(), picture.height()), (16, 32));
        let pixels = picture.to_rgb8();
        assert!(pixels.get_pixel(8, 4).0[0] > 200, "red was left, and is above");
        assert!(pixels.get_pixel(8, 28).0[2] > 200, "blue was right, and is below");
    }

    #[test]
    fn pictures_beyond_the_limits_are_refused_before_their_pixels_are_read() {
        // The size is in the header; nothing follows it.
        let mut png = encoded(&opaque(8, 8), ImageFormat::Png);
        for (width, height) in [(60_000u32, 8u32), (16_000, 16_000)] {
            png[16..20].copy_from_slice(&width.to_be_bytes());
            png[20..24].copy_from_slice(&height.to_be_bytes());
            let checksum = crc32fast::hash(&png[12..29]).to_be_bytes();
            png[29..33].copy_from_slice(&checksum);
            let error = reduce(&png, ImageFormat::Png, 64).unwrap_err();
            assert!(matches!(error, ImageError::Limits(_)), "{width}x{height}: {error}");
        }
    }

    #[test]
    fn what_a_damaged_picture_becomes_is_small_or_an_error() {
        for mime in ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"] {
            let format = format_of(mime).unwrap();
            let check = |bytes: &[u8]| {
                let Ok(small) = reduce(bytes, format, 16) else { return };
                let picture = decoded(&small);
                assert!(picture.width().max(picture.height()) <= 16, "{mime}: {picture:?}");
            };
            let whole = encoded(&opaque(24, 16), format);
            for at in 0..whole.len() {
                check(&whole[..at]);
                let mut flipped = whole.clone();
                flipped[at] ^= 0x81;
                check(&flipped);
            }
        }
    }
}
