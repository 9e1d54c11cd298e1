//! A user as the configuration file has it.

/// A user of the file:
///
/// ```toml
/// [[user]]
/// name = "reports"
/// rules = ["on", "#9f86…", "~report:*", "+@read"]   # or one text, as in ACL SETUSER
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct UserRules {
    /// Its name.
    pub name: String,
    /// Rules as in ACL SETUSER, in order.
    pub rules: Vec<String>,
}

impl std::fmt::Debug for UserRules {
    /// Without the rules: passwords may be among them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserRules").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a user is to be in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct UserChange {
    /// Its name.
    pub name: String,
    /// Its rules; `None` if it is not to be there.
    pub rules: Option<Vec<String>>,
}

impl UserChange {
    /// Makes the change among the users of a configuration.
    pub(super) fn apply(&self, users: &mut Vec<UserRules>) {
        let at = users.iter().position(|user| user.name == self.name);
        match (&self.rules, at.and_then(|at| users.get_mut(at))) {
            (Some(rules), Some(user)) => user.rules.clone_from(rules),
            (Some(rules), None) => {
                users.push(UserRules { name: self.name.clone(), rules: rules.clone() });
            }
            (None, _) => users.retain(|user| user.name != self.name),
        }
    }
}
