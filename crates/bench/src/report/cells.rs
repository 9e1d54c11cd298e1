//! Texts of table cells, and tables of them.

/// Columns padded to their widest cell: text to the left, numbers to the right.
pub(super) fn align<const N: usize>(lines: &[[String; N]]) -> String {
    const TEXT_COLUMNS: usize = 2;
    let mut widths = [0; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < TEXT_COLUMNS {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A workload and its variant in one word.
pub fn title(workload: &str, variant: &str) -> String {
    match variant {
        "" => workload.to_owned(),
        _ => format!("{workload} {variant}"),
    }
}

/// A number with thousands apart.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest unit that leaves a whole part.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && scaled < 100.0);
    format!("{scaled:.decimals$} {}", UNITS[unit])
}
