//! `terrace cluster up`: several nodes in one process, each with a store of its own, as a cluster. Without etcd
//! the cluster's metadata is in a store beside those of the nodes.

use super::create;
use crate::allocator;
use crate::cluster_client::{ClusterClient, Login};
use crate::commands::serve;
use crate::files;
use crate::outcome::{self, Outcome};
use crate::standard_output;
use crate::store;
use crate::traces::Traces;
use anyhow::{Context, Result, anyhow, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use terrace::{Db, Options, SystemClock};
use terrace_metadata::{Embedded, Metadata};
use terrace_server::config::Config;
use terrace_server::{Running, ServeError, Server};

/// Memory for the store of the metadata, which has some kilobytes.
const METADATA_MEMORY: usize = 8 << 20;

/// Arguments of `cluster up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// How many nodes
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=40))]
    instances: u16,
    /// Port of the first node; those of the others follow, and other nodes connect at 10000 more
    #[arg(long, default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..=55_000))]
    port: u16,
    /// Port of the first dashboard; those of the others follow; 0 for none
    #[arg(long, default_value_t = 8000)]
    http_port: u16,
    /// Directory of the stores; a cluster that is there goes on
    #[arg(long, default_value = "terrace-cluster")]
    dir: PathBuf,
    /// URLs of etcd, separated by commas; without, the cluster is this process alone
    #[arg(long, value_name = "URLS")]
    etcd: Option<String>,
    /// Name of the cluster
    #[arg(long, default_value = "terrace")]
    name: String,
    /// By ranges of keys instead of slots: the first key of the second node, of the third, ...
    #[arg(long, value_name = "KEY", num_args = 0.., allow_negative_numbers = true)]
    range: Option<Vec<String>>,
    /// An option of every node, as `terrace serve` has it: --set cluster-redirect=moved
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    options: Vec<String>,
}

/// The nodes that run, each waited for by a thread.
#[derive(Default)]
struct Nodes {
    addresses: Vec<String>,
    servers: Vec<Arc<Server>>,
    waiting: Vec<JoinHandle<Result<(), ServeError>>>,
}

impl Nodes {
    /// Whether one of them was asked to end.
    fn is_stopping(&self) -> bool {
        self.servers.iter().any(|server| server.stop.is_requested())
    }

    /// Asks all of them to end.
    fn stop(&self) {
        self.servers.iter().for_each(|server| server.stop.request());
    }

    /// Waits until all have ended; the first error.
    fn wait(self) -> Result<()> {
        let mut outcome = Ok(());
        for node in self.waiting {
            let ended = node.join().map_err(|_| anyhow!("a node has failed"));
            outcome = outcome.and(ended.and_then(|ended| Ok(ended?)));
        }
        outcome
    }
}

/// Starts the nodes, makes the cluster unless there is one, and waits for a signal.
pub fn run(args: &UpArgs, login: &Login, verbose: u8) -> Result<Outcome> {
    allocator::give_back_memory();
    check(args)?;
    store::check_directory(&args.dir, "a new one with --dir, or that of the cluster")?;
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    let (metadata, db) = match &args.etcd {
        Some(_) => (None, None),
        None => {
            let (metadata, db) = open_metadata(&args.dir.join("metadata"))?;
            (Some(metadata), Some(db))
        }
    };
    let signals_are_for = hear_signals()?;
    let mut nodes = Nodes::default();
    let started = (0..args.instances).try_for_each(|at| {
        let (config, dir) = (config(args, at, verbose)?, args.dir.join(node_name(at)));
        // Made here: of several processes that begin at the same time only one removes it.
        let is_new = std::fs::create_dir(&dir).is_ok();
        let started = start(config, at, &metadata, &mut nodes);
        if started.is_err() && is_new {
            // Else it would count as a node of the cluster from now on.
            match std::fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!("{} stays: {error}", dir.display());
                }
                _ => {}
            }
        }
        started
    });
    // The thread that hears signals lives as long as the process.
    let _listens = signals_are_for.send(nodes.servers.iter().map(Arc::downgrade).collect());
    let mut made = started.and_then(|()| make(args, login, &nodes));
    if let Err(error) = &made {
        if nodes.is_stopping() {
            // It was told to stop before everything was made.
            made = Ok(());
        } else if !nodes.servers.is_empty() {
            // They take their time to end.
            tracing::error!("the nodes are stopped: {}", outcome::text(error));
        }
        nodes.stop();
    }
    // Why it ends says more than how.
    let ended = made.and(nodes.wait());
    drop(metadata);
    if let Some(db) = db {
        db.close()?;
    }
    ended?;
    say("stopped; everything acknowledged is in the logs\n");
    Ok(Outcome::Done)
}

/// Stops the nodes on SIGINT and SIGTERM. Until those are sent that were started, signals wait for
/// `serve::START_TIME` and then end the process as if nobody heard them: recoveries may take long.
fn hear_signals() -> Result<Sender<Vec<Weak<Server>>>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot hear signals")?;
    let (started, starting) = mpsc::channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut servers: Option<Vec<Weak<Server>>> = None;
        for signal in signals.forever() {
            servers = servers.or_else(|| starting.recv_timeout(serve::START_TIME).ok());
            match &servers {
                Some(all) => {
                    all.iter().filter_map(Weak::upgrade).for_each(|one| one.stop.request());
                }
                None => {
                    let _ends = emulate_default_handler(signal);
                }
            }
        }
    })?;
    Ok(started)
}

/// Prints lines for people. Who is served does not depend on what can be printed.
fn say(lines: &str) {
    let mut out = standard_output::read_or_not();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!("{error}");
    }
}

fn check(args: &UpArgs) -> Result<()> {
    let number = usize::from(args.instances);
    match args.range.as_deref() {
        Some(boundaries) if boundaries.len() + 1 != number => bail!(
            "{number} nodes have {} keys between their ranges, and --range names {}",
            number - 1,
            boundaries.len()
        ),
        _ => {}
    }
    let beyond = args.dir.join(node_name(args.instances));
    if beyond.exists() {
        bail!("{} is there: the cluster has more than {number} nodes", beyond.display());
    }
    Ok(())
}

fn node_name(at: u16) -> String {
    format!("node-{}", at + 1)
}

fn open_metadata(dir: &Path) -> Result<(Arc<dyn Metadata>, Db)> {
    let mut options = Options { memory_budget: METADATA_MEMORY, ..files::options() };
    // Some kilobytes never wait for the room of a reserve.
    options.advanced.reserve_bytes = 0;
    let db = Db::open(dir, options).with_context(|| format!("the store in {}", dir.display()))?;
    let metadata = Embedded::open(&db, Arc::new(SystemClock::default()))?;
    Ok((Arc::new(metadata), db))
}

/// The options of a node.
fn config(args: &UpArgs, at: u16, verbose: u8) -> Result<Config> {
    let port = |first: u16| match first {
        0 => Ok(0),
        first => first.checked_add(at).with_context(|| format!("{first} + {at} is no port")),
    };
    let placement = if args.range.is_some() { "range" } else { "slots" };
    let mut flags: Vec<(String, String)> = [
        ("dir", args.dir.join(node_name(at)).to_string_lossy().into_owned()),
        ("port", port(args.port)?.to_string()),
        ("http-port", port(args.http_port)?.to_string()),
        ("cluster-enabled", "yes".into()),
        ("cluster-name", args.name.clone()),
        ("cluster-etcd", args.etcd.clone().unwrap_or_default()),
        ("cluster-placement", placement.into()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into();
    files::add_key_file(&mut flags);
    for option in &args.options {
        let (name, value) = option
            .split_once('=')
            .with_context(|| format!("--set {option}: OPTION=VALUE is needed"))?;
        if name == files::KEY_FILE_OPTION {
            bail!("--set {option}: name the key file with --key-file, for the metadata as well");
        }
        if flags.iter().any(|(known, _)| known == name) {
            bail!("--set {option}: `cluster up` sets {name} itself, or it is set twice");
        }
        flags.push((name.to_string(), value.to_string()));
    }
    serve::config(None, flags, verbose)
}

/// Starts a node, and a thread that waits for its end.
fn start(
    config: Config,
    at: u16,
    metadata: &Option<Arc<dyn Metadata>>,
    nodes: &mut Nodes,
) -> Result<()> {
    let set_log_level = serve::log(&config.settings());
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let traces = Traces::of(&config.settings())?;
    let change = |options: &mut _| traces.of_store(options);
    let running = Running::start_observed(config, metadata.clone(), change, traces.observer())
        .with_context(|| format!("node {}", at + 1))?;
    if at == 0 {
        // Only the first one's has set up the log.
        running.server().on_log_level(set_log_level);
    }
    running.server().on_memory_purge(allocator::give_back_free_pages);
    let address = running.addresses().first().context("a node listens nowhere")?.to_string();
    let page = running.http_addresses().first();
    let page = page.map(|page| format!("  dashboard http://{page}/")).unwrap_or_default();
    say(&format!("node {}  {address}{page}\n", at + 1));
    nodes.addresses.push(address);
    nodes.servers.push(running.server().clone());
    let thread = std::thread::Builder::new().name(node_name(at));
    let wait = move || {
        let ended = running.wait();
        traces.end();
        ended
    };
    nodes.waiting.push(thread.spawn(wait)?);
    Ok(())
}

/// Makes the cluster unless it exists, and waits until every shard is served.
fn make(args: &UpArgs, login: &Login, nodes: &Nodes) -> Result<()> {
    let connect = |address: &String| ClusterClient::connect(address, login);
    let mut clients = nodes.addresses.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let first = clients.first_mut().context("a cluster needs at least one node")?;
    if first.status()?.placement.is_none() {
        match create::make(&mut clients, args.range.as_deref(), |_| {}) {
            // The first node had not read the metadata yet.
            Err(error) if format!("{error:#}").contains("the cluster exists already") => {
                let Some(first) = clients.first_mut() else { return Err(error) };
                create::wait_until_served(first)?;
            }
            made => made?,
        }
    } else {
        create::wait_until_served(first)?;
    }
    let (name, dir, port) = (&args.name, args.dir.display(), args.port);
    say(&format!(
        "cluster {name} in {dir}: every shard is served\n\
         try: redis-cli -c -p {port} set hello world\n     \
         terrace cluster status --at 127.0.0.1:{port}\n"
    ));
    Ok(())
}
