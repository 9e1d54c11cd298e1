//! Where the keys of an owned shard shall be, and who waits until one is there.
//!
//! A caller that waits is called exactly once: when the key is there, when its move failed, when a later order wants it
//! somewhere else, or when the shard's task ends. The latest order counts, but for a key that a command needs at
//! home: that one comes home first.

use crate::view::Callback;
use std::collections::{BTreeMap, HashMap};
use terrace_cluster::{Assignment, DbKey, ShardId};
use tokio::sync::oneshot;

const NEEDED_AT_HOME: &str = "a command needs the key at home";
const ORDERED_ELSEWHERE: &str = "a later order wants the key somewhere else";

/// Takes what became of an order for one key.
pub(crate) type Answer = oneshot::Sender<Result<(), String>>;

enum Waiting {
    /// A command that needs the key at home, by the number of its recall.
    Home(u64, Callback),
    /// An order that the key be there; `None`: at home.
    Place(Option<ShardId>, Answer),
}

/// Where a key is, for people.
fn place_name(at: Option<ShardId>) -> String {
    at.map_or("at home".into(), |shard| format!("in the store of shard {shard}"))
}

fn is_needed(waiting: &[Waiting]) -> bool {
    waiting.iter().any(|it| matches!(it, Waiting::Home(..)))
}

/// See the module. It does not know where keys are: that is said to it.
#[derive(Default)]
pub(crate) struct Wishes {
    /// Where keys shall be that are not to be at home.
    places: BTreeMap<DbKey, ShardId>,
    waiting: HashMap<DbKey, Vec<Waiting>>,
}

impl Wishes {
    /// What a new owner finds is what is wanted.
    pub fn new(places: impl Iterator<Item = (DbKey, ShardId)>) -> Self {
        Self { places: places.collect(), waiting: HashMap::new() }
    }

    /// The keys that shall not be at home.
    pub fn assignments(&self) -> impl Iterator<Item = Assignment> {
        self.places.iter().map(|(key, at)| Assignment { key: key.clone(), at: *at })
    }

    /// Where a key shall be; `None`: at home.
    pub fn place_of(&self, key: &DbKey) -> Option<ShardId> {
        self.places.get(key).copied()
    }

    /// Whether a command needs the key at home.
    pub fn is_needed_at_home(&self, key: &DbKey) -> bool {
        self.waiting.get(key).is_some_and(|waiting| is_needed(waiting))
    }

    /// Keys that commands need at home.
    pub fn needed_at_home(&self) -> impl Iterator<Item = &DbKey> {
        self.waiting.iter().filter(|(_, waiting)| is_needed(waiting)).map(|(key, _)| key)
    }

    /// Whether somebody has ordered the key home, and waits for that.
    pub fn is_ordered_home(&self, key: &DbKey) -> bool {
        let is_order = |it: &Waiting| matches!(it, Waiting::Place(None, _));
        self.waiting.get(key).is_some_and(|waiting| waiting.iter().any(is_order))
    }

    /// A plan replaces all orders of before.
    pub fn plan(&mut self, part: Vec<Assignment>) {
        self.places = part.into_iter().map(|it| (it.key, it.at)).collect();
        let needed: Vec<DbKey> = self.needed_at_home().cloned().collect();
        needed.iter().for_each(|key| _ = self.places.remove(key));
        let keys: Vec<DbKey> = self.waiting.keys().cloned().collect();
        keys.iter().for_each(|key| self.refuse_others(key, ORDERED_ELSEWHERE));
    }

    /// One key shall be there.
    pub fn order(&mut self, key: DbKey, to: Option<ShardId>, done: Answer) {
        if to.is_some() && self.is_needed_at_home(&key) {
            let _ = done.send(Err(NEEDED_AT_HOME.into()));
            return;
        }
        self.set(&key, to);
        self.refuse_others(&key, ORDERED_ELSEWHERE);
        self.waiting.entry(key).or_default().push(Waiting::Place(to, done));
    }

    /// A command needs the key at home; it does not go away again by the present plan.
    pub fn need_at_home(&mut self, key: DbKey, number: u64, done: Callback) {
        self.set(&key, None);
        self.refuse_others(&key, NEEDED_AT_HOME);
        self.waiting.entry(key).or_default().push(Waiting::Home(number, done));
    }

    /// The command of a recall waits no longer; whether it did. The key still comes home when it can.
    pub fn give_up_recall(&mut self, key: &DbKey, number: u64) -> bool {
        let is_meant = |it: &Waiting| matches!(it, Waiting::Home(of, _) if *of == number);
        let waits = self.waiting.get(key).is_some_and(|waiting| waiting.iter().any(is_meant));
        if waits {
            self.answer(key, |waiting| is_meant(waiting).then_some(Ok(())));
        }
        waits
    }

    fn set(&mut self, key: &DbKey, to: Option<ShardId>) {
        match to {
            Some(to) => _ = self.places.insert(key.clone(), to),
            None => _ = self.places.remove(key),
        }
    }

    /// Answers the orders for a key that are not what is wanted now.
    fn refuse_others(&mut self, key: &DbKey, why: &str) {
        let wanted = self.place_of(key);
        self.answer(key, |waiting| match waiting {
            Waiting::Place(to, _) if *to != wanted => Some(Err(why.into())),
            Waiting::Place(..) | Waiting::Home(..) => None,
        });
    }

    /// A key is in no move any more, and is there now: answers those who wait for that.
    pub fn settle(&mut self, key: &DbKey, at: Option<ShardId>) {
        self.answer(key, |waiting| match waiting {
            Waiting::Home(..) => at.is_none().then_some(Ok(())),
            Waiting::Place(to, _) => (*to == at).then_some(Ok(())),
        });
    }

    /// The move of a key failed, and it is there. If that is not where it shall be, it is not tried again before the
    /// next order for it, or the next plan.
    pub fn fail(&mut self, key: &DbKey, at: Option<ShardId>, why: &str) {
        if self.place_of(key) != at {
            self.places.remove(key);
        }
        self.answer(key, |waiting| match waiting {
            Waiting::Place(to, _) if *to == at => Some(Ok(())),
            Waiting::Place(..) | Waiting::Home(..) => {
                Some(Err(format!("{why}; the key stays {}", place_name(at))))
            }
        });
    }

    /// A key cannot be moved from where it is: there it shall be until an order says something else.
    pub fn stay(&mut self, key: &DbKey, at: Option<ShardId>) {
        self.set(key, at);
    }

    /// Answers all who wait for a key of these.
    pub fn refuse_all(&mut self, why: &str, is_meant: impl Fn(&DbKey) -> bool) {
        let keys: Vec<DbKey> = self.waiting.keys().filter(|key| is_meant(key)).cloned().collect();
        keys.iter().for_each(|key| self.answer(key, |_| Some(Err(why.into()))));
    }

    /// The keys that somebody waits for.
    pub fn awaited(&self) -> impl Iterator<Item = &DbKey> {
        self.waiting.keys()
    }

    fn answer(&mut self, key: &DbKey, of: impl Fn(&Waiting) -> Option<Result<(), String>>) {
        let Some(waiting) = self.waiting.remove(key) else { return };
        let mut left = Vec::new();
        for one in waiting {
            match (of(&one), one) {
                (Some(_), Waiting::Home(_, done)) => done.call(),
                (Some(answer), Waiting::Place(_, done)) => _ = done.send(answer),
                (None, one) => left.push(one),
            }
        }
        if !left.is_empty() {
            self.waiting.insert(key.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn key(name: &str) -> DbKey {
        DbKey::new(0, name)
    }

    fn assigned(keys: &[(&str, u32)]) -> Vec<Assignment> {
        keys.iter().map(|(name, at)| Assignment { key: key(name), at: ShardId(*at) }).collect()
    }

    fn order(
        wishes: &mut Wishes,
        name: &str,
        to: Option<u32>,
    ) -> oneshot::Receiver<Result<(), String>> {
        let (done, answer) = oneshot::channel();
        wishes.order(key(name), to.map(ShardId), done);
        answer
    }

    fn need(wishes: &mut Wishes, name: &str) -> impl Fn() -> bool + use<> {
        numbered(wishes, name, 1)
    }

    fn numbered(wishes: &mut Wishes, name: &str, number: u64) -> impl Fn() -> bool + use<> {
        let called = Arc::new(AtomicBool::new(false));
        let by = called.clone();
        let done = move || assert!(!by.swap(true, Ordering::SeqCst), "called twice");
        wishes.need_at_home(key(name), number, Callback::new(Box::new(done)));
        move || called.load(Ordering::SeqCst)
    }

    #[test]
    fn an_order_is_answered_when_the_key_is_there_or_by_a_later_order() {
        let mut wishes = Wishes::default();
        let mut first = order(&mut wishes, "k", Some(2));
        wishes.settle(&key("k"), Some(ShardId(3)));
        assert!(first.try_recv().is_err(), "not yet");
        let mut same = order(&mut wishes, "k", Some(2));
        let mut later = order(&mut wishes, "k", None);
        let elsewhere = Ok(Err(ORDERED_ELSEWHERE.to_string()));
        assert_eq!((first.try_recv(), same.try_recv()), (elsewhere.clone(), elsewhere.clone()));
        wishes.plan(assigned(&[("k", 3), ("other", 2)]));
        assert_eq!(later.try_recv(), elsewhere);
        let mut by_plan = order(&mut wishes, "k", Some(3));
        wishes.plan(assigned(&[("k", 3)]));
        assert!(by_plan.try_recv().is_err(), "the plan wants it there, too");
        wishes.settle(&key("k"), Some(ShardId(3)));
        assert_eq!(by_plan.try_recv(), Ok(Ok(())));
        assert_eq!(wishes.awaited().count(), 0);
    }

    #[test]
    fn a_key_that_a_command_needs_comes_home_whatever_is_ordered() {
        let mut wishes = Wishes::new([(key("k"), ShardId(2))].into_iter());
        let mut onward = order(&mut wishes, "k", Some(3));
        let is_called = need(&mut wishes, "k");
        let needed = Ok(Err(NEEDED_AT_HOME.to_string()));
        assert_eq!((onward.try_recv(), wishes.place_of(&key("k"))), (needed.clone(), None));
        wishes.plan(assigned(&[("k", 2), ("l", 2)]));
        assert_eq!(wishes.assignments().collect::<Vec<_>>(), assigned(&[("l", 2)]));
        assert_eq!(order(&mut wishes, "k", Some(2)).try_recv(), needed);
        wishes.settle(&key("k"), Some(ShardId(2)));
        assert!(!is_called());
        wishes.settle(&key("k"), None);
        assert!(is_called());
        order(&mut wishes, "k", Some(2));
        assert_eq!(wishes.place_of(&key("k")), Some(ShardId(2)));
    }

    #[test]
    fn a_recall_that_is_given_up_answers_its_command_only() {
        let mut wishes = Wishes::new([(key("k"), ShardId(2))].into_iter());
        let (first, second) = (numbered(&mut wishes, "k", 1), numbered(&mut wishes, "k", 2));
        assert!(wishes.give_up_recall(&key("k"), 1) && first() && !second());
        assert!(!wishes.give_up_recall(&key("k"), 1), "it waits no longer");
        assert_eq!(wishes.needed_at_home().count(), 1);
        wishes.settle(&key("k"), None);
        assert!(second() && !wishes.give_up_recall(&key("k"), 2));
    }

    #[test]
    fn a_failed_move_is_answered_and_not_wanted_any_more() {
        let mut wishes = Wishes::default();
        let (mut out, is_called) = (order(&mut wishes, "k", Some(2)), need(&mut wishes, "l"));
        wishes.fail(&key("k"), None, "too large");
        wishes.fail(&key("l"), Some(ShardId(2)), "away");
        assert_eq!(out.try_recv(), Ok(Err("too large; the key stays at home".into())));
        let mut home = order(&mut wishes, "m", None);
        let is_ordered_home = |name: &str| wishes.is_ordered_home(&key(name));
        assert_eq!(["k", "l", "m"].map(is_ordered_home), [false, false, true]);
        wishes.fail(&key("m"), Some(ShardId(2)), "the move is over");
        let stays = "the move is over; the key stays in the store of shard 2";
        assert_eq!(home.try_recv(), Ok(Err(stays.into())));
        assert!(is_called() && wishes.place_of(&key("k")).is_none());
        // Refused since it is there already.
        let mut there = order(&mut wishes, "k", Some(2));
        wishes.fail(&key("k"), Some(ShardId(2)), "not at this instance");
        assert_eq!(there.try_recv(), Ok(Ok(())));
        assert_eq!(wishes.place_of(&key("k")), Some(ShardId(2)));
        // It has grown too large to come home, and no later look at the wishes wants that.
        let is_called = need(&mut wishes, "k");
        wishes.fail(&key("k"), Some(ShardId(2)), "too large");
        wishes.stay(&key("k"), Some(ShardId(2)));
        assert!(is_called() && wishes.assignments().collect::<Vec<_>>() == assigned(&[("k", 2)]));
    }

    #[test]
    fn the_end_answers_all() {
        let mut wishes = Wishes::default();
        let (mut busy, mut other) =
            (order(&mut wishes, "k", Some(2)), order(&mut wishes, "l", None));
        let is_called = need(&mut wishes, "m");
        wishes.refuse_all("over", |of| *of != key("k"));
        assert_eq!(other.try_recv(), Ok(Err("over".into())));
        assert!(is_called() && busy.try_recv().is_err());
        let is_called = need(&mut wishes, "m");
        drop(wishes);
        assert!(is_called(), "nobody waits for a task that is gone");
        assert_eq!(busy.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
