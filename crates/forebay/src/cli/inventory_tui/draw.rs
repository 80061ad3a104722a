//! Draws the view on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};

use super::find::OFFERED;
use super::list::Sort;
use super::view::{PanelView, View, filled};

/// Lines not available for children: title, path, column heads, footer.
pub(super) const LINES_AROUND: u16 = 4;
/// Width of the bar, in columns.
const BAR: u16 = 12;
/// Minimum width at which the bar and the costs are shown.
const NARROW: u16 = 64;

pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let [title, path, list, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::styled(view.title.as_str(), reversed), title);
    let path_line = format!("{}  {}", view.path, view.totals);
    frame.render_widget(Line::styled(path_line, Style::new().add_modifier(Modifier::BOLD)), path);
    children(frame, view, list);
    frame.render_widget(Line::styled(view.footer.as_str(), reversed), footer);
    match &view.panel {
        PanelView::Nothing => {}
        PanelView::Text { title, lines, first } => {
            let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
            let area = centred(list, 72, height);
            let inner = usize::from(area.height.saturating_sub(2));
            // Do not scroll beyond the last line.
            let first = usize::from(*first).min(lines.len().saturating_sub(inner));
            let text: Vec<Line<'_>> =
                lines.iter().skip(first).map(|line| Line::raw(line.as_str())).collect();
            frame.render_widget(Clear, area);
            let block = Block::bordered().title(title.as_str());
            frame.render_widget(Paragraph::new(text).block(block), area);
        }
        PanelView::Find { text, offered } => find(frame, list, text, offered),
    }
}

fn children(frame: &mut Frame<'_>, view: &View, area: Rect) {
    if view.rows.is_empty() {
        let text = "\n  No prefixes below; press i for its figures.";
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let wide = area.width >= NARROW;
    let costs = wide && view.has_costs;
    let versions = wide && view.has_versions;
    let head = |name: &str, sort: Sort| {
        if view.sort == sort { format!("{name}*") } else { name.to_owned() }
    };
    let mut widths = vec![Constraint::Length(10), Constraint::Length(6)];
    let mut heads =
        vec![format!("{:>10}", head("BILLED", Sort::Billed)), format!("{:>6}", "SHARE")];
    if wide {
        widths.push(Constraint::Length(BAR));
        heads.push(String::new());
    }
    if versions {
        widths.extend([Constraint::Length(10), Constraint::Length(11)]);
        heads.push(format!("{:>10}", head("BYTES", Sort::Bytes)));
        heads.push(format!("{:>11}", head("NONCURRENT", Sort::Noncurrent)));
    }
    widths.push(Constraint::Length(11));
    heads.push(format!("{:>11}", head("OBJECTS", Sort::Objects)));
    if costs {
        widths.push(Constraint::Length(11));
        heads.push(format!("{:>11}", head("COST", Sort::Cost)));
    }
    widths.push(Constraint::Fill(1));
    heads.push(head("NAME", Sort::Name));
    let rows = view.rows.iter().map(|row| {
        let mut cells = vec![format!("{:>10}", row.billed), format!("{:>5.1}%", row.share * 100.0)];
        if wide {
            cells.push(filled(row.share, BAR));
        }
        if versions {
            cells.push(format!("{:>10}", row.bytes));
            cells.push(format!("{:>11}", row.noncurrent));
        }
        cells.push(format!("{:>11}", row.objects));
        if costs {
            cells.push(format!("{:>11}", row.cost.as_deref().unwrap_or_default()));
        }
        cells.push(row.name.clone());
        Row::new(cells)
    });
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(Some(view.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The text that is typed, and its completions.
fn find(frame: &mut Frame<'_>, list: Rect, text: &str, offered: &[String]) {
    let height = u16::try_from(OFFERED).unwrap_or(8) + 3;
    let area = centred(list, 72, height);
    let mut lines = vec![Line::styled(format!("/{text}_"), Modifier::BOLD)];
    lines.extend(offered.iter().map(|offered| Line::raw(format!("  {offered}"))));
    frame.render_widget(Clear, area);
    let block = Block::bordered().title("Find: enter opens, tab completes, esc cancels");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Returns an area in the middle of `area`, as large as there is room for.
fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}
