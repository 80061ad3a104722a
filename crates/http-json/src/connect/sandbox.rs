//! Connections of the host of a component, which resolves names, judges addresses, encrypts and verifies.

use std::time::Duration;

use forebay_sdk::ConnectorError;
use forebay_sdk::platform::{self, Transport};

use crate::address::{Origin, Reached};

/// Certificates that are trusted instead of the system's.
#[derive(Clone)]
pub(crate) struct Encryption(Option<String>);

impl Encryption {
    /// By those of a file, or the system's.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn trusting(file: Option<&str>) -> Result<Self, ConnectorError> {
        let Some(path) = file else { return Ok(Self(None)) };
        let text = String::from_utf8(platform::read_file(path)?);
        let text =
            text.map_err(|error| ConnectorError::file("read certificates of", path, error))?;
        Ok(Self(Some(text)))
    }
}

/// Connects to a server.
///
/// # Errors
/// It was not reached, its certificate is not trusted, or the pipeline does not permit it.
pub(crate) async fn open(
    origin: &Origin,
    _reached: Reached,
    encryption: Option<&Encryption>,
    limit: Duration,
) -> Result<Box<dyn Transport>, ConnectorError> {
    let stream = platform::connect(origin.host(), origin.port(), limit)?;
    if let Some(Encryption(trusted)) = encryption {
        stream.start_tls(trusted.as_deref())?;
    }
    Ok(stream)
}
