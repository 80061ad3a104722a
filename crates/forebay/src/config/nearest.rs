//! Finds the known name that is nearest to a mistyped one.

/// Returns the number of edits (insert, delete, replace, swap of neighbours) that turn `a` into
/// `b`: the optimal string alignment distance, with three rows of memory.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Returns the name among `known` closest to `name`, if it is close enough to be what was meant.
///
/// The last dotted part is compared separately too, so `listen` matches `server.listen`. Names
/// longer than any setting are not compared: the cost is the product of both lengths.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const NAME_SIZE_MAX: usize = 100;
    if name.len() > NAME_SIZE_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    let tail = lower.rsplit('.').next().unwrap_or(&lower).to_owned();
    // A third of the letters may differ.
    let close = |edits: usize, length: usize| edits <= (length / 3).clamp(1, 5);
    known
        .filter_map(|candidate| {
            let candidate_tail = candidate.rsplit('.').next().unwrap_or(candidate);
            let whole = distance(&lower, candidate);
            let last = distance(&tail, candidate_tail);
            let by_name = close(whole, candidate.len()).then_some(whole);
            // A match of the last part alone is worth one edit less than a full one.
            let by_tail = close(last, candidate_tail.len()).then_some(last + 1);
            let edits = by_name.into_iter().chain(by_tail).min()?;
            Some((edits, candidate))
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["server.listen", "server.idle_timeout", "data", "log"];

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        for (typed, meant) in [
            ("server.lisen", Some("server.listen")),
            ("server.lsiten", Some("server.listen")),
            ("listen", Some("server.listen")),
            ("server.idle_time_out", Some("server.idle_timeout")),
            ("dta", Some("data")),
            ("Server.Listen", Some("server.listen")),
            ("completely.different", None),
            ("nope", None),
            ("lag", Some("log")),
        ] {
            assert_eq!(nearest(typed, KNOWN.into_iter()), meant, "{typed}");
        }
    }

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(distance("lsiten", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
