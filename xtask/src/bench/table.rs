//! Markdown tables and human-readable numbers.

/// A table whose columns are aligned in plain text too.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..head.len())
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells
                .map(|cell| cell.chars().count())
                .chain([head[at].chars().count()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut out = line(head.to_vec());
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    out.push_str(&line(rule.iter().map(String::as_str).collect()));
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}

/// `value` with three significant digits or, from a thousand on, whole with separated thousands;
/// with its unit.
pub(super) fn number(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if unit.is_empty() { digits } else { format!("{digits} {unit}") }
}

fn thousands(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        for (value, unit, text) in [
            (0.357, "", "0.36"),
            (12.34, "MiB", "12.3 MiB"),
            (850.4, "1/s", "850 1/s"),
            (38_123.6, "1/s", "38,124 1/s"),
            (-1_234_567.0, "", "-1,234,567"),
        ] {
            assert_eq!(number(value, unit), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let text = table(&["a", "long"], &[vec!["x≥".to_owned(), "y".to_owned()]]);
        assert_eq!(text, "| a  | long |\n| -- | ---- |\n| x≥ | y    |\n");
    }
}
