//! The state of the browser and how keys change it. Nothing here depends on a terminal.

use forebay_inventory::cost::Pricer;
use forebay_inventory::index::{Index, Node};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::find::Find;
use super::list::{BY_COST_MAX, List, Sort};

/// Whether to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    GoOn,
    Quit,
}

/// What covers the list.
pub(super) enum Panel {
    Nothing,
    Help,
    /// The figures of the selected prefix, scrolled by this many lines.
    Info(u16),
    Find(Find),
}

/// A prefix that was opened, and the position in it.
pub(super) struct Level<'a> {
    pub(super) prefix: Vec<u8>,
    pub(super) node: Node<'a>,
    /// Index of the selected child.
    pub(super) selected: u64,
    /// Index of the first child shown.
    top: u64,
    /// Order of the children, without which an index means nothing.
    sort: Sort,
}

/// The browser.
pub(super) struct Browser<'a> {
    pub(super) index: &'a Index,
    /// `None` if the index has no costs.
    pub(super) pricer: Option<Pricer<'a>>,
    /// The prefixes above, from the root.
    above: Vec<Level<'a>>,
    pub(super) here: Level<'a>,
    pub(super) list: List<'a>,
    pub(super) sort: Sort,
    /// Number of lines for children.
    lines: usize,
    pub(super) panel: Panel,
    /// The message shown until the next key.
    pub(super) message: Option<String>,
}

impl<'a> Level<'a> {
    fn new(prefix: Vec<u8>, node: Node<'a>) -> Self {
        Self { prefix, node, selected: 0, top: 0, sort: Sort::default() }
    }

    /// Selects the child at a position, or the last one, and scrolls it into view.
    fn select(&mut self, place: u64, lines: usize) {
        let last = self.node.child_count().saturating_sub(1);
        self.selected = place.min(last);
        let lines = lines.max(1) as u64;
        let lowest_top = (self.selected + 1).saturating_sub(lines);
        self.top = self.top.clamp(lowest_top, self.selected.max(lowest_top));
    }
}

impl<'a> Browser<'a> {
    /// Opens the browser at a prefix; returns `None` if it does not exist.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn open(
        index: &'a Index,
        pricer: Option<Pricer<'a>>,
        prefix: &[u8],
    ) -> anyhow::Result<Option<Self>> {
        let root = index.root()?;
        let mut browser = Self {
            index,
            pricer,
            above: Vec::new(),
            here: Level::new(Vec::new(), root),
            list: List::new(root, Sort::default(), None)?,
            sort: Sort::default(),
            lines: 20,
            panel: Panel::Nothing,
            message: None,
        };
        Ok(browser.go_to(prefix)?.then_some(browser))
    }

    /// Sets the number of lines for children.
    pub(super) fn resize(&mut self, lines: usize) {
        self.lines = lines.max(1);
        self.here.select(self.here.selected, self.lines);
    }

    /// Returns the visible children, and which of them is selected.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn shown(&mut self) -> anyhow::Result<(Vec<Node<'a>>, usize)> {
        let nodes = self.list.from(self.here.top, self.lines)?.to_vec();
        let selected = usize::try_from(self.here.selected.saturating_sub(self.here.top));
        Ok((nodes, selected.unwrap_or(0)))
    }

    /// Returns the selected child and its prefix; `None` if there are no children.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn selected(&mut self) -> anyhow::Result<Option<(Vec<u8>, Node<'a>)>> {
        let child = self.list.from(self.here.selected, 1)?.first().copied();
        Ok(child.map(|child| (child.prefix(&self.here.prefix), child)))
    }

    /// Handles a key.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn key(&mut self, key: KeyEvent) -> anyhow::Result<Flow> {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let quits = matches!(key.code, KeyCode::Char('c' | 'd'));
            return Ok(if quits { Flow::Quit } else { Flow::GoOn });
        }
        match &mut self.panel {
            Panel::Nothing => return self.key_in_list(key.code),
            Panel::Find(_) => self.key_in_find(key.code)?,
            Panel::Help => self.panel = Panel::Nothing,
            Panel::Info(line) => match key.code {
                KeyCode::Up | KeyCode::Char('k') => *line = line.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => *line = line.saturating_add(1).min(500),
                KeyCode::Home => *line = 0,
                _ => self.panel = Panel::Nothing,
            },
        }
        Ok(Flow::GoOn)
    }

    fn key_in_list(&mut self, code: KeyCode) -> anyhow::Result<Flow> {
        let selected = self.here.selected;
        let page = self.lines as u64;
        let place = match code {
            KeyCode::Up | KeyCode::Char('k') => Some(selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Some(selected.saturating_add(1)),
            KeyCode::PageUp => Some(selected.saturating_sub(page)),
            KeyCode::PageDown => Some(selected.saturating_add(page)),
            KeyCode::Home | KeyCode::Char('g') => Some(0),
            KeyCode::End | KeyCode::Char('G') => Some(u64::MAX),
            _ => None,
        };
        if let Some(place) = place {
            self.here.select(place, self.lines);
            return Ok(Flow::GoOn);
        }
        match code {
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.down()?,
            KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => self.up()?,
            KeyCode::Char('b') => self.sort_by(Sort::Billed)?,
            KeyCode::Char('v') => self.sort_by(Sort::Bytes)?,
            KeyCode::Char('x') => self.sort_by(Sort::Noncurrent)?,
            KeyCode::Char('o') => self.sort_by(Sort::Objects)?,
            KeyCode::Char('n') => self.sort_by(Sort::Name)?,
            KeyCode::Char('c') => self.sort_by(Sort::Cost)?,
            KeyCode::Char('i') => self.panel = Panel::Info(0),
            KeyCode::Char('?') => self.panel = Panel::Help,
            KeyCode::Char('/') => {
                self.panel = Panel::Find(Find::new(self.index, &self.here.prefix)?);
            }
            KeyCode::Char('q') => return Ok(Flow::Quit),
            _ => {}
        }
        Ok(Flow::GoOn)
    }

    fn key_in_find(&mut self, code: KeyCode) -> anyhow::Result<()> {
        let Panel::Find(find) = &mut self.panel else { return Ok(()) };
        match code {
            KeyCode::Esc => self.panel = Panel::Nothing,
            KeyCode::Enter => {
                if let Some(prefix) = find.found(self.index)? {
                    self.panel = Panel::Nothing;
                    self.go_to(&prefix)?;
                } else {
                    self.message = Some("there is no such prefix".to_owned());
                }
            }
            code => find.key(self.index, code)?,
        }
        Ok(())
    }

    /// Opens the selected child.
    fn down(&mut self) -> anyhow::Result<()> {
        let Some((prefix, node)) = self.selected()? else { return Ok(()) };
        if node.child_count() == 0 {
            self.message =
                Some("there are no prefixes below it; press i for its figures".to_owned());
            return Ok(());
        }
        let here = std::mem::replace(&mut self.here, Level::new(prefix, node));
        self.above.push(here);
        self.rebuild_list()
    }

    /// Returns to the prefix above.
    fn up(&mut self) -> anyhow::Result<()> {
        if let Some(above) = self.above.pop() {
            self.here = above;
            self.rebuild_list()?;
        }
        Ok(())
    }

    /// Opens a prefix by name, with all prefixes above it; returns whether it exists.
    fn go_to(&mut self, prefix: &[u8]) -> anyhow::Result<bool> {
        let Some(node) = self.index.get(prefix)? else { return Ok(false) };
        let mut above = Vec::new();
        if !prefix.is_empty() {
            above.push(Level::new(Vec::new(), self.index.root()?));
        }
        let delimiter = self.index.delimiter();
        let ends = (1..prefix.len()).filter(|&end| prefix.get(end - 1) == Some(&delimiter));
        for part in ends.filter_map(|end| prefix.get(..end)) {
            if let Some(node) = self.index.get(part)? {
                above.push(Level::new(part.to_vec(), node));
            }
        }
        self.above = above;
        self.here = Level::new(prefix.to_vec(), node);
        self.rebuild_list()?;
        Ok(true)
    }

    fn sort_by(&mut self, sort: Sort) -> anyhow::Result<()> {
        if sort == Sort::Cost {
            if self.pricer.is_none() {
                self.message =
                    Some("the index has no histograms, so there are no costs".to_owned());
                return Ok(());
            }
            if self.here.node.child_count() > BY_COST_MAX {
                let message = format!("no more than {BY_COST_MAX} prefixes can be sorted by cost");
                self.message = Some(message);
                return Ok(());
            }
        }
        self.sort = sort;
        self.rebuild_list()
    }

    /// Creates the list of the open prefix again.
    fn rebuild_list(&mut self) -> anyhow::Result<()> {
        if self.sort == Sort::Cost && self.here.node.child_count() > BY_COST_MAX {
            self.sort = Sort::Billed;
            let message = "too many prefixes to sort by cost; sorted by billed bytes";
            self.message = Some(message.to_owned());
        }
        if self.here.sort != self.sort {
            (self.here.selected, self.here.top, self.here.sort) = (0, 0, self.sort);
        }
        self.list = List::new(self.here.node, self.sort, self.pricer.as_ref())?;
        self.here.select(self.here.selected, self.lines);
        Ok(())
    }
}
