//! Regular expressions of functions, as PostgreSQL reads them.
//!
//! | PostgreSQL | the engine | here |
//! |---|---|---|
//! | `.` is any character | no line end | any character |
//! | flags `n` and `m`: `.` is no line end, `^` and `$` match at lines | other flags | the same as PostgreSQL's |
//! | matches of no character in `regexp_replace(.., 'g')` and `regexp_count` | at other positions | refused |
//! | branches (`a\|ab`): the longest match | the first branch | refused if one begins with an earlier one |

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};
use datafusion::scalar::ScalarValue;
use regex::Regex;

/// What makes `.` any character.
pub(super) const ANY: &str = "(?s)";

/// The index of the flags among the arguments of a function of regular expressions.
pub(super) fn flags(name: &str) -> Option<usize> {
    match name {
        "regexp_replace" | "regexp_count" => Some(3),
        "regexp_like" | "regexp_match" => Some(2),
        // Refused with more arguments.
        "regexp_instr" => Some(4),
        _ => None,
    }
}

/// The arguments of a function of regular expressions with PostgreSQL's meaning.
///
/// # Errors
/// They have none; the message names the alternative.
pub(super) fn adapted(name: &str, mut args: Vec<Expr>) -> Result<Option<Vec<Expr>>> {
    if args.len() > flags(name).map_or(0, |index| index + 1)
        || (name == "regexp_instr" && args.len() > 4)
    {
        return plan_err!(
            "{name} has other arguments than in PostgreSQL after these; leave them out"
        );
    }
    let mut prefix = ANY.to_owned();
    let mut is_global = name == "regexp_count";
    if let Some(given) = flags(name).and_then(|index| args.get_mut(index)) {
        let Expr::Literal(text, _) = given else {
            return plan_err!("the flags of {name} have to be a constant");
        };
        let Some(letters) = text.try_as_str().flatten().map(str::to_owned) else { return Ok(None) };
        let mut kept = String::new();
        for letter in letters.chars() {
            match letter {
                'g' if name == "regexp_replace" => {
                    is_global = true;
                    kept.push('g');
                }
                'i' => kept.push('i'),
                'n' | 'm' => "(?m-s)".clone_into(&mut prefix),
                's' | 'c' => {}
                _ => {
                    return plan_err!(
                        "{name} has the flag {letter:?}; only i, n, s and, for regexp_replace, g \
                         have the meaning of PostgreSQL"
                    );
                }
            }
        }
        *text = ScalarValue::from(kept.as_str());
        // The engine does not read a text without flags.
        if kept.is_empty() {
            args.pop();
        }
    }
    let Some(pattern) = args.get_mut(1) else { return Ok(None) };
    match pattern {
        Expr::Literal(text, _) => {
            let Some(given) = text.try_as_str().flatten().map(str::to_owned) else {
                return Ok(None);
            };
            if name != "regexp_like" && given.contains('|') {
                refuse_branches(name, &given)?;
            }
            let whole = format!("{prefix}{given}");
            // One that is none is reported where it is used.
            if is_global && Regex::new(&whole).is_ok_and(|it| it.is_match("")) {
                return plan_err!(
                    "the pattern {given:?} of {name} matches no character, which is counted at other \
                     positions than by PostgreSQL; write + instead of *"
                );
            }
            *text = ScalarValue::from(whole);
        }
        // NULL stays NULL.
        other => {
            let (left, right) = (Box::new(lit(prefix)), Box::new(other.clone()));
            *other = Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right });
        }
    }
    Ok(Some(args))
}

/// Refuses a branch before a longer one that begins with it: PostgreSQL takes the longest.
fn refuse_branches(name: &str, pattern: &str) -> Result<()> {
    let branches: Vec<&str> =
        pattern.split('|').map(|it| it.trim_matches(['(', ')', '^', '$', '?', ':'])).collect();
    let is_hidden = branches.iter().enumerate().any(|(index, branch)| {
        branches.iter().skip(index + 1).any(|later| later != branch && later.starts_with(branch))
    });
    if is_hidden {
        return plan_err!(
            "{name} takes the first branch of {pattern:?} that matches, PostgreSQL the longest; write \
             the longest branch first"
        );
    }
    Ok(())
}
