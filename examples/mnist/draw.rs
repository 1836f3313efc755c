//! Prints MNIST images in the terminal.

use kiln::data::vision::MnistItem;

/// Draws images side by side, two rows of pixels per line, with a caption each: as half blocks in shades of grey, or
/// without `colour` as characters.
pub(crate) fn draw(items: &[(MnistItem, usize)], colour: bool) -> String {
    let mut text = String::new();
    for row in 0..14 {
        for (item, _) in items {
            for column in 0..28 {
                let (top, bottom) = (item.image[2 * row][column], item.image[2 * row + 1][column]);
                text.push_str(&cell(top, bottom, colour));
            }
            text.push_str("  ");
        }
        text.push('\n');
    }
    for (item, prediction) in items {
        let mark = if *prediction == usize::from(item.label) { "" } else { " (wrong)" };
        let caption = format!("shows {}, predicted {prediction}{mark}", item.label);
        text.push_str(&format!("{caption:<30}"));
    }
    text.push('\n');
    text
}

fn cell(top: u8, bottom: u8, colour: bool) -> String {
    if colour {
        return format!("\x1b[38;5;{};48;5;{}m▀\x1b[0m", grey(top), grey(bottom));
    }
    let weight = (usize::from(top) + usize::from(bottom)) * 4 / 511;
    ["·", "-", "+", "#"][weight.min(3)].to_string()
}

/// One of the 24 greys of the 256-color palette.
fn grey(pixel: u8) -> u8 {
    232 + (u16::from(pixel) * 23 / 255) as u8
}
