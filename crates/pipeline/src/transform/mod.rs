//! Transforms of rows between source and destination.
//!
//! A transform is a stream around streams: it reads those below it and is read like them. `mask`
//! and `validate` process rows one after another and keep the units of the stream below; `sql` sees
//! whole streams, so its result is one unit.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | `transforms` of the pipeline file |
//! | `step` | a transform of single rows, as a stream |
//! | `mask`, `validate`, `sql` | the transforms |
//! | `component` | transforms that are WebAssembly components |
//!
//! Invariants:
//! * [`apply`] finds every fault of a transform and of the columns it is for, before anything is
//!   written.
//! * Streams that are transformed are opened for records ([`Form`](forebay_sdk::connector::Form)).

mod component;
mod mask;
mod padding;
pub mod settings;
mod sql;
mod step;
mod streams;
#[cfg(test)]
mod testing;
mod validate;

use std::sync::Arc;

use forebay_sdk::connector::{Result, SourceStream};
use forebay_sdk::run::Context;
use sha2::{Digest, Sha256};

pub use settings::{
    ComponentSettings, MaskSettings, SqlSettings, TransformSettings, ValidateSettings,
};

use self::component::Component;
use self::step::Stepped;

/// Applies the transforms of a pipeline to its streams, in order.
///
/// * `streams`: each with its name at the destination, which transforms use too.
/// * `memory`: bytes that a query may use; what exceeds them is written to temporary files.
/// * Returns the resulting streams. One that no query names keeps its name and its index; the
///   result of a query is at the index of the first stream it names.
///
/// # Errors
/// [`ConnectorError::Unsupported`](forebay_sdk::ConnectorError::Unsupported) or
/// [`Refused`](forebay_sdk::ConnectorError::Refused): a stream or column does not exist, a rule or mask
/// does not fit its column, or a query is invalid.
pub async fn apply(
    settings: &[TransformSettings],
    mut streams: Vec<(String, Arc<dyn SourceStream>)>,
    memory: usize,
    context: &Context,
) -> Result<Vec<(String, Arc<dyn SourceStream>)>> {
    let mut later = settings;
    while let Some((step, after)) = later.split_first() {
        later = after;
        match step {
            TransformSettings::Sql(settings) => {
                streams = sql::apply(settings, streams, memory, context).await?;
            }
            TransformSettings::Validate(settings) => {
                let at = streams::find(&streams, settings.stream.as_deref(), "validate")?;
                if let Some((name, stream)) = streams.get_mut(at) {
                    let hidden = streams::masked_later(later, name, stream.columns());
                    let validation = validate::Validation::new(
                        name,
                        stream.columns(),
                        stream.units(),
                        settings,
                        hidden,
                    )?;
                    *stream = Arc::new(Stepped::new(Arc::clone(stream), validation));
                }
            }
            TransformSettings::Component(settings) => {
                let at = streams::find(&streams, settings.stream.as_deref(), "component")?;
                if let Some((name, stream)) = streams.get_mut(at) {
                    let transform = settings.transform.transform(name, stream.columns()).await?;
                    *stream = Arc::new(Stepped::new(Arc::clone(stream), Component(transform)));
                }
            }
            TransformSettings::Mask(settings) => {
                let at = streams::find(&streams, settings.stream.as_deref(), "mask")?;
                if let Some((name, stream)) = streams.get_mut(at) {
                    let masks = mask::Masks::new(name, stream.columns(), settings)?;
                    *stream = Arc::new(Stepped::new(Arc::clone(stream), masks));
                }
            }
        }
    }
    Ok(streams)
}

/// Checks that this build has the transforms of a pipeline.
///
/// # Errors
/// [`ConnectorError`](forebay_sdk::ConnectorError): one of them was left out.
pub fn check(settings: &[TransformSettings]) -> Result<()> {
    match settings.iter().any(|step| matches!(step, TransformSettings::Sql(_))) {
        true => sql::check(),
        false => Ok(()),
    }
}

/// A hash of all transforms, including salts: equal only if they produce the same rows.
#[must_use]
pub fn fingerprint(settings: &[TransformSettings]) -> String {
    let mut hash = Sha256::new();
    for step in settings {
        // The text of settings is complete except for salts, which are not printed.
        hash.update(format!("{step:?}\n"));
        if let TransformSettings::Mask(MaskSettings { salt: Some(salt), .. }) = step {
            hash.update(salt.expose().len().to_le_bytes());
            hash.update(salt.expose());
        }
        if let TransformSettings::Component(component) = step {
            hash.update(component.config.len().to_le_bytes());
            hash.update(&component.config);
        }
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::testing::settings;
    use super::*;

    #[test]
    fn only_a_transform_that_the_build_has_passes_the_check() {
        assert!(check(&settings("[]")).is_ok());
        let checked = check(&settings("- sql: { query: select 1 }"));
        assert_eq!(checked.is_ok(), cfg!(feature = "sql"), "{checked:?}");
    }

    #[test]
    fn the_fingerprint_distinguishes_transforms_and_salts() {
        let yaml = "- mask: { salt: a long enough salt, columns: { a: hash } }";
        let one = fingerprint(&settings(yaml));
        assert_eq!(one, fingerprint(&settings(yaml)));
        for other in [
            "- mask: { salt: another long salt, columns: { a: hash } }",
            "- mask: { salt: a long enough salt, columns: { b: hash } }",
            "- sql: { query: select 1 }",
            "[]",
        ] {
            assert_ne!(one, fingerprint(&settings(other)), "{other}");
        }
    }
}
