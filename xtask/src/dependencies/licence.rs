//! Licence expressions as SPDX defines them: `MIT OR (Apache-2.0 WITH LLVM-exception AND Zlib)`.
//!
//! ```text
//! any   all ("OR" all)*          a slash is an OR, as in old manifests
//! all   one ("AND" one)*
//! one   "(" any ")" | name ["WITH" name]
//! ```

use anyhow::{Result, bail, ensure};

/// Whether somebody who accepts only the licences of `allowed` may use what is under `expression`. A licence with an
/// exception is allowed only under that whole name.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { rest: spaced.split_whitespace().collect(), allowed };
    words.rest.reverse();
    let result = words.any()?;
    ensure!(words.rest.is_empty(), "it goes on after its end");
    Ok(result)
}

struct Words<'a> {
    /// What was not read yet, the next word last.
    rest: Vec<&'a str>,
    allowed: &'a [String],
}

impl Words<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.rest.last() == Some(&word);
        if is_next {
            self.rest.pop();
        }
        is_next
    }

    fn any(&mut self) -> Result<bool> {
        let mut result = self.all()?;
        while self.takes("OR") {
            result |= self.all()?;
        }
        Ok(result)
    }

    fn all(&mut self) -> Result<bool> {
        let mut result = self.one()?;
        while self.takes("AND") {
            result &= self.one()?;
        }
        Ok(result)
    }

    fn one(&mut self) -> Result<bool> {
        if self.takes("(") {
            let result = self.any()?;
            ensure!(self.takes(")"), "a bracket is not closed");
            return Ok(result);
        }
        let name = self.name()?;
        let name = match self.takes("WITH") {
            true => format!("{name} WITH {}", self.name()?),
            false => name,
        };
        Ok(self.allowed.contains(&name))
    }

    fn name(&mut self) -> Result<String> {
        match self.rest.pop() {
            None => bail!("it ends too early"),
            Some(word @ ("(" | ")" | "AND" | "OR" | "WITH")) => bail!("{word} is no licence"),
            Some(name) => Ok(name.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> Result<bool> {
        let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_string);
        is_allowed(expression, &allowed)
    }

    #[test]
    fn one_of_several_or_all_of_them() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "MIT AND Zlib",
            "(GPL-3.0 OR MIT) AND Zlib",
            "GPL-3.0 AND ISC OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(allowed(good).unwrap(), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "GPL-3.0 AND (MIT OR Zlib)", "mit"]
        {
            assert!(!allowed(bad).unwrap(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for bad in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Zlib", "MIT WITH", "()"] {
            assert!(allowed(bad).is_err(), "{bad}");
        }
    }
}
