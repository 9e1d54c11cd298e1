//! Compiles the messages between nodes to Rust. Protox reads them, so no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/terrace.proto"], ["proto"])?;
    // Shared with who may have to send them again: they may be large.
    tonic_prost_build::configure().bytes(".terrace.v1.Call.requests").compile_fds(files)?;
    Ok(())
}
