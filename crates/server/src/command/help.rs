//! `HELP`, of each command that is made of others.

use super::{Call, CommandSpec};

/// The subcommands of a command, from its row in the table.
pub(crate) fn help(call: &mut Call<'_>, spec: &CommandSpec) {
    let name = spec.name.to_uppercase();
    let arguments = spec.arguments;
    let inner = arguments.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let forms: Vec<&str> = inner.unwrap_or(arguments).split(" | ").collect();
    call.reply.array(forms.len() + 3);
    call.reply.simple(format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    forms.iter().for_each(|form| call.reply.simple(form));
    call.reply.simple("HELP");
    call.reply.simple("    Print this help.");
}
