//! The documentation of all options, from the table.

use super::names::all_options;
use super::table::{OptionSpec, When};
use super::value::Kind;

/// Markdown: a table of options for every group, in the order of the table.
pub fn documentation() -> String {
    let mut text = String::new();
    let mut group = "";
    for option in all_options() {
        if option.group != group {
            group = option.group;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!(
                "{gap}### {group}\n\n| option | default | takes | live | |\n|---|---|---|---|---|\n"
            ));
        }
        text.push_str(&row(option));
    }
    text
}

fn row(option: &OptionSpec) -> String {
    let names: Vec<_> = option.names().map(|name| format!("`{name}`")).collect();
    let default = match option.default {
        "" => "none".to_string(),
        default => format!("`{default}`"),
    };
    let takes = match option.kind {
        Kind::Text | Kind::Secret => "text".to_string(),
        _ => option.kind.allowed().replace('<', "&lt;").replace('>', "&gt;"),
    };
    let live = if option.when == When::Live { "yes" } else { "" };
    format!("| {} | {default} | {takes} | {live} | {} |\n", names.join(", "), option.doc)
}
