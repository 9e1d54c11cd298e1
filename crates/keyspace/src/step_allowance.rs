//! How many keys that are not shown, since they are deleted or expired, a walk may step over, in all or at a time. Called by `key_scan`.

/// Keys that are not shown and that a walk steps over at a time: some tenths of a second.
pub(crate) const STEPS_AT_A_TIME: u64 = 1 << 18;

/// A walk in parts: between them somebody is asked whether it goes on, also where no key is shown.
#[derive(Clone, Copy)]
pub struct InParts<'p> {
    /// How many strings, and as many collections, that are not shown a part steps over.
    pub steps: u64,
    /// Whether the walk goes on. If not, it ends where it is, without an error.
    pub goes_on: &'p dyn Fn() -> bool,
}

impl<'p> InParts<'p> {
    /// Parts of some tenths of a second.
    pub fn of(goes_on: &'p dyn Fn() -> bool) -> Self {
        Self { steps: STEPS_AT_A_TIME, goes_on }
    }
}

/// Steps in a slot, however many were made before: else a walk over all slots that goes on behind the least key at which one
/// of them was cut would not get on.
const LEAST_IN_SLOT: u64 = 64;

/// What is left of it. Half of that may be used up in one slot: few slots have much more than others as a rule.
#[derive(Debug, Clone)]
pub(crate) struct StepAllowance {
    left: u64,
    /// Steps that were made already.
    made: u64,
    /// Steps that were made in this slot.
    in_slot: u64,
    /// The slot that it was last renewed for, if there are several.
    slot: Option<Vec<u8>>,
}

impl StepAllowance {
    /// Of this many steps in all, but for a few in each slot.
    pub fn of(most: u64) -> Self {
        Self { left: most, made: 0, in_slot: 0, slot: None }
    }

    /// How many steps may be made now, when this many were made in all.
    pub fn renew(&mut self, made: u64) -> u64 {
        self.left = self.left.saturating_sub(made.saturating_sub(self.made));
        self.made = made;
        self.in_one_slot()
    }

    /// Goes to a slot; whether it is another one than before.
    pub fn enter(&mut self, slot: Option<&[u8]>) -> bool {
        let is_other = slot != self.slot.as_deref();
        if is_other {
            (self.slot, self.in_slot) = (slot.map(<[u8]>::to_vec), 0);
        }
        is_other
    }

    /// One step more, in this slot; whether it is one too many.
    pub fn step(&mut self, slot: Option<&[u8]>) -> bool {
        self.enter(slot);
        self.in_slot += 1;
        self.left = self.left.saturating_sub(1);
        self.in_slot > self.in_one_slot()
    }

    fn in_one_slot(&self) -> u64 {
        (self.left / 2).max(LEAST_IN_SLOT)
    }
}
