//! The server as its service starts it, and as the image would, in the root where its package was installed, with the socket
//! that systemd would have for it.

use super::clean_root::CleanRoot;
use super::image::Image;
use crate::clients::as_root;
use crate::output::shown;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// After this time something hangs.
const HANG_GUARD: Duration = Duration::from_secs(120);

/// Ends a server that did not stop.
const TIMEOUT: [&str; 3] = ["timeout", "--signal=KILL", "300"];

/// The socket, in the root.
const SOCKET: &str = "/run/terrace-notify";

/// The value of a setting of the service's file.
fn setting<'a>(unit: &'a str, name: &str) -> Result<&'a str> {
    let mut lines = unit.lines().filter_map(|line| line.split_once('='));
    let found = lines.find_map(|(key, value)| (key == name).then_some(value));
    found.with_context(|| format!("the service has no {name}"))
}

/// The password of the container.
const PASSWORD: &str = "TERRACE_REQUIREPASS=tried";

/// Starts the server by the command of `unit`, as its user, asks it something, and stops it; then by that of `image`, as a
/// container has it, on the store that is there.
pub fn serves(clean: &CleanRoot, unit: &str, image: &Image) -> Result<()> {
    clean.make_home(setting(unit, "StateDirectoryMode")?)?;
    let port = free_port()?.to_string();
    let notified = NotifySocket::new(clean.dir())?;
    let user = format!("{}:{}", setting(unit, "User")?, setting(unit, "Group")?);
    let mut words: Vec<&str> = setting(unit, "ExecStart")?.split_whitespace().collect();
    words.extend(["--http-port", "0", "--port", port.as_str()]);
    let server = Server::start(clean, &user, &words)?;
    let asked = "PING\r\nSET field rice\r\nQUIT\r\n";
    server.answers(&notified, &port, asked, "+PONG\r\n+OK\r\n+OK\r\n")?;

    let command = image.command(&[&port, "0"])?;
    let mut words = vec![PASSWORD];
    words.extend(command.iter().map(String::as_str));
    let server = Server::start(clean, &format!("{0}:{0}", image.user), &words)?;
    let asked = "GET field\r\nAUTH tried\r\nGET field\r\nQUIT\r\n";
    let answer = "-NOAUTH Authentication required.\r\n+OK\r\n$4\r\nrice\r\n+OK\r\n";
    server.answers(&notified, &port, asked, answer)?;
    clean.expect_store()
}

/// A port that nobody listens on, below those that the system gives to connections (from 32,768 on) and above those of the
/// tests: nobody else takes it before the server does.
fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_err();
    (32_700..32_768).find(is_free).context("there is no free port")
}

/// What a service tells its state to.
struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl NotifySocket {
    /// In the root at `root`, for every user.
    fn new(root: &Path) -> Result<Self> {
        let path = root.join(SOCKET.trim_start_matches('/'));
        let (folder, name) =
            (path.parent().context("no folder")?, path.file_name().context("no name")?);
        // The path of a socket is short, unlike that of the target directory.
        let folder = File::open(folder).with_context(|| format!("open {}", folder.display()))?;
        let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        let socket = UnixDatagram::bind(&short)
            .with_context(|| format!("make the socket {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        Ok(Self { socket, path })
    }

    /// Waits for the next state, which must have the line `wanted`.
    fn expect(&self, wanted: &str, server: &mut Server) -> Result<()> {
        let (mut state, end) = ([0; 4096], Instant::now() + HANG_GUARD);
        loop {
            // Before the socket is looked at: what a server sends last is not missed.
            let ended = server.0.try_wait()?;
            match self.socket.recv(&mut state) {
                Ok(len) => {
                    let text = String::from_utf8_lossy(&state[..len]);
                    ensure!(text.lines().any(|line| line == wanted), "{text:?}, not {wanted}");
                    println!("{text}");
                    return Ok(());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("wait for the server's state"),
            }
            if let Some(status) = ended {
                bail!("the server ended with {status} before it sent {wanted}");
            }
            ensure!(Instant::now() < end, "the server did not send {wanted}");
        }
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        // A socket that stays is only in the way.
        let _ = fs::remove_file(&self.path);
    }
}

/// A process that does not outlive the test.
struct Server(Child);

impl Server {
    /// Starts it in the root; `words` are its command, before which variables may stand.
    fn start(clean: &CleanRoot, user: &str, words: &[&str]) -> Result<Self> {
        let notify = format!("NOTIFY_SOCKET={SOCKET}");
        let is_variable = |word: &&&str| word.contains('=');
        let (variables, words) = words.split_at(words.iter().take_while(is_variable).count());
        let all = [&[notify.as_str()][..], variables, &TIMEOUT[..], words].concat();
        let mut command = clean.command(Some(user), &all)?;
        command.stdin(Stdio::null());
        println!("{}", shown(&command));
        Ok(Self(command.spawn().with_context(|| format!("start {}", shown(&command)))?))
    }

    /// Waits until it is ready, asks it something, and stops it.
    fn answers(
        mut self,
        notified: &NotifySocket,
        port: &str,
        asked: &str,
        wanted: &str,
    ) -> Result<()> {
        notified.expect("READY=1", &mut self)?;
        // It is ready: the first attempt must do.
        let address = format!("127.0.0.1:{port}");
        let mut client = TcpStream::connect(address).context("connect to the server")?;
        client.set_read_timeout(Some(HANG_GUARD))?;
        client.write_all(asked.as_bytes())?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        ensure!(answer == wanted, "the server answers {answer:?}");
        self.signal("TERM")?;
        notified.expect("STOPPING=1", &mut self)?;
        let status = self.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Sends it a signal, as root: it is another user's.
    fn signal(&self, name: &str) -> Result<()> {
        let mut kill = as_root(&["kill", "-s", name, &self.0.id().to_string()])?();
        let status = kill.status().with_context(|| format!("start {}", shown(&kill)))?;
        ensure!(status.success(), "{}: {status}", shown(&kill));
        Ok(())
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + HANG_GUARD;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // A test that has failed. A server that does not stop ends by its time limit.
            let _ = self.signal("TERM");
            let _ = self.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn settings_are_found_by_their_whole_names() {
        let unit = "# User=x\n[Service]\nExecStart=/usr/bin/a b=c\nExecStartPre=no\nUser=u\n";
        assert_eq!(setting(unit, "ExecStart").unwrap(), "/usr/bin/a b=c");
        assert_eq!(setting(unit, "User").unwrap(), "u");
        assert!(setting(unit, "Group").is_err());
    }
}
