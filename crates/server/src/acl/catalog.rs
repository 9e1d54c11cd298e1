//! The commands as access control sees them: a number, a name and categories each.

use super::category::Categories;
use super::command_rule::Target;
use std::collections::HashMap;

/// All commands. A command's number is its place in the table that this is made from.
#[derive(Debug, Default)]
pub struct Catalog {
    commands: Vec<(&'static str, Categories)>,
    numbers: HashMap<&'static str, u16>,
    /// By the number of the command.
    subcommands: Vec<(u16, &'static str, Categories)>,
}

impl Catalog {
    /// The commands in the order of their numbers, names in lower case.
    pub fn new(commands: impl IntoIterator<Item = (&'static str, Categories)>) -> Self {
        let commands: Vec<_> = commands.into_iter().take(usize::from(u16::MAX)).collect();
        let numbers = (0..).zip(&commands).map(|(number, (name, _))| (*name, number)).collect();
        Self { commands, numbers, subcommands: Vec::new() }
    }

    /// With what commands are made of: the command, the subcommand and its categories.
    pub fn with_subcommands(
        mut self,
        all: impl IntoIterator<Item = (&'static str, &'static str, Categories)>,
    ) -> Self {
        for (command, name, categories) in all {
            if let Some(number) = self.number(command) {
                self.subcommands.push((number, name, categories));
            }
        }
        self
    }

    /// The subcommands in a category, with the number of their command.
    pub(super) fn subcommands_in(
        &self,
        category: Categories,
    ) -> impl Iterator<Item = (u16, &'static str)> {
        let all = self.subcommands.iter();
        all.filter(move |(_, _, own)| own.intersects(category)).map(|(of, name, _)| (*of, *name))
    }

    /// The number of the command of this name, in any case.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.numbers.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// How many subcommands all of them have.
    pub fn subcommand_count(&self) -> usize {
        self.subcommands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The name of a command.
    pub fn name(&self, number: u16) -> &'static str {
        self.commands.get(usize::from(number)).map_or("", |(name, _)| name)
    }

    /// ACL CAT of a category: the names of its commands.
    pub fn names_in(&self, category: Categories) -> impl Iterator<Item = String> {
        let whole = self.numbers_in(category).map(|number| self.name(number).to_string());
        let parts = self.subcommands_in(category);
        whole.chain(parts.map(|(of, name)| format!("{}|{name}", self.name(of))))
    }

    /// Whether a command is made of subcommands.
    pub(super) fn has_subcommands(&self, number: u16) -> bool {
        self.subcommands.iter().any(|(of, _, _)| *of == number)
    }

    /// The categories of a subcommand.
    pub(super) fn subcommand(&self, number: u16, name: &str) -> Option<Categories> {
        let mut all = self.subcommands.iter();
        all.find(|(of, own, _)| *of == number && *own == name).map(|(_, _, categories)| *categories)
    }

    /// Whether a rule about `whole` decides everything that one about `part` does.
    pub(super) fn includes(&self, whole: &Target, part: &Target) -> bool {
        let is_in = |number: u16, category: Categories| {
            let own = self.commands.get(usize::from(number));
            own.is_some_and(|(_, own)| own.intersects(category))
        };
        match (whole, part) {
            (Target::Command(number), Target::Subcommand(of, _)) => of == number,
            (Target::Category(category), Target::Command(number)) => {
                let mut parts = self.subcommands.iter().filter(|(of, _, _)| of == number);
                is_in(*number, *category) && parts.all(|(_, _, own)| own.intersects(*category))
            }
            (Target::Category(category), Target::Subcommand(number, name)) => {
                match self.subcommand(*number, name) {
                    Some(own) => own.intersects(*category),
                    None => is_in(*number, *category),
                }
            }
            (whole, part) => whole == part,
        }
    }

    /// The numbers of the commands in a category.
    pub(super) fn numbers_in(&self, category: Categories) -> impl Iterator<Item = u16> {
        let all = (0..).zip(&self.commands);
        all.filter(move |(_, (_, own))| own.intersects(category)).map(|(number, _)| number)
    }
}
