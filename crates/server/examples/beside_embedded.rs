//! What the server adds to a read: the same random lookups in one store of ten times its memory,
//! first by threads of this process, then by clients over TCP. Prints JSON.
//!
//! ```text
//! cargo run --release -p terrace-server --example beside_embedded -- DIR [MEMORY_MIB] [SECONDS]
//! ```

use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_keyspace::{Keyspace, Mode};
use terrace_server::Running;
use terrace_server::config::Config;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a value.
const VALUE_BYTES: usize = 400;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("which directory?")?;
    let memory_mib: u64 = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let keys = memory_mib * 10 * (1 << 20) / (VALUE_BYTES as u64 + 16);
    let time = Duration::from_secs(seconds);
    load(&config(&dir, memory_mib, 0)?, keys)?;
    let mut rows = Vec::new();
    for threads in [1, 2, 50] {
        let embedded = embedded(&config(&dir, memory_mib, 0)?, threads, keys, time)?;
        let server = served(&dir, memory_mib, threads, keys, time)?;
        let cost_us = |h: &Histogram<u64>| threads as f64 * seconds as f64 * 1e6 / h.len() as f64;
        let shown = |h: &Histogram<u64>| {
            serde_json::json!({
                "ops_per_s": h.len() / seconds,
                "mean_us": h.mean() / 1e3,
                "p50_us": h.value_at_quantile(0.5) as f64 / 1e3,
                "p99_us": h.value_at_quantile(0.99) as f64 / 1e3,
            })
        };
        rows.push(serde_json::json!({
            "clients": threads,
            "embedded": shown(&embedded),
            "server": shown(&server),
            "server_minus_embedded_us": cost_us(&server) - cost_us(&embedded),
            "server_minus_embedded_per_op_of_all_us":
                (cost_us(&server) - cost_us(&embedded)) / threads as f64,
        }));
    }
    let report = serde_json::json!({
        "memory_mib": memory_mib, "keys": keys, "value_bytes": VALUE_BYTES, "direct_io": "reads",
        "seconds": seconds, "rows": rows,
    });
    println!("{report:#}");
    Ok(())
}

fn config(dir: &str, memory_mib: u64, port: u16) -> Result<Config, Failure> {
    let pair = |name: &str, value: String| (name.to_string(), value);
    let flags = [
        pair("dir", Path::new(dir).join("store").to_string_lossy().into_owned()),
        pair("maxmemory", format!("{memory_mib}mb")),
        pair("direct-io", "reads".into()),
        pair("bind", "127.0.0.1".into()),
        pair("port", port.to_string()),
        pair("http-port", "0".into()),
    ];
    Ok(Config::load(None, [], flags)?)
}

fn open(config: &Config) -> Result<Arc<Keyspace>, Failure> {
    let settings = config.settings();
    Ok(Keyspace::open(&settings.dir, settings.engine_options())?)
}

fn name(number: u64) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// The next of some random numbers (Steele et al., SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn load(config: &Config, keys: u64) -> Result<(), Failure> {
    let space = open(config)?;
    let mut turn = space.turn(Mode::Device);
    let mut state = 1;
    for number in 0..keys {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| random(&mut state) as u8).collect();
        let name = name(number);
        turn.lock(0, std::iter::once(&name[..]))?;
        turn.put(0, &name, &value, &Default::default())?;
        turn.commit()?;
    }
    space.db().flush()?;
    space.db().wait_idle()?;
    Ok(space.close()?)
}

fn together(
    threads: u64,
    time: Duration,
    make: impl Fn(u64) -> Result<Box<dyn FnMut() -> Result<(), Failure> + Send>, Failure>,
) -> Result<Histogram<u64>, Failure> {
    let mut running = Vec::new();
    for thread in 0..threads {
        let mut lookup = make(thread)?;
        running.push(std::thread::spawn(move || -> Result<Histogram<u64>, Failure> {
            let mut durations = Histogram::new(3)?;
            let until = Instant::now() + time;
            while Instant::now() < until {
                let start = Instant::now();
                lookup()?;
                durations.record(start.elapsed().as_nanos() as u64)?;
            }
            Ok(durations)
        }));
    }
    let mut sum = Histogram::new(3)?;
    for thread in running {
        sum.add(&thread.join().map_err(|_| "a thread has panicked")??)?;
    }
    Ok(sum)
}

fn embedded(
    config: &Config,
    threads: u64,
    keys: u64,
    time: Duration,
) -> Result<Histogram<u64>, Failure> {
    let space = open(config)?;
    let sum = together(threads, time, |thread| {
        let (space, mut state) = (space.clone(), thread + 100);
        Ok(Box::new(move || {
            let key = [&[0][..], &name(random(&mut state) % keys)].concat();
            match space.strings().get(key)? {
                Some(value) if value.len() == VALUE_BYTES => Ok(()),
                other => Err(format!("{:?} bytes", other.map(|value| value.len())).into()),
            }
        }))
    })?;
    space.close()?;
    Ok(sum)
}

fn served(
    dir: &str,
    memory_mib: u64,
    threads: u64,
    keys: u64,
    time: Duration,
) -> Result<Histogram<u64>, Failure> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let running = Running::start(config(dir, memory_mib, port)?)?;
    let address: SocketAddr = running.addresses()[0];
    let sum = together(threads, time, |thread| {
        let (mut stream, mut state) = (TcpStream::connect(address)?, thread + 100);
        stream.set_nodelay(true)?;
        let mut reply = vec![0; VALUE_BYTES + "$400\r\n\r\n".len()];
        Ok(Box::new(move || {
            let mut request = Vec::new();
            terrace_resp::write_request(
                &mut request,
                &[b"GET", &name(random(&mut state) % keys)[..]],
            );
            stream.write_all(&request)?;
            stream.read_exact(&mut reply)?;
            match reply.starts_with(b"$400\r\n") {
                true => Ok(()),
                false => Err("another reply".into()),
            }
        }))
    })?;
    running.end()?;
    Ok(sum)
}
