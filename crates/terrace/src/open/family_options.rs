//! Which options a column family is opened with: those that the open names it with, or those that are stored with it. What
//! the open gives the default family of code, a merge operator and a compaction filter, is not for others that it does not name.

use crate::admin::families::DEFAULT_FAMILY;
use crate::error::{Error, Result};
use crate::merge_operator::MergeOperator;
use crate::options::{CfOptions, Options, StoredOptions, stored};
use std::sync::Arc;
use terrace_manifest::FamilyState;

/// What `options` say of the family called `name`.
pub(crate) fn given<'a>(options: &'a Options, name: &str) -> &'a CfOptions {
    let named = options.column_families.iter().find(|(n, _)| n == name);
    named.map_or(&options.default_family, |(_, cf)| cf)
}

/// Whether `options` name the family called `name`.
fn is_named(options: &Options, name: &str) -> bool {
    name == DEFAULT_FAMILY || options.column_families.iter().any(|(named, _)| named == name)
}

/// Whether what `options` say of the family called `name` counts more than what is stored.
fn is_said(options: &Options, name: &str) -> bool {
    options.stored_options == StoredOptions::Replace
        || (is_named(options, name) && !stored::are_defaults(given(options, name)))
}

/// Whether the code that `options` say for the family called `name` is meant for it: that of the default family is for others
/// only if they have all that the open says.
fn has_code(options: &Options, name: &str) -> bool {
    options.stored_options == StoredOptions::Replace || is_named(options, name)
}

/// The merge operator that `options` have for `family`. If they do not name it, that is the default family's only if
/// it is the one that is stored with `family`: operands would get a meaning for good that nobody has asked for.
pub(crate) fn given_operator<'a>(
    options: &'a Options,
    family: &FamilyState,
) -> Option<&'a Arc<dyn MergeOperator>> {
    let given = given(options, &family.name).merge_operator.as_ref();
    let is_meant = |given: &&Arc<dyn MergeOperator>| {
        is_named(options, &family.name)
            || match family.merge_operator.as_deref() {
                Some(stored) => stored == given.name(),
                None => has_code(options, &family.name),
            }
    };
    given.filter(is_meant)
}

/// What `family` is opened with; the merge operator and the compaction filter are those of `options`, as far as they are meant
/// for it.
///
/// # Errors
/// `InvalidArgument`: this build does not know what is stored, or cannot do it.
pub(crate) fn in_force(options: &Options, family: &FamilyState) -> Result<CfOptions> {
    let mut given = given(options, &family.name).clone();
    if !has_code(options, &family.name) {
        (given.merge_operator, given.compaction_filter) = (None, None);
    }
    let stored = family.options.as_deref().filter(|_| !is_said(options, &family.name));
    let Some(stored) = stored else { return Ok(given) };
    let known = stored::decode(stored).and_then(|known| {
        let CfOptions { merge_operator, compaction_filter, .. } = given;
        let known = CfOptions { merge_operator, compaction_filter, ..known };
        known.check().map(|()| known)
    });
    known.map_err(|error| {
        Error::InvalidArgument(format!(
            "the stored options of the column family `{}` are not for this build: {error}; give it \
             others at the open (stored_options: replace), or use a build for which they are",
            family.name
        ))
    })
}

/// The text that is stored with `family` when it is opened with `options`, if it is another than now.
///
/// # Errors
/// As [`in_force`].
pub(crate) fn to_store(options: &Options, family: &FamilyState) -> Result<Option<Arc<str>>> {
    let before = family.options.as_deref();
    let text = stored::encode(&in_force(options, family)?, before);
    Ok((Some(&*text) != before).then(|| text.into()))
}
