//! Who may connect, log in and execute what. Refusals are logged.

use super::Server;
use crate::acl::{Reason, User};
use crate::descriptors;
use crate::session::Session;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Server {
    /// The error for a client that may not connect.
    pub fn refusal(&self, peer: &SocketAddr) -> Option<&'static str> {
        if self.clients.count() as u64 >= self.most_clients() {
            return Some("-ERR max number of clients reached\r\n");
        }
        self.is_protected_from(peer.ip()).then_some(
            "-DENIED Terrace is in protected mode: it asks for no password, and therefore serves \
             only clients on its own machine. To serve others, set requirepass or users in \
             terrace.toml, or protected-mode to no if the network is trusted.\r\n",
        )
    }

    /// Most clients at a time: as many as the settings say, and as the limit on open files allows.
    pub fn most_clients(&self) -> u64 {
        let wanted = u64::from(self.config.settings().maxclients);
        wanted.min(descriptors::of_clients(terrace::vfs::open_file_limit()))
    }

    /// Whether a client at this address is not served, since there is no password.
    pub fn is_protected_from(&self, peer: IpAddr) -> bool {
        self.config.settings().protected_mode
            && !peer.to_canonical().is_loopback()
            && self.acl.default_login().is_some()
    }

    /// Logs a user in.
    ///
    /// # Errors
    /// The reply.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Result<Arc<User>, String> {
        self.acl.authenticate(name, password).map_err(|refusal| refusal.reply())
    }

    /// A login by this command failed, of a client that CLIENT LIST describes so.
    pub(crate) fn log_denied_login(
        &self,
        session: &Session,
        command: &[u8],
        name: &[u8],
        client: &str,
    ) {
        self.stats.auth_failures.add(1);
        let name = String::from_utf8_lossy(name).into_owned();
        self.log_denial(session, Reason::Auth, command, &name, client);
    }

    pub(crate) fn log_denial(
        &self,
        session: &Session,
        reason: Reason,
        object: &[u8],
        user: &str,
        client: &str,
    ) {
        let most = self.config.settings().acllog_max_len;
        let is_queued = session.queued.is_some() || session.is_in_exec;
        let context = if is_queued { "multi" } else { "toplevel" };
        let now_ms = self.space.now_ms();
        self.acl.log().lock().note(now_ms, most, reason, context, object, user, client);
    }
}
