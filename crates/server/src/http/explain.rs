//! A user's key looked up step by step, in the families where it may be. For `/api/v1/explain`, and
//! for the command of the same name.

use super::json::{Explanation, ExplanationStep, Found, Key, Outcome};
use crate::memory_advice;
use terrace::{Db, ExplainOutcome, ExplainStep};
use terrace_base::hex::Hex;
use terrace_keyspace::{COLLECTIONS, KeyLayout, Kind, Meta};

/// Looks `key` of database `number` up as commands do: among strings, then among collections. A real
/// lookup, which may wait for the device.
///
/// # Errors
/// Those of the engine's reads.
pub fn explain(db: &Db, layout: KeyLayout, number: u8, key: &[u8]) -> terrace::Result<Explanation> {
    let user_key = layout.user_key(number, key);
    let mut told = Explanation {
        db: number,
        key: Key::of(key),
        engine_key: Hex(&user_key).to_string(),
        kind: None,
        found: None,
        steps: Vec::new(),
        total_ns: 0,
        device_reads: 0,
        memory: None,
    };
    for family in [Some(db.default_family()), db.column_family(COLLECTIONS)].into_iter().flatten() {
        let explained = family.explain(&user_key)?;
        explained.steps.iter().for_each(|step| told.enter(family.name(), step));
        let Some(value) = explained.found.as_deref() else { continue };
        let meta = (family.name() == COLLECTIONS).then(|| Meta::decode(value)).flatten();
        let expires_at_ms = match meta {
            Some(meta) => Some(meta.expires_at_ms).filter(|at| *at != 0),
            None => explained.expires_at_ms,
        };
        let has_expired =
            expires_at_ms.is_some_and(|at| at <= db.options().advanced.clock.wall_ms());
        if has_expired {
            // The engine knows what it stores of a collection, and not that it expires.
            if let Some(step) = told.steps.last_mut() {
                step.outcome = Outcome::Deleted;
                step.answer = "absent: it has expired".to_string();
            }
            continue;
        }
        told.kind = Some(meta.map_or("string", |meta| kind(meta.kind)));
        told.found = Some(Found { value: Key::of(value), expires_at_ms });
        break;
    }
    if told.device_reads > 0 {
        told.memory = Some(memory_advice::of_pools(&db.memory()));
    }
    Ok(told)
}

impl Explanation {
    fn enter(&mut self, family: &str, step: &ExplainStep) {
        self.total_ns += step.ns;
        self.device_reads += u64::from(step.device_reads);
        self.steps.push(ExplanationStep {
            family: family.to_string(),
            place: step.place.clone(),
            asked: step.asked.clone(),
            answer: step.answer.clone(),
            outcome: step.outcome.into(),
            ns: step.ns,
            device_reads: step.device_reads,
        });
    }
}

/// As `TYPE` calls it.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Hash => "hash",
        Kind::Set => "set",
        Kind::SortedSet => "zset",
        Kind::List => "list",
    }
}

impl From<ExplainOutcome> for Outcome {
    fn from(outcome: ExplainOutcome) -> Self {
        match outcome {
            ExplainOutcome::No => Self::No,
            ExplainOutcome::Maybe => Self::Maybe,
            ExplainOutcome::Skip => Self::Skip,
            ExplainOutcome::Deleted => Self::Deleted,
            ExplainOutcome::Found => Self::Found,
        }
    }
}
