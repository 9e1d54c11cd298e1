//! What the server adds to a read: the same random lookups in one store of ten times its memory,
//! first by threads of this process, then by clients over TCP. Beside them what the way over TCP
//! takes alone, by the same clients: `PING`, and `GET` of a key that is in memory; also of another
//! server of the protocol, if its address is given. Prints JSON.
//!
//! ```text
//! cargo run --release -p terrace-server --example beside_embedded -- DIR [MEMORY_MIB] [SECONDS] [ADDRESS]
//! ```

use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_keyspace::{Keyspace, Mode};
use terrace_resp::test_client::free_port;
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
    let beside: Option<SocketAddr> = arguments.next().map(|text| text.parse()).transpose()?;
    let keys = memory_mib * 10 * (1 << 20) / (VALUE_BYTES as u64 + 16);
    let time = Duration::from_secs(seconds);
    load(&config(&dir, memory_mib, 0)?, keys)?;
    let mut rows = Vec::new();
    for threads in [1, 2, 50] {
        let embedded = embedded(&config(&dir, memory_mib, 0)?, threads, keys, time)?;
        let running = Running::start(config(&dir, memory_mib, free_port())?)?;
        let address = running.addresses()[0];
        let server = over_tcp(address, Asked::Random(keys), threads, time)?;
        let in_memory = over_tcp(address, Asked::Written, threads, time)?;
        let ping = over_tcp(address, Asked::Ping, threads, time)?;
        running.end()?;
        let cost_us = |h: &Histogram<u64>| threads as f64 * seconds as f64 * 1e6 / h.len() as f64;
        let shown = |h: &Histogram<u64>| {
            serde_json::json!({
                "ops_per_s": h.len() / seconds,
                "mean_us": h.mean() / 1e3,
                "p50_us": h.value_at_quantile(0.5) as f64 / 1e3,
                "p99_us": h.value_at_quantile(0.99) as f64 / 1e3,
            })
        };
        let mut row = serde_json::json!({
            "clients": threads,
            "embedded": shown(&embedded),
            "server": shown(&server),
            "server_in_memory": shown(&in_memory),
            "server_ping": shown(&ping),
            "server_minus_embedded_us": cost_us(&server) - cost_us(&embedded),
            "server_minus_embedded_per_op_of_all_us":
                (cost_us(&server) - cost_us(&embedded)) / threads as f64,
        });
        if let Some(address) = beside {
            row["beside_in_memory"] = shown(&over_tcp(address, Asked::Written, threads, time)?);
            row["beside_ping"] = shown(&over_tcp(address, Asked::Ping, threads, time)?);
        }
        rows.push(row);
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
    let mut batch = space.command_batch(Mode::Device);
    let mut state = 1;
    for number in 0..keys {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| random(&mut state) as u8).collect();
        let name = name(number);
        batch.lock(0, std::iter::once(&name[..]))?;
        batch.put(0, &name, &value, &Default::default())?;
        batch.commit()?;
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

/// What clients ask for.
#[derive(Clone, Copy)]
enum Asked {
    /// Nothing.
    Ping,
    /// A key that each has just written.
    Written,
    /// One of this many keys that were loaded.
    Random(u64),
}

fn over_tcp(
    address: SocketAddr,
    asked: Asked,
    clients: u64,
    time: Duration,
) -> Result<Histogram<u64>, Failure> {
    together(clients, time, |client| {
        let (mut stream, mut state) = (TcpStream::connect(address)?, client + 100);
        stream.set_nodelay(true)?;
        let own = format!("own:{client}");
        if let Asked::Written = asked {
            let value = [b'v'; VALUE_BYTES];
            let mut reply = *b"+OK\r\n";
            exchange(&mut stream, &[b"SET", own.as_bytes(), &value], &mut reply)?;
        }
        let (mut pong, mut found) = (*b"+PONG\r\n", [0; VALUE_BYTES + "$400\r\n\r\n".len()]);
        Ok(Box::new(move || {
            let is_right = match asked {
                Asked::Ping => {
                    exchange(&mut stream, &[b"PING"], &mut pong)?;
                    pong == *b"+PONG\r\n"
                }
                Asked::Written => {
                    exchange(&mut stream, &[b"GET", own.as_bytes()], &mut found)?;
                    found.starts_with(b"$400\r\n")
                }
                Asked::Random(keys) => {
                    let key = name(random(&mut state) % keys);
                    exchange(&mut stream, &[b"GET", &key], &mut found)?;
                    found.starts_with(b"$400\r\n")
                }
            };
            if is_right { Ok(()) } else { Err("another reply".into()) }
        }))
    })
}

fn exchange(stream: &mut TcpStream, args: &[&[u8]], reply: &mut [u8]) -> Result<(), Failure> {
    let mut request = Vec::new();
    terrace_resp::write_request(&mut request, args);
    stream.write_all(&request)?;
    Ok(stream.read_exact(reply)?)
}
