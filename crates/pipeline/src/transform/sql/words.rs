//! `upper`, `lower` and `initcap` as the C library's locales have them: one character for one.
//!
//! The engine follows the full mapping of Unicode, in which `ß` becomes `SS`. PostgreSQL with the locale
//! `C.UTF-8`, or another one of the C library, leaves a character that has no single counterpart.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

/// What is made of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Upper,
    Lower,
    Initial,
}

/// A function of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Words {
    kind: Kind,
    signature: Signature,
}

/// Replaces these functions of a session.
pub(super) fn register(session: &SessionContext) {
    for kind in [Kind::Upper, Kind::Lower, Kind::Initial] {
        let signature = Signature::user_defined(Volatility::Immutable);
        session.register_udf(ScalarUDF::from(Words { kind, signature }));
    }
}

/// The capital of a letter, if it is one character.
fn upper(letter: char) -> char {
    // Greek letters with an iota below have a capital in one character, beside that in two.
    let beside = match letter {
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => 8,
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => 9,
        _ => 0,
    };
    if beside > 0 {
        return char::from_u32(u32::from(letter) + beside).unwrap_or(letter);
    }
    let mut made = letter.to_uppercase();
    match (made.next(), made.next()) {
        (Some(made), None) => made,
        _ => letter,
    }
}

/// The small letter of a letter, if it is one character.
fn lower(letter: char) -> char {
    let mut made = letter.to_lowercase();
    match (made.next(), made.next()) {
        (Some(made), None) => made,
        _ if letter == '\u{130}' => 'i',
        _ => letter,
    }
}

impl Words {
    fn made(&self, text: &str) -> String {
        match self.kind {
            Kind::Upper => text.chars().map(upper).collect(),
            Kind::Lower => text.chars().map(lower).collect(),
            Kind::Initial => {
                let mut is_within = false;
                let each = text.chars().map(|letter| {
                    let made = if is_within { lower(letter) } else { upper(letter) };
                    is_within = letter.is_alphanumeric();
                    made
                });
                each.collect()
            }
        }
    }
}

impl ScalarUDFImpl for Words {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Upper => "upper",
            Kind::Lower => "lower",
            Kind::Initial => "initcap",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [of] if of.is_string() || of.is_null() => Ok(vec![DataType::Utf8]),
            [of] => plan_err!("{} takes a text, not {of}; cast its argument", self.name()),
            _ => plan_err!("{} has one argument", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = args.args.as_slice() else {
            return exec_err!("{} has one argument", self.name());
        };
        let is_constant = matches!(of, ColumnarValue::Scalar(_));
        let texts =
            cast(&of.to_array(if is_constant { 1 } else { args.number_rows })?, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let size: usize = texts.value_data().len();
        // The capital of a letter may have one byte more than the letter.
        if size > i32::MAX as usize / 2 {
            return exec_err!("the texts of a batch are too large for {}", self.name());
        }
        let made: StringArray = texts.iter().map(|text| text.map(|text| self.made(text))).collect();
        let made: ArrayRef = Arc::new(made);
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: Kind, text: &str) -> String {
        Words { kind, signature: Signature::user_defined(Volatility::Immutable) }.made(text)
    }

    #[test]
    fn a_letter_without_a_single_counterpart_stays() {
        assert_eq!(made(Kind::Upper, "straße ŉ ﬁ é ᾀ ᾳ"), "STRAßE ŉ ﬁ É ᾈ ᾼ");
        assert_eq!(made(Kind::Lower, "ΑΣ İ É"), "ασ i é");
        assert_eq!(
            made(Kind::Initial, "hello-wORLD foo_bar 1st éa ßa"),
            "Hello-World Foo_Bar 1st Éa ßa"
        );
    }
}
