//! The screen of a terminal as an HTML page, from text with the escape sequences of `tmux capture-pane -e -p`.

use std::fmt::Write;

/// The colours of text without a colour, and of the background.
const INK: Rgb = Rgb(0xd7, 0xdb, 0xe2);
const PAPER: Rgb = Rgb(0x12, 0x15, 0x1a);

/// The 16 named colours of a terminal.
const NAMED: [Rgb; 16] = [
    Rgb(0x12, 0x15, 0x1a),
    Rgb(0xe0, 0x6c, 0x75),
    Rgb(0x98, 0xc3, 0x79),
    Rgb(0xe5, 0xc0, 0x7b),
    Rgb(0x61, 0xaf, 0xef),
    Rgb(0xc6, 0x78, 0xdd),
    Rgb(0x56, 0xb6, 0xc2),
    Rgb(0xd7, 0xdb, 0xe2),
    Rgb(0x7f, 0x86, 0x93),
    Rgb(0xff, 0x8a, 0x94),
    Rgb(0xb5, 0xe0, 0x90),
    Rgb(0xff, 0xd9, 0x8f),
    Rgb(0x8c, 0xc8, 0xff),
    Rgb(0xdf, 0x9c, 0xf2),
    Rgb(0x7a, 0xd6, 0xe0),
    Rgb(0xff, 0xff, 0xff),
];

/// The size of a cell in pixels of CSS, and of the page's margin.
const CELL: (usize, usize) = (8, 17);
const MARGIN: usize = 12;

/// A colour of 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rgb(u8, u8, u8);

/// The style of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    ink: Option<Rgb>,
    paper: Option<Rgb>,
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    reversed: bool,
}

/// The cells of a row.
type Row = Vec<(char, Style)>;

/// Returns the size of the page in pixels of CSS for a terminal of a size in cells.
pub(super) fn page_size((columns, rows): (u16, u16)) -> (usize, usize) {
    (CELL.0 * usize::from(columns) + 2 * MARGIN, CELL.1 * usize::from(rows) + 2 * MARGIN)
}

/// Returns the page. Each run of equal style has its own position, so that no font moves a column. Lines, blocks and dots
/// of Braille are drawn, so that they fill their cells in every font.
pub(super) fn page(text: &str) -> String {
    let rows: String = rows(text).iter().enumerate().map(|(number, row)| row_html(number, row)).collect();
    let (width, height) = CELL;
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Terminal</title>\n<style>\n\
         body {{ margin: 0; background: {}; color: {}; font: 13.3px/{height}px 'DejaVu Sans Mono', monospace; }}\n\
         main {{ position: absolute; left: {MARGIN}px; top: {MARGIN}px; }}\n\
         span {{ position: absolute; height: {height}px; white-space: pre; }}\n\
         svg {{ position: absolute; width: {width}px; height: {height}px; fill: currentColor; }}\n\
         </style>\n</head>\n<body>\n<main>\n{rows}</main>\n</body>\n</html>\n",
        PAPER.css(),
        INK.css(),
    )
}

/// Parses lines with escape sequences. A style lasts beyond the end of its line.
fn rows(text: &str) -> Vec<Row> {
    let mut style = Style::default();
    text.lines().map(|line| row(line, &mut style)).collect()
}

fn row(line: &str, style: &mut Style) -> Row {
    let mut row = Row::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            row.push((letter, *style));
        } else if letters.next() == Some('[') {
            let is_end = |letter: &char| ('@'..='~').contains(letter);
            let sequence: String = letters.by_ref().take_while(|letter| !is_end(letter)).collect();
            style.apply(&sequence);
        }
    }
    row
}

impl Style {
    /// Applies the parameters of a sequence Select Graphic Rendition. Unknown ones are left out.
    fn apply(&mut self, sequence: &str) {
        let numbers: Vec<u8> = sequence.split(';').map(|number| number.parse().unwrap_or(0)).collect();
        let mut rest = numbers.as_slice();
        while let [code, after @ ..] = rest {
            rest = after;
            match code {
                0 => *self = Style::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                7 => self.reversed = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                27 => self.reversed = false,
                30..=37 => self.ink = Some(indexed(code - 30)),
                38 => self.ink = extended(&mut rest),
                39 => self.ink = None,
                40..=47 => self.paper = Some(indexed(code - 40)),
                48 => self.paper = extended(&mut rest),
                49 => self.paper = None,
                90..=97 => self.ink = Some(indexed(code - 90 + 8)),
                100..=107 => self.paper = Some(indexed(code - 100 + 8)),
                _ => {}
            }
        }
    }

    /// The colours of ink and paper.
    fn colors(self) -> (Rgb, Option<Rgb>) {
        match self.reversed {
            true => (self.paper.unwrap_or(PAPER), Some(self.ink.unwrap_or(INK))),
            false => (self.ink.unwrap_or(INK), self.paper),
        }
    }

    fn css(self) -> String {
        let (ink, paper) = self.colors();
        let mut css = format!("color:{}", ink.css());
        if let Some(paper) = paper {
            let _ = write!(css, ";background:{}", paper.css());
        }
        for (is_set, declaration) in [
            (self.bold, ";font-weight:bold"),
            (self.dim, ";opacity:.65"),
            (self.italic, ";font-style:italic"),
            (self.underlined, ";text-decoration:underline"),
        ] {
            if is_set {
                css.push_str(declaration);
            }
        }
        css
    }
}

impl Rgb {
    fn css(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// The colour after 38 or 48: `5;INDEX` or `2;RED;GREEN;BLUE`.
fn extended(rest: &mut &[u8]) -> Option<Rgb> {
    let (color, after) = match rest {
        [5, index, after @ ..] => (Some(indexed(*index)), after),
        [2, red, green, blue, after @ ..] => (Some(Rgb(*red, *green, *blue)), after),
        [..] => (None, &[] as &[u8]),
    };
    *rest = after;
    color
}

/// A colour of xterm's palette of 256: the named ones, a cube of 6 × 6 × 6, and 24 greys.
fn indexed(index: u8) -> Rgb {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match index {
        0..16 => NAMED[usize::from(index)],
        16..232 => {
            let cube = index - 16;
            Rgb(level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        232.. => {
            let grey = 8 + 10 * (index - 232);
            Rgb(grey, grey, grey)
        }
    }
}

/// A row as runs of cells of one style. A character that the font may not have at the width of a cell is a run alone.
fn row_html(number: usize, row: &Row) -> String {
    let mut html = String::new();
    let is_alone = |letter: char| !letter.is_ascii();
    let mut column = 0;
    for run in row.chunk_by(|one, other| one.1 == other.1 && !is_alone(one.0) && !is_alone(other.0)) {
        let (first, style) = run[0];
        let is_blank = run.iter().all(|(letter, _)| *letter == ' ');
        if !is_blank || style.colors().1.is_some() || style.underlined {
            let content =
                drawing(first).unwrap_or_else(|| run.iter().map(|(letter, _)| escape(*letter)).collect());
            let (left, top) = (column * CELL.0, number * CELL.1);
            let width = run.len() * CELL.0;
            let style = style.css();
            let _ = writeln!(
                html,
                "<span style=\"left:{left}px;top:{top}px;width:{width}px;{style}\">{content}</span>"
            );
        }
        column += run.len();
    }
    html
}

fn escape(letter: char) -> String {
    match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        _ => letter.to_string(),
    }
}

/// A line, a block or dots as a drawing in a cell of 8 × 16. `None` for a character of text.
fn drawing(letter: char) -> Option<String> {
    let shapes = match letter {
        '\u{2800}'..='\u{28ff}' => dots(u32::from(letter) - 0x2800),
        // Blocks from the bottom, and from the left, in eighths.
        '\u{2581}'..='\u{2588}' => {
            let eighths = u32::from(letter) - 0x2580;
            format!("<rect y=\"{}\" width=\"8\" height=\"{}\"/>", 16 - 2 * eighths, 2 * eighths)
        }
        '\u{2589}'..='\u{258f}' => {
            format!("<rect width=\"{}\" height=\"16\"/>", 0x2590 - u32::from(letter))
        }
        _ => format!("<path d=\"{}\" stroke=\"currentColor\"/>", strokes(letter)?),
    };
    Some(format!("<svg viewBox=\"0 0 8 16\" preserveAspectRatio=\"none\">{shapes}</svg>"))
}

/// The path of a character of lines: strokes from the middle to sides.
fn strokes(letter: char) -> Option<String> {
    const LEFT: &str = "M4 8H0";
    const RIGHT: &str = "M4 8H8";
    const UP: &str = "M4 8V0";
    const DOWN: &str = "M4 8V16";
    let strokes: &[&str] = match letter {
        '─' => &[LEFT, RIGHT],
        '│' => &[UP, DOWN],
        '┌' | '╭' => &[RIGHT, DOWN],
        '┐' | '╮' => &[LEFT, DOWN],
        '└' | '╰' => &[RIGHT, UP],
        '┘' | '╯' => &[LEFT, UP],
        '├' => &[UP, DOWN, RIGHT],
        '┤' => &[UP, DOWN, LEFT],
        '┬' => &[LEFT, RIGHT, DOWN],
        '┴' => &[LEFT, RIGHT, UP],
        '┼' => &[LEFT, RIGHT, UP, DOWN],
        _ => return None,
    };
    Some(strokes.concat())
}

/// The dots of a Braille character, one for each bit.
fn dots(bits: u32) -> String {
    /// Columns and rows of the bits, in the order of Unicode.
    const PLACES: [(u32, u32); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    let dot = |(bit, (column, row)): (usize, (u32, u32))| {
        let is_set = bits >> bit & 1 == 1;
        is_set.then(|| format!("<circle cx=\"{}\" cy=\"{}\" r=\"1.3\"/>", 2 + 4 * column, 2 + 4 * row))
    };
    PLACES.into_iter().enumerate().filter_map(dot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(row: &Row) -> String {
        row.iter().map(|(letter, _)| letter).collect()
    }

    #[test]
    fn styles_last_until_they_are_reset() {
        let rows = rows("a\u{1b}[1;38;5;196mb\nc\u{1b}[0m\u{1b}[48;2;1;2;3md\u{1b}[mé");
        assert_eq!(rows.iter().map(text).collect::<Vec<_>>(), ["ab", "cdé"]);
        let red = Style { ink: Some(Rgb(255, 0, 0)), bold: true, ..Style::default() };
        assert_eq!([rows[0][0].1, rows[0][1].1, rows[1][0].1], [Style::default(), red, red]);
        assert_eq!(rows[1][1].1, Style { paper: Some(Rgb(1, 2, 3)), ..Style::default() });
        assert_eq!(rows[1][2].1, Style::default());
    }

    #[test]
    fn the_palette_is_that_of_xterm() {
        assert_eq!(
            [16, 231, 75, 232, 255].map(indexed).map(Rgb::css),
            ["#000000", "#ffffff", "#5fafff", "#080808", "#eeeeee"]
        );
        let mut style = Style::default();
        style.apply("91;102");
        assert_eq!((style.ink, style.paper), (Some(NAMED[9]), Some(NAMED[10])));
        style.apply("39;49;38;5");
        assert_eq!((style.ink, style.paper), (None, None));
    }

    #[test]
    fn a_page_has_positioned_runs() {
        let page = page("\u{1b}[7m<ok>\u{1b}[27m   &─x\n ⡁");
        let reversed = format!("left:0px;top:0px;width:32px;color:{};background:{}", PAPER.css(), INK.css());
        for part in [
            &format!("<span style=\"{reversed}\">&lt;ok&gt;</span>"),
            ">   &amp;</span>",
            "left:64px;top:0px;width:8px;color:#d7dbe2\"><svg viewBox=\"0 0 8 16\" preserveAspectRatio=\"none\"><path d=\"M4 8H0M4 8H8\"",
            "left:72px;top:0px;width:8px;color:#d7dbe2\">x</span>",
            "left:8px;top:17px;width:8px;",
            "<circle cx=\"2\" cy=\"2\" r=\"1.3\"/><circle cx=\"2\" cy=\"14\" r=\"1.3\"/></svg>",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains('\u{1b}'));
        assert!(drawing('▄').unwrap().contains("<rect y=\"8\" width=\"8\" height=\"8\"/>"));
        assert!(drawing('▎').unwrap().contains("<rect width=\"2\" height=\"16\"/>"));
        assert_eq!(drawing('é'), None);
        assert_eq!(page_size((120, 36)), (984, 636));
    }
}
