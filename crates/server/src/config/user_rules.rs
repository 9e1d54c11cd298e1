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
