//! Creating and dropping column families, and changing their options.

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::kill_point::kill_point;
use crate::listener::StallCondition;
use crate::merge_operator::{MergeOperator, builtin_merge_operator};
use crate::options::{CfOptions, Options, refuse, stored};
use crate::version::family::Family;
use crate::version::install;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_manifest::{FamilyEdit, VersionEdit};

/// The name of the family every store has.
pub(crate) const DEFAULT_FAMILY: &str = "default";

/// The merge operator of a family: the one that is `given`, or the built-in one that the store
/// names as `stored`.
///
/// # Errors
/// `InvalidArgument` if the store names another one, or one that must be given.
pub(crate) fn merge_operator(
    family: &str,
    stored: Option<&str>,
    given: Option<&Arc<dyn MergeOperator>>,
) -> Result<Option<Arc<dyn MergeOperator>>> {
    let refuse = |given: &str, stored: &str| {
        Err(Error::InvalidArgument(format!(
            "the column family `{family}` has the merge operator `{stored}`, and {given}; open it with \
             `{stored}`, since nothing else knows what its operands mean"
        )))
    };
    match (stored, given) {
        (None, given) => Ok(given.cloned()),
        (Some(stored), Some(given)) if given.name() == stored => Ok(Some(given.clone())),
        (Some(stored), Some(given)) => refuse(&format!("`{}` was given", given.name()), stored),
        (Some(stored), None) => match builtin_merge_operator(stored) {
            None => refuse("none was given", stored),
            builtin => Ok(builtin),
        },
    }
}

/// Creates the family `name`, durably, and opens it.
pub(crate) fn create(inner: &Inner, name: &str, options: &CfOptions) -> Result<Arc<Family>> {
    refuse::family_name(name)?;
    Options { default_family: options.clone(), ..inner.base.options.clone() }.check()?;
    inner.base.health.check_writable()?;
    let lead = inner.commit.queue()?.lead();
    let segment = lead.log().writer.segment();
    let mut log = inner.versions.manifest.lock();
    if inner.read.family_named(name).is_some() {
        return Err(Error::InvalidArgument(format!("the column family `{name}` exists already")));
    }
    let id = log.state.next_family_id;
    // Before the edit: a family that the manifest has must be there.
    let chosen = (options.clone(), inner.base.dynamic.options().family(options));
    let family = Family::new(id, name.into(), chosen, Arc::default(), &inner.read.table_cache)
        .map_err(|e| terrace_base::Error::io("reserve memory for", &inner.base.dir, e))?;
    let edit = FamilyEdit {
        id,
        create: Some(name.into()),
        merge_operator: options.merge_operator.as_ref().map(|operator| operator.name().into()),
        options: Some(stored::encode(options, None).into()),
        min_log_segment: Some(segment),
        ..FamilyEdit::default()
    };
    let edit = VersionEdit { families: vec![edit], ..VersionEdit::default() };
    install::append(&inner.versions, &mut log, &edit)?;
    kill_point("family:created");
    let family = Arc::new(family);
    let mut all = (**inner.read.families.load()).clone();
    // They stay in the order of their ids.
    debug_assert!(all.last().is_none_or(|last| last.id < id));
    all.push(family.clone());
    inner.read.families.store(Arc::new(all));
    Ok(family)
}

/// Changes options of `family`, or of all families, durably: of all that are asked for, or of none.
///
/// # Errors
/// That of `change`, and `InvalidArgument` for what no store opens with: nothing has changed. `NoSuchFamily`. What a write to the
/// manifest gives; then the old options are in force, and the next open may find the new ones.
pub(crate) fn change_options(
    inner: &Inner,
    family: Option<&Arc<Family>>,
    change: &dyn Fn(&mut CfOptions) -> Result<()>,
) -> Result<()> {
    let mut log = inner.versions.manifest.lock();
    // A family is made and dropped under this lock.
    let families = match family {
        Some(family) => {
            family.check_exists()?;
            vec![family.clone()]
        }
        None => (**inner.read.families.load()).clone(),
    };
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for family in families {
        let mut chosen = family.chosen();
        change(&mut chosen)?;
        chosen.check()?;
        let before = log.state.families.get(&family.id).and_then(|state| state.options.clone());
        let text = stored::encode(&chosen, before.as_deref());
        if Some(&*text) != before.as_deref() {
            let options = Some(text.into());
            edits.push(FamilyEdit { id: family.id, options, ..FamilyEdit::default() });
        }
        changes.push((family, chosen));
    }
    // A reader has them for itself.
    if !edits.is_empty() && !inner.base.read_only {
        inner.base.health.check_may_free()?;
        let edit = VersionEdit { families: edits, ..VersionEdit::default() };
        install::append(&inner.versions, &mut log, &edit)?;
    }
    let options = inner.base.dynamic.options();
    changes.into_iter().for_each(|(family, chosen)| family.choose(&options, chosen));
    Ok(())
}

/// Drops the family `name`, durably; its files go when nobody reads them any more.
pub(crate) fn drop(inner: &Inner, name: &str) -> Result<()> {
    if name == DEFAULT_FAMILY {
        return Err(Error::InvalidArgument("the default column family cannot be dropped".into()));
    }
    // On a full disk it is what gives the most room.
    inner.base.health.check_may_free()?;
    // What was written before to other families may be all that is left of this one. Most of it is synced beside writers.
    log_segments::sync(&inner.commit)?;
    {
        // No write may be under way to the family while it goes.
        let lead = inner.commit.queue()?.lead();
        log_segments::sync_under_lead(&inner.commit, &mut lead.log())?;
        let mut log = inner.versions.manifest.lock();
        let family =
            inner.read.family_named(name).ok_or_else(|| Error::NoSuchFamily(name.to_string()))?;
        let edit = FamilyEdit { id: family.id, drop: true, ..FamilyEdit::default() };
        let edit = VersionEdit { families: vec![edit], ..VersionEdit::default() };
        if let Err(error) = install::append(&inner.versions, &mut log, &edit) {
            // It may be there whole. What is not settled here is before the next write to the manifest.
            let _best_effort = install::make_whole(&inner.versions, &mut log);
            return Err(error);
        }
        kill_point("family:dropped");
        family.mark_dropped();
        let mut all = (**inner.read.families.load()).clone();
        all.retain(|other| other.id != family.id);
        inner.read.families.store(Arc::new(all));
        // No write finds out any more that it is not slowed.
        inner.base.events.stall(&family.name, StallCondition::Normal, None);
        install::retire_family(&inner.versions, &family);
    }
    // The family is gone, whatever becomes of segments that it alone needed: the house thread sees to them again and again.
    if let Err(error) = log_segments::retire_segments(&inner.commit) {
        inner.base.report("retire log segments", &error);
    }
    inner.jobs.scheduler.wake();
    Ok(())
}
