//! Text for roff, the language of manual pages: literal text, fonts, and tables.
//!
//! Invariant: nothing in a text is taken for a request or an escape, so a page shows what its source
//! says, `-` and quotes included. See groff_man_style(7) and tbl(1).

/// Longest text, in characters, of a table's cell that is kept on one line.
const CELL_MAX: usize = 30;

/// `text` so that roff prints it literally.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            // roff would make a hyphen, quotes and accents of these, which cannot be pasted.
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            // It would begin an argument that has spaces.
            '"' => out.push_str("\\(dq"),
            c => out.push(c),
        }
    }
    out
}

/// `text` in bold.
pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escape(text))
}

/// Appends escaped `text` as lines, none of which is a request.
pub(super) fn push_lines(out: &mut String, text: &str) {
    for line in text.lines() {
        if line.starts_with('.') {
            out.push_str("\\&");
        }
        out.push_str(line);
        out.push('\n');
    }
}

/// Appends a table for tbl(1). The first row is the head.
///
/// A column of short texts is as wide as its widest cell; the others and the last share the rest of
/// the line, and their cells are filled.
pub(super) fn push_table(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let is_wide = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        column + 1 == columns || cells.any(|cell| width(cell) > CELL_MAX)
    };
    let wide: Vec<bool> = (0..columns).map(is_wide).collect();
    let layout = |word: &str| {
        let columns = wide.iter().map(|wide| format!("{word}{}", if *wide { "x" } else { "" }));
        columns.collect::<Vec<_>>().join(" ")
    };
    out.push_str(&format!(".TS\n{}\n{}.\n", layout("lb"), layout("l")));
    for row in rows {
        let cells = row.iter().zip(&wide).map(|(cell, wide)| match (cell.as_str(), wide) {
            ("", _) => String::new(),
            (cell, true) => format!("T{{\n{}{cell}\nT}}", guard(cell)),
            (cell, false) => format!("{}{cell}", guard(cell)),
        });
        out.push_str(&cells.collect::<Vec<_>>().join("\t"));
        out.push('\n');
    }
    out.push_str(".TE\n");
}

/// What keeps a cell from being a request where it begins a line.
fn guard(cell: &str) -> &'static str {
    if cell.starts_with('.') { "\\&" } else { "" }
}

/// Number of characters that an escaped text prints.
fn width(text: &str) -> usize {
    let mut count = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        count += 1;
        if c == '\\' {
            match chars.next() {
                // A font, and a named character.
                Some('f') => {
                    chars.next();
                    count -= 1;
                }
                Some('(') => {
                    chars.nth(1);
                }
                _ => {}
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_literally() {
        assert_eq!(
            escape(r#"a-b \n "it's" `x` ~^"#),
            r"a\-b \en \(dqit\(aqs\(dq \(gax\(ga \(ti\(ha"
        );
        assert_eq!(bold("--set"), r"\fB\-\-set\fR");
        let mut out = String::new();
        push_lines(&mut out, "one\n.two\n\nthree");
        assert_eq!(out, "one\n\\&.two\n\nthree\n");
    }

    #[test]
    fn the_width_of_a_text_is_what_it_prints() {
        assert_eq!(width(&escape("a-b 'c' \\")), 9);
        assert_eq!(width(&bold("--set")), 5);
        assert_eq!(width("…µ"), 2);
    }

    #[test]
    fn a_table_keeps_short_columns_on_one_line_and_fills_the_others() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let long = "x".repeat(CELL_MAX + 1);
        let mut out = String::new();
        let rows = [row(&["a", "b", "c"]), row(&[".d", &long, ""]), row(&["", "e", ".f"])];
        push_table(&mut out, &rows);
        let wanted = [
            ".TS",
            "lb lbx lbx",
            "l lx lx.",
            "a\tT{",
            "b",
            "T}\tT{",
            "c",
            "T}",
            "\\&.d\tT{",
            &long,
            "T}\t",
            "\tT{",
            "e",
            "T}\tT{",
            "\\&.f",
            "T}",
            ".TE",
            "",
        ];
        assert_eq!(out, wanted.join("\n"));
    }
}
