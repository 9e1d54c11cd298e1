//! A lookup that is a sample of what lookups take, by level and by the way they go: a [`LookupTrace`]
//! with a clock. Its runs are asked one by one, since a group's times could not be told from each other.

use crate::learned::lookup_costs::{Sample, Way};
use crate::version::family::Family;
use crate::version::read_state::ReadState;
use terrace_base::sync::Instant;
use terrace_sst::{FilterSaid, LookupTrace, RunPlace, SstReader};

/// One run that was asked.
struct Asked {
    run: RunPlace,
    sample: Sample,
}

/// The runs so far, and when the present one began.
pub(super) struct SampledLookup {
    asked: Vec<Asked>,
    run: Option<RunPlace>,
    searched: Instant,
    find_ns: u64,
    asked_at: Instant,
    way: Way,
}

impl SampledLookup {
    pub fn new() -> Self {
        let now = Instant::now();
        let (asked, run) = (Vec::new(), None);
        Self { asked, run, searched: now, find_ns: 0, asked_at: now, way: Way::Index }
    }

    /// Enters what the runs took where the analyzer finds it.
    pub fn note(&self, state: &ReadState, family: &Family) {
        for Asked { run, sample } in &self.asked {
            let slot = state.slots.at(run.level, run.index);
            if run.by_level_model {
                if let Some(model) = &state.level_models[run.level] {
                    model.note(sample.found);
                }
                if sample.found {
                    slot.note(true);
                }
            } else {
                if sample.way != Way::Filter {
                    slot.note(sample.found);
                }
                family.samples.note(run.level, sample);
            }
        }
    }
}

impl LookupTrace for SampledLookup {
    const ONE_BY_ONE: bool = true;

    fn next_run(&mut self) {
        self.searched = Instant::now();
    }

    fn opened(&mut self, run: RunPlace) {
        // A model of the level that chose the wrong file leads to another one: the first counts.
        if self.run.is_none() {
            self.run = Some(run);
            self.find_ns = self.searched.elapsed().as_nanos() as u64;
        }
    }

    fn asks(&mut self, _run: RunPlace, _reader: &SstReader) {
        self.asked_at = Instant::now();
        self.way = Way::Index;
    }

    fn filter(&mut self, _at: usize, _units: u8, said: FilterSaid) {
        if matches!(said, FilterSaid::No | FilterSaid::Above) {
            self.way = Way::Filter;
        }
    }

    fn model(&mut self, block: Option<u32>) {
        if block.is_some() {
            self.way = Way::Model;
        }
    }

    fn answered(&mut self, found: bool) {
        let Some(run) = self.run.take() else { return };
        let ns = self.asked_at.elapsed().as_nanos() as u64;
        let total_ns = self.searched.elapsed().as_nanos() as u64;
        let sample = Sample { way: self.way, found, find_ns: self.find_ns, ns, total_ns };
        self.asked.push(Asked { run, sample });
    }
}
