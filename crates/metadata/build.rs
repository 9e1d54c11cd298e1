//! Compiles the messages of etcd to Rust. Protox reads them, so no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
