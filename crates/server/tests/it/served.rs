//! A server in this process, in a directory of its own.

use crate::client::{Client, free_port};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_base::ManualClock;
use terrace_metadata::Metadata;
use terrace_server::config::Config;
use terrace_server::{Running, ServeError, Server};

/// A running server. Ends when it is dropped.
pub struct Served {
    running: Option<Running>,
    pub dir: Arc<TempDir>,
}

impl Served {
    /// With these options, on free ports, in a new directory.
    pub fn with(flags: &[(&str, &str)]) -> Self {
        Self::again(Arc::new(tempfile::tempdir().unwrap()), flags)
    }

    /// As [`Self::with`], with a clock that stands until the test turns it.
    pub fn with_clock(flags: &[(&str, &str)]) -> (Self, ManualClock) {
        let clock = ManualClock::at(1_700_000_000_000);
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let set = |options: &mut terrace::Options| options.advanced.clock = Arc::new(clock.clone());
        let served = Self::start(dir, None, flags, &set);
        (served, clock)
    }

    /// With these options in a directory that has been served before.
    pub fn again(dir: Arc<TempDir>, flags: &[(&str, &str)]) -> Self {
        Self::start(dir, None, flags, &|_| {})
    }

    /// With this file and these options, of which a port that is `free` is one that is.
    pub fn of_file(dir: Arc<TempDir>, file: Option<&Path>, flags: &[(&str, &str)]) -> Self {
        Self::start(dir, file, flags, &|_| {})
    }

    /// As [`Self::of_file`], with changes to the options of the engine.
    pub fn start(
        dir: Arc<TempDir>,
        file: Option<&Path>,
        flags: &[(&str, &str)],
        change: &dyn Fn(&mut terrace::Options),
    ) -> Self {
        Self::start_by(dir, file, flags, &|config| Running::start_with(config, change))
    }

    /// As a node of a cluster, whose metadata is shared with others, or its own.
    pub fn node(
        dir: Arc<TempDir>,
        flags: &[(&str, &str)],
        metadata: Option<&Arc<dyn Metadata>>,
    ) -> Self {
        let flags = [&[("cluster-enabled", "yes"), ("cluster-port", "free")], flags].concat();
        let start = |config| Running::start_node(config, metadata.cloned(), |_| {});
        Self::start_by(dir, None, &flags, &start)
    }

    fn start_by(
        dir: Arc<TempDir>,
        file: Option<&Path>,
        flags: &[(&str, &str)],
        start: &dyn Fn(Config) -> Result<Running, ServeError>,
    ) -> Self {
        let mut all: Vec<(String, String)> = vec![
            ("dir".into(), dir.path().join("store").to_string_lossy().into_owned()),
            ("bind".into(), "127.0.0.1".into()),
            ("http-bind".into(), "127.0.0.1".into()),
            ("port".into(), free_port().to_string()),
            ("http-port".into(), "0".into()),
        ];
        if file.is_none() {
            all.push(("maxmemory".into(), "32mb".into()));
        }
        all.extend(flags.iter().map(|(name, value)| match *value {
            "free" => (name.to_string(), free_port().to_string()),
            value => (name.to_string(), value.to_string()),
        }));
        let config = Config::load(file, [], all).unwrap();
        let running = start(config).unwrap_or_else(|error| panic!("{error}"));
        Self { running: Some(running), dir }
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn server(&self) -> &Arc<Server> {
        self.running().server()
    }

    pub fn address(&self) -> SocketAddr {
        self.running().addresses()[0]
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Ends the server; an error of the close is what is tested.
    pub fn try_end(mut self) -> Result<(), impl std::fmt::Display + std::fmt::Debug> {
        self.running.take().unwrap().end()
    }

    /// Ends the server and gives its directory.
    pub fn end(mut self) -> Arc<TempDir> {
        self.running.take().unwrap().end().unwrap();
        self.dir.clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let ended = running.end();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}
