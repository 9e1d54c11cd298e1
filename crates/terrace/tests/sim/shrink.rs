//! A plan that fails becomes a small one that fails the same way: pieces are left out as long as it does, and
//! what cuts it short or goes wrong comes earlier, so that steps after it can go.

use crate::plan::{Life, Plan, Trouble};

/// Runs of smaller plans that are tried. A bound on time would make another plan on another machine.
const MAX_RUNS: u32 = 3000;

/// Characters by which two ways of failing are compared.
const KIND_CHARS: usize = 70;

/// What tells one way of failing from another: the beginning, without numbers and what is quoted.
pub fn kind_of(why: &str) -> String {
    let unquoted = why.split('"').step_by(2).flat_map(str::chars);
    unquoted.filter(|c| c.is_alphabetic() || *c == ':').take(KIND_CHARS).collect()
}

/// The smallest plan found that fails as `plan` does, which is `why`, and how that one fails. `fails` runs a plan.
pub fn shrink(
    mut plan: Plan,
    mut why: String,
    fails: impl Fn(&Plan) -> Option<String>,
) -> (Plan, String) {
    let kind = kind_of(&why);
    let mut runs = 0;
    'again: loop {
        for smaller in smaller(&plan) {
            if runs == MAX_RUNS {
                return (plan, why);
            }
            runs += 1;
            if let Some(reason) = fails(&smaller).filter(|reason| kind_of(reason) == kind) {
                (plan, why) = (smaller, reason);
                continue 'again;
            }
        }
        return (plan, why);
    }
}

/// Plans with something left out, the largest pieces first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut out = Vec::new();
    for life in 0..plan.lives.len() {
        let mut change = |change: &dyn Fn(&mut Life)| {
            let mut plan = plan.clone();
            change(&mut plan.lives[life]);
            out.push(plan);
        };
        if !plan.lives[life].troubles.is_empty() {
            change(&|life| life.troubles.clear());
        }
        if plan.lives[life].cut.is_some() {
            change(&|life| life.cut = None);
        }
        sooner(&plan.lives[life], &mut change);
        for client in 0..plan.lives[life].clients.len() {
            change(&|life| drop(life.clients.remove(client)));
            let len = plan.lives[life].clients[client].len();
            let mut piece = len / 2;
            while piece >= 1 {
                for from in (0..len).step_by(piece) {
                    let to = len.min(from + piece);
                    change(&|life| drop(life.clients[client].drain(from..to)));
                }
                piece /= 2;
            }
        }
        if plan.lives.len() > 1 {
            let mut plan = plan.clone();
            plan.lives.remove(life);
            out.insert(0, plan);
        }
    }
    out
}

/// What is done to a life that is to become shorter.
type Change<'a> = &'a dyn Fn(&mut Life);

/// The life with its end, or with what goes wrong, at an earlier operation.
fn sooner(life: &Life, change: &mut dyn FnMut(Change<'_>)) {
    for at_op in life.cut.into_iter().flat_map(|cut| earlier(cut.at_op)) {
        change(&|life| {
            if let Some(cut) = &mut life.cut {
                cut.at_op = at_op;
            }
        });
    }
    for (at, trouble) in life.troubles.iter().enumerate() {
        for earlier in earlier(trouble.at_op()) {
            change(&|life| match &mut life.troubles[at] {
                Trouble::Fault { at_op, .. }
                | Trouble::Full { at_op, .. }
                | Trouble::Room { at_op } => *at_op = earlier,
            });
        }
    }
}

/// Operations before `at_op`, the earliest first.
fn earlier(at_op: u64) -> impl Iterator<Item = u64> {
    let parts = [2, 4, 8].map(|part| at_op - at_op.div_ceil(part));
    let all = parts.into_iter().chain(at_op.checked_sub(1));
    all.filter(move |earlier| (1..at_op).contains(earlier))
}

#[cfg(test)]
mod tests;
