//! The packages as a user gets them: made of the program that the tests have built, unpacked into an empty root,
//! and its server started by the command of its service, as systemd would do it.

use crate::clients::TOOLS_STEP;
use crate::dist::{self, SUMS, UNIT};
use crate::output::{run_shown, shown};
use crate::steps::{BUILD, Steps};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The step that makes the packages and tries them.
pub const STEP: &str = "packages";

/// After this time something hangs.
const HANG_GUARD: Duration = Duration::from_secs(120);

/// Where the service's command looks for its files.
const ABSOLUTE: [&str; 2] = ["/usr/", "/etc/"];

/// Adds the step.
pub fn add(steps: &mut Steps) {
    let target = steps.target_dir();
    let step = steps.check(STEP, move |root| {
        let dir = target.join("packages-test");
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        let out = dir.join("out");
        let names = dist::packages(root, &target.join("debug"), &out)?;
        run_shown(Command::new("sha256sum").args(["--check", SUMS]).current_dir(&out))?;
        archive(&out, &names)?;
        let installed = dir.join("root");
        debian_package(&out, &names, &installed)?;
        let command = service_command(&installed)?;
        unit(&installed, &dir)?;
        serves(&command, &dir.join("data"))
    });
    step.needs(&[BUILD, TOOLS_STEP]);
}

/// The one file that was made whose name ends so.
fn made(out: &Path, names: &[String], ending: &str) -> Result<PathBuf> {
    let mut found = names.iter().filter(|name| name.ends_with(ending));
    let name = found.next().with_context(|| format!("no {ending} among {names:?}"))?;
    ensure!(found.next().is_none(), "more than one {ending} among {names:?}");
    Ok(out.join(name))
}

/// The archive is unpacked, its program runs, and the shell takes its completions.
fn archive(out: &Path, names: &[String]) -> Result<()> {
    let archive = made(out, names, "linux.tar.gz")?;
    run_shown(Command::new("tar").arg("-xzf").arg(&archive).current_dir(out))?;
    let name = archive.file_name().context("no name")?.to_string_lossy();
    let unpacked = out.join(name.trim_end_matches(".tar.gz"));
    run_shown(Command::new(unpacked.join("bin/terrace")).arg("--version"))?;
    let complete = ". completions/bash/terrace && complete -p terrace";
    run_shown(Command::new("bash").args(["-c", complete]).current_dir(&unpacked))?;
    for page in ["terrace.1.gz", "terrace-serve.1.gz"] {
        run_shown(Command::new("gzip").arg("-t").arg(unpacked.join("man/man1").join(page)))?;
    }
    Ok(())
}

/// dpkg understands the package, and unpacks it.
fn debian_package(out: &Path, names: &[String], root: &Path) -> Result<()> {
    let package = made(out, names, ".deb")?;
    run_shown(Command::new("dpkg-deb").arg("--info").arg(&package))?;
    fs::create_dir_all(root).with_context(|| format!("create {}", root.display()))?;
    run_shown(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(root))?;
    let control = root.join("DEBIAN");
    run_shown(Command::new("dpkg-deb").arg("--control").arg(&package).arg(&control))?;
    let conffiles = fs::read_to_string(control.join("conffiles")).context("read conffiles")?;
    ensure!(!conffiles.is_empty(), "nothing is kept of the administrator's changes");
    for path in conffiles.lines() {
        ensure!(below(root, path).is_file(), "{path} is not in the package");
    }
    Ok(())
}

/// `path`, which begins with `/`, in a root of its own.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The words of the service's command, with paths of files below `root`, which exist.
fn service_command(root: &Path) -> Result<Vec<String>> {
    let unit = fs::read_to_string(root.join(UNIT)).with_context(|| format!("read {UNIT}"))?;
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let words = line.context("the service has no ExecStart")?.split_whitespace();
    let mut command = Vec::new();
    for word in words {
        let is_path = ABSOLUTE.iter().any(|folder| word.starts_with(folder));
        let word = if is_path { below(root, word) } else { PathBuf::from(word) };
        ensure!(!is_path || word.is_file(), "{} is not in the package", word.display());
        command.push(word.to_string_lossy().into_owned());
    }
    Ok(command)
}

/// systemd finds nothing to complain about in the service, once its program is where it was unpacked.
fn unit(root: &Path, dir: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(UNIT)).with_context(|| format!("read {UNIT}"))?;
    let program = root.join("usr/bin/terrace");
    let text = text.replace("/usr/bin/terrace", &program.to_string_lossy());
    let path = dir.join("terrace.service");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).arg(&path).output();
    let output = output.with_context(|| format!("start {}", shown(&verify)))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let of_ours = complaints.lines().find(|line| line.contains("terrace"));
    ensure!(of_ours.is_none(), "{}: {complaints}", shown(&verify));
    ensure!(output.status.success(), "{}: {complaints}", shown(&verify));
    Ok(())
}

/// Starts the server as a service manager does, asks it something, and stops it.
fn serves(command: &[String], data: &Path) -> Result<()> {
    let notified = NotifySocket::new()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (program, arguments) = command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).args(["--http-port", "0", "--port", &port.to_string()]);
    command.arg("--dir").arg(data);
    command.env_clear().env("NOTIFY_SOCKET", &notified.path).stdin(Stdio::null());
    println!("{}", shown(&command));
    let mut server = Server(command.spawn().with_context(|| format!("start {program}"))?);
    notified.expect("READY=1", &mut server)?;
    // It is ready: the first attempt must do.
    let mut client = TcpStream::connect(("127.0.0.1", port)).context("connect to the server")?;
    client.set_read_timeout(Some(HANG_GUARD))?;
    client.write_all(b"PING\r\nSET field rice\r\nQUIT\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    ensure!(answer == "+PONG\r\n+OK\r\n+OK\r\n", "the server answers {answer:?}");
    run_shown(Command::new("kill").args(["-s", "TERM", &server.0.id().to_string()]))?;
    notified.expect("STOPPING=1", &mut server)?;
    let status = server.wait()?;
    ensure!(status.success(), "the server ended with {status}");
    ensure!(data.is_dir(), "the server left no store in {}", data.display());
    Ok(())
}

/// What a service tells its state to.
struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl NotifySocket {
    fn new() -> Result<Self> {
        // A socket's path is short, unlike that of the target directory.
        let path = std::env::temp_dir().join(format!("xtask-notify-{}", std::process::id()));
        let _left = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)
            .with_context(|| format!("make the socket {}", path.display()))?;
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
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
