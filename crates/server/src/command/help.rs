//! `HELP`, of each command that is made of others.

use super::help_texts::text_of;
use super::{Call, CommandSpec};

/// The subcommands of a command, from its row in the table.
pub(crate) fn help(call: &mut Call<'_>, spec: &CommandSpec) {
    let name = spec.name.to_uppercase();
    let mut lines: Vec<String> = Vec::new();
    for form in forms(spec) {
        lines.push(form.into());
        lines.extend(text_of(spec.name, form).map(|text| format!("    {text}")));
    }
    call.reply.array(lines.len() + 3);
    call.reply.simple(format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| call.reply.simple(line));
    call.reply.simple("HELP");
    call.reply.simple("    Prints this help.");
}

/// The forms of a command that is made of others, each with its subcommand first.
pub(super) fn forms(spec: &CommandSpec) -> Vec<&'static str> {
    let arguments = spec.arguments;
    let inner = arguments.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(arguments).split(" | ").collect()
}
