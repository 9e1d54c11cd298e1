//! Which options a column family is opened with: those that the open names it with, or those that are stored with it.

use crate::admin::families::DEFAULT_FAMILY;
use crate::error::{Error, Result};
use crate::options::{CfOptions, Options, StoredOptions, stored};
use std::sync::Arc;
use terrace_manifest::FamilyState;

/// What `options` say of the family called `name`.
pub(crate) fn given<'a>(options: &'a Options, name: &str) -> &'a CfOptions {
    let named = options.column_families.iter().find(|(n, _)| n == name);
    named.map_or(&options.default_family, |(_, cf)| cf)
}

/// Whether what `options` say of the family called `name` counts more than what is stored.
fn is_said(options: &Options, name: &str) -> bool {
    let is_named =
        name == DEFAULT_FAMILY || options.column_families.iter().any(|(named, _)| named == name);
    options.stored_options == StoredOptions::Replace
        || (is_named && !stored::are_defaults(given(options, name)))
}

/// What `family` is opened with; the merge operator and the compaction filter are those of `options`.
///
/// # Errors
/// `InvalidArgument`: this build does not know what is stored, or cannot do it.
pub(crate) fn in_force(options: &Options, family: &FamilyState) -> Result<CfOptions> {
    let given = given(options, &family.name);
    let stored = family.options.as_deref().filter(|_| !is_said(options, &family.name));
    let Some(stored) = stored else { return Ok(given.clone()) };
    let known = stored::decode(stored).and_then(|known| {
        let (merge_operator, compaction_filter) =
            (given.merge_operator.clone(), given.compaction_filter.clone());
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
