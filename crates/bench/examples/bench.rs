//! `terrace bench` without the rest of the command line: for developing this crate.

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bench: terrace_bench::BenchArgs,
}

fn main() -> anyhow::Result<()> {
    terrace_bench::run(Arguments::parse().bench)
}
