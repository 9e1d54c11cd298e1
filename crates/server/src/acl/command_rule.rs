//! A rule about commands: allowed or not, and which.

use super::category::Categories;

/// What a rule about commands is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Category(Categories),
    Command(u16),
    /// A command with this first argument, in lower case.
    Subcommand(u16, String),
}

/// One rule about commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandRule {
    pub allow: bool,
    pub target: Target,
}
