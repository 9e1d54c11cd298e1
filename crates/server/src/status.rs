//! The server's state as the pages and monitoring show it.

use crate::acl::{Access, Categories, User, category};
use crate::cluster::{Cluster, ClusterAdmin};
use crate::command::{Flags, table};
use crate::config::{OPTIONS, When};
use crate::hot_keys::SAMPLED_ONE_IN;
use crate::http::{
    CommandFigures, ConfigEntry, Figures, HotKey, HotKeys, Rights, ServerStatus, SlowCommand,
    SlowLog, Timings, Unread, history_file_of,
};
use crate::latency::CommandStats;
use crate::server::Server;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_keyspace::Keyspace;
use terrace_resp::OwnedCommand;

/// The properties of the command that is counted under this.
fn flags_of(under: u16) -> Flags {
    let counted = table().counted(under).and_then(|(number, _)| table().at(number));
    counted.map_or(Flags::NONE, |spec| spec.flags)
}

impl ServerStatus for Server {
    fn layout(&self) -> terrace_keyspace::KeyLayout {
        self.space.layout()
    }

    fn space(&self) -> &Arc<Keyspace> {
        &self.space
    }

    fn engine(&self) -> &terrace::Db {
        self.space.db()
    }

    fn databases(&self) -> usize {
        Server::databases(self)
    }

    fn figures(&self) -> Figures {
        let (mut commands, mut reads, mut writes) = (0, 0, 0);
        for (number, row) in self.latency.calls_by_command() {
            commands += row;
            let flags = flags_of(number);
            reads += if flags.has(Flags::READ) { row } else { 0 };
            writes += if flags.has(Flags::WRITE) { row } else { 0 };
        }
        let stats = &self.stats;
        let (hits, misses) = self.hits_and_misses();
        Figures {
            started_ms: self.started_ms,
            uptime_s: self.started.elapsed().as_secs(),
            connected_clients: self.clients.count() as u64,
            connections: self.clients.total(),
            rejected_connections: stats.rejected_connections.get(),
            commands,
            reads,
            writes,
            hits,
            misses,
            net_input_bytes: stats.received_bytes.get(),
            net_output_bytes: stats.sent_bytes.get(),
            slow_log_entries: self.slow_log.len() as u64,
            pool_queue: stats.waiting.load(Ordering::Relaxed),
            pool_commands: stats.offloads.get(),
            cluster: self.cluster.as_ref().map(Cluster::figures).unwrap_or_default(),
        }
    }

    fn timings(&self) -> Timings {
        let (mut reads, mut writes) = (self.latency.empty(), self.latency.empty());
        for (number, row) in self.latency.commands() {
            let flags = flags_of(number);
            // Same bounds: adding does not fail.
            if flags.has(Flags::READ) {
                let _same_bounds = reads.add(&row.durations);
            } else if flags.has(Flags::WRITE) {
                let _same_bounds = writes.add(&row.durations);
            }
        }
        Timings { reads, writes }
    }

    fn commands(&self) -> Vec<CommandFigures> {
        // The subcommands of a command together.
        let mut rows: BTreeMap<u16, CommandStats> = BTreeMap::new();
        for (under, stats) in self.latency.commands() {
            let Some((number, _)) = table().counted(under) else { continue };
            match rows.get_mut(&number) {
                Some(sum) => sum.add(&stats),
                None => drop(rows.insert(number, stats)),
            }
        }
        let row = |(number, stats): (u16, CommandStats)| {
            let name = table().at(number)?.name;
            let (calls, failed, latency) = (stats.calls, stats.failed, stats.durations);
            (calls > 0).then_some(CommandFigures { name, calls, failed, latency })
        };
        rows.into_iter().filter_map(row).collect()
    }

    fn key_count_estimate(&self) -> u64 {
        Server::key_count_estimate(self)
    }

    fn slow_log(&self, count: usize) -> SlowLog {
        let settings = self.config.settings();
        let entry = |slow: crate::slowlog::SlowCommand| SlowCommand {
            id: slow.id,
            at_ms: slow.at_ms,
            duration_us: slow.took_us,
            args: slow.arguments,
            client: slow.peer,
            client_name: slow.client_name,
        };
        SlowLog {
            threshold_us: u64::try_from(settings.slowlog_log_slower_than).ok(),
            entries: self.slow_log.newest(count).into_iter().map(entry).collect(),
        }
    }

    fn hot_keys(&self, count: usize) -> HotKeys {
        let window_s = self.hot_keys.window_s();
        let per_s = |count: u64| (count * u64::from(SAMPLED_ONE_IN)) as f64 / window_s;
        let list = |hot: Vec<terrace_sketch::Hot>| -> Vec<HotKey> {
            hot.into_iter()
                .filter_map(|hot| {
                    let (db, key) = hot.key.split_first()?;
                    let key_bytes = hot.key_bytes.saturating_sub(1) as u64;
                    let (per_s, error_per_s) = (per_s(hot.count), per_s(hot.error));
                    Some(HotKey { db: *db, key: key.to_vec(), key_bytes, per_s, error_per_s })
                })
                .collect()
        };
        HotKeys {
            sampled_one_in: SAMPLED_ONE_IN,
            window_s,
            read: list(self.hot_keys.read(count)),
            write: list(self.hot_keys.written(count)),
        }
    }

    fn config(&self) -> Vec<ConfigEntry> {
        let is_live = |name: &str| {
            OPTIONS.iter().any(|option| option.name == name && option.when == When::Live)
        };
        let entry = |(name, value): (&str, String)| ConfigEntry {
            name: name.to_string(),
            value,
            is_live: is_live(name),
        };
        self.config.dump().into_iter().map(entry).collect()
    }

    fn history_file(&self) -> Option<PathBuf> {
        let is_kept = self.config.settings().http_history;
        is_kept.then(|| history_file_of(self.space.db().path())).flatten()
    }

    fn host_names(&self) -> Vec<String> {
        self.config.settings().http_host_names.clone()
    }

    fn is_protected_from(&self, peer: IpAddr) -> bool {
        self.is_protected_from(peer)
    }

    fn needs_login(&self) -> bool {
        self.acl.default_login().is_none_or(|user| !user.may_do_everything())
    }

    fn authenticate(&self, user: &str, password: &[u8]) -> Option<Rights> {
        let user = self.acl.authenticate(user.as_bytes(), password).ok()?;
        Some(Rights { read: may_read(&user), admin: may_all_of(&user, category::ADMIN) })
    }

    fn read_command(
        &self,
        login: Option<(&str, &[u8])>,
        peer: Option<IpAddr>,
        db: u8,
        command: &OwnedCommand,
    ) -> Result<Vec<u8>, Unread> {
        let default = self.acl.default_login();
        let user = match (default, login) {
            (Some(user), _) if user.may_do_everything() => Some(user),
            (_, Some((user, password))) => self.acl.authenticate(user.as_bytes(), password).ok(),
            (_, None) => None,
        };
        // Since the guard has looked, the user has gone.
        let user = user.ok_or_else(|| Unread::Refused("log in as a user of the ACL".into()))?;
        let nowhere = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        self.read_command(user, peer.unwrap_or(nowhere), db, command)
    }

    fn cluster_admin(&self) -> Option<Arc<dyn ClusterAdmin>> {
        self.cluster.as_ref()?.admin().cloned()
    }

    fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Whether a user may read all keys with all commands that read.
fn may_read(user: &User) -> bool {
    user.may_access_all(Access::READ) && may_all_of(user, category::READ)
}

/// Whether a user may run all commands and subcommands of these categories.
fn may_all_of(user: &User, wanted: Categories) -> bool {
    (0..).zip(table().all()).all(|(number, spec)| {
        let mut parts = spec.subcommands().iter();
        (!spec.categories().intersects(wanted) || user.may_run(number, None))
            && parts.all(|part| {
                let is_wanted = part.categories().intersects(wanted);
                !is_wanted || user.may_run(number, Some(part.name.as_bytes()))
            })
    })
}
