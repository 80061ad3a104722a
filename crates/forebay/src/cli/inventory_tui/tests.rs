//! Tests of the browser, driven by keys, on an index of a generated bucket.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::RealFs;
use forebay_inventory::builder::{self, Monitor, OnBadRow, Options};
use forebay_inventory::cost::{Pricer, Prices};
use forebay_inventory::index::{Index, SortBy};
use forebay_inventory::object::Classes;
use forebay_inventory::source::{self, Settings};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::{LINES_AROUND, draw};
use super::list::{BY_COST_MAX, WINDOW};
use super::state::{Browser, Flow};
use super::view::View;

const WIDTH: u16 = 100;
const HEIGHT: u16 = 24;

/// An index of objects: key, size, class.
fn index_of(dir: &Path, objects: impl Iterator<Item = (String, u64, &'static str)>) -> Index {
    let mut csv = "key,size,storage_class\n".to_owned();
    for (key, size, class) in objects {
        writeln!(csv, "{key},{size},{class}").unwrap();
    }
    let table = dir.join("objects.csv");
    std::fs::write(&table, csv).unwrap();
    let classes = Arc::new(Classes::new());
    let from = vec![table.to_str().unwrap().parse().unwrap()];
    let source = source::open(&from, &Settings::new(Arc::clone(&classes))).unwrap();
    let fs: Arc<dyn forebay_base::fs::FileSystem> = Arc::new(RealFs);
    let to = dir.join("index");
    let options = Options {
        memory: ByteSize(64 << 20),
        threads: 1,
        delimiter: b'/',
        histograms: true,
        on_bad_row: OnBadRow::Fail,
        on_duplicate: OnBadRow::Fail,
        expect_rows: None,
        replace: false,
        now_ms: 0,
    };
    builder::build(&fs, &*source, &classes, &to, &options, &Monitor::default()).unwrap();
    Index::open(&to).unwrap()
}

/// A bucket with many small prefixes, few large ones, and one expensive one.
fn bucket(dir: &Path) -> Index {
    let many = (0..3000).map(|i| (format!("many/{i:04}/x"), 1000 + i, "STANDARD"));
    let few = [
        ("few/large/a".to_owned(), 5 << 30, "DEEP_ARCHIVE"),
        ("few/dear/b".to_owned(), 2 << 30, "STANDARD"),
        ("few/countless/c/1".to_owned(), 1, "STANDARD"),
        ("few/countless/c/2".to_owned(), 1, "STANDARD"),
        ("few/countless/d/3".to_owned(), 1, "STANDARD"),
    ];
    index_of(dir, many.chain(few))
}

struct Driven<'a> {
    browser: Browser<'a>,
    terminal: Terminal<TestBackend>,
}

impl<'a> Driven<'a> {
    fn new(index: &'a Index, prices: &'a Prices) -> Self {
        let pricer = Pricer::new(index, prices).unwrap();
        let browser = Browser::open(index, Some(pricer), b"").unwrap().unwrap();
        let terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT)).unwrap();
        let mut driven = Self { browser, terminal };
        driven.draw();
        driven
    }

    fn draw(&mut self) {
        let height = self.terminal.size().unwrap().height;
        self.browser.resize(usize::from(height.saturating_sub(LINES_AROUND)));
        let view = View::of(&mut self.browser).unwrap();
        self.terminal.draw(|frame| draw(frame, &view)).unwrap();
    }

    fn press(&mut self, codes: &[KeyCode]) -> &mut Self {
        for &code in codes {
            let flow = self.browser.key(KeyEvent::new(code, KeyModifiers::NONE)).unwrap();
            assert_eq!(flow, Flow::GoOn);
            self.draw();
        }
        self
    }

    fn keys(&mut self, text: &str) -> &mut Self {
        let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
        self.press(&codes)
    }

    /// Returns the lines of the screen.
    fn screen(&self) -> Vec<String> {
        let buffer = self.terminal.backend().buffer();
        let lines = buffer.content.chunks(usize::from(buffer.area.width));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    /// Returns the names in the list, in order.
    fn names(&self) -> Vec<String> {
        let name = |line: &String| line.split_whitespace().last().map(str::to_owned);
        let list = self.screen();
        list[3..list.len() - 1].iter().filter_map(name).collect()
    }

    fn has(&self, text: &str) -> bool {
        self.screen().iter().any(|line| line.contains(text))
    }

    fn here(&self) -> String {
        String::from_utf8(self.browser.here.prefix.clone()).unwrap()
    }
}

fn with_bucket(test: impl FnOnce(&mut Driven<'_>)) {
    let dir = tempfile::tempdir().unwrap();
    let index = bucket(dir.path());
    let prices = Prices::aws_us_east_1().unwrap();
    test(&mut Driven::new(&index, &prices));
}

#[test]
fn opening_and_leaving_a_prefix_keeps_the_selection() {
    with_bucket(|browser| {
        assert_eq!(browser.names(), ["few/", "many/"]);
        assert!(browser.screen()[1].starts_with("(all)  7.01GiB, 3005 objects, "));
        browser.press(&[KeyCode::Down, KeyCode::Up, KeyCode::Enter]);
        assert_eq!((browser.here().as_str(), browser.names().len()), ("few/", 3));
        browser.press(&[KeyCode::Down, KeyCode::Down, KeyCode::Right]);
        assert_eq!((browser.here().as_str(), browser.names().len()), ("few/countless/", 2));
        browser.press(&[KeyCode::Enter]);
        assert!(browser.has("there are no prefixes below it"));
        browser.press(&[KeyCode::Left]);
        assert_eq!((browser.here().as_str(), browser.browser.here.selected), ("few/", 2));
        browser.press(&[KeyCode::Backspace, KeyCode::Backspace]);
        assert_eq!((browser.here().as_str(), browser.browser.here.selected), ("", 0));
    });
}

#[test]
fn lists_are_sorted_by_what_is_asked() {
    with_bucket(|browser| {
        browser.press(&[KeyCode::Enter]);
        assert_eq!(browser.names(), ["large/", "dear/", "countless/"]);
        assert!(browser.has(" 71.4% #########"), "{:#?}", browser.screen());
        browser.keys("o");
        assert_eq!(browser.names(), ["countless/", "dear/", "large/"]);
        browser.keys("n");
        assert_eq!(browser.names(), ["countless/", "dear/", "large/"]);
        browser.keys("c");
        assert_eq!(browser.names(), ["dear/", "large/", "countless/"]);
        assert!(browser.has("COST*") && browser.has("0.05"), "{:#?}", browser.screen());
        browser.press(&[KeyCode::Left, KeyCode::End]);
        assert_eq!(browser.names(), ["few/", "many/"]);
        // There are too many to sort by cost.
        const { assert!(3000 > BY_COST_MAX) };
        browser.press(&[KeyCode::Enter]);
        assert!(browser.has("sorted by billed bytes") && browser.names()[0] == "2999/");
        browser.keys("c");
        assert!(browser.has("no more than 2000"));
    });
}

#[test]
fn long_lists_are_paged_and_never_held_as_a_whole() {
    with_bucket(|browser| {
        browser.press(&[KeyCode::End, KeyCode::Enter]);
        let node = browser.browser.here.node;
        let lines = u64::from(HEIGHT - LINES_AROUND);
        for (sort, key) in [(SortBy::Bytes, "b"), (SortBy::Name, "n")] {
            browser.keys(key);
            let mut at = 0;
            let down = [KeyCode::PageDown; 40];
            let up = [KeyCode::PageUp; 35];
            let places = [KeyCode::End, KeyCode::Up, KeyCode::Home, KeyCode::Down];
            for code in down.into_iter().chain(up).chain(places) {
                browser.press(&[code]);
                at = match code {
                    KeyCode::PageDown => at + lines,
                    KeyCode::PageUp => at - lines,
                    KeyCode::End => 2999,
                    KeyCode::Home => 0,
                    KeyCode::Up => at - 1,
                    _ => at + 1,
                };
                assert_eq!(browser.browser.here.selected, at);
                let (_, selected) = browser.browser.selected().unwrap().unwrap();
                assert_eq!(selected.name(), node.page(sort, at, 1).unwrap().nodes[0].name());
                let name = format!("{}/", std::str::from_utf8(selected.name()).unwrap());
                assert!(browser.names().contains(&name), "what is selected is on the screen");
                assert_eq!(browser.names().len() as u64, lines);
                assert!(browser.browser.list.held() <= WINDOW);
            }
        }
    });
}

#[test]
fn prefixes_are_found_by_typing() {
    with_bucket(|browser| {
        browser.keys("/many/29");
        assert!(browser.has("many/2900/") && browser.has("many/2907/") && !browser.has("2908/"));
        browser.keys("9x").press(&[KeyCode::Enter]);
        assert!(browser.has("there is no such prefix"));
        browser.press(&[KeyCode::Backspace]).keys("9").press(&[KeyCode::Enter]);
        assert_eq!(browser.here(), "many/2999/");
        browser.press(&[KeyCode::Left]);
        assert_eq!(browser.here(), "many/");
        // From the root too, and completed.
        browser.keys("/few/co").press(&[KeyCode::Tab]);
        assert!(browser.has("/few/countless/_"), "{:#?}", browser.screen());
        browser.keys("c").press(&[KeyCode::Enter]);
        assert_eq!(browser.here(), "few/countless/c/");
        assert!(browser.has("No prefixes below"));
        browser.press(&[KeyCode::Left, KeyCode::Left]).keys("/de").press(&[KeyCode::Tab]);
        browser.press(&[KeyCode::Enter]);
        assert_eq!(browser.here(), "few/dear/");
        browser.keys("/q").press(&[KeyCode::Esc]);
        assert_eq!(browser.here(), "few/dear/");
    });
}

#[test]
fn panels_open_and_close_and_q_quits() {
    with_bucket(|browser| {
        browser.keys("?");
        assert!(browser.has("this help"));
        browser.keys("q").keys("i");
        for text in ["few/", "DEEP_ARCHIVE", "COST", "USD a month", "SIZE"] {
            assert!(browser.has(text), "{text}: {:#?}", browser.screen());
        }
        browser.press(&[KeyCode::Down; 30]);
        assert!(browser.has("LAST MODIFIED"), "{:#?}", browser.screen());
        browser.press(&[KeyCode::Esc]);
        assert!(!browser.has("LAST MODIFIED"));
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        let quit = browser.browser.key(key(KeyCode::Char('q'), KeyModifiers::NONE)).unwrap();
        assert_eq!(quit, Flow::Quit);
        browser.keys("/");
        let quit = browser.browser.key(key(KeyCode::Char('c'), KeyModifiers::CONTROL)).unwrap();
        assert_eq!(quit, Flow::Quit, "whatever is open");
    });
}

#[test]
fn any_size_of_a_terminal_is_drawn() {
    with_bucket(|browser| {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (50, 10), (300, 80)] {
            browser.terminal.backend_mut().resize(width, height);
            browser.draw();
            browser.keys("i").press(&[KeyCode::Esc]).keys("?x/a").press(&[KeyCode::Esc]);
            browser.press(&[KeyCode::End, KeyCode::Enter, KeyCode::End, KeyCode::Left]);
        }
    });
}
