//! Casts between texts and other types that the engine writes in another form than PostgreSQL.
//!
//! | cast | the engine | here |
//! |---|---|---|
//! | a timestamp to text | `2024-02-29T12:34:56` | `2024-02-29 12:34:56`, with `+00` for a time zone |
//! | a floating point number, `numeric` or `time` to text | `0.0`, `1e16` | `0`, `1e+16` |
//! | text to `timestamp` | in the time zone of the text, with seconds | the time zone is ignored |
//! | `bytea`, arrays and intervals to text | the bytes, other forms | refused |

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::of_one;
use super::shown::{DOUBLE_EXPONENT, REAL_EXPONENT, float, trimmed};
use crate::transform::sql::syntax::zoneless;

/// A cast as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextCast {
    to: DataType,
    signature: Signature,
}

impl TextCast {
    /// The function for a cast, if it needs one.
    ///
    /// # Errors
    /// The cast is refused.
    pub(super) fn of(from: &DataType, to: &DataType, is_try: bool) -> Result<Option<ScalarUDF>> {
        let is_needed = match (from, to) {
            (from, to) if from.is_binary() && to.is_string() => {
                return plan_err!("bytea would become text byte by byte; use encode(..., 'hex')");
            }
            (DataType::List(_), to) if to.is_string() => {
                return plan_err!("an array has another form as text; use array_to_string");
            }
            (DataType::Interval(_) | DataType::Duration(_), to) if to.is_string() => {
                return plan_err!(
                    "an interval has another form as text; use extract(epoch from ...)"
                );
            }
            (
                DataType::Timestamp(..)
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal256(..)
                | DataType::Time64(_),
                to,
            ) => to.is_string(),
            (from, DataType::Timestamp(TimeUnit::Microsecond, _)) => from.is_string() && !is_try,
            _ => false,
        };
        let signature = Signature::any(1, Volatility::Immutable);
        Ok(is_needed.then(|| ScalarUDF::from(Self { to: to.clone(), signature })))
    }

    fn cast(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        if self.to.is_string() {
            let texts = texts_of(array, &options)?;
            return Ok(cast_with_options(&texts, &self.to, &options)?);
        }
        let is_zoned = matches!(self.to, DataType::Timestamp(_, Some(_)));
        let texts = cast_with_options(array, &DataType::Utf8, &options)?;
        let texts = texts.as_string::<i32>().iter().map(|text| {
            text.map(|text| with_seconds(if is_zoned { text } else { zoneless(text) }))
        });
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        Ok(cast_with_options(&texts, &self.to, &options)?)
    }
}

/// Values as PostgreSQL writes them.
fn texts_of(array: &ArrayRef, options: &CastOptions<'_>) -> Result<ArrayRef> {
    let texts: StringArray = match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().iter();
            values.map(|it| Some(float(&format!("{:e}", it?), DOUBLE_EXPONENT))).collect()
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().iter();
            values.map(|it| Some(float(&format!("{:e}", it?), REAL_EXPONENT))).collect()
        }
        DataType::Timestamp(_, zone) => {
            let is_zoned = zone.is_some();
            let plain = DataType::Timestamp(TimeUnit::Microsecond, None);
            // In UTC, the time zone of queries.
            let texts = cast_with_options(
                &cast_with_options(&in_utc(array)?, &plain, options)?,
                &DataType::Utf8,
                options,
            )?;
            texts.as_string::<i32>().iter().map(|text| Some(shown(text?, is_zoned))).collect()
        }
        _ => {
            let texts = cast_with_options(array, &DataType::Utf8, options)?;
            texts.as_string::<i32>().iter().map(|text| Some(trimmed(text?).to_owned())).collect()
        }
    };
    Ok(Arc::new(texts))
}

/// A timestamp with seconds, which PostgreSQL does not require.
fn with_seconds(text: &str) -> Cow<'_, str> {
    let minutes = text.find(':').and_then(|colon| colon.checked_add(3));
    match minutes.and_then(|minutes| text.split_at_checked(minutes)) {
        Some((until, rest)) if !rest.starts_with(':') => format!("{until}:00{rest}").into(),
        _ => text.into(),
    }
}

/// Timestamps of any time zone with that of UTC.
fn in_utc(array: &ArrayRef) -> Result<ArrayRef> {
    let to = match array.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        other => other.clone(),
    };
    Ok(cast_with_options(array, &to, &CastOptions::default())?)
}

/// A timestamp as PostgreSQL writes it.
fn shown(text: &str, is_zoned: bool) -> String {
    let text = text.replacen('T', " ", 1);
    format!("{}{}", trimmed(&text), if is_zoned { "+00" } else { "" })
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &'static str {
        "text_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_one(&args, |array| self.cast(array))
    }
}
