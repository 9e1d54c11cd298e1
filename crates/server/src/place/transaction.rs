//! `MULTI` in a cluster: everything in one slot (or shard), executed as a whole where that is.

use super::{Away, CROSS_SLOT, HELD, Place, Placing, STARTING, fan_out, refused};
use crate::cluster::{Cluster, unit_of};
use crate::command::{CommandSpec, Flags, Keys, NO_SELECT, table};
use crate::session::{Caller, Queued, Session};
use terrace_cluster::{CallTarget, Route};
use terrace_resp::{Command, parse_integer, write_request};

/// Commands without keys that may be part of a transaction of another node.
const ANYWHERE: [&str; 3] = ["ping", "echo", "time"];

/// Whether a command may be queued, and where its keys are.
///
/// # Errors
/// The reply.
pub(crate) fn check_queued(
    cluster: &Cluster,
    spec: &CommandSpec,
    args: &Command<'_>,
    session: &mut Session,
) -> Result<(), String> {
    if session.caller == Caller::Instance {
        return Ok(());
    }
    let Some(coordinator) = cluster.coordinator() else { return Err(STARTING.into()) };
    if fan_out::is_for_all(spec.name) {
        return Err(format!("ERR {} is not possible inside MULTI in cluster mode", spec.name));
    }
    // It would be refused by EXEC, and what is queued behind it executed where the client did not mean it.
    if spec.name == "select" && args.get(1).and_then(parse_integer) != Some(0) {
        return Err(NO_SELECT.into());
    }
    if spec.keys.may_be_elsewhere()
        && spec.keys.located(args, session.db).any(|(db, _)| db != session.db)
    {
        return Err("ERR another database is not allowed in cluster mode".into());
    }
    for key in spec.keys.of(args) {
        let unit = unit_of(&**coordinator, key);
        let Some(queued) = &mut session.queued else { break };
        if *queued.unit.get_or_insert(unit) != unit {
            return Err(CROSS_SLOT.into());
        }
    }
    let placing = Placing { cluster, coordinator: &**coordinator, session };
    if session.caller == Caller::Client
        && cluster.redirects()
        && let Some(key) = spec.keys.of(args).next()
        && let Route::Owner(node) = placing.route(key)
        && let Some(Place::Refused(text)) = placing.redirect(node, key)
    {
        return Err(text.into_owned());
    }
    Ok(())
}

/// The requests of a transaction, and how many.
pub(crate) fn requests_of(queued: &Queued) -> (Vec<u8>, u32) {
    let mut requests = Vec::with_capacity(queued.bytes);
    write_request(&mut requests, &["MULTI"]);
    for command in &queued.commands {
        command.as_command().append_request(&mut requests);
    }
    write_request(&mut requests, &["EXEC"]);
    (requests, queued.commands.len() as u32 + 2)
}

/// What is queued, with the specification of each command.
fn queued_commands(queued: &Queued) -> impl Iterator<Item = (&'static CommandSpec, Command<'_>)> {
    queued.commands.iter().filter_map(|command| {
        let args = command.as_command();
        table().find(args.name()).map(|(_, spec)| (spec, args))
    })
}

/// The keys of a command; of `EXEC` those of what is queued.
pub(crate) fn keys_of<'a>(
    spec: &CommandSpec,
    args: &Command<'a>,
    queued: Option<&'a Queued>,
) -> Vec<&'a [u8]> {
    match queued.filter(|_| spec.name == "exec") {
        Some(queued) => {
            queued_commands(queued).flat_map(|(spec, args)| spec.keys.of(&args)).collect()
        }
        None => spec.keys.of(args).collect(),
    }
}

impl Placing<'_> {
    /// Where a transaction is executed.
    pub(super) fn exec(&self) -> Place {
        let Some(queued) = self.session.queued.as_ref().filter(|queued| !queued.is_spoilt) else {
            return Place::Here(false);
        };
        let commands: Vec<_> = queued_commands(queued).collect();
        let writes = commands.iter().any(|(spec, _)| spec.flags.has(Flags::WRITE));
        let watched = self.session.watched.as_ref().map(|watched| watched.keys());
        let watched = watched.unwrap_or_default();
        let is_here = |key: &[u8]| matches!(self.route(key), Route::Local | Route::Held);
        if !watched.iter().all(|(_, key)| is_here(key)) {
            return Place::Aborted;
        }
        let keys: Vec<&[u8]> =
            commands.iter().flat_map(|(spec, args)| spec.keys.of(args)).collect();
        if keys.iter().any(|key| self.session.is_behind(key)) {
            return refused(HELD);
        }
        let routes: Vec<Route> = keys.iter().map(|key| self.route(key)).collect();
        if keys.is_empty() {
            return Place::Here(false);
        }
        match self.one_place(&keys, &routes, writes) {
            Some(Place::Away(Away::Send(target))) => {
                let stays =
                    |spec: &CommandSpec| spec.keys == Keys::None && !ANYWHERE.contains(&spec.name);
                match commands.iter().find(|(spec, _)| stays(spec)) {
                    _ if !watched.is_empty() => Place::Aborted,
                    Some((spec, _)) => refused(format!(
                        "EXECABORT Transaction discarded because of: {} is not possible in a \
                         transaction of another node",
                        spec.name
                    )),
                    None => self.send_exec(target),
                }
            }
            Some(place) => place,
            None => self.gather(&keys, &routes),
        }
    }

    fn send_exec(&self, target: CallTarget) -> Place {
        Away::Exec(target).into()
    }
}
