//! A multipart body (RFC 7578) as a sequence of parts, each a source of bytes.

use bytes::Bytes;
use forebay_intake::IntakeError;
use forebay_intake::request::Fingerprint;
use forebay_intake::upload::Source;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use multer::{Field, Multipart};

use super::body::PacedBody;
use super::content::Content;

/// Opens a multipart body.
pub(super) fn open(
    headers: &HeaderMap,
    body: Content<PacedBody>,
) -> Result<Multipart<'static>, IntakeError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|_| {
        IntakeError::rejected(
            "content_type",
            "this route accepts multipart/form-data with a boundary; send a single file to \
             PUT /v1/files/{namespace}/{name}",
        )
    })?;
    let pieces = futures_util::stream::unfold(Some(body), |body| async move {
        let mut body = body?;
        match body.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(body))),
            Ok(None) => None,
            Err(error) => Some((Err(Box::new(error)), None)),
        }
    });
    Ok(Multipart::new(pieces, boundary))
}

/// Converts an error of the multipart parser into one of the request.
pub(super) fn failed(error: multer::Error) -> IntakeError {
    if let multer::Error::StreamReadFailed(source) = error {
        return match source.downcast::<Box<IntakeError>>() {
            Ok(ours) => **ours,
            Err(other) => IntakeError::Body {
                message: format!("the body was interrupted: {other}"),
                slow: false,
            },
        };
    }
    IntakeError::rejected("multipart", format!("the multipart body is malformed: {error}"))
}

/// One part: its headers, and its bytes as they arrive.
pub(super) struct Part {
    bytes: Content<Pieces>,
    name: Option<String>,
    file_name: Option<String>,
    /// Everything read so far, if a repeated request has to be recognised.
    content: Option<Fingerprint>,
}

/// The bytes of a part as they arrive.
struct Pieces(Field<'static>);

impl Source for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        loop {
            match self.0.chunk().await.map_err(failed)? {
                Some(bytes) if bytes.is_empty() => {}
                read => return Ok(read),
            }
        }
    }
}

impl Source for Part {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        let read = self.bytes.next().await?;
        if let (Some(content), Some(bytes)) = (&mut self.content, &read) {
            content.update(bytes);
        }
        Ok(read)
    }
}

impl Part {
    /// * `recognise`: whether the part has to contribute to its request's fingerprint.
    ///
    /// # Errors
    /// Those of [`Content::new`].
    pub(super) fn new(field: Field<'static>, recognise: bool) -> Result<Self, IntakeError> {
        let (name, file_name) =
            (field.name().map(str::to_owned), field.file_name().map(str::to_owned));
        let headers = field.headers().clone();
        let bytes = Content::new(&headers, Pieces(field))?;
        Ok(Self { bytes, name, file_name, content: recognise.then(Fingerprint::default) })
    }

    /// The name of the form's field.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The file's name, for a file.
    pub(super) fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// Reads the rest, and adds names and content to the fingerprint of the request.
    pub(super) async fn finish(mut self, print: &mut Fingerprint) -> Result<(), IntakeError> {
        if self.content.is_none() {
            return Ok(());
        }
        while self.next().await?.is_some() {}
        for text in [self.name(), self.file_name()] {
            let text = text.unwrap_or("\0");
            print.update(&(text.len() as u64).to_le_bytes());
            print.update(text.as_bytes());
        }
        if let Some(content) = self.content {
            print.update(&content.finish().0);
        }
        Ok(())
    }

    /// The whole part as text, at most `size_max` bytes.
    pub(super) async fn text(&mut self, size_max: usize) -> Result<String, IntakeError> {
        let mut held = Vec::new();
        while let Some(bytes) = self.next().await? {
            if held.len() + bytes.len() > size_max {
                let limit = size_max as u64;
                return Err(IntakeError::TooLarge { what: "a text field", limit });
            }
            held.extend_from_slice(&bytes);
        }
        String::from_utf8(held)
            .map_err(|_| IntakeError::rejected("field", "a text field is not UTF-8"))
    }
}
