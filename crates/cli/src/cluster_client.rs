//! A connection to a node of a cluster, with TLS or without: requests of the Redis protocol, one reply each.

use crate::client_tls::TlsArgs;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, write_request};
use terrace_server::cluster::ClusterStatus;

/// How long a node may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node may take to answer: longer than it waits for the cluster.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// See the module.
pub struct ClusterClient {
    address: String,
    stream: Box<dyn Stream>,
    parser: ReplyParser,
    received: Vec<u8>,
}

/// Bytes both ways.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Who says that it may do this, and how the nodes are reached.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Login {
    /// User to authenticate as [default: the default user]
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
    /// Password, if the nodes ask for one
    #[arg(
        long,
        global = true,
        value_name = "PASSWORD",
        env = "REDISCLI_AUTH",
        hide_env_values = true
    )]
    password: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

impl Login {
    /// The request that logs in, if that is wanted. An empty password is none, as an empty variable is to redis-cli.
    fn words(&self) -> Result<Option<Vec<&str>>> {
        let password = self.password.as_deref().filter(|password| !password.is_empty());
        match (self.user.as_deref(), password) {
            (Some(user), Some(password)) => Ok(Some(vec!["AUTH", user, password])),
            (None, Some(password)) => Ok(Some(vec!["AUTH", password])),
            (Some(user), None) => bail!("no password is given for the user {user}; see --password"),
            (None, None) => Ok(None),
        }
    }
}

impl ClusterClient {
    /// To the node at `HOST:PORT`.
    pub fn connect(address: &str, login: &Login) -> Result<Self> {
        let places = address
            .to_socket_addrs()
            .with_context(|| format!("{address} is no address: HOST:PORT is needed"))?;
        let mut failed = None;
        for place in places {
            match TcpStream::connect_timeout(&place, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
                    let parser = ReplyParser::new(Limits::default());
                    let stream: Box<dyn Stream> = match login.tls.over(&stream, address)? {
                        Some(session) => Box::new(session),
                        None => Box::new(stream),
                    };
                    let address = address.to_string();
                    let mut client = Self { address, stream, parser, received: Vec::new() };
                    client.log_in(login)?;
                    return Ok(client);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(error).with_context(|| format!("no node answers at {address}")),
            None => bail!("{address} has no address"),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<()> {
        match login.words()? {
            Some(words) => self.call(&words).map(drop),
            None => Ok(()),
        }
    }

    /// The reply to a request; one that is an error is an error.
    pub fn call<A: AsRef<[u8]>>(&mut self, request: &[A]) -> Result<Reply<'static>> {
        match self.exchange(request).with_context(|| format!("{} does not answer", self.address))? {
            Reply::Error(text) | Reply::BulkError(text) => {
                bail!("{}: {}", self.address, String::from_utf8_lossy(&text))
            }
            reply => Ok(reply),
        }
    }

    fn exchange<A: AsRef<[u8]>>(&mut self, request: &[A]) -> Result<Reply<'static>> {
        let mut bytes = Vec::new();
        write_request(&mut bytes, request);
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        loop {
            if let ReplyStep::Frame(frame) = self.parser.next(&self.received)? {
                let (reply, used) = (frame.decode()?.into_owned(), frame.bytes().len());
                self.received.drain(..used);
                return Ok(reply);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => bail!("the connection has ended"),
                Ok(read) => self.received.extend_from_slice(piece.get(..read).unwrap_or_default()),
                // A signal that ends the program ends the connection, too.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A reply that is a text.
    pub fn text<A: AsRef<[u8]>>(&mut self, request: &[A]) -> Result<String> {
        match self.call(request)? {
            Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            other => bail!("{} answers with {other:?}", self.address),
        }
    }

    /// What the cluster does.
    pub fn status(&mut self) -> Result<ClusterStatus> {
        Ok(self.status_with_text()?.1)
    }

    /// The same, after the text in which the node says it.
    pub fn status_with_text(&mut self) -> Result<(String, ClusterStatus)> {
        let text = self.text(&["CLUSTER", "STATUS"])?;
        let status = serde_json::from_str(&text)
            .with_context(|| format!("{} is of another version", self.address))?;
        Ok((text, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_password_is_none() {
        let login = |user: Option<&str>, password: Option<&str>| Login {
            user: user.map(Into::into),
            password: password.map(Into::into),
            ..Login::default()
        };
        for password in [None, Some("")] {
            assert_eq!(login(None, password).words().unwrap(), None);
            assert!(login(Some("a"), password).words().is_err());
        }
        assert_eq!(login(None, Some("p")).words().unwrap(), Some(vec!["AUTH", "p"]));
        assert_eq!(login(Some("a"), Some("p")).words().unwrap(), Some(vec!["AUTH", "a", "p"]));
    }
}
