//! Merge operators of the program: callbacks with a context.

use crate::arguments::{bytes, text};
use crate::callback::{Context, FreeContext};
use crate::error::{Error, call};
use crate::options::{Options, family_name};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use terrace::{MergeError, MergeOperator, builtin_merge_operator};
use terrace_binding::{Failure, address};

/// Where a merge puts its outcome. It lives until the callback returns.
pub struct MergeResult {
    /// Nothing until the callback says something; the last counts.
    outcome: Option<Result<Vec<u8>, String>>,
}

/// Makes the value of a key of `existing`, which is NULL if the key is absent, deleted or expired, and of `count`
/// operands, 1 or more, the oldest first. It says the value by terrace_merge_result_set; by
/// terrace_merge_result_refuse, or by nothing, that there is none: then reads of the key fail with
/// TERRACE_MERGE_FAILED and the operands stay. All bytes are there until it returns.
///
/// It must be pure: the same arguments have the same result in every process that opens the store. Readers and
/// background threads call it, several at the same time. It must not call the store, nor leave by longjmp or an
/// exception.
pub type FullMerge = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const u8,
        key_len: usize,
        existing: *const u8,
        existing_len: usize,
        operands: *const *const u8,
        operand_lens: *const usize,
        count: usize,
        result: *mut MergeResult,
    ),
>;

/// Makes one operand of `count`, 2 or more, the oldest first, that does what they do, whatever lies below them. If it says
/// none, or refuses, they all stay. Otherwise as terrace_full_merge.
pub type PartialMerge = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const u8,
        key_len: usize,
        operands: *const *const u8,
        operand_lens: *const usize,
        count: usize,
        result: *mut MergeResult,
    ),
>;

/// An operator that asks C.
struct CallbackOperator {
    name: String,
    context: Context,
    full_merge: unsafe extern "C" fn(
        *mut c_void,
        *const u8,
        usize,
        *const u8,
        usize,
        *const *const u8,
        *const usize,
        usize,
        *mut MergeResult,
    ),
    partial_merge: PartialMerge,
}

/// Where each of `parts` is, and how long.
fn places(parts: &[&[u8]]) -> (Vec<*const u8>, Vec<usize>) {
    parts.iter().map(|part| (address(part), part.len())).unzip()
}

impl MergeOperator for CallbackOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let (data, lens) = places(operands);
        let mut result = MergeResult { outcome: None };
        // SAFETY: the caller of terrace_options_set_merge_operator gave the function for this context, to be called by any
        // thread; all that is passed lives until it returns.
        unsafe {
            (self.full_merge)(
                self.context.get(),
                address(key),
                key.len(),
                existing.map_or(std::ptr::null(), address),
                existing.map_or(0, <[u8]>::len),
                data.as_ptr(),
                lens.as_ptr(),
                operands.len(),
                &raw mut result,
            );
        }
        let outcome = result.outcome.unwrap_or_else(|| Err("it said no value".to_string()));
        outcome.map_err(MergeError)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let merge = self.partial_merge?;
        let (data, lens) = places(operands);
        let mut result = MergeResult { outcome: None };
        // SAFETY: as in `full_merge`.
        unsafe {
            merge(
                self.context.get(),
                address(key),
                key.len(),
                data.as_ptr(),
                lens.as_ptr(),
                operands.len(),
                &raw mut result,
            );
        }
        result.outcome?.ok()
    }
}

/// The outcome of a merge is `value`, which is copied. Only in a callback, with the result that it was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_merge_result_set(
    result: *mut MergeResult,
    value: *const u8,
    value_len: usize,
) {
    // SAFETY: the rules of terrace.h.
    let (result, value) = unsafe { (result.as_mut(), bytes(value, value_len, "the value")) };
    if let Some(result) = result {
        result.outcome = Some(value.map(<[u8]>::to_vec).map_err(|failure| failure.message));
    }
}

/// The operands cannot be merged. `message`, which may be NULL, says why, in the error that readers get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_merge_result_refuse(
    result: *mut MergeResult,
    message: *const c_char,
) {
    let said = match message.is_null() {
        true => "it gave no reason".to_string(),
        // SAFETY: the rules of terrace.h.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned(),
    };
    // SAFETY: the rules of terrace.h.
    if let Some(result) = unsafe { result.as_mut() } {
        result.outcome = Some(Err(said));
    }
}

/// Sets the merge operator of the column family `family`, of the default one for NULL: what terrace_merge does there. Its
/// name, of 1 to 256 bytes, is stored, and the store is refused without an operator of that name: change
/// it when the meaning of operands changes. `context` is passed to the callbacks. `partial_merge` may be NULL.
/// `free_context`, which may be NULL, is called once, by any thread, when nothing can call them any more: at the latest when
/// the options, every store that was opened with them and all handles of these stores are freed, iterators among them. On
/// failure of this function the context stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set_merge_operator(
    options: *mut Options,
    family: *const c_char,
    name: *const c_char,
    context: *mut c_void,
    full_merge: FullMerge,
    partial_merge: PartialMerge,
    free_context: FreeContext,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (chosen, name) = unsafe { (Options::to_change(options)?, text(name, "name")?) };
        let full_merge = full_merge.ok_or_else(|| Failure::argument("full_merge is NULL"))?;
        if builtin_merge_operator(name).is_some() {
            let text = format!("`{name}` is the name of a built-in merge operator; choose another");
            return Err(Failure::argument(text));
        }
        // SAFETY: the rules of terrace.h.
        let family = unsafe { family_name(family) }?;
        let name = name.to_string();
        let context = Context::new(context, free_context);
        let operator: Arc<dyn MergeOperator> =
            Arc::new(CallbackOperator { name, context, full_merge, partial_merge });
        chosen.set_callback(family, "merge_operator", move |family| {
            family.merge_operator = Some(operator.clone());
            Ok(())
        })
    })
}
