//! Targets and claims: what a figure is compared with.

use super::report::Report;

/// How a target's number is computed from figures.
#[derive(Clone, Copy, Debug)]
pub(super) enum Formula {
    /// One figure as it is.
    Value(&'static str),
    /// The same, but it is not measured where the other server is not installed.
    Optional(&'static str),
    /// One figure divided by another of the same run.
    Ratio(&'static str, &'static str),
}

impl Formula {
    /// Returns the number, if every figure was measured and no divisor is zero.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        match self {
            Self::Value(name) | Self::Optional(name) => report.value(name),
            Self::Ratio(above, below) => {
                let below = report.value(below).filter(|below| *below != 0.0)?;
                Some(report.value(above)? / below)
            }
        }
    }

    /// Formats it for a table.
    pub(super) fn text(self) -> String {
        match self {
            Self::Value(name) | Self::Optional(name) => name.to_owned(),
            Self::Ratio(above, below) => format!("{above} / {below}"),
        }
    }
}

/// The good side of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    /// At least the target.
    AtLeast,
    /// At most the target.
    AtMost,
}

impl Good {
    fn holds(self, found: f64, bar: f64) -> bool {
        match self {
            Self::AtLeast => found >= bar,
            Self::AtMost => found <= bar,
        }
    }

    /// The sign in a table.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥",
            Self::AtMost => "≤",
        }
    }
}

/// A promise about speed or memory.
#[derive(Debug)]
pub(super) struct Bar {
    /// What it promises.
    pub(super) name: &'static str,
    /// Where its number comes from.
    pub(super) formula: Formula,
    /// The good side.
    pub(super) good: Good,
    /// The required value.
    pub(super) bar: f64,
    /// The desired value, if it is better.
    pub(super) aim: Option<f64>,
    /// Unit of target and number; empty for a ratio.
    pub(super) unit: &'static str,
}

/// One figure divided by another, at most `bar`.
pub(super) const fn at_most(
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    bar: f64,
) -> Bar {
    let formula = Formula::Ratio(ours, theirs);
    Bar { name, formula, good: Good::AtMost, bar, aim: None, unit: "" }
}

/// One figure divided by another, at least `bar`.
pub(super) const fn at_least(
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    bar: f64,
) -> Bar {
    let formula = Formula::Ratio(ours, theirs);
    Bar { name, formula, good: Good::AtLeast, bar, aim: None, unit: "" }
}

/// A figure as it is, at most `bar`.
pub(super) const fn value_at_most(name: &'static str, figure: &'static str, bar: f64) -> Bar {
    let formula = Formula::Value(figure);
    Bar { name, formula, good: Good::AtMost, bar, aim: None, unit: "" }
}

/// A figure as it is, at least `bar`.
pub(super) const fn value_at_least(name: &'static str, figure: &'static str, bar: f64) -> Bar {
    let formula = Formula::Value(figure);
    Bar { name, formula, good: Good::AtLeast, bar, aim: None, unit: "" }
}

/// A target that is left out where its figure is not measured.
pub(super) const fn optional(bar: Bar) -> Bar {
    match bar.formula {
        Formula::Value(name) => Bar { formula: Formula::Optional(name), ..bar },
        Formula::Optional(_) | Formula::Ratio(..) => bar,
    }
}

/// A target with a better desired value.
pub(super) const fn aiming(bar: Bar, aim: f64) -> Bar {
    Bar { aim: Some(aim), ..bar }
}

/// The result of a comparison with a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The desired value is reached, or there is none.
    Aim(f64),
    /// The target is reached, but not the desired value.
    Bar(f64),
    /// The target is missed.
    Missed(f64),
    /// A figure is missing.
    Unmeasured,
    /// A figure is missing, as it may be.
    LeftOut,
}

impl Verdict {
    /// Whether the promise is kept.
    pub(super) fn passes(self) -> bool {
        matches!(self, Self::Aim(_) | Self::Bar(_) | Self::LeftOut)
    }

    /// The number, if there is one.
    pub(super) fn found(self) -> Option<f64> {
        match self {
            Self::Aim(found) | Self::Bar(found) | Self::Missed(found) => Some(found),
            Self::Unmeasured | Self::LeftOut => None,
        }
    }

    /// The word in a table.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Aim(_) => "yes",
            Self::Bar(_) => "yes, below the aim",
            Self::Missed(_) => "**no**",
            Self::Unmeasured => "**not measured**",
            Self::LeftOut => "left out",
        }
    }
}

impl Bar {
    /// Compares the target with a measurement.
    pub(super) fn judge(&self, report: &Report) -> Verdict {
        let Some(found) = self.formula.of(report) else {
            let is_optional = matches!(self.formula, Formula::Optional(_));
            return if is_optional { Verdict::LeftOut } else { Verdict::Unmeasured };
        };
        if !self.good.holds(found, self.bar) {
            Verdict::Missed(found)
        } else if self.good.holds(found, self.aim.unwrap_or(self.bar)) {
            Verdict::Aim(found)
        } else {
            Verdict::Bar(found)
        }
    }
}

/// A published figure of an earlier system, compared with ours.
#[derive(Debug)]
pub(super) struct Claim {
    /// Description.
    pub(super) text: &'static str,
    /// Its value, in the unit of our figure.
    pub(super) claimed: f64,
    /// Our figure for the same thing.
    pub(super) figure: &'static str,
    /// The good side.
    pub(super) good: Good,
    /// Unit of both values.
    pub(super) unit: &'static str,
}

/// A claim that is compared with one of our figures.
pub(super) const fn claim(
    text: &'static str,
    claimed: f64,
    figure: &'static str,
    good: Good,
    unit: &'static str,
) -> Claim {
    Claim { text, claimed, figure, good, unit }
}

impl Claim {
    /// How many times better ours is; `None` if it was not measured.
    pub(super) fn factor(&self, report: &Report) -> Option<f64> {
        let ours = report.value(self.figure)?;
        let (above, below) = match self.good {
            Good::AtLeast => (ours, self.claimed),
            Good::AtMost => (self.claimed, ours),
        };
        (below != 0.0).then(|| above / below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> Report {
        Report::parse(json).unwrap()
    }

    const RATE: Bar = Bar {
        name: "rate",
        formula: Formula::Ratio("ours", "floor"),
        good: Good::AtLeast,
        bar: 0.35,
        aim: Some(0.6),
        unit: "",
    };

    #[test]
    fn a_bar_is_kept_missed_or_unmeasured() {
        for (json, verdict) in [
            (r#"{"ours":70,"floor":100}"#, Verdict::Aim(0.7)),
            (r#"{"ours":40,"floor":100}"#, Verdict::Bar(0.4)),
            (r#"{"ours":30,"floor":100}"#, Verdict::Missed(0.3)),
            (r#"{"ours":30}"#, Verdict::Unmeasured),
            (r#"{"ours":30,"floor":0}"#, Verdict::Unmeasured),
        ] {
            assert_eq!(RATE.judge(&report(json)), verdict, "{json}");
        }
    }

    #[test]
    fn what_may_be_left_out_passes_without_a_figure_and_no_worse_with_one() {
        let bar = optional(value_at_most("p99", "p99", 1.0));
        assert_eq!(bar.judge(&report("{}")), Verdict::LeftOut);
        assert!(bar.judge(&report("{}")).passes());
        assert!(bar.judge(&report(r#"{"p99":0.9}"#)).passes());
        assert!(!bar.judge(&report(r#"{"p99":1.1}"#)).passes());
    }

    #[test]
    fn memory_is_good_below_its_bar() {
        let formula = Formula::Value("growth");
        let memory = Bar { formula, good: Good::AtMost, bar: 64.0, aim: None, ..RATE };
        assert!(memory.judge(&report(r#"{"growth":12}"#)).passes());
        assert!(!memory.judge(&report(r#"{"growth":65}"#)).passes());
    }

    #[test]
    fn a_claims_factor_says_how_many_times_better_ours_is() {
        let claim = |good| Claim { text: "x", claimed: 100.0, figure: "a", good, unit: "" };
        let report = report(r#"{"a":50}"#);
        assert_eq!(claim(Good::AtLeast).factor(&report), Some(0.5));
        assert_eq!(claim(Good::AtMost).factor(&report), Some(2.0));
        assert_eq!(Claim { figure: "b", ..claim(Good::AtMost) }.factor(&report), None);
    }
}
