//! What a test does at a step of the engine, by the thread that comes there.

use std::cell::RefCell;

/// The name of a step of the engine, and what to do there.
type AtStep = (&'static str, Box<dyn FnOnce()>);

thread_local! {
    /// What this thread does when it comes to a step of the engine.
    static AT_STEP: RefCell<Option<AtStep>> = const { RefCell::new(None) };
}

/// Does `then` when the calling thread next comes to the step `name` of the engine (one of
/// `terrace::KILL_POINTS`): what another thread may do just then.
pub fn at_step(name: &'static str, then: impl FnOnce() + 'static) {
    fn watch(name: &'static str) {
        let then = AT_STEP.with_borrow_mut(|at| at.take_if(|(step, _)| *step == name));
        if let Some((_, then)) = then {
            then();
        }
    }
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| assert!(terrace::watch_kill_points(watch), "steps are watched already"));
    AT_STEP.set(Some((name, Box::new(then))));
}
