//! The settings of `schema_evolution` that a destination honours.
//!
//! A file that asks for another one is refused when it is read, before anything is copied. The
//! defaults are always accepted: a file without `schema_evolution` is valid for every destination.

use super::{NewColumn, NullabilityChange, RemovedColumn, SchemaEvolution, TypeChange, WriteMode};

/// The settings that a destination honours, besides the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evolves {
    /// For a column that only the source has.
    pub new_column: &'static [NewColumn],
    /// For a column that only the destination has.
    pub removed_column: &'static [RemovedColumn],
    /// For a column whose type differs.
    pub type_change: &'static [TypeChange],
    /// For a column that is nullable only in the source.
    pub nullability_change: &'static [NullabilityChange],
    /// Whether `write_mode: replace` compares columns, too. Otherwise the destination then takes
    /// those of the source, whatever it had.
    pub on_replace: bool,
}

/// A setting that a destination does not honour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The field, from the top of the file.
    pub field: &'static str,
    /// Why it is refused, and what is accepted.
    pub found: String,
}

/// A value of a setting, as it is written in the file.
trait Choice: Copy + PartialEq + Default {
    fn word(self) -> &'static str;
}

macro_rules! choices {
    ($($of:ident { $($value:ident = $word:literal),* })*) => {$(
        impl Choice for $of {
            fn word(self) -> &'static str {
                match self { $(Self::$value => $word),* }
            }
        }
    )*};
}

choices! {
    NewColumn { Add = "add", Ignore = "ignore", Fail = "fail" }
    RemovedColumn { Ignore = "ignore", Fail = "fail" }
    TypeChange { Fail = "fail", Alter = "alter" }
    NullabilityChange { Allow = "allow", Fail = "fail" }
}

/// Why a value is refused, if it is.
fn refusal<C: Choice>(uses: &str, wanted: C, honoured: &[C], is_compared: bool) -> Option<String> {
    if wanted == C::default() || is_compared && honoured.contains(&wanted) {
        return None;
    }
    let word = wanted.word();
    if !is_compared {
        return Some(format!(
            "`{word}` has no effect with `write_mode: replace`, for which `{uses}` takes the columns \
             of the source; remove it"
        ));
    }
    let mut accepted = vec![C::default()];
    accepted.extend(honoured.iter().filter(|honoured| **honoured != C::default()));
    let accepted: Vec<String> =
        accepted.into_iter().map(|choice| format!("`{}`", choice.word())).collect();
    Some(format!("`{uses}` cannot do `{word}`, only {}", accepted.join(" and ")))
}

impl Evolves {
    /// All settings, as a database with tables and statements that alter them.
    pub const ALL: Self = Self {
        new_column: &[NewColumn::Add, NewColumn::Ignore, NewColumn::Fail],
        removed_column: &[RemovedColumn::Ignore, RemovedColumn::Fail],
        type_change: &[TypeChange::Fail, TypeChange::Alter],
        nullability_change: &[NullabilityChange::Allow, NullabilityChange::Fail],
        on_replace: true,
    };

    /// Checks the settings of a file.
    ///
    /// * `uses`: the name of the connector, for messages.
    ///
    /// # Errors
    /// The first setting that the destination does not honour.
    pub fn check(
        &self,
        uses: &str,
        wanted: &SchemaEvolution,
        mode: WriteMode,
    ) -> Result<(), Refused> {
        let is_compared = self.on_replace || mode != WriteMode::Replace;
        let refusals = [
            (
                "destination.schema_evolution.new_column",
                refusal(uses, wanted.new_column, self.new_column, is_compared),
            ),
            (
                "destination.schema_evolution.removed_column",
                refusal(uses, wanted.removed_column, self.removed_column, is_compared),
            ),
            (
                "destination.schema_evolution.type_change",
                refusal(uses, wanted.type_change, self.type_change, is_compared),
            ),
            (
                "destination.schema_evolution.nullability_change",
                refusal(uses, wanted.nullability_change, self.nullability_change, is_compared),
            ),
        ];
        match refusals.into_iter().find_map(|(field, found)| Some((field, found?))) {
            Some((field, found)) => Err(Refused { field, found }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: Evolves = Evolves {
        new_column: &[NewColumn::Ignore, NewColumn::Fail],
        removed_column: &[RemovedColumn::Fail],
        type_change: &[],
        nullability_change: &[],
        on_replace: false,
    };

    #[test]
    fn a_setting_that_a_destination_cannot_honour_is_refused_and_names_those_it_can() {
        let default = SchemaEvolution::default();
        let ignore = SchemaEvolution { new_column: NewColumn::Ignore, ..default };
        let alter = SchemaEvolution { type_change: TypeChange::Alter, ..default };
        for mode in [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert] {
            assert_eq!(Evolves::default().check("mongodb", &default, mode), Ok(()));
            assert_eq!(Evolves::ALL.check("postgres", &alter, mode), Ok(()));
        }
        assert_eq!(FILES.check("parquet", &ignore, WriteMode::Append), Ok(()));
        let refused = FILES.check("parquet", &alter, WriteMode::Append).unwrap_err();
        assert_eq!(refused.field, "destination.schema_evolution.type_change");
        assert_eq!(refused.found, "`parquet` cannot do `alter`, only `fail`");
        let refused = Evolves::default().check("mongodb", &ignore, WriteMode::Upsert).unwrap_err();
        assert_eq!(refused.found, "`mongodb` cannot do `ignore`, only `add`");
        let refused = FILES.check("parquet", &ignore, WriteMode::Replace).unwrap_err();
        assert!(refused.found.contains("no effect with `write_mode: replace`"), "{refused:?}");
    }
}
