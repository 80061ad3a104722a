//! Manual pages of the guides: `docs/guide/cache.md` becomes `forebay-cache(7)`.
//!
//! The Markdown is parsed by `pulldown-cmark`. A title becomes the page's name, headings become
//! sections, tables become tbl(1) tables, and a link names its target, as another manual page where
//! it leads to a guide.
//!
//! Invariant: nothing of a guide is dropped. Markup that has no form in a manual page is an error.

use anyhow::bail;
use pulldown_cmark::{Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

use super::names;
use super::roff::{bold, escape, push_lines, push_table};

/// A guide, and what its page says besides its text.
#[derive(Debug)]
pub(super) struct Guide<'a> {
    /// The file name without `.md`.
    pub(super) name: &'a str,
    /// What it describes, in a few words.
    pub(super) summary: &'a str,
    /// The date of the release, `YYYY-MM-DD`.
    pub(super) date: &'a str,
    /// The version of the release.
    pub(super) version: &'a str,
    /// The names of all guides.
    pub(super) all: &'a [String],
}

/// The manual page of a guide.
///
/// # Errors
/// The Markdown has markup that manual pages cannot show.
pub(super) fn page(guide: &Guide<'_>, markdown: &str) -> anyhow::Result<String> {
    let name = names::page(guide.name);
    let mut page = Page::default();
    // The first line asks for tbl(1).
    page.out.push_str("'\\\" t\n");
    page.out.push_str(&format!(
        ".TH {} 7 {} \"forebay {}\" \"Forebay guides\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n",
        escape(&name.to_uppercase()),
        escape(guide.date),
        escape(guide.version),
        escape(&name),
        escape(guide.summary)
    ));
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event)?;
    }
    page.flush();
    let others = guide.all.iter().filter(|other| *other != guide.name);
    page.out.push_str(&see_also(
        std::iter::once("forebay(1)".to_owned())
            .chain(others.map(|other| format!("{}(7)", names::page(other)))),
    ));
    Ok(page.out)
}

/// The section of references: `NAME(SECTION)` each.
pub(super) fn see_also(pages: impl Iterator<Item = String>) -> String {
    let named = pages.map(|page| match page.split_once('(') {
        Some((name, section)) => format!("{}({section}", bold(name)),
        None => bold(&page),
    });
    format!(".SH SEE ALSO\n{}\n", named.collect::<Vec<_>>().join(",\n"))
}

/// A page that is being written.
#[derive(Debug, Default)]
struct Page {
    out: String,
    /// The text of the paragraph, heading, cell or code that is being read. Escaped, except code.
    text: String,
    /// Whether a paragraph has begun already, by the macro of a heading or an item.
    begun: bool,
    /// Whether `text` is a heading that is printed in capitals.
    capitals: bool,
    /// Whether `text` is a block of code.
    code: bool,
    /// The lists that are open, each with the number of its next item if it is numbered.
    lists: Vec<Option<u64>>,
    rows: Vec<Vec<String>>,
    /// The targets of the links that are open.
    links: Vec<String>,
}

impl Page {
    fn take(&mut self, event: Event<'_>) -> anyhow::Result<()> {
        match event {
            Event::Start(tag) => self.start(tag)?,
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code => self.text.push_str(&text),
            Event::Text(text) if self.capitals => self.text.push_str(&escape(&text.to_uppercase())),
            Event::Text(text) => self.text.push_str(&escape(&text)),
            Event::Code(text) => self.text.push_str(&bold(&text)),
            Event::SoftBreak => self.text.push('\n'),
            other => bail!("a manual page has no form for {other:?}; write it otherwise"),
        }
        Ok(())
    }

    fn start(&mut self, tag: Tag<'_>) -> anyhow::Result<()> {
        match tag {
            Tag::Paragraph => self.begin(),
            Tag::Heading { level, .. } => self.capitals = level == HeadingLevel::H2,
            Tag::CodeBlock(_) => {
                self.flush();
                self.begin();
                self.out.push_str(".RS 4\n.EX\n");
                self.code = true;
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.out.push_str(".RS 4\n");
                }
                self.lists.push(first);
            }
            Tag::Item => {
                match self.lists.last_mut() {
                    Some(Some(number)) => {
                        self.out.push_str(&format!(".IP {number}. 4\n"));
                        *number += 1;
                    }
                    _ => self.out.push_str(".IP \\(bu 4\n"),
                }
                self.begun = true;
            }
            Tag::Table(_) => {
                self.begin();
                self.rows.clear();
            }
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            Tag::TableCell => {}
            Tag::Strong => self.text.push_str("\\fB"),
            Tag::Emphasis => self.text.push_str("\\fI"),
            // The text of these is their target.
            Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. } => {
                self.links.push(String::new());
            }
            Tag::Link { dest_url, .. } => self.links.push(target(&dest_url)),
            other => bail!("a manual page has no form for {other:?}; write it otherwise"),
        }
        Ok(())
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::CodeBlock => {
                let code = escape(&std::mem::take(&mut self.text));
                push_lines(&mut self.out, &code);
                // .EE turns hyphenation on again, with which names of files cannot be pasted.
                self.out.push_str(".EE\n.nh\n.RE\n");
                self.code = false;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.out.push_str(".RE\n");
                }
            }
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => push_table(&mut self.out, &std::mem::take(&mut self.rows)),
            TagEnd::Strong | TagEnd::Emphasis => self.text.push_str("\\fR"),
            TagEnd::Link => self.text.push_str(&self.links.pop().unwrap_or_default()),
            // Everything else was refused where it began.
            _ => {}
        }
    }

    /// Writes a heading. The title is the page's name, and a description follows it.
    fn heading(&mut self, level: HeadingLevel) {
        let text = std::mem::take(&mut self.text);
        match level {
            HeadingLevel::H1 => self.out.push_str(".SH DESCRIPTION\n"),
            HeadingLevel::H2 => self.out.push_str(&format!(".SH {text}\n")),
            _ => self.out.push_str(&format!(".SS {text}\n")),
        }
        self.capitals = false;
        self.begun = true;
    }

    /// Begins a paragraph unless a heading or an item has.
    fn begin(&mut self) {
        if !std::mem::take(&mut self.begun) {
            self.out.push_str(if self.lists.is_empty() { ".PP\n" } else { ".IP \"\" 4\n" });
        }
    }

    /// Writes the text that was read.
    fn flush(&mut self) {
        if !self.text.is_empty() {
            push_lines(&mut self.out, &std::mem::take(&mut self.text));
            self.begun = false;
        }
    }
}

/// What is printed after the text of a link: where it leads.
fn target(to: &str) -> String {
    if to.contains("://") {
        return format!(" <{}>", escape(to));
    }
    let file = to.split('#').next().unwrap_or_default();
    match (file, file.strip_prefix("../"), file.strip_suffix(".md")) {
        ("", ..) => String::new(),
        (_, Some(above), _) => match above.strip_prefix("../") {
            Some(root) => format!(" (the file {})", escape(root)),
            None => format!(" (the file docs/{})", escape(above)),
        },
        (_, None, Some(guide)) => format!(" ({}(7))", bold(&names::page(guide))),
        (file, None, None) => format!(" (the file docs/guide/{})", escape(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    fn convert(markdown: &str) -> anyhow::Result<String> {
        let all = ["cache", "security"].map(str::to_owned);
        let (summary, date) = ("keys -- in memory", "2026-11-23");
        page(&Guide { name: "cache", summary, date, version: "0.1.0", all: &all }, markdown)
    }

    #[test]
    fn every_form_of_a_guide_has_one_in_its_page() {
        let markdown = "# Cache\n\nIt *is* a `cache`.\n.Not a request. See [keys](security.md#keys).\n\n\
             ```console\n$ echo 'a\\b' -n\n.x\n```\n\nAfter.\n\n## More of it\n\n- one\n- two\n\n1. first\n2. second\n\n\
             ### Details\n\n| name | what it does |\n|---|---|\n| `a` | [failures](../failures.md) |\n";
        let wanted = "'\\\" t\n\
             .TH FOREBAY\\-CACHE 7 2026\\-11\\-23 \"forebay 0.1.0\" \"Forebay guides\"\n.nh\n.ad l\n\
             .SH NAME\nforebay\\-cache \\- keys \\-\\- in memory\n\
             .SH DESCRIPTION\nIt \\fIis\\fR a \\fBcache\\fR.\n\
             \\&.Not a request. See keys (\\fBforebay\\-security\\fR(7)).\n\
             .PP\n.RS 4\n.EX\n$ echo \\(aqa\\eb\\(aq \\-n\n\\&.x\n.EE\n.nh\n.RE\n\
             .PP\nAfter.\n\
             .SH MORE OF IT\n.IP \\(bu 4\none\n.IP \\(bu 4\ntwo\n.IP 1. 4\nfirst\n.IP 2. 4\nsecond\n\
             .SS Details\n.TS\nlb lbx\nl lx.\nname\tT{\nwhat it does\nT}\n\
             \\fBa\\fR\tT{\nfailures (the file docs/failures.md)\nT}\n.TE\n\
             .SH SEE ALSO\n\\fBforebay\\fR(1),\n\\fBforebay\\-security\\fR(7)\n";
        assert_eq!(convert(markdown).unwrap(), wanted);
    }

    #[test]
    fn markup_without_a_form_is_refused() {
        for markdown in ["<b>x</b>", "> quoted", "![picture](x.png)", "a\\\nb", "---"] {
            let error = convert(markdown).unwrap_err().to_string();
            assert!(error.contains("no form"), "{markdown}: {error}");
        }
    }

    #[test]
    fn a_link_names_where_it_leads() {
        assert_eq!(target("https://a.example/b-c"), " <https://a.example/b\\-c>");
        assert_eq!(target("#memory"), "");
        assert_eq!(target("limits.md"), " (\\fBforebay\\-limits\\fR(7))");
        assert_eq!(target("../formats/http-api.md#a"), " (the file docs/formats/http\\-api.md)");
        assert_eq!(target("../../STYLE.md"), " (the file STYLE.md)");
        assert!(convert("<https://a.example>").unwrap().contains("\nhttps://a.example\n"));
    }

    #[test]
    fn every_guide_of_the_workspace_becomes_a_page() {
        let index = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
        let mut count = 0;
        for entry in std::fs::read_dir(root().join("docs/guide")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let summary = names::summary(&index, name).unwrap();
            let guide = Guide { name, summary, date: "2026-11-23", version: "0.1.0", all: &[] };
            let markdown = std::fs::read_to_string(&path).unwrap();
            let page = page(&guide, &markdown).map_err(|error| format!("{name}: {error}"));
            assert!(page.unwrap().contains(".SH DESCRIPTION\n"), "{name}");
            count += 1;
        }
        assert!(count > 5, "{count}");
    }
}
