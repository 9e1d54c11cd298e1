//! `terrace serve`: the store behind the Redis protocol, HTTP and the dashboard.

use crate::allocator;
use crate::files;
use crate::outcome::{self, Outcome};
use crate::sd_notify::{self, READY, STOPPING};
use crate::standard_output;
use crate::traces::Traces;
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches, Command, FromArgMatches, value_parser};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_server::config::{Config, LogFormat, LogLevel, Settings, Source, all_options};
use terrace_server::{Running, Server};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, reload};

/// The configuration that is read if none is named and there is one.
const DEFAULT_FILE: &str = "terrace.toml";

/// A server that is asked to end while it starts has this long until it serves; then the process ends by the signal.
pub(super) const START_TIME: Duration = Duration::from_secs(2);

/// Arguments of `serve`: a file, and a flag for every option of the server.
#[derive(Debug)]
pub struct ServeArgs {
    file: Option<PathBuf>,
    flags: Vec<(String, String)>,
}

impl clap::Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .value_parser(value_parser!(PathBuf))
            .help("File with options (terrace.toml here, if there is one)");
        all_options().fold(command.arg(file), |command, option| {
            let default = match option.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            command.arg(
                Arg::new(option.name)
                    .long(option.name)
                    .aliases(option.also)
                    .value_name("VALUE")
                    .allow_hyphen_values(true)
                    .help_heading(option.group)
                    .hide_short_help(option.is_without_effect())
                    .help(format!("{}{default}", option.doc.trim_end_matches('.'))),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &'static str| matches.get_one::<String>(name).cloned();
        let flags = all_options()
            .filter_map(|option| Some((option.name.to_string(), value(option.name)?)))
            .collect();
        Ok(Self { file: matches.get_one::<PathBuf>("config").cloned(), flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Serves until a signal or a command stops it.
pub fn run(args: ServeArgs, verbose: u8) -> Result<Outcome> {
    allocator::give_back_memory();
    let default = PathBuf::from(DEFAULT_FILE);
    // A link to nothing, or what cannot be read, is an error: a password may be meant to be in it.
    let file = args.file.or_else(|| default.symlink_metadata().is_ok().then_some(default));
    let mut flags = args.flags;
    files::add_key_file(&mut flags);
    let config = config(file.as_deref(), flags, verbose)?;
    #[cfg(debug_assertions)]
    die_at_move_point();
    let is_json = config.settings().log_format == LogFormat::Json;
    let set_log_level = log(&config.settings());
    match serve(config, set_log_level) {
        // A line like all others, unless none is logged.
        Err(error) if is_json && tracing::enabled!(tracing::Level::ERROR) => {
            tracing::error!("{}", outcome::text(&error));
            Ok(Outcome::Negative)
        }
        ended => ended,
    }
}

/// Serves, with the log set up.
fn serve(
    config: Config,
    set_log_level: impl Fn(LogLevel) + Send + Sync + 'static,
) -> Result<Outcome> {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let traces = Traces::of(&config.settings())?;
    let heard = hear_signals()?;
    let change = |options: &mut _| traces.of_store(options);
    let running = Running::start_observed(config, None, change, traces.observer())?;
    running.server().on_log_level(set_log_level);
    running.server().on_memory_purge(allocator::give_back_free_pages);
    heard.are_for(running.server());
    // Who is served does not depend on what can be printed.
    if let Err(error) = welcome(&running) {
        tracing::warn!("{error:#}");
    }
    sd_notify::notify(READY);
    running.server().stop.wait();
    sd_notify::notify(STOPPING);
    let ended = running.wait();
    traces.end();
    ended?;
    let said =
        writeln!(standard_output::read_or_not(), "stopped; everything acknowledged is in the log");
    if let Err(error) = said {
        tracing::warn!("{error}");
    }
    Ok(Outcome::Done)
}

/// Settles the options of a server. `verbose`, how often that was said, is how much is logged if no option says it.
pub(super) fn config(
    file: Option<&Path>,
    mut flags: Vec<(String, String)>,
    verbose: u8,
) -> Result<Config> {
    let environment = environment()?;
    let config = Config::load(file, environment.clone(), flags.clone())?;
    if verbose == 0 || config.source("loglevel") != Some(Source::Default) {
        return Ok(config);
    }
    let level = if verbose == 1 { "verbose" } else { "debug" };
    flags.push(("loglevel".into(), level.into()));
    Ok(Config::load(file, environment, flags)?)
}

/// The environment. Variables that are no text are those of other programs.
///
/// # Errors
/// One of them is that of an option: a password is not left out, nor a directory.
fn environment() -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => texts.push((name, value)),
            Err(_) if all_options().any(|option| option.variable() == name) => {
                bail!("{name} in the environment is not UTF-8")
            }
            Err(_) => {}
        }
    }
    Ok(texts)
}

/// For tests of debug builds: the process dies when it comes to the step of a move of keys that stands in the file
/// that this variable names.
#[cfg(debug_assertions)]
fn die_at_move_point() {
    static FILE: std::sync::LazyLock<Option<std::ffi::OsString>> =
        std::sync::LazyLock::new(|| std::env::var_os("TERRACE_DIE_AT_MOVE_POINT_IN"));
    if FILE.is_some() {
        terrace_keyspace::watch_move_points(|point| {
            let wanted = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
            if wanted.is_some_and(|wanted| wanted == point) {
                let _dies = signal_hook::low_level::raise(libc::SIGKILL);
            }
        });
    }
}

/// Logs to standard error from now on; gives what changes how much.
pub(super) fn log(settings: &Settings) -> impl Fn(LogLevel) + Send + Sync + use<> {
    let (filter, handle) = reload::Layer::new(targets(settings.loglevel));
    let is_json = settings.log_format == LogFormat::Json;
    let text = (!is_json).then(|| {
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal())
    });
    let json =
        is_json.then(|| fmt::layer().json().flatten_event(true).with_writer(std::io::stderr));
    // Of several nodes in a process the first one's stays.
    let _first = tracing_subscriber::registry().with(filter).with(text).with(json).try_init();
    move |level| {
        let _still_there = handle.reload(targets(level));
    }
}

/// What is logged: of the engine one step less than of the server.
fn targets(level: LogLevel) -> Targets {
    let (server, engine) = match level {
        LogLevel::Nothing => (LevelFilter::OFF, LevelFilter::OFF),
        LogLevel::Warning => (LevelFilter::WARN, LevelFilter::ERROR),
        LogLevel::Notice => (LevelFilter::INFO, LevelFilter::WARN),
        LogLevel::Verbose => (LevelFilter::DEBUG, LevelFilter::INFO),
        LogLevel::Debug => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    let of_server = Targets::new().with_target("terrace_server", server);
    let of_server = of_server.with_target("terrace_node", server);
    of_server.with_target("terrace_telemetry", server).with_default(engine)
}

/// What is heard of signals before there is a server, and where that is sent when there is.
struct HeardSignals {
    server: Sender<Weak<Server>>,
    /// SIGHUP is among them.
    has_sighup: Arc<AtomicBool>,
}

impl HeardSignals {
    /// From now on signals are for this server, and SIGHUP was if it came before.
    fn are_for(&self, server: &Arc<Server>) {
        // The thread that hears signals lives as long as the process.
        let _listens = self.server.send(Arc::downgrade(server));
        // SeqCst: the thread notes a SIGHUP and then looks for the server, here it is the other way round, so that one of the
        // two sees what the other has done.
        if self.has_sighup.load(Ordering::SeqCst) {
            server.reload();
        }
    }
}

/// Stops on SIGINT and SIGTERM, reads the configuration again on SIGHUP, from now on: the first client
/// may be served before the caller knows. Until the server is sent that was started, SIGHUP is noted,
/// and the others wait for [`START_TIME`] and then end the process as if nobody heard them.
fn hear_signals() -> Result<HeardSignals> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot hear signals")?;
    let (started, starting) = mpsc::channel();
    let has_sighup = Arc::new(AtomicBool::new(false));
    let heard = HeardSignals { server: started, has_sighup: has_sighup.clone() };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut server: Option<Weak<Server>> = None;
        for signal in signals.forever() {
            server = match (server, signal) {
                (Some(server), _) => Some(server),
                // Without waiting: what comes behind it may be to end the process.
                (None, SIGHUP) => {
                    has_sighup.store(true, Ordering::SeqCst);
                    starting.try_recv().ok()
                }
                // One that has just begun to serve is to end well.
                (None, _) => starting.recv_timeout(START_TIME).ok(),
            };
            match (signal, server.as_ref().map(Weak::upgrade)) {
                (SIGHUP, Some(Some(server))) => server.reload(),
                (SIGHUP, _) => {}
                (_, Some(Some(server))) => {
                    tracing::info!(signal, "told to stop");
                    server.stop.request();
                }
                (_, Some(None)) => {}
                (_, None) => {
                    let _ends = emulate_default_handler(signal);
                }
            }
        }
    })?;
    Ok(heard)
}

fn welcome(running: &Running) -> Result<()> {
    let mut out = standard_output::read_or_not();
    let settings = running.server().config.settings();
    writeln!(out, "Terrace {} serves {}", env!("CARGO_PKG_VERSION"), settings.dir)?;
    for address in running.addresses() {
        writeln!(out, "  Redis protocol   {address}")?;
    }
    for address in running.tls_addresses() {
        writeln!(out, "  with TLS         {address}")?;
    }
    for address in running.http_addresses() {
        writeln!(out, "  dashboard        http://{address}/")?;
    }
    if let Some(membership) = running.membership() {
        writeln!(out, "  other nodes      {}", membership.node().rpc_listen())?;
        writeln!(out, "  node             {}", membership.id())?;
    }
    if let Some(address) = running.addresses().first() {
        writeln!(out, "try: redis-cli -p {} set hello world", address.port())?;
    }
    out.flush()?;
    Ok(())
}
