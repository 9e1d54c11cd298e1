//! Which merge operators families have of which the manifest may have lost it.

use super::Repair;
use super::log::LogSurvey;
use super::plan::Files;
use super::ssts::Sst;
use crate::open::family_options;
use std::collections::{BTreeMap, BTreeSet};
use terrace_base::FileNumber;
use terrace_manifest::ManifestState;

impl Repair<'_> {
    /// Families of `state` without a merge operator get the one that the newest of their SSTs with operands names. If there are
    /// operands and none names it: the one that the options give, else it is lost. Gives whether a family got one.
    pub(super) fn name_operators(
        &mut self,
        state: &mut ManifestState,
        families: &BTreeMap<u32, Files>,
        log: &LogSurvey,
    ) -> bool {
        let mut named = false;
        for family in state.families.values_mut().filter(|family| family.merge_operator.is_none()) {
            let ssts = families.get(&family.id).into_iter().flat_map(|files| &files.ssts);
            let ssts: Vec<&Sst> = ssts.map(|(_, sst)| sst).collect();
            let has_operands =
                log.operands.contains(&family.id) || ssts.iter().any(|sst| sst.has_operands);
            let told = self.told_operator(&family.name, &ssts);
            let given = || family_options::given_operator(&self.options, family);
            family.merge_operator = match told {
                None if has_operands => given().map(|operator| operator.name().to_string()),
                told => told,
            };
            named |= family.merge_operator.is_some();
            if has_operands && family.merge_operator.is_none() {
                self.lost(format!(
                    "which merge operator the family `{}` has: there are operands, and nothing names it. Open the store with the \
                     operator that it had: whatever it is opened with first it keeps",
                    family.name
                ));
            }
        }
        named
    }

    /// The merge operator that the newest of `ssts` names which names one.
    fn told_operator(&mut self, family: &str, ssts: &[&Sst]) -> Option<String> {
        let named = ssts.iter().filter_map(|sst| Some((sst, sst.merge_operator.as_deref()?)));
        let naming: Vec<(FileNumber, &str)> =
            named.map(|(sst, name)| (sst.meta.number, name)).collect();
        let (number, name) = naming.iter().max().copied()?;
        self.saved(format!("family `{family}`: its merge operator `{name}`, which its SSTs name"));
        let others: BTreeSet<&str> =
            naming.iter().map(|(_, other)| *other).filter(|other| *other != name).collect();
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(|other| format!("`{other}`")).collect();
            self.lost(format!(
                "which merge operator the family `{family}` has: SST {number}, the newest with operands, names `{name}`, which it \
                 has now; others name {}",
                others.join(", ")
            ));
        }
        Some(name.to_string())
    }
}
