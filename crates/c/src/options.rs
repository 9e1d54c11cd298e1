//! Options by name and text.

use crate::arguments::{exclusive, text};
use crate::error::{Error, call, free};
use std::collections::BTreeMap;
use std::ffi::c_char;
use terrace::CfOptions;
use terrace_binding::{Kept, Outcome, plain_options, set_store_option};

/// The name of the default column family, which always is there.
const DEFAULT_FAMILY: &str = "default";

/// How a store is opened, or a column family created. One thread at a time may change it; any number may
/// open stores with it.
pub struct Options {
    kept: Kept<Chosen>,
}

/// What was set.
#[derive(Default)]
pub(crate) struct Chosen {
    /// Without column families but the default one.
    options: terrace::Options,
    /// The other families that are named, and what was set for them, by the names of the options.
    families: Vec<(String, BTreeMap<String, Change>)>,
    /// In a forked process nobody uses or frees the contexts of callbacks, with which the parent goes on. Without any, all
    /// of it is plain data.
    has_callbacks: bool,
}

/// Sets one option of a column family.
type Change = Box<dyn Fn(&mut CfOptions) -> Outcome<()> + Send + Sync>;

impl Options {
    /// Those behind `pointer`, the defaults for NULL. A family that is named has the plain options of the default one as
    /// they are by now, but for what was set for it.
    ///
    /// # Safety
    /// NULL, or a handle that lives.
    pub(crate) unsafe fn of(pointer: *const Self) -> Outcome<terrace::Options> {
        // SAFETY: said above.
        let Some(handle) = (unsafe { pointer.as_ref() }) else { return Ok(Default::default()) };
        let chosen = match handle.kept.anywhere() {
            chosen if chosen.has_callbacks => handle.kept.get()?,
            chosen => chosen,
        };
        let mut options = chosen.options.clone();
        for (name, changes) in &chosen.families {
            let mut family = plain_options(&options.default_family);
            changes.values().try_for_each(|change| change(&mut family))?;
            options.column_families.push((name.clone(), family));
        }
        Ok(options)
    }

    /// Those behind `pointer`, to change them.
    ///
    /// # Safety
    /// NULL, or a handle that lives and that no other thread uses.
    pub(crate) unsafe fn to_change<'a>(pointer: *mut Self) -> Outcome<&'a mut Chosen> {
        // SAFETY: said above.
        let kept = &mut unsafe { exclusive(pointer, "options") }?.kept;
        if !kept.anywhere().has_callbacks {
            kept.adopt();
        }
        kept.get_mut()
    }
}

impl Chosen {
    /// As [`Self::set_family`], for an option that calls back.
    pub(crate) fn set_callback(
        &mut self,
        family: &str,
        option: &str,
        change: impl Fn(&mut CfOptions) -> Outcome<()> + Send + Sync + 'static,
    ) -> Outcome<()> {
        self.has_callbacks = true;
        self.set_family(family, option, change)
    }

    /// Sets an option of the column family `family`. What `change` refuses is not set and names no family.
    pub(crate) fn set_family(
        &mut self,
        family: &str,
        option: &str,
        change: impl Fn(&mut CfOptions) -> Outcome<()> + Send + Sync + 'static,
    ) -> Outcome<()> {
        let mut changed = self.options.default_family.clone();
        change(&mut changed)?;
        match self.named(family) {
            Some(changes) => drop(changes.insert(option.to_string(), Box::new(change))),
            None => self.options.default_family = changed,
        }
        Ok(())
    }

    /// What was set for the family `name`, which is named from now on. None: it is the default one.
    fn named(&mut self, name: &str) -> Option<&mut BTreeMap<String, Change>> {
        if name == DEFAULT_FAMILY {
            return None;
        }
        let at = self.families.iter().position(|(other, _)| other == name);
        let at = at.unwrap_or_else(|| {
            self.families.push((name.to_string(), BTreeMap::new()));
            self.families.len() - 1
        });
        Some(&mut self.families[at].1)
    }
}

/// The name of a column family that is set up, of the default one for NULL.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn family_name<'a>(family: *const c_char) -> Outcome<&'a str> {
    match family.is_null() {
        true => Ok(DEFAULT_FAMILY),
        // SAFETY: said above.
        false => unsafe { text(family, "family") },
    }
}

/// Options with their defaults. Free them with terrace_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_new() -> *mut Options {
    Box::into_raw(Box::new(Options { kept: Kept::new(Chosen::default()) }))
}

/// Sets an option of the store, or of its default column family, by its name: "memory_budget" to "64MiB",
/// "sync" to "none", "buffered", "batch" or "interval:100", "compression" to "none,none,lz4". docs/c.md
/// lists all. An unknown name and text that an option cannot be are TERRACE_INVALID_ARGUMENT; numbers out
/// of range are refused by terrace_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set(
    options: *mut Options,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (chosen, name, value) =
            unsafe { (Options::to_change(options)?, text(name, "name")?, text(value, "value")?) };
        set_store_option(&mut chosen.options, name, value)
    })
}

/// Sets an option of the column family `family`, which the open creates if it does not exist. What is not set for a
/// family is as for the default one, whichever was set first, but for a merge operator and a compaction filter: it has
/// those that are set for it. "default" is the default one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set_family(
    options: *mut Options,
    family: *const c_char,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (chosen, family, name, value) = unsafe {
            let family = text(family, "family")?;
            let (name, value) = (text(name, "name")?, text(value, "value")?);
            (Options::to_change(options)?, family, name, value)
        };
        let (option, value) = (name.to_string(), value.to_string());
        chosen.set_family(family, name, move |family| Ok(family.set_option(&option, &value)?))
    })
}

/// Names a column family for the open to create if it does not exist, with the options of the default one, but for
/// a merge operator and a compaction filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_add_family(
    options: *mut Options,
    family: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (chosen, family) = unsafe { (Options::to_change(options)?, text(family, "family")?) };
        chosen.named(family);
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_free(options: *mut Options) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(options) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::Compression;

    /// Sets options, each of a family or of the store, and gives what an open would get.
    fn set(calls: &[(Option<&str>, &str, &str)]) -> terrace::Options {
        let options = terrace_options_new();
        let text = |text: &str| std::ffi::CString::new(text).unwrap();
        for (family, name, value) in calls {
            let (name, value) = (text(name), text(value));
            // SAFETY: live handles and strings.
            let error = unsafe {
                match family.map(text) {
                    Some(family) if name.is_empty() => {
                        terrace_options_add_family(options, family.as_ptr())
                    }
                    Some(family) => terrace_options_set_family(
                        options,
                        family.as_ptr(),
                        name.as_ptr(),
                        value.as_ptr(),
                    ),
                    None => terrace_options_set(options, name.as_ptr(), value.as_ptr()),
                }
            };
            assert!(error.is_null());
        }
        // SAFETY: the handle of this function.
        unsafe {
            let set = Options::of(options).unwrap();
            terrace_options_free(options);
            set
        }
    }

    fn named<'a>(options: &'a terrace::Options, name: &str) -> &'a CfOptions {
        &options.column_families.iter().find(|(other, _)| other == name).unwrap().1
    }

    #[test]
    fn what_is_not_set_for_a_family_is_as_for_the_default_one_in_any_order() {
        let calls = [
            (Some("shapes"), "", ""),
            (Some("colours"), "compression", "zstd"),
            (Some("colours"), "prefix_len", "3"),
            (None, "compression", "lz4"),
            (None, "merge_operator", "append:,"),
        ];
        let mut turned = calls;
        turned.reverse();
        for calls in [calls, turned] {
            let options = set(&calls);
            assert_eq!(options.column_families.len(), 2);
            let (shapes, colours) = (named(&options, "shapes"), named(&options, "colours"));
            assert_eq!(shapes.compression, [Compression::Lz4]);
            // Code is for the family that it is set for.
            assert!(options.default_family.merge_operator.is_some());
            assert!(shapes.merge_operator.is_none() && colours.merge_operator.is_none());
            assert_ne!(colours.compression, shapes.compression);
            assert_ne!(colours.prefix_len, shapes.prefix_len);
        }
    }

    #[test]
    fn the_family_called_default_is_the_default_one() {
        let calls = [
            (Some("default"), "", ""),
            (Some("default"), "compression", "lz4"),
            (None, "prefix_len", "3"),
        ];
        let options = set(&calls);
        assert!(options.column_families.is_empty());
        assert_eq!(options.default_family.compression, [Compression::Lz4]);
        assert_ne!(options.default_family.prefix_len, CfOptions::default().prefix_len);
    }

    #[test]
    fn what_is_set_last_counts() {
        let calls = [
            (Some("f"), "compression", "zstd"),
            (Some("f"), "prefix_len", "3"),
            (Some("f"), "compression", "none"),
        ];
        assert_eq!(named(&set(&calls), "f").compression, [Compression::None]);
    }
}
